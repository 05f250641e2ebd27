"""The rungs of the ladder, one a file: each settles some questions and says of the others that it
does not know.

A decider takes a component and a formula and answers true, false or not known. Those that find
values (``witnesses``, ``local_search``) show what is possible; those that refute
(``linear_refutation``, ``case_split``, ``factoring``) show what is not; ``z3_solver`` is the last
resort. SymPy and Z3 are imported here, in one file each, when first needed.
"""
