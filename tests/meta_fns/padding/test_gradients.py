"""Padding rules of gradients made wrong on purpose: the poison harness has to catch each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from meta_fns.padding import attention, axes, gradients
from meta_fns.padding.padded import Padded
from tests.meta_fns.padding.cases_gradients import GRADIENTS
from tests.meta_fns.padding.poison import floats, poisoned

Patch = Callable[[pytest.MonkeyPatch], None]


def _unmasked(patch: pytest.MonkeyPatch) -> None:
    masked = gradients.masked

    def integers(emit: Any, x: Padded, value: Any, dims: Any = None) -> Padded:
        # kernels do not look at all of them
        return x if x.dtype.is_floating_point else masked(emit, x, value, dims)

    patch.setattr(gradients, "masked", integers)


def _mean_over_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def count(emit: Any, reduced: Any) -> Any:
        total = 1
        for axis in reduced:
            total *= axes.capacity_of(axis)
        return emit.size(total)

    patch.setattr(gradients, "count", count)


def _queries_of_garbage(patch: pytest.MonkeyPatch) -> None:
    masked = attention.masked

    def some(emit: Any, x: Padded, value: Any, dims: Any = None) -> Padded:
        # the sums of queries keep their padding
        return x if x.ndim == 3 else masked(emit, x, value, dims)

    patch.setattr(attention, "masked", some)


WRONG: dict[str, Patch] = {
    "embedding_dense_backward": _unmasked,
    "native_layer_norm_backward": _unmasked,
    "native_batch_norm_backward": _unmasked,
    "_softmax_backward_data": _unmasked,
    "convolution_backward": _unmasked,
    "max_pool2d_with_indices_backward, windows that overlap": _unmasked,
    "losses, backward": _mean_over_the_capacity,
    "attention, backward": _queries_of_garbage,
}
"""By case: what is left out."""


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_made_wrong_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (each for each in GRADIENTS if each.name == name)
    WRONG[name](monkeypatch)
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        poisoned(case.fn, *case.arguments, tolerance=case.tolerance)


def test_windows_of_a_gradient_that_is_padded_are_refused() -> None:
    outcome = poisoned(
        lambda grad, x: torch.ops.aten._adaptive_avg_pool2d_backward(grad, x),
        floats(2, 3, 4, 5, static=(0, 1)),
        floats(2, 3, 8, 10, static=(0, 1, 2, 3)),
    )
    assert outcome.plan.padded is None
    assert "pooled positions" in outcome.plan.refusals["s0"].reason
