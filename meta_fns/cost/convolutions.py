"""Convolutions and their backward, counted as ``torch.utils.flop_counter`` counts them (padding
included, bias not).
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, OpCall
from meta_fns.core.sizes import Shape, Size, product
from meta_fns.cost.charging import charge_all


def _places(batch: Size, places: Shape, weight: Shape) -> Size:
    """A filter of sizes ``weight`` at each of the ``places`` of each sample."""
    return product((batch, *places, *weight)) * 2


def _forward(call: OpCall) -> Size:
    """``(n, c, ...)`` and ``(o, c / groups, ...)``: the filter at each place of the output
    (transposed: the input).
    """
    x, weight, transposed = call.args[0].sizes, call.args[1].sizes, call.arg(6, False)
    places = x if transposed else call.results[0].sizes
    dims = len(weight) - 2
    batch = x[0] if len(x) == len(weight) else 1
    return _places(batch, places[len(places) - dims :], weight)


def _backward(call: OpCall) -> Size:
    """The gradient of the input is a convolution by the filter; that of the filter one by the
    gradient of the output.

    As the flop counter has it, the latter counts all pairs of channels, whatever the groups.
    """
    grad, x, weight = (call.args[position].sizes for position in range(3))
    transposed, wanted = call.arg(7, False), call.arg(10)
    found: Size = 0
    if wanted[0]:
        found = found + _places(grad[0], (x if transposed else grad)[2:], weight)
    if wanted[1]:
        moved, fixed = (grad, x) if transposed else (x, grad)
        found = found + _places(moved[1], weight[2:], (fixed[1], fixed[0], *fixed[2:]))
    return found


charge_all(CostRule("convolution", _forward), "convolution convolution_overrideable")
charge_all(
    CostRule("convolution", _backward), "convolution_backward convolution_backward_overrideable"
)
