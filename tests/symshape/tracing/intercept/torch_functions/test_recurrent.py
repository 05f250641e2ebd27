"""Recurrent layers of ``torch.nn`` while they are traced: one op, right in training, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree

R = torch.randn


def ops_of(traced: Any) -> list[str]:
    return [str(node.op) for node in traced.graph.nodes]


def test_a_layer_is_one_op_with_guards_that_name_it() -> None:
    net = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True).eval()
    with torch.no_grad():
        traced = symshape.trace(net, R(3, 5, 8), dynamic=True)
    assert ops_of(traced).count("aten.lstm.input") == 1
    assert not any("mkldnn" in op for op in ops_of(traced))
    (guard,) = [guard for guard in traced.guards if guard.origin.op]
    assert (str(guard.term), guard.origin.op) == ("s1 >= 1", "aten::lstm.input")
    assert [str(size) for size in traced.output_specs[0].sizes] == ["s0", "s1", "12"]


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_the_graph_can_be_trained(make: Any) -> None:
    torch.manual_seed(0)
    net = make(8, 6, num_layers=2, dropout=0.5)
    traced = symshape.trace(net, R(5, 3, 8), dynamic=True)
    for shape in ((5, 3, 8), (2, 4, 8), (7, 1, 8)):
        x, grads = R(shape), []
        for run in (net, traced):
            net.zero_grad()
            torch.manual_seed(1)
            run(x)[0].square().sum().backward()
            grads.append([each.grad.clone() for each in net.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_a_program_that_trains_by_itself() -> None:
    net = nn.GRU(8, 6)

    def step(x: torch.Tensor) -> Any:
        loss = net(x)[0].square().mean()
        return loss.detach(), *torch.autograd.grad(loss, list(net.parameters()))

    _, seen = agree(step, (R(4, 3, 8),), (R(4, 5, 8),), (R(6, 3, 8),))
    assert seen == ["equal"] * len(seen)  # test_recurrent_gradients.py has the rest
    net.dropout, net.num_layers = 0.5, 1
    with pytest.raises(UnsupportedError, match=r"computes gradients of aten\.gru\.input"):
        symshape.trace(step, R(4, 3, 8))


def test_odd_layouts_of_input_and_states() -> None:
    net = nn.GRU(8, 6, batch_first=True)

    def run(x: torch.Tensor, state: torch.Tensor) -> Any:
        return net(x, state)

    with torch.no_grad():
        calls = [(R(5, b, 8).transpose(0, 1), R(1, 6, b).transpose(1, 2)) for b in (3, 4, 1)]
        _, seen = agree(run, *calls, dynamic=True)
    assert seen[:2] == ["equal", "equal"]
    cell = nn.GRUCell(8, 6)
    with torch.no_grad():
        agree(cell, *[(R(b, 8), R(6, b).t()) for b in (3, 4)], dynamic=True)


def test_under_autocast_it_is_one_op_unless_weights_are_computed() -> None:
    """Autocast keeps casts of weights, not of what is computed from them."""
    net = nn.GRU(8, 6).eval()

    def run(x: torch.Tensor, factor: torch.Tensor | None = None) -> Any:
        weights = (
            net._flat_weights if factor is None else [each * factor for each in net._flat_weights]
        )
        with torch.autocast("cpu", torch.bfloat16):
            return torch.gru(
                x, x.new_zeros(1, x.size(1), 6), weights, True, 1, 0.0, False, False, False
            )

    traced, seen = agree(run, (R(2, 3, 8),), (R(5, 4, 8),))
    assert ops_of(traced).count("symshape.rnn_under_autocast.default") == 1
    assert seen == ["equal", "equal"]
    traced, _ = agree(run, (R(2, 3, 8), torch.ones(())))
    assert "symshape.rnn_under_autocast.default" not in ops_of(traced)
