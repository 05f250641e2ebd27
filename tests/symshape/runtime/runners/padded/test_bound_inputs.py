"""Inputs that are read where they lie: which, how long, and what is right when they move."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import symshape
from symshape.runtime.runners.padded.bound_inputs import _STAYED, BoundInputs
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import poison


def _scaled(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return (x @ table).cumsum(0)


def _compiled() -> symshape.Compiled:
    return symshape.compile(_scaled, dynamic={"x": {0: "n"}}, runner="padded")


def _call(compiled: symshape.Compiled, n: int, table: torch.Tensor) -> PaddedRunner:
    x = torch.randn(n, 3)
    for entry in compiled.entries:
        for bucket in entry.runner.buckets:  # type: ignore[attr-defined]
            for buffer in bucket.buffers:
                poison(buffer, n)
    torch.testing.assert_close(compiled(x, table), _scaled(x, table), rtol=1e-5, atol=1e-5)
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner


def test_what_stays_is_not_copied() -> None:
    compiled, table = _compiled(), torch.randn(3, 5)
    for n in (5, 6, 5):
        (bucket,) = _call(compiled, n, table).buckets
        table.mul_(2)  # what lies there is what is read
    assert [buffer.shape for buffer in bucket.buffers] == [(6, 3)]
    assert bucket.captures == 1


def test_what_moves_is_copied_from_then_on() -> None:
    compiled, tables = _compiled(), [torch.randn(3, 5) for _ in range(4)]
    for table in tables:
        (bucket,) = _call(compiled, 5, table).buckets
    assert [buffer.shape for buffer in bucket.buffers] == [(6, 3), (3, 5)]
    assert bucket.captures == 2
    assert len(_call(compiled, 9, tables[0]).buckets) == 2


def test_what_stayed_for_long_is_bound_anew() -> None:
    compiled, tables = _compiled(), [torch.randn(3, 5) for _ in range(3)]
    for table in tables:
        for _ in range(_STAYED + 1):
            (bucket,) = _call(compiled, 5, table).buckets
    assert [buffer.shape for buffer in bucket.buffers] == [(6, 3)]
    assert bucket.captures == len(tables)


def test_nothing_is_kept_of_what_is_read_in_place() -> None:
    compiled, table = _compiled(), torch.randn(3, 5)
    (bucket,) = _call(compiled, 5, table).buckets
    assert not any(each is table for each in bucket._memory.arguments)


def test_a_warm_up_has_no_inputs_to_read() -> None:
    compiled = _compiled()
    _call(compiled, 5, torch.randn(3, 5))
    warmed = compiled.warm_up([{"n": 9}])
    assert "1" in str(warmed)
    runner = _call(compiled, 9, torch.randn(3, 5))
    assert [bucket.captures for bucket in runner.buckets][-1] == 1


@pytest.mark.parametrize("transposed", [False, True])
def test_only_what_lies_without_gaps_is_bound(transposed: bool) -> None:
    table = torch.randn(5, 3).t() if transposed else torch.randn(3, 5)
    program = symshape.trace(_scaled, torch.randn(4, 3), table, dynamic={"x": {0: "n"}}).program
    assert BoundInputs(program.graph).steady == (() if transposed else (1,))


def _seen(bound: BoundInputs, tensors: Sequence[torch.Tensor], times: int = 1) -> tuple[int, ...]:
    for _ in range(times):
        bound.see(tensors)
    return bound.places


def test_those_that_stay_keep_their_place() -> None:
    def three(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x @ a @ b

    a, b = torch.randn(3, 3), torch.randn(3, 3)
    program = symshape.trace(three, torch.randn(4, 3), a, b, dynamic={"x": {0: "n"}}).program
    bound, x = BoundInputs(program.graph), torch.randn(4, 3)
    assert _seen(bound, [x, a, b], 3) == (1, 2)
    assert _seen(bound, [x, a, b.clone()]) == (1,)
    assert _seen(bound, [x, a, b], _STAYED) == (1,)
    assert _seen(bound, [x, a.clone(), b]) == (1,)
    bound.let_go()
    assert _seen(bound, [x, a, b]) == ()
