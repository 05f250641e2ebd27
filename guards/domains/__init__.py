"""Abstract domains for the values of an integer: intervals, remainders, polynomials on runs, sets.

Each domain is plain arithmetic on descriptions of sets of integers, always on the safe side: what
comes out contains every value that is possible. No domain knows which facts its operands came from.
"""
