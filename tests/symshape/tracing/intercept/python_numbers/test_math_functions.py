"""Functions of Python's library on sizes, under any name: eager's numbers, and no trace for each
size.
"""

from __future__ import annotations

import decimal
import functools
import json
import math
import numbers
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import sqrt as root
from typing import Any

import pytest
import torch

import symshape

SIZES = ((3, 5), (4, 7), (2, 6), (5, 3), (6, 9), (7, 11), (8, 4), (9, 13), (10, 8), (11, 12))
NAMED: dict[str, Any] = {
    "root": math.sqrt,
    "up": math.ceil,
    "deep": [{"log": math.log}],
    "whole": int,
}
Made = Callable[[], Callable[[torch.Tensor], Any]]


class Holder:
    half = functools.partial(math.pow, 2)

    def __init__(self) -> None:
        self.root, self.power = math.sqrt, functools.partial(math.pow, 1.5)


HOLDER = Holder()


def _of_a_closure() -> Callable[[torch.Tensor], Any]:
    functions, whole = (math.sqrt, math.atan), int

    def run(x: torch.Tensor) -> Any:
        for each in functions:
            x = x * each(x.shape[1] / 2)
        return x[:, : whole(x.shape[1] * 0.5)]

    return run


def _as_an_argument() -> Callable[[torch.Tensor], Any]:
    def apply(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    return lambda x: x * apply(math.sqrt, x.shape[1]) + apply(*(math.pow, x.shape[1], 0.5))


def _by_default(x: torch.Tensor, function: Any = math.sqrt, *, other: Any = math.log) -> Any:
    return x * function(x.shape[1]) + other(x.shape[0])


FREE: dict[str, Made] = {
    "another name": lambda: lambda x: x * root(x.shape[1]),
    "attributes": lambda: (
        lambda x: (
            x * HOLDER.root(x.shape[1]) * HOLDER.power(x.shape[0] / 8) * Holder.half(x.shape[1])
        )
    ),
    "items": lambda: lambda x: x[:, : NAMED["up"](x.shape[1] / 2)] * NAMED["root"](x.shape[1]),
    "items of items": lambda: lambda x: x * NAMED["deep"][0]["log"](x.shape[1]),
    "a class by its key": lambda: lambda x: x[:, : NAMED["whole"](x.shape[1] * 0.5)],
    "a closure's": _of_a_closure,
    "an argument": _as_an_argument,
    "defaults": lambda: _by_default,
    "one of two": lambda: lambda x: x * (math.sqrt if x.dim() == 2 else math.log)(x.shape[1]),
    "trigonometry": lambda: (
        lambda x: x * math.tan(x.shape[1]) + math.atan2(*x.shape) + math.asin(1 / x.shape[1])
    ),
    "hyperbolas": lambda: (
        lambda x: (
            x * math.cosh(1 / x.shape[1]) + math.asinh(x.shape[0]) + math.sinh(0.1 * x.shape[0])
        )
    ),
    "special functions": lambda: (
        lambda x: x * math.lgamma(x.shape[1]) + math.erf(1 / x.shape[0]) + math.gamma(x.shape[1])
    ),
    "roots and powers": lambda: (
        lambda x: x * math.cbrt(x.shape[1]) + math.exp2(x.shape[0]) + math.hypot(*x.shape)
    ),
    "rests": lambda: (
        lambda x: (
            x * math.fmod(x.shape[1], 3)
            + math.remainder(x.shape[1], 3)
            + math.copysign(x.shape[1], -1)
        )
    ),
    "angles": lambda: lambda x: x * math.radians(x.shape[1]) + math.degrees(1 / x.shape[1]),
    "choices": lambda: (
        lambda x: (x, math.comb(x.shape[1], 2), math.perm(x.shape[0], 3), math.comb(x.shape[0], 4))
    ),
    "careful sum": lambda: lambda x: (x, math.fsum(x.shape)),
}
BY_REGION: dict[str, tuple[int, Made]] = {
    "bits": (6, lambda: lambda x: (x, x.shape[1].bit_length(), (x.shape[1] - 20).bit_length())),
    "next power of two": (
        5,
        lambda: (
            lambda x: torch.nn.functional.pad(
                x, (0, (1 << (x.shape[1] - 1).bit_length()) - x.shape[1])
            )
        ),
    ),
    "power of two above": (5, lambda: lambda x: x * 2 ** math.ceil(math.log2(x.shape[1]))),
    "digits": (
        4,
        lambda: (
            lambda x: (x, math.floor(math.log10(x.shape[1]))) if math.log(x.shape[0]) > 1.5 else x
        ),
    ),
    "whole root": (4, lambda: lambda x: (x, math.isqrt(x.shape[1]))),
    "common multiple": (5, lambda: lambda x: (x, math.lcm(x.shape[1], 4))),
}
FIXED: dict[str, Made] = {
    "json": lambda: (
        lambda x: (
            x,
            json.dumps({"n": x.shape[1], "s": x.shape, "h": [x.shape[0] / 2]}, sort_keys=True),
        )
    ),
    "json's encoder": lambda: lambda x: (x, json.JSONEncoder().encode({"n": x.shape[1]})),
    "decimal": lambda: lambda x: x * float(decimal.Decimal(x.shape[1]) / 3),
    "fraction": lambda: lambda x: x * float(Fraction(x.shape[1], 3)),
    "factorial": lambda: (
        lambda x: (x, math.factorial(x.shape[0]), math.comb(x.shape[1], x.shape[1] - 2))
    ),
}


def _traces(made: Made) -> int:
    fn = made()
    compiled = symshape.compile(fn, fullgraph=True)
    for b, n in SIZES:
        for _ in range(2):
            x = torch.ones(b, n)
            assert repr(compiled(x)) == repr(fn(x)), (b, n)
    return compiled.stats().traces


@pytest.mark.parametrize("name", FREE)
def test_one_program_for_all_sizes(name: str) -> None:
    assert _traces(FREE[name]) <= 3


@pytest.mark.parametrize("name", BY_REGION)
def test_one_program_for_those_alike(name: str) -> None:
    assert _traces(BY_REGION[name][1]) <= BY_REGION[name][0]


@pytest.mark.parametrize("name", FIXED)
def test_what_needs_the_number_is_traced_for_it(name: str) -> None:
    assert _traces(FIXED[name]) <= len(SIZES)


def _dispatched() -> Any:
    @functools.singledispatch
    def weight(value: Any, *more: Any) -> Any:
        return 0

    @weight.register
    def _of_int(value: int, *more: Any) -> Any:
        return value * 2 + sum(more)

    @weight.register
    def _of_tensor(value: torch.Tensor, *more: Any) -> Any:
        return value * 3

    weight.register(float)(lambda value, *more: value + 1)
    weight.register(list)(lambda value, *more: sum(map(weight, value)))
    return weight


def test_functions_that_go_by_the_class_of_a_size() -> None:
    weight = _dispatched()

    @functools.singledispatch
    def kind(value: Any) -> int:
        return 1

    kind.register(numbers.Integral)(lambda value: 2)
    kind.register(Sequence)(lambda value: 3)

    class Model:
        held = weight

        @functools.singledispatchmethod
        def of(self, value: Any) -> Any:
            return 0

        @of.register
        def _of_int(self, value: int) -> Any:
            return value * 2

    model = Model()
    programs: tuple[Callable[[torch.Tensor], Any], ...] = (
        lambda x: (
            weight(x) + weight(x.shape[1]) + weight(x.shape[1] / 3) + weight(x.shape[1], x.shape[0])
        ),
        lambda x: x * weight([x.shape[0], x.shape[1], 2.5]) + weight("a") + weight(True),
        lambda x: x * sum(map(weight, x.shape)),
        lambda x: x * kind(x.shape[0]) + kind(x.shape) + kind(2.5),
        lambda x: x * model.of(x.shape[1]) + model.of("a"),
    )
    for fn in programs:
        assert _traces(lambda fn=fn: fn) == 2


def test_what_is_registered_later_is_seen() -> None:
    weight = _dispatched()
    compiled = symshape.compile(lambda x: x * weight(x.shape[0]), fullgraph=True)
    assert [compiled(torch.ones(n))[0].item() for n in (3, 4, 5)] == [6, 8, 10]
    weight.register(int)(lambda value, *more: value * 100)
    assert [compiled(torch.ones(n))[0].item() for n in (3, 5)] == [300, 500]
    assert weight.dispatch.__name__ == "dispatch"


def test_caches_by_size() -> None:
    """The size is fixed and the write replayed: a plain number is the key, and the tensor one of
    the call's own.
    """
    for keyed in (lambda x: x.shape[1], lambda x: (x.shape[1], x.dtype), lambda x: f"{x.shape[1]}"):
        cache: dict[Any, torch.Tensor] = {}

        def masked(x: torch.Tensor, cache: Any = cache, keyed: Any = keyed) -> torch.Tensor:
            key = keyed(x)
            if key not in cache:
                cache[key] = torch.ones(x.shape[1], x.shape[1]).tril()
            return x @ cache[key]

        compiled = symshape.compile(masked)
        for n in (4, 5, 6, 4, 5, 6, 4, 5, 6, 4):
            x = torch.randn(2, n)
            assert torch.equal(compiled(x), x @ torch.ones(n, n).tril())
            assert {type(each) for each in cache} == {type(keyed(x))}
            assert all(type(each) is torch.Tensor for each in cache.values())
        assert sorted(cache, key=str) == sorted(
            (keyed(torch.ones(2, n)) for n in (4, 5, 6)), key=str
        )
