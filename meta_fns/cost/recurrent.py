"""Recurrent layers and cells."""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all


def _layer(times: int) -> Formula:
    """One layer, one way: ``(length, batch, in)`` through ``(gates, in)`` and ``(gates, hidden)``
    at each step.
    """

    def flops(call: OpCall) -> Size:
        length, batch, _ = call.args[0].sizes
        weights = product(call.args[1].sizes) + product(call.args[2].sizes)
        return length * batch * weights * 2 * times

    return flops


def _layers(params: int) -> Formula:
    """All layers: each weight meets each step of each sequence once; the weights are argument
    ``params``.
    """

    def flops(call: OpCall) -> Size:
        weights: Size = 0
        for each in call.args[params]:
            if len(each.sizes) == 2:
                weights = weights + product(each.sizes)
        return product(call.args[0].sizes[:-1]) * weights * 2

    return flops


def _step(call: OpCall) -> Size:
    """One step of a cell."""
    return call.args[0].sizes[0] * (product(call.args[2].sizes) + product(call.args[3].sizes)) * 2


def _cell(operations: int) -> Formula:
    """The pointwise part of a cell, after its matrix products: so many operations an element of the
    hidden state.
    """

    def flops(call: OpCall) -> Size:
        return product(call.results[0].sizes) * operations

    return flops


charge_all(CostRule("contraction", _layer(1)), "mkldnn_rnn_layer")
charge_all(CostRule("contraction", _layers(1)), "_cudnn_rnn")
charge_all(CostRule("contraction", _layer(2)), "mkldnn_rnn_layer_backward")
charge_all(
    CostRule("contraction", _layers(2)), "lstm.input gru.input rnn_tanh.input rnn_relu.input"
)
charge_all(CostRule("contraction", _layers(3)), "lstm.data gru.data rnn_tanh.data rnn_relu.data")
charge_all(CostRule("contraction", _step), "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
# 3 sigmoids, 2 tanhs, 4 sums of 2, 3 products
charge_all(CostRule("pointwise", _cell(25)), "_thnn_fused_lstm_cell")
charge_all(CostRule("pointwise", _cell(20)), "_thnn_fused_gru_cell")
