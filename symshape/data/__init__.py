"""Data files that ship with the package; README.md beside this file says where each is from and
under which licence.
"""
