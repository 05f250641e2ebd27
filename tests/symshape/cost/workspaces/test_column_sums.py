"""Partial sums of columns: as many bytes as an H200's allocator was asked for, and where in a
run.
"""

from __future__ import annotations

import pytest
import torch

from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from symshape.cost.graph_requests import requests_of
from symshape.cost.workspaces.column_sums import Multiprocessors, partial_sums
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value

aten = torch.ops.aten
HOPPER = Multiprocessors(132, 2048)
SEEN = [  # on an H200, torch 2.11.0, 29 November 2026
    (16384, 2048, 138412032),
    (16384, 512, 67108864),
    (6304, 2048, 103809024),
    (6304, 512, 25952256),
]


def _value(number: int, *sizes: object, device: str = "cuda", dtype: torch.dtype) -> Value:
    strides = contiguous_strides(sizes)  # type: ignore[arg-type]
    return Value(number, TensorSpec(sizes, strides, 0, dtype, torch.device(device)), object())


def _sum(
    *sizes: object,
    dims: list[int],
    op: object = aten.sum.dim_IntList,
    dtype: torch.dtype = torch.float32,
    device: str = "cuda",
) -> tuple[Node, Value]:
    given = _value(0, *sizes, device=device, dtype=dtype)
    left = [size for place, size in enumerate(sizes) if place not in {d % len(sizes) for d in dims}]
    made = _value(1, *left, device=device, dtype=dtype)
    return Node(op, (given, dims), {}, (made,), True), given


@pytest.mark.parametrize(("rows", "columns", "size"), SEEN)
def test_the_bytes_are_those_that_were_seen(rows: int, columns: int, size: int) -> None:
    assert HOPPER.partial_sums(rows, columns, 4)[0] == size


@pytest.mark.parametrize("op", [aten.sum.dim_IntList, aten.mean.dim])
def test_leading_dimensions_are_rows_at_any_size(op: object) -> None:
    node, _ = _sum(symbol("s0"), symbol("s1"), 2048, dims=[0, -2], op=op)
    assert partial_sums(node, {"s0": 8, "s1": 2048}, HOPPER) == (138412032, 64)
    assert partial_sums(node, {"s0": 1, "s1": 16384}, HOPPER) == (138412032, 64)
    assert partial_sums(node, {"s0": 8, "s1": 4}, HOPPER) == (), "a block has few rows"
    assert partial_sums(node, {"s0": 0, "s1": 4}, HOPPER) == ()


def test_partial_sums_are_in_float32_at_least() -> None:
    for dtype, bytes_each in ((torch.bfloat16, 4), (torch.float64, 8)):
        node, _ = _sum(16384, 2048, dims=[0], dtype=dtype)
        assert partial_sums(node, {}, HOPPER)[0] == 138412032 // 4 * bytes_each


def test_a_sum_in_another_dtype_has_partial_sums_in_it() -> None:
    node, given = _sum(16384, 2048, dims=[0])
    made = _value(2, 2048, dtype=torch.float64)
    wide = Node(node.op, (given, [0]), {"dtype": torch.float64}, (made,), True)
    assert partial_sums(wide, {}, HOPPER)[0] == 2 * 138412032


def test_sizes_that_are_not_known_and_numbers_have_none() -> None:
    """A number may be summed along dimension 0, too."""
    assert partial_sums(_sum(dims=[])[0], {}, HOPPER) == ()
    number = _value(0, dtype=torch.float32)
    for dim in (0, -1):
        node = Node(aten.sum.dim_IntList, (number, [dim]), {}, (number,), True)
        assert partial_sums(node, {}, HOPPER) == ()
    node, _ = _sum(symbol("u0"), 2048, dims=[0])
    assert partial_sums(node, {"s0": 3}, HOPPER) == ()


def test_other_sums_ask_for_little() -> None:
    for node, _ in (
        _sum(16384, 2048, dims=[0], device="cpu"),
        _sum(16384, 2048, dims=[1]),
        _sum(16384, 2048, dims=[0, 1]),
        _sum(64, 16384, 32, dims=[1]),
        _sum(16384, 2048, dims=[0], dtype=torch.int64),
        _sum(16384, 2048, dims=[0], op=aten.amax.default),
    ):
        assert partial_sums(node, {}, HOPPER) == ()


def test_a_run_asks_for_them_while_the_sum_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Multiprocessors, "here", classmethod(lambda cls: HOPPER))
    node, given = _sum(symbol("s0"), 2048, dims=[0])
    graph = Graph((Input(0, "x", given),), (), (node,), node.outputs, object())  # type: ignore[arg-type]
    ((changes, gone),) = requests_of(graph, {"s0": 16384}).steps
    assert [size for _, size in changes] == [8192, 138412032, 64, 0, 0]
    assert gone == ()
    assert requests_of(graph, {"s0": 16384}).kept == (changes[0][0],)
