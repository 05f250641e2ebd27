"""Padding rules: what an op makes of tensors that are larger in memory than they are, and what has to be repaired.

``axes`` say which positions of a dimension are valid, ``fills`` what the others hold; ``padded`` has the tensor of
both, and what a rule is; ``repairs`` are what rules insert; ``refusals`` why they will not.  The other modules are
rules, one a family, each the ``padding`` of rows in ``meta_fns.ops``.
"""
