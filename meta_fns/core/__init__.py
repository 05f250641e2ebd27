"""What rules are made of: specs, sizes, layouts, promotion, checks, and the registry that finds a rule by overload.

Nothing here is about one operator. Sizes are duck-typed (``int`` or symbolic), so the same rule serves numbers and
formulas; ``derived`` makes the rules of in-place, ``out=`` and copying overloads from those of their functional twins.
"""
