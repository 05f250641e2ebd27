"""Symbolic numbers and tensors that the traced program computes with, and the environment that
decides about them.

A question about a size goes from ``torch.SymInt`` to one of the ``nodes``, and from there to
``ShapeEnv``.  The environment decides the question by the known facts, or by the hint, which leaves
a guard.  A question without a hint is ``undecided``: an error that says what would settle it.
"""
