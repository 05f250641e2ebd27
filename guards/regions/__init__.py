"""Conjunctions of conditions as sets of points: is there one, which is nearest, what is its shadow
on one symbol.

Here conditions are looked at together: contradictions and who is to blame, conditions that others
imply, values of one symbol, points spread over a region, pictures. Everything asks the ladder;
nothing records.
"""
