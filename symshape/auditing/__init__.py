"""Audit of padding: which outputs of a program depend on padding, and through which op.

``domain`` has the abstract tensors: at which positions a value may depend on padding.  ``world`` has what the rules ask
and assume.  ``broadcasting``, ``pointwise``, ``mixing``, ``viewing``, ``picking``, ``layers`` and ``losses`` are the
rules, one family each; ``rules`` is their table.  ``interpreter`` walks a program; ``request`` reads the arguments of
an audit; ``poison`` runs the function with other padding; ``report`` holds the verdicts; ``audit`` is the way in.
"""
