"""The audit of padding: which outputs of a program depend on padding, and through which op.

``domain`` defines abstract tensors: the positions at which a value may depend on padding.
``world`` answers the questions of rules, holds their assumptions, and reads a step for them.
``rules`` is the table of rules; ``pointwise``, ``mixing``, ``viewing``, ``picking``, ``layers`` and
``gradients`` hold the rules of a family of ops each.  ``interpreter`` walks a program; ``request``
reads the arguments of an audit; ``poison`` runs the function with other padding; ``report`` holds
the verdicts; ``audit`` is the entry point.
"""
