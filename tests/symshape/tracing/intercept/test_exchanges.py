"""Functions that mean something of ours in traced code are, as values, those that they stand
for.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import symshape

Tensor = torch.Tensor
TABLE: dict[str, Any] = {
    "root": math.sqrt,
    "int": int,
    "float": float,
    "print": print,
    "type": type,
    "len": len,
}
CHOICES = [max, min, math.sqrt]


class Holder:
    reduce = max
    kind = int


HOLDER = Holder()


def _if(truth: bool, x: Tensor) -> Tensor:
    return x * 2 if truth else x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "is, of a dictionary": lambda x: _if(TABLE["root"] is math.sqrt, x),
    "is, a class": lambda x: _if(TABLE["int"] is int, x),
    "is not": lambda x: _if(TABLE["print"] is not print, x),
    "equal": lambda x: _if(TABLE["print"] == print, x),
    "equal, the other way": lambda x: _if(math.sqrt == TABLE["root"], x),
    "in a tuple": lambda x: _if(TABLE["root"] in (len, math.sqrt), x),
    "a class in a tuple": lambda x: _if(TABLE["int"] in (float, int), x),
    "a key": lambda x: x * {math.sqrt: 2, len: 3}[TABLE["root"]] * {print: 5}.get(print, 0),
    "a class as a key": lambda x: x * {int: 2}.get(TABLE["int"], 3),
    "in a set": lambda x: _if({TABLE["root"], math.sqrt} == {math.sqrt}, x),
    "index": lambda x: x * CHOICES.index(math.sqrt),
    "of a list": lambda x: _if(CHOICES[0] is max and CHOICES[1] == min, x),
    "an attribute": lambda x: _if(HOLDER.kind is int, x),
    "a method of one": lambda x: _if(Holder.__dict__["reduce"] is max, x),
    "a name": lambda x: (
        x * len(math.sqrt.__name__ + TABLE["print"].__name__ + TABLE["int"].__name__)
    ),
    "its class": lambda x: _if(
        type(math.sqrt) is type(TABLE["root"]) and callable(TABLE["root"]), x
    ),
    "an instance": lambda x: _if(
        isinstance(TABLE["int"], type) and issubclass(TABLE["int"], int), x
    ),
    "asked with": lambda x: _if(
        isinstance(x.shape[0], TABLE["int"]) and not isinstance(3, TABLE["float"]), x
    ),
    "the class of a size": lambda x: _if(type(x.shape[0]) is TABLE["int"], x),
    "type": lambda x: _if(TABLE["type"] is type and TABLE["type"] == type and type(int) is type, x),  # noqa: E721
    "as a dtype": lambda x: (
        x.to(TABLE["float"]).dtype == torch.float64 and torch.zeros(2, dtype=TABLE["int"])
    ),
    "a method of a class": lambda x: x * TABLE["int"].from_bytes(b"\\x05", "big"),
    "called": lambda x: (
        x * TABLE["root"](4) + TABLE["int"]("7") + CHOICES[0](1, 2) + TABLE["len"]("abc")
    ),
    "called with sizes": lambda x: (
        x * TABLE["float"](x.shape[0]) + CHOICES[0](x.shape[0], 3) + TABLE["len"](x)
    ),
    "mapped": lambda x: x * sum(map(TABLE["int"], ("1", "2"))) + sum(map(TABLE["root"], (1, 4))),
    "NumPy's": lambda x: _if({"a": np.prod}["a"] is np.prod and {"a": np.prod}["a"] == np.prod, x),
    "the standard library's": lambda x: _if(
        {"a": dataclasses.replace}["a"] == dataclasses.replace
        and {"a": getattr}["a"] is builtins.getattr,
        x,
    ),
    "an operator": lambda x: _if({"a": operator.index}["a"] is operator.index, x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_values(name: str) -> None:
    fn = PROGRAMS[name]
    compiled = symshape.compile(fn)
    for n in (3, 5, 4):
        x = torch.arange(float(n))
        assert torch.equal(torch.as_tensor(compiled(x)), torch.as_tensor(fn(x)))
    assert compiled.stats().fallbacks == 0


@pytest.mark.parametrize("given", [print, math.sqrt, max, len, int, type, np.prod, operator.index])
def test_as_arguments(given: Any) -> None:
    def fn(x: Tensor, c: Any, more: dict[str, Any]) -> Tensor:
        known = (print, math.sqrt, max, len, int, type, np.prod, operator.index)
        return (
            x * (known.index(c) + 1)
            + (c is more["c"])
            + (c == more["c"])
            + sum(c is each for each in known)
        )

    compiled = symshape.compile(fn)
    x = torch.ones(3)
    for _ in range(2):
        assert torch.equal(compiled(x, given, {"c": given}), fn(x, given, {"c": given}))


def test_functions_in_variables_and_tables_are_called_as_they_mean() -> None:
    def fn(x: Tensor, choose: Any = max) -> Tensor:
        root = math.sqrt
        kinds = {"a": [int, float]}
        return (
            x * root(x.shape[0])
            + choose(x.shape[0], 4)
            + kinds["a"][0](x.shape[0] / 2)
            + kinds["a"][1](x.shape[0])
        )

    compiled = symshape.compile(fn)
    for n in (5, 6, 7, 8, 9, 10):
        assert torch.equal(compiled(torch.ones(n)), fn(torch.ones(n)))
    assert compiled.stats().traces <= 3


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_a_function_that_the_program_keeps_is_pythons() -> None:
    holder = Holder()

    def fn(x: Tensor) -> Tensor:
        holder.reduce = min  # type: ignore[method-assign]
        return x + 1

    compiled = symshape.compile(fn)
    for n in (3, 4):
        Holder.reduce = max
        assert torch.equal(compiled(torch.ones(n)), torch.ones(n) + 1)
        assert vars(holder)["reduce"] is min
