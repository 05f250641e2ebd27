"""The parts of rules: specs, sizes, layouts, promotion, checks, and the registry of rules by
overload.

Nothing here is about one operator.  Sizes are duck-typed (``int`` or symbolic), so the same rule
serves numbers and formulas.  ``derived_rules`` makes the rules of in-place, ``out=`` and copying
overloads from those of their functional variants.
"""
