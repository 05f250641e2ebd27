"""What a program asks of single outputs of recurrent layers: their hooks, and gradients that they
do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import symshape


def _same(mine: Callable[..., Any], fn: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        x = torch.randn(*shape, dtype=torch.double)
        torch.testing.assert_close(mine(x), fn(x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("end", [lambda g: g * 3, lambda g: torch.ones_like(g)])
def test_a_hook_is_not_called_for_another_outputs_gradient(
    kind: str, end: Callable[..., Any]
) -> None:
    """An output has a node of its own: what backward does not reach calls no hooks."""
    torch.manual_seed(0)
    net = getattr(nn, kind)(4, 6).double()

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out, state = net(x)
        last = state[0] if kind == "LSTM" else state
        last.register_hook(end)
        return list(torch.autograd.grad(out.sin().sum(), list(net.parameters())))

    _same(symshape.compile(fn, dynamic=True, fullgraph=True), fn, (5, 3, 4), (2, 4, 4), (7, 2, 4))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_hooks_are_called_as_often_as_in_eager(kind: str) -> None:
    torch.manual_seed(0)
    net = getattr(nn, kind)(4, 6).double()

    def step(x: torch.Tensor, calls: dict[str, int]) -> torch.Tensor:
        def count(_: Any) -> None:
            calls["count"] += 1

        out, state = net(x)
        for each in (out, *(state if kind == "LSTM" else (state,))):
            each.register_hook(count)
        return torch.autograd.grad(out.sin().sum(), [net.weight_hh_l0])[0]

    ours, theirs = {"count": 0}, {"count": 0}
    mine = symshape.compile(lambda x: step(x, ours))
    for length in (5, 3, 7, 3):
        x = torch.randn(length, 2, 4, dtype=torch.double)
        torch.testing.assert_close(mine(x), step(x, theirs), atol=1e-9, rtol=1e-9)
        assert ours == theirs


@pytest.mark.parametrize(
    "how", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}]
)
@pytest.mark.parametrize("used", ["cells", "output"])
def test_projections_after_one_step(how: dict[str, Any], used: str) -> None:
    """The last layer's project what no cell has seen: no gradient, not zeros."""
    torch.manual_seed(0)
    net = nn.LSTM(4, 5, proj_size=3, **how).double()

    def fn(x: torch.Tensor) -> list[torch.Tensor | None]:
        out, (_, cells) = net(x)
        loss = (cells if used == "cells" else out).sin().sum()
        return list(torch.autograd.grad(loss, list(net.parameters()), allow_unused=True))

    mine: Any = symshape.compile(fn, dynamic=True, fullgraph=True)
    _same(mine, fn, (5, 3, 4), (1, 3, 4), (4, 2, 4), (2, 1, 4), (1, 1, 4), (3, 6, 4))
    assert mine.stats().traces <= 5


@pytest.mark.skipif(not torch._C._has_mkldnn, reason="eager keeps other tensors")
def test_what_was_written_to_is_missed_without_a_history_too() -> None:
    """Where the graph has none, as the program has none that lasts, the layers that it computes
    again raise for it.
    """
    torch.manual_seed(0)
    net: Any = nn.LSTM(4, 4)  # of single precision: oneDNN keeps its output for backward

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        given = x * 1
        out, (last, _) = net(given.requires_grad_(), (given[:1].detach(), given[:1].detach()))
        out.transpose(0, 1)[:1].zero_()
        return list(torch.autograd.grad(last.cos().sum(), [given, net.weight_ih_l0]))

    mine = symshape.compile(fn, fullgraph=True)
    for length in (3, 5, 1):
        x = torch.randn(length, 2, 4)
        for run in (fn, mine):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                run(x)


def _writes_to_the_copy(out: torch.Tensor) -> torch.Tensor:
    out.flatten()[:3].add_(1)
    return out.cos()


def _writes_to_the_source(out: torch.Tensor) -> torch.Tensor:
    flat = out.flatten()
    out.mul_(2)
    return flat.cos()


def _writes_to_the_copy_alone(out: torch.Tensor) -> torch.Tensor:
    flat = out.flatten()
    return flat.mul_(2).cos()


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize(
    "write", [_writes_to_the_copy, _writes_to_the_source, _writes_to_the_copy_alone]
)
def test_what_may_be_a_view_is_not_written_to_unknowingly(write: Callable[..., Any]) -> None:
    """Whether ``flatten`` copies hangs on lengths, which are data; a write is seen in the other
    one, or is not.
    """
    net = nn.RNN(4, 4, batch_first=True)

    @torch.no_grad()
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return write(net(pad_packed_sequence(packed, batch_first=True)[0])[0])

    compiled: Any = symshape.compile(fn, dynamic=True)
    for batch, length in ((2, 2), (1, 8), (3, 1), (2, 2), (1, 3)):
        x, lengths = torch.randn(batch, length, 4), torch.full((batch,), length)
        torch.testing.assert_close(compiled(x, lengths), fn(x, lengths))
    assert write is not _writes_to_the_copy_alone or compiled.stats().fallbacks == 0
