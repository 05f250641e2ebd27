"""Sizes beside numbers of other classes, and what asks a size for its class (class 5 of issue
8).
"""

from __future__ import annotations

import decimal
import enum
import fractions
import math
import operator
from typing import Any

import numpy as np

from tests.worlds.stand_ins import SIZES, STAND_INS, _number, _size
from tests.worlds.world import World, world


class Kind(enum.IntEnum):
    """A number with a name."""

    FOUR = 4
    SIX = 6


@world(STAND_INS)
def size_equal_to_an_enumeration() -> World:
    return _size(lambda k: 2 if k == Kind.SIX else 3)


@world(STAND_INS)
def number_below_an_enumeration() -> World:
    return _number(lambda k: 2 if operator.gt(Kind.FOUR, k) else 3 + Kind.SIX * k)


@world(STAND_INS)
def size_in_a_tuple_of_enumerations() -> World:
    return _size(lambda k: 2 if k in tuple(Kind) else 3)


@world(STAND_INS)
def size_equal_to_a_fraction() -> World:
    return _size(lambda k: 2 if k == fractions.Fraction(6) else 3)


@world(STAND_INS)
def size_equal_to_a_decimal() -> World:
    return _size(lambda k: 2 if decimal.Decimal(4) == k else 3)


@world(STAND_INS)
def size_equal_to_a_complex() -> World:
    return _size(lambda k: 2 if k == 6 + 0j else 3)


@world(STAND_INS)
def size_as_a_key_of_the_result() -> World:
    return World(lambda x: {x.shape[0] / 2: x, float(x.shape[0]): x}, SIZES)


@world(STAND_INS)
def logarithm_that_nobody_uses() -> World:
    def fn(x: Any) -> Any:
        math.log10(x.shape[0])
        return x * 2

    return World(fn, SIZES)


@world(STAND_INS)
def class_of_a_size_by_getattr() -> World:
    return _size(lambda k: 2 if getattr(k, "__class__") is int else 3)  # noqa: B009


@world(STAND_INS)
def class_of_a_size_by_attrgetter() -> World:
    return _size(lambda k: 2 if operator.attrgetter("__class__")(k) is int else 3)


@world(STAND_INS)
def size_that_is_a_scalar_of_numpys() -> World:
    return _size(lambda k: 2 if np.isscalar(k) else 3)


@world(STAND_INS)
def kind_of_an_array_of_a_size() -> World:
    return _size(lambda k: 2 if np.asarray(k).dtype.kind == "i" else 3)


@world(STAND_INS)
def size_given_to_a_method_of_float() -> World:
    return _size(lambda k: 2 if float.__eq__(6.0, k) is True else 3)
