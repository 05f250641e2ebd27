"""Recurrent layers and cells."""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all


def _layer(times: int) -> Formula:
    """One layer, one way: ``(length, batch, in)`` through ``(gates, in)`` and ``(gates, hidden)`` at each step."""

    def flops(call: OpCall) -> Size:
        length, batch, _ = call.args[0].sizes
        weights = product(call.args[1].sizes) + product(call.args[2].sizes)
        return length * batch * weights * 2 * times

    return flops


def _layers(call: OpCall) -> Size:
    """All layers: every matrix once for each step of each sequence."""
    wide = call.args[0].sizes[:-1]
    weights: Size = 0
    for each in call.args[1]:
        weights = weights + (product(each.sizes) if len(each.sizes) == 2 else 0)
    return product(wide) * weights * 2


def _cell(operations: int) -> Formula:
    """The pointwise part of a cell, after its matrix products: so many operations an element of the hidden state."""

    def flops(call: OpCall) -> Size:
        return product(call.results[0].sizes) * operations

    return flops


charge_all(CostRule("contraction", _layer(1)), "mkldnn_rnn_layer")
charge_all(CostRule("contraction", _layers), "_cudnn_rnn")
charge_all(CostRule("contraction", _layer(2)), "mkldnn_rnn_layer_backward")
charge_all(CostRule("pointwise", _cell(25)), "_thnn_fused_lstm_cell")  # 3 sigmoids, 2 tanhs, 4 sums of 2, 3 products
charge_all(CostRule("pointwise", _cell(20)), "_thnn_fused_gru_cell")
