"""The pages for users: README.md and docs/.  Their code is run, their links checked, and what can
be is generated.
"""
