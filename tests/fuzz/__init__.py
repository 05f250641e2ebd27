"""Fuzzers: random cases against an oracle. `python -m tests.fuzz --help`; the convention is in
CONTRIBUTING.md.
"""
