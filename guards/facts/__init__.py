"""Facts about symbols, frozen: they are the cache key of every decision.

``Facts`` are made of one ``Component`` for each set of symbols that conditions connect. Learning a
condition (``propagate``, with ``ranges`` and ``equations``) turns it into a range, a
bound of a linear form or a rewrite, and gives a new component; ``rewrite_rules`` is the table of
laws by which ``rewriting`` makes terms shorter, each of them proven in the tests.
"""
