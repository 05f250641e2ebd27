"""Dispatch to the guard set that holds: a tree of tests instead of a scan, and the reasons when
none holds.

A look-up returns what a scan in order of insertion would return, in time that hardly grows with the
number of sets. A ``Miss`` names what failed in the nearest entries, in the user's own names and
lines.
"""
