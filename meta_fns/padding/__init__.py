"""Padding rules: how an op runs on tensors whose capacity exceeds their true size, and the repairs
that it needs.

``axes`` describes which positions of a dimension are valid, and ``fills`` what the other positions
hold. ``padded`` has the padded tensor and the interface of a rule. ``repairs`` has the ops that
rules insert, and ``refusals`` the reasons why an op cannot be padded. The other modules are rules,
one a family, each the ``padding`` of rows in ``meta_fns.ops``.
"""
