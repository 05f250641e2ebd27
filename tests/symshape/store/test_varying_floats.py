"""Floats that vary are kept: another process knows that they do, and traces no value of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from symshape import events
from tests.symshape.store.storing import compiled, counts, told


def scaled(x: torch.Tensor, rate: float) -> torch.Tensor:
    return x * rate + 1


def nested(x: torch.Tensor, rates: dict[str, Any], *, clip: float = 1.0) -> torch.Tensor:
    return (x * rates["first"][0] - rates["second"]).clamp(max=clip)


def branching(x: torch.Tensor, rate: float) -> torch.Tensor:
    return x * rate if rate > 0.5 else x - rate


CASES: list[
    tuple[Callable[..., Any], Callable[[float], tuple[tuple[Any, ...], dict[str, Any]]]]
] = [
    (scaled, lambda rate: ((rate,), {})),
    (nested, lambda rate: (({"first": [rate], "second": rate / 3},), {"clip": rate * 2})),
    (branching, lambda rate: ((rate,), {})),
]


def _run(
    made: Any, fn: Callable[..., Any], given: Callable[[float], Any], rates: tuple[float, ...]
) -> None:
    for i, rate in enumerate(rates):
        args, kwargs = given(rate)
        x = torch.arange(3.0 + i)
        torch.testing.assert_close(made(x, *args, **kwargs), fn(x, *args, **kwargs), equal_nan=True)


@pytest.mark.parametrize(("fn", "given"), CASES, ids=lambda each: each.__name__)
def test_another_process_traces_no_value(fn: Any, given: Any, tmp_path: Path) -> None:
    first = compiled(fn, tmp_path)
    _run(first, fn, given, (0.1, 0.2, 0.3, 0.9, 0.7))
    assert counts(first)[0] == 2 + (fn is branching)
    with told() as seen:
        second = compiled(fn, tmp_path)
        _run(second, fn, given, (0.4, 0.8, 0.25, float("inf"), 0.1, -0.0))
    assert counts(second) == (0, 1 + (fn is branching))
    assert {type(each) for each in seen} == {events.Loaded}


def test_a_float_that_did_not_vary_stays_a_constant(tmp_path: Path) -> None:
    _run(compiled(scaled, tmp_path), scaled, lambda rate: ((rate,), {}), (0.5, 0.5))
    again = compiled(scaled, tmp_path)
    _run(again, scaled, lambda rate: ((rate,), {}), (0.5,))
    assert counts(again) == (0, 1)
    _run(again, scaled, lambda rate: ((rate,), {}), (0.75,))
    assert counts(again) == (1, 1)


class Annealed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.rate


def test_a_float_of_the_state_that_varies_is_told_of(tmp_path: Path) -> None:
    module = Annealed()
    fn = compiled(module, tmp_path)
    with told() as seen:
        for i in range(3):
            module.rate = 1.0 + i
            torch.testing.assert_close(fn(torch.ones(3 + i)), module(torch.ones(3 + i)))
            fn(torch.ones(3 + i, 2))
    reasons = [each.reason for each in seen if isinstance(each, events.NotStored)]
    assert reasons
    for each in reasons:
        assert re.search(r"what changes from call to call \(.*\brate\)", each), each
