"""What the program sees instead of numbers and tensors, and the environment that answers its questions.

A question about a size goes from ``torch.SymInt`` to one of the ``nodes``, and from there to ``ShapeEnv``, which
decides it by what is known, or by the hint, leaving a guard.  What has no hint is ``undecided``: an error that says
what would settle it.  ``promises`` looks back when the trace is over.
"""
