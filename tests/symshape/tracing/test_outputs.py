"""What a traced function returned: values, terms and constants for the graph, specs for people."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.graph.steps import Value

R = torch.randn


def test_structure_kinds_and_specs() -> None:
    traced = symshape.trace(lambda x: {"y": x * 2, "n": (x.size(0) + 1, x.size(0) > 2, 0.5, None)}, R(4, 3))
    value, total, more, half, none = traced.graph.outputs
    assert isinstance(value, Value)
    assert (str(total), half, none) == ("s0 + 1", 0.5, None)
    assert more.is_bool
    assert str(traced.output_specs["y"].sizes[0]) == "s0"
    assert str(traced.output_specs["n"][0]) == "s0 + 1"
    assert traced(R(7, 3))["n"] == (8, True, 0.5, None)


def test_sizes_are_shown_in_the_names_that_the_facts_leave() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.size(0) == y.size(0) and x.size(0) >= 2:
            return x.new_zeros(torch.sym_max(y.size(0), 1))
        return x

    traced = symshape.trace(fn, R(3), R(3))
    assert [str(size) for size in traced.output_specs.sizes] == ["s0"]


def test_a_real_tensor_is_returned_as_it_is() -> None:
    kept = R(3)
    traced = symshape.trace(lambda x: (x + 1, kept), R(2))
    assert traced(R(5))[1] is kept
    assert [each.tensor for each in traced.graph.lifted] == [kept]


@pytest.mark.parametrize("result", [object(), {1, 2}, range(3)])
def test_what_is_neither_a_tensor_nor_a_constant_is_refused(result: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"result\[1\] is a builtins\."):
        symshape.trace(lambda x: (x, result), R(2))


def test_a_coroutine_function_is_refused_before_it_is_called(recwarn: pytest.WarningsRecorder) -> None:
    async def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Later(torch.nn.Module):
        async def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    for each in (fn, Later()):
        with pytest.raises(UnsupportedError, match="is a coroutine function"):
            symshape.trace(each, R(3))
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]
