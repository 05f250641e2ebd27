"""Matrix products, as ``torch.utils.flop_counter`` counts them: two operations a multiply-add,
biases left out.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all


def _product_of(first: int) -> Formula:
    """``(..., n, k) @ (..., k, m)``, the operands at arguments ``first`` and ``first + 1``."""

    def flops(call: OpCall) -> Size:
        return product(call.args[first].sizes) * call.args[first + 1].sizes[-1] * 2

    return flops


def _with_vector(first: int) -> Formula:
    """``(..., k) @ (k,)``: each element of the operand at ``first`` is used once."""

    def flops(call: OpCall) -> Size:
        return product(call.args[first].sizes) * 2

    return flops


def _outer(call: OpCall) -> Size:
    """``(n,)`` and ``(m,)`` to ``(n, m)``: a product and a sum an element."""
    return product(call.results[0].sizes) * 2


def _trilinear(call: OpCall) -> Size:
    """Three factors over all dimensions that any of them has, after the expansions that the call
    names.
    """
    sizes: dict[int, Size] = {}
    for spec, expanded in zip(call.args[:3], call.args[3:6], strict=True):
        missing = list(expanded)
        whole = [d for d in range(len(spec.sizes) + len(missing)) if d not in missing]
        sizes.update(zip(whole, spec.sizes, strict=True))
    return product(sizes.values()) * 3


def _grouped(call: OpCall) -> Size:
    """Matrices in a batch (3-d), or one after the other along the dimension that ``offs`` divides
    (2-d).
    """
    left, right = call.args[0].sizes, call.args[1].sizes
    rows = product(left) if len(right) == 3 else left[-2] * left[-1]
    return rows * right[-1] * 2


charge_all(CostRule("contraction", _product_of(0)), "mm bmm _scaled_mm _int_mm")
charge_all(
    CostRule("contraction", _product_of(1)), "addmm baddbmm addbmm addbmm_ _addmm_activation"
)
charge_all(CostRule("contraction", _with_vector(0)), "mv dot vdot")
charge_all(CostRule("contraction", _with_vector(1)), "addmv")
charge_all(CostRule("contraction", _outer), "addr")
charge_all(CostRule("contraction", _trilinear), "_trilinear")
charge_all(CostRule("contraction", _grouped), "_grouped_mm")
