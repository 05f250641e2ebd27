"""Audit of padding: which outputs of a program depend on padding, and through which op.

``domain`` has the abstract tensors: at which positions a value may depend on padding.  ``world`` has what the rules ask
and assume; ``op_calls`` what they read of a step.  ``rules`` is the table of rules.  ``pointwise`` (with ``bounds`` and
``broadcasting``), ``mixing``, ``viewing`` and ``picking`` say what families of ops do to abstract tensors; ``moving``,
``selecting``, ``matrices``, ``layers`` and ``gradients`` read the arguments of ops for them.  ``interpreter`` walks a
program; ``request`` reads the arguments of an audit; ``poison`` runs the function with other padding; ``report`` holds
the verdicts; ``audit`` is the way in.
"""
