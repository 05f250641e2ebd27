"""What is put behind a padded cache, in one pass: the values that the single ops make, or nothing
is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.graph.codegen import compile_graph
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.padding.results import amount
from symshape.runtime.runners.padded.cache_append import APPENDED, append

Fn = Callable[..., Any]


def padded(fn: Fn, *call: torch.Tensor) -> PaddedGraph:
    f = symshape.compile(fn, dynamic=True, runner="padded")
    with torch.no_grad():
        f(*call)
    (entry,) = f.entries
    made: PaddedGraph = entry.runner.buckets[0].made.padded
    return made


def fused_ops(fn: Fn, *call: torch.Tensor) -> list[Any]:
    """The ops after fusing, which make what they made before, whatever the padding holds."""
    made = padded(fn, *call)
    before, after = made.graph, append(made)
    caps = made.region.caps
    for size in (1, 2, 3, *range(4, max(caps.values()) + 1, 3)):
        read = {symbol.name for term in made.sizes for symbol in term.symbols}
        values = {name: min(size, cap) if name in read else cap for name, cap in caps.items()}
        leaves: list[Any] = []
        for each in before.inputs[: len(made.axes)]:
            spec = each.value.spec
            leaves.append(torch.randn(spec.sizes).to(spec.dtype))
        leaves += [torch.tensor(amount(term, values)) for term in made.sizes]
        for poison in (None, torch.nan, torch.inf):
            if poison is not None:
                _poison(leaves, made, values, poison)
            expected, found = (
                compile_graph(each, {})(list(leaves), ()) for each in (before, after)
            )
            for place, result in made.outputs.values():
                ours, single = (
                    _valid(each[place], result.axes, values) for each in (found, expected)
                )
                torch.testing.assert_close(ours, single, rtol=0, atol=0, equal_nan=True)
    return [node.op for node in after.nodes]


def _valid(tensor: torch.Tensor, axes: Any, values: dict[str, int]) -> torch.Tensor:
    for dim, axis in enumerate(axes):
        for size in axis:
            tensor = tensor.narrow(dim, 0, amount(size, values))
    return tensor


def _poison(leaves: list[Any], made: PaddedGraph, values: dict[str, int], poison: float) -> None:
    for leaf, axes in zip(leaves, made.axes, strict=False):
        if not leaf.is_floating_point():
            continue
        for dim, axis in enumerate(axes):
            for size in axis:
                if hasattr(size, "term"):
                    leaf.narrow(dim, (n := amount(size, values)), leaf.size(dim) - n).fill_(poison)


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor | None = None
) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, keys, keys * 2 if values is None else values)


def tensors(length: int = 9, new: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, length, 4), torch.randn(2, 3, new, 4), torch.randn(2, 3, 1, 4)


@pytest.mark.parametrize("new", [1, 3])
def test_tokens_behind_a_cache(new: int) -> None:
    def fixed(past: torch.Tensor, new: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        torch._check(new.shape[2] == number)
        keys, values = torch.cat((past, new), 2), torch.cat((past, new + 1), -2)
        return attend(query, keys, values)

    number = new
    ops = fused_ops(fixed, *tensors(new=new))
    assert ops.count(APPENDED) == 2
    assert torch.ops.aten.index_select.default not in ops
    assert torch.ops.aten.clamp.default not in ops, "positions that nobody reads are numbered"


def test_a_cache_that_is_returned_too() -> None:
    def step(
        past: torch.Tensor, new: torch.Tensor, query: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        torch._check(new.shape[2] == 1)
        keys, values = torch.cat((past, new), 2), torch.cat((past, new + 1), 2)
        return attend(query, keys, values), keys, values

    assert fused_ops(step, *tensors()).count(APPENDED) == 2


def test_what_others_read_stays() -> None:
    def step(
        past: torch.Tensor, new: torch.Tensor, query: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        torch._check(new.shape[2] == 1)
        keys = torch.cat((past, new), 2)
        return attend(query, keys, torch.cat((past, new + 1), 2)), keys * 3

    assert fused_ops(step, *tensors()).count(APPENDED) == 1


def test_two_padded_parts_stay() -> None:
    def step(past: torch.Tensor, new: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        keys, values = torch.cat((past, new), 2), torch.cat((past, new + 1), 2)
        return attend(query, keys, values)

    assert APPENDED not in fused_ops(step, *tensors(new=5))
