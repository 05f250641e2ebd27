"""Sizes beside numbers of every class, and conditions as integers: as in eager at every size."""

from __future__ import annotations

import decimal
import enum
import fractions
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import symshape
from tests.sampling import sampled

SIZES = (7, 6, 8, 3, 5, 4, 2, 1, 0, 9)


class Kind(enum.IntEnum):
    A = 3
    B = 5


class Flag(enum.IntFlag):
    X = 1
    Y = 2


class Whole(int):
    pass


class Odd(int):
    """Equal to nothing, and adds one more."""

    def __eq__(self, other: object) -> bool:
        return False

    def __radd__(self, other: Any) -> Any:
        return int(other) + int(self) + 1

    __hash__ = int.__hash__


class Near(float):
    """Says itself what it is equal to."""

    def __eq__(self, other: object) -> bool:
        return bool(float(self) == other)

    __hash__ = float.__hash__


class Weight(float):
    def __repr__(self) -> str:
        return "<a weight>"


OPERATORS = (
    *(
        operator.eq,
        operator.ne,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.add,
        operator.sub,
    ),
    *(operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
)
INTEGRAL = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
FIXING = (operator.floordiv, operator.pow)  # of floats, and of constants
FREE = (Kind.A, Whole(3), Weight(1.5), True, np.float64(1.5))
FIXED = (
    fractions.Fraction(3),
    decimal.Decimal(3),
    3 + 0j,
    np.int64(3),
    np.float32(1.5),
    Odd(3),
    Near(3),
    Flag.X,
)


def _same(fn: Callable[[Any], Any], most: int) -> None:
    def program(x: torch.Tensor) -> Any:
        found = fn(x.shape[0])
        if isinstance(found, (bool, np.bool_)):
            return x * 2 if found else x - 1
        if isinstance(found, (complex, decimal.Decimal, fractions.Fraction)):
            found = complex(found).real
        return x + found * 0.5

    def went(run: Callable[..., Any], x: torch.Tensor) -> Any:
        try:
            return run(x).tolist()
        except (ArithmeticError, TypeError, ValueError) as error:
            return type(error)

    compiled = symshape.compile(program)
    for n in SIZES:
        x = torch.ones(n)
        assert went(compiled, x) == went(program, x), n
    assert compiled.stats().traces <= most


@pytest.mark.parametrize(
    ("operate", "other"), sampled([*OPERATORS, *INTEGRAL], [*FREE, *FIXED], every=4)
)
def test_numbers_of_other_classes(operate: Callable[[Any, Any], Any], other: Any) -> None:
    free = any(other is each for each in FREE) and operate in OPERATORS and operate not in FIXING
    most = 5 if free else len(SIZES)
    for number in (lambda n: n, lambda n: n / 2, lambda n: n > 4):
        _same(lambda n, number=number: operate(number(n), other), most)
        _same(lambda n, number=number: operate(other, number(n) + 1), most)


CONDITIONS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "negative": (3, lambda n: -(n > 3)),
    "positive": (3, lambda n: +(n > 3)),
    "absolute": (3, lambda n: abs(n > 3)),
    "all bits": (3, lambda n: ~(n > 3)),
    "rounded": (3, lambda n: round(n > 3)),
    "exclusive or": (3, lambda n: (n > 3) ^ True),
    "of two": (4, lambda n: (n > 3) ^ (n > 5)),
    "compared": (4, lambda n: (n > 3) < (n > 5)),
    "divided": (3, lambda n: (n > 3) / 2),
    "shifted": (10, lambda n: (n > 3) << 2),
    "exponent": (3, lambda n: 2 ** (n > 3)),
    "float": (3, lambda n: float(n > 3)),
    "summed": (4, lambda n: sum([n > 3, n > 5])),
    "index of a tuple": (3, lambda n: (5, 6)[n > 4]),
    "index of a string": (3, lambda n: {"a": 1, "b": 2}["ab"[n > 3]]),
    "length of a range": (3, lambda n: len(range(n > 3))),
    "by an enumeration": (3, lambda n: (n > 3) == Kind.A),
}
SIZES_ALONE: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "all bits": (2, lambda n: ~n),
    "power of three": (2, lambda n: pow(n, 3, 7)),
    "inverse": (10, lambda n: pow(n, -1, 11)),
    "no modulus": (2, lambda n: pow(n, 2)),
    "in a tuple": (4, lambda n: n in (Kind.A, Kind.B)),
    "tuples": (4, lambda n: (n, 2) == (Kind.A, 2)),
    "lists": (4, lambda n: [n] == [Kind.A]),
    "the least": (4, lambda n: min(n, Kind.A)),
    "looked up": (10, lambda n: {Kind.A: 4, Kind.B: 6}.get(n, 9)),
    "quotient and rest": (2, lambda n: divmod(n, Kind.A)[0]),
    "none": (2, lambda n: n == None),  # noqa: E711
    "text": (2, lambda n: n == "3"),
}


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_integers(name: str) -> None:
    _same(CONDITIONS[name][1], CONDITIONS[name][0])


OF_BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)


@pytest.mark.parametrize("operate", OF_BITS)
def test_floats_have_no_bits(operate: Callable[[Any, Any], Any]) -> None:
    for number in (lambda n: n, lambda n: n > 4, lambda n: n / 2):
        _same(lambda n, number=number: operate(number(n), 2.0), len(SIZES))
        _same(lambda n, number=number: operate(number(n), n * 1.0), len(SIZES))
        _same(lambda n, number=number: operate(2.0, number(n)), len(SIZES))


@pytest.mark.parametrize("name", SIZES_ALONE)
def test_sizes(name: str) -> None:
    _same(SIZES_ALONE[name][1], SIZES_ALONE[name][0])


def test_members_and_texts_that_say_something_else_of_themselves() -> None:
    class Name(str):
        def __repr__(self) -> str:
            return "<a name>"

    def program(x: torch.Tensor) -> Any:
        y = torch.add(x, x, alpha=Kind.A).sum(Whole(0)).clamp(Weight(0.5), Kind.B)
        return y, Kind.A, {Kind.B: Weight(0.25), Name("n"): torch.einsum(Name("ij->j"), x)}

    compiled = symshape.compile(program, fullgraph=True)
    for n in (3, 5, 2):
        x = torch.arange(3.0 * n).reshape(n, 3)
        assert repr(compiled(x)) == repr(program(x))
        assert type(compiled(x)[1]) is Kind


def test_numbers_of_other_tracers_keep_their_methods() -> None:
    before = {name: torch.SymInt.__dict__.get(name) for name in ("__eq__", "__add__", "__invert__")}
    symshape.trace(lambda x: x * (x.shape[0] == Kind.A), torch.ones(3))
    assert {name: torch.SymInt.__dict__.get(name) for name in before} == before
