"""Branches that only raise: the other way is the program, and that it is taken is asserted when the
graph runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError, RuntimeAssertionError
from tests.symshape.eager import agree

Tensor = torch.Tensor


def _asserting() -> Callable[..., Any]:
    """From a text, since pytest writes other code for the assertions of a test module."""
    names: dict[str, Any] = {}
    exec(
        'def asserting(x):\n    assert (x < 9).all(), f"too large for {x.size(0)}"\n    return x * '
        "2\n",
        names,
    )
    return names["asserting"]  # type: ignore[no-any-return]


def raising(x: Tensor) -> Tensor:
    if torch.isnan(x).any() or not (x < 9).all():
        message = f"strange numbers in {x.shape}"
        raise ValueError(message)
    return x * 2


def raising_in_a_with(x: Tensor) -> Tensor:
    with torch.no_grad():
        if (x >= 9).any():
            raise IndexError("too large")
        return x * 2


def raising_in_a_comprehension(x: Tensor) -> Tensor:
    return [each for each in [raising(part) for part in (x, x + 1)] if each.dim()][0]  # noqa: RUF015


def _raising_once(x: Tensor) -> Iterator[Tensor]:
    yield raising(x)


def raising_in_generators(x: Tensor) -> Tensor:
    first, _ = (raising(part) for part in (x, x))
    return first + next(_raising_once(x)) * 0


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (_asserting(), AssertionError),
        (raising, ValueError),
        (raising_in_a_with, IndexError),
        (raising_in_a_comprehension, ValueError),
        (raising_in_generators, ValueError),
    ],
)
def test_the_way_on_is_asserted(fn: Callable[..., Any], kind: type[Exception]) -> None:
    traced, seen = agree(fn, (torch.ones(3, 2),), (torch.ones(4, 1),), (torch.ones(0, 2),))
    assert set(seen) == {"equal"}
    with pytest.raises(kind):
        fn(torch.full((2, 2), 9.0))
    with pytest.raises(RuntimeAssertionError, match=f"raises {kind.__name__} here") as raised:
        traced(torch.full((2, 2), 9.0))
    assert isinstance(raised.value, kind)


def caught(x: Tensor) -> Tensor:
    try:
        if (x >= 9).any():
            raise ValueError
    except ValueError:
        return x - 1
    return x * 2


def caught_outside(x: Tensor) -> Tensor:
    try:
        return raising(x)
    except ValueError:
        return x - 1


def caught_around_a_with(x: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            if (x >= 9).any():
                raise ValueError
    except ValueError:
        return x - 1
    return x * 2


def caught_around_a_comprehension(x: Tensor) -> Tensor:
    try:
        return [raising(part) for part in (x, x)][0]  # noqa: RUF015 - a comprehension
    except ValueError:
        return x - 1


def caught_in_a_generator(x: Tensor) -> Tensor:
    def parts() -> Iterator[Tensor]:
        try:
            yield raising(x)
        except ValueError:
            yield x - 1

    return next(parts())


def both_ways(x: Tensor) -> Tensor:
    return x * 2 if (x > 0).all() else x


def does_something_else_first(x: Tensor) -> Tensor:
    if (x > 0).all():
        x = x * 3
        if x.dim() > 5:
            raise ValueError
    return x


@pytest.mark.parametrize(
    "fn",
    [
        caught,
        caught_outside,
        caught_around_a_with,
        caught_around_a_comprehension,
        caught_in_a_generator,
        both_ways,
        does_something_else_first,
    ],
)
def test_where_the_program_may_go_on_either_way_it_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError):
        symshape.trace(fn, torch.ones(3, 2))


def test_a_compiled_function_raises_what_the_program_catches() -> None:
    compiled = symshape.compile(raising, fullgraph=True)
    assert torch.equal(compiled(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(ValueError, match="ValueError"):
        compiled(torch.full((3, 2), 9.0))


def test_at_the_end_of_a_loop_and_by_a_number() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for limit in (100, 200):
            if (x > limit).any():
                raise ValueError(f"more than {limit}")
        if x.isnan().sum():
            raise ValueError("not a number")
        return x * 2

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 0, 1):
        x = torch.randn(n)
        assert torch.equal(compiled(x), fn(x))
    for value, text in ((150.0, "more than 100"), (math.nan, "not a number")):
        with pytest.raises(ValueError, match=text):
            compiled(torch.full((5,), value))
