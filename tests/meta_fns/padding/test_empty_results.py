"""Indices that eager does not look at, because no element comes of them: padded programs must not
either.

On CUDA an index out of range ends the process, so that looking at one too many is worse there than
an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

import symshape
from meta_fns.padding import repairs
from symshape.runtime.padding.planning import plan
from symshape.runtime.runners.padded.bucket import Bucket
from tests.meta_fns.padding.poison import assert_same, poison

aten = torch.ops.aten
WRONG = torch.tensor([7_000, -9_000, 3])
"""Out of range for every dimension here but the last one."""

CASES: Mapping[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index": lambda x, i: x[i],
    "index of the second dimension": lambda x, i: x.transpose(0, 1)[:, i],
    "two indices": lambda x, i: x[i, i],
    "two indices that broadcast": lambda x, i: x.sum(1)[
        i[:, None] + x.new_zeros((3, x.shape[1])).long()
    ],
    "index_put": lambda x, i: aten.index_put(x, [i], x.new_ones(()) + x[:1]),
    "index_put, accumulated": lambda x, i: aten.index_put(x, [i], x.new_ones(()) + x[:1], True),
    "index_add": lambda x, i: x.index_add(0, i, x.new_ones((3, x.shape[1], x.shape[2]))),
    "index_copy": lambda x, i: x.index_copy(0, i, x.new_ones((3, x.shape[1], x.shape[2]))),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "gather": lambda x, i: x.gather(
        0, (i[:, None, None] + x[:1].long() * 0).expand(3, x.shape[1], x.shape[2])
    ),
    "scatter": lambda x, i: x.scatter(
        0, (i[:, None, None] + x[:1].long() * 0).expand(3, x.shape[1], x.shape[2]), 1.0
    ),
}


def _bucket(fn: Callable[..., Any]) -> tuple[Any, Bucket]:
    x = torch.randn(5, 6, 4)
    with torch.no_grad():
        program = symshape.trace(fn, x, torch.tensor([1, 0, 3]), dynamic={"x": {1: "m"}}).program
    made = plan(program, {"m": 6})
    assert made.padded is not None, made.refusals
    return program, Bucket(program, made, torch.device("cpu"), None)


def _call(
    fn: Callable[..., Any], bucket: Bucket, x: torch.Tensor, index: torch.Tensor, number: int
) -> None:
    expected = fn(x, index)
    for buffer in bucket.buffers:
        poison(buffer, number)
    with torch.no_grad():
        (got,) = bucket.call([x, index], [x, index], bucket.place({"m": x.shape[1]}))
    assert_same(got, expected, f"{x.shape}")


@pytest.mark.parametrize("name", [name for name in CASES if name != "two indices"])
def test_what_eager_does_not_look_at(name: str) -> None:
    fn = CASES[name]
    _, bucket = _bucket(fn)
    for number in range(4):
        _call(fn, bucket, torch.randn(5, 0, 4), WRONG, number)
        _call(fn, bucket, torch.randn(5, 5, 4), torch.tensor([1, 4, 3]), number)


@pytest.mark.parametrize("name", ["index", "index_put", "index_add", "index_copy", "index_fill"])
def test_what_eager_refuses_is_refused(name: str) -> None:
    fn = CASES[name]
    _, bucket = _bucket(fn)
    for refused in (fn, lambda x, i: _call(fn, bucket, x, i, 0)):
        with pytest.raises((IndexError, RuntimeError)):
            refused(torch.randn(5, 2, 4), WRONG)


def test_without_the_repair_it_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import indexing

    monkeypatch.setattr(indexing, "looked_at", lambda emit, index, axes: index)
    assert repairs.looked_at is not indexing.looked_at
    _, bucket = _bucket(CASES["index"])
    with pytest.raises((IndexError, RuntimeError)):
        _call(CASES["index"], bucket, torch.randn(5, 0, 4), WRONG, 0)


def test_calls_of_an_empty_size_run_op_by_op() -> None:
    compiled = symshape.compile(
        lambda x: x.cumsum(0) * 2, dynamic={"x": {0: "n"}}, runner="padded", fullgraph=True
    )
    for n in (5, 0, 6):
        x = torch.randn(n, 3)
        assert_same(compiled(x), x.cumsum(0) * 2, f"{n} rows")
    (entry,) = compiled.entries
    assert {values[0] for values in entry.runner.served()} == {5, 6}  # type: ignore[attr-defined]
