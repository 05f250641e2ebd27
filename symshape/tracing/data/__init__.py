"""Numbers that depend on tensors' data: unbacked integers, bounds, constant folding and
data assumptions.
"""
