"""Traced code that asks for the type of a size takes the branch that it takes in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.tracing.intercept.python_numbers.builtins import PlainType, plain_isinstance
from tests.symshape.tracing.looked_at import Found, found_by


def _argument(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(k, int) else x * 3


def _not_text(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(k, (str, float, torch.Tensor)) else x * 3


def _not_bool(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(k, bool) else x * 3


def _size(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(x.shape[0], int) else x * 3


def _sum(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(x.shape[0] + 1, (float, int)) else x * 3


def _quotient(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(x.shape[0] / 2, float) else x * 3


def _comparison(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if isinstance(x.shape[0] >= 2, bool) else x * 3


def _exact_type(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if type(k) is int and type(x.size(0)) in (int, float) else x * 3


def _classes(x: torch.Tensor, k: Any) -> torch.Tensor:
    return (
        x * 2
        if isinstance(int, type) and not isinstance(3, type) and type(x).__mro__[-1] is object
        else x * 3
    )


def _made_class(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * type("Two", (), {"value": 2})().value  # type: ignore[no-any-return,attr-defined]


def _in_a_helper(x: torch.Tensor, k: Any) -> torch.Tensor:
    return _argument(x, k + 1) + sum(_size(y, k) for y in (x, x))


@pytest.mark.parametrize(
    "fn",
    [
        _argument,
        _not_text,
        _not_bool,
        _size,
        _sum,
        _quotient,
        _comparison,
        _exact_type,
        _classes,
        _made_class,
        _in_a_helper,
    ],
)
def test_the_branch_is_eagers(fn: Callable[..., torch.Tensor]) -> None:
    compiled = symshape.compile(fn, dynamic=True)
    for size, k in ((3, 4), (7, 5), (0, 1)):
        x = torch.randn(size)
        assert torch.equal(compiled(x, k), fn(x, k))
    assert any(each.backed for each in compiled.entries[0].program.symbols.values())


def test_modules() -> None:
    class Asks(nn.Module):
        def forward(self, x: torch.Tensor, keep: Any) -> torch.Tensor:
            rows = slice(-keep, None) if isinstance(keep, int) else keep
            return x[rows]

    module = Asks()
    compiled = symshape.compile(module, dynamic=True)
    for size, keep in ((5, 2), (6, 3), (9, 4)):
        x = torch.randn(size, 2)
        assert torch.equal(compiled(x, keep), module(x, keep))


def test_a_size_is_still_symbolic_to_those_who_ask_for_that() -> None:
    traced = symshape.trace(lambda x: isinstance(x.shape[0], torch.SymInt), torch.ones(3))
    assert traced.output_specs is True


def test_globals_are_left_as_they_were() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            raise ValueError("on purpose")
        return x

    before = dict(globals())
    with pytest.raises(ValueError, match="on purpose"):
        symshape.trace(fails, torch.ones(3))
    symshape.trace(_exact_type, torch.ones(3), 2)
    assert globals() == before


def test_a_module_that_defines_the_names_keeps_its_own() -> None:
    module = ModuleType("own")
    exec(
        "def isinstance(a, b): return 'mine'\ndef ask(n): return isinstance(n, int), type(n)",
        module.__dict__,
    )
    before = dict(module.__dict__)

    def fn(x: torch.Tensor) -> torch.Tensor:
        raise Found(module.ask(x.size(0)))

    assert found_by(lambda: symshape.trace(fn, torch.ones(3))) == ("mine", int)
    assert module.__dict__ == before
    assert module.isinstance(1, 2) == "mine"


@pytest.mark.parametrize("value", [3, True, 2.5, "x", None, int, [1]])
@pytest.mark.parametrize(
    "kinds", [int, float, bool, str, type, list, (int, str), object, int | None]
)
def test_plain_values_are_judged_as_ever(value: Any, kinds: Any) -> None:
    assert plain_isinstance(value, kinds) == isinstance(value, kinds)
    assert PlainType(value) is type(value)


_FUNCTIONS = {
    "sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "log": lambda x: x * math.log(x.shape[0] + 1),
    "log2": lambda x: x * math.log2(x.shape[0]) + math.sin(x.shape[0]),
    "cos": lambda x: x * math.cos(math.pi * x.shape[0] / 7),
    "exp": lambda x: x * math.exp(-x.shape[0] / 10),
    "pow": lambda x: x * math.pow(x.shape[0], 0.3) + math.pow(1.1, x.shape[0]),
    "plain": lambda x: x * math.sqrt(2) * math.pow(2, 3) + math.log(8, 2),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions_of_math_are_formulas_of_sizes(name: str) -> None:
    traced = symshape.trace(_FUNCTIONS[name], torch.rand(3))
    assert not traced.guards
    for n in (3, 5, 11, 1):
        x = torch.rand(n)
        assert torch.equal(traced(x), _FUNCTIONS[name](x))


def test_the_product_of_a_size() -> None:
    traced = symshape.trace(lambda x: x * x.shape.numel() + x.shape[:1].numel(), torch.ones(3, 4))
    assert not traced.guards
    x = torch.rand(5, 2)
    assert torch.equal(traced(x), x * 10 + 5)


KEYS = {3: "three", 7: "seven", "x": "no number"}


def _in_keys(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * len(KEYS[k]) if k in KEYS else x - k


def _not_in_a_set(x: torch.Tensor, k: Any) -> torch.Tensor:
    return x * 2 if x.shape[0] not in {3, 7} else x * 3


@pytest.mark.parametrize("fn", [_in_keys, _not_in_a_set])
def test_a_number_among_keys_is_compared_not_fixed(fn: Callable[..., Any]) -> None:
    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    for n in (2, 4, 5, 3, 6, 8, 7, 9, 3):
        assert torch.equal(compiled(torch.ones(n), n), fn(torch.ones(n), n))
    assert compiled.stats().traces == 3


def test_a_class_of_its_own_says_what_it_contains() -> None:
    class Odd(dict[int, int]):
        def __contains__(self, key: object) -> bool:
            return isinstance(key, int) and key % 2 == 1

    odd = Odd()

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] in odd else x

    compiled = symshape.compile(run, dynamic=True)
    for n in (2, 3, 5, 4):
        assert torch.equal(compiled(torch.ones(n)), run(torch.ones(n)))


def test_the_larger_of_integers_that_only_data_tell() -> None:
    def fn(x: torch.Tensor) -> Any:
        n = (x > 0).sum().item()
        kept = x[x > 0].topk(min(3, n)).values
        return (
            kept,
            max(n, 1),
            min([n, 5, len(x)]),
            max((2, n)),
            x[: max(n - 1, 0)],
            x.sum() / max(n, 1),
        )

    compiled = symshape.compile(fn, fullgraph=True)
    for x in (
        torch.tensor([1.0, -1.0, 2.0]),
        torch.randn(9),
        torch.ones(7),
        -torch.ones(4),
        torch.ones(0),
    ):
        found, expected = compiled(x), fn(x)
        assert [type(each) for each in found] == [type(each) for each in expected]
        assert all(
            torch.equal(torch.as_tensor(a), torch.as_tensor(b))
            for a, b in zip(found, expected, strict=True)
        )
    assert compiled.stats().traces == 2
