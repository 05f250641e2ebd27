"""What a traced function returned: values, terms and constants for the graph, specs for people."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.graph.steps import Value

R = torch.randn


def test_structure_kinds_and_specs() -> None:
    traced = symshape.trace(
        lambda x: {"y": x * 2, "n": (x.size(0) + 1, x.size(0) > 2, 0.5, None)}, R(4, 3)
    )
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


def test_a_coroutine_function_is_refused_before_it_is_called(
    recwarn: pytest.WarningsRecorder,
) -> None:
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


KEYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a float": lambda x: {float(x.shape[0]): x * 2},
    "a quotient": lambda x: {x.shape[0] / 2: x * 2, "n": x.shape[0]},
    "a size": lambda x: {x.shape[0]: x * 2, (1, x.shape[0] + 1): x},
    "a condition": lambda x: {x.shape[0] > 4: x * 2},
    "in tuples": lambda x: [{(1, (x.shape[0] / 4, "a")): x * 2}],
    "in a frozen set": lambda x: {frozenset((x.shape[0] / 2, 1)): x * 2},
    "in order": lambda x: OrderedDict(
        [(x.shape[0] * 1.5, x), (0.25, {x.shape[0] / 2: x.shape[0]})]
    ),
    "with a default": lambda x: defaultdict(list, {x.shape[0] + 0.5: x * 2}),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_made_of_sizes_are_plain_numbers(name: str) -> None:
    compiled = symshape.compile(KEYS[name], fullgraph=True)
    for n in (3, 5, 7, 5, 9):
        x = torch.arange(n)
        found = compiled(x)
        assert repr(found) == repr(KEYS[name](x))
        assert "Sym" not in repr(_kinds(found))


def _kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return [(_kinds(key), _kinds(each)) for key, each in value.items()]
    return (
        [_kinds(each) for each in value]
        if isinstance(value, (list, tuple, frozenset))
        else type(value)
    )


@pytest.mark.parametrize(
    "key", [lambda n: n, lambda n: n / 2, lambda n: (1, n * 1.5), lambda n: n > 4]
)
def test_so_are_those_that_an_argument_gets(key: Callable[[Any], Any]) -> None:
    def write(x: torch.Tensor, table: dict[Any, Any]) -> Any:
        table[key(x.shape[0])] = {key(x.shape[0]): x * 2}
        return x + 1

    compiled = symshape.compile(write, fullgraph=True)
    for n in (3, 5, 7, 5, 9):
        x = torch.arange(n)
        ours: dict[Any, Any] = {"a": 1}
        theirs: dict[Any, Any] = {"a": 1}
        assert torch.equal(compiled(x, ours), write(x, theirs))
        assert repr(ours) == repr(theirs)
        assert _kinds(ours) == _kinds(theirs)
