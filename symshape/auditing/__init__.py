"""The audit of padding: which outputs of a program depend on padding, and through which op.

``domain`` defines abstract tensors: the positions at which a value may depend on padding.
``world`` answers the questions of rules and holds their assumptions; ``op_calls`` reads the op and
the result of a step.  ``rules`` is the table of rules.  ``pointwise`` (with ``bounds`` and
``broadcasting``), ``mixing``, ``viewing`` and ``picking`` compute the results of families of ops on
abstract tensors; ``moving``, ``selecting``, ``matrices``, ``layers`` and ``gradients`` read the
arguments of ops for them.  ``interpreter`` walks a program; ``request`` reads the arguments of an
audit; ``poison`` runs the function with other padding; ``report`` holds the verdicts; ``audit`` is
the entry point.
"""
