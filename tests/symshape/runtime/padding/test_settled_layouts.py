"""Results whose layout no size changes cost nothing to check at a batch of 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.padding.true_layouts import TrueLayouts

ROWS = {"x": {0: symshape.Dim("n")}}
W = torch.randn(4, 4)


def gradients(x: torch.Tensor) -> Any:
    """What a training step returns: sizes of parameters only."""
    w, b = W.clone().requires_grad_(), torch.zeros(4, requires_grad=True)
    loss = torch.nn.functional.layer_norm(x @ w.t() + b, (4,)).tanh().sum()
    return (loss.detach(), *torch.autograd.grad(loss, (w, b)))


def turned(x: torch.Tensor) -> Any:
    """Of fixed size, with the strides of what was cut from it."""
    return (x.t() @ x).t()[:2], x.sum(0, keepdim=True)


def as_long_as_the_batch(x: torch.Tensor) -> Any:
    return x.t() + 1


def cut_from_the_batch(x: torch.Tensor) -> Any:
    """One row of a layout that depends on the batch."""
    return x.t()[:, :1] * 2


@pytest.mark.parametrize("fn", [gradients, turned])
def test_nothing_is_left_to_check(fn: Any) -> None:
    program = symshape.trace(fn, torch.randn(5, 4), dynamic=ROWS).program
    layouts = TrueLayouts(program.graph)
    assert not layouts._nodes
    for batch in (1, 2, 7):
        assert not layouts.differ({"n": batch})


@pytest.mark.parametrize("fn", [gradients, turned, as_long_as_the_batch, cut_from_the_batch])
def test_results_have_eagers_strides(fn: Any) -> None:
    compiled = symshape.compile(fn, dynamic=ROWS, runner="padded")
    for batch in (5, 3, 1, 2, 1):
        x = torch.randn(batch, 4)
        for ours, theirs in zip(_flat(compiled(x)), _flat(fn(x)), strict=True):
            assert ours.stride() == theirs.stride(), batch
            torch.testing.assert_close(ours, theirs)


TURNED = torch.randn(4, 1).t()
ONE = torch.empty_strided((1,), (7,)).fill_(2.0)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + TURNED,
        lambda x: (x.t() + 1)[:1, 0] * ONE,
        lambda x: x.t()[:1, 0] * 2,
        lambda x: (x * 2)[:, :1].t()[:, 0] + ONE,
    ],
)
def test_strides_of_single_elements_stay_in_doubt(fn: Any) -> None:
    """They mean nothing, and eager may hand them on: the rules are asked for a call's sizes."""
    program = symshape.trace(fn, torch.randn(5, 4), dynamic=ROWS).program
    assert not TrueLayouts(program.graph)._sure
    compiled = symshape.compile(fn, dynamic=ROWS, runner="padded")
    for batch in (5, 3, 1, 2, 1):
        x = torch.randn(batch, 4)
        assert compiled(x).stride() == fn(x).stride(), batch


def _flat(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, tuple) else [results]
