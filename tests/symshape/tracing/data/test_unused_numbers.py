"""Numbers that are computed and not used raise what they raise in eager, at every size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

SHAPES = ((5, 2), (6, 3), (7, 4), (9, 5), (0, 3), (3, 0), (1, 1), (2, 2), (8, 2), (5, 5))

OF_SIZES: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "quotient": (2, lambda n, m: n / m),
    "one by a float": (2, lambda n, m: 1.0 / (n * 0.5)),
    "one by a root": (2, lambda n, m: 1 / math.sqrt(n)),
    "remainder": (2, lambda n, m: 5.5 % n),
    "logarithm": (2, lambda n, m: math.log(n)),
    "of a difference": (2, lambda n, m: math.log(n - 2)),
    "decimal logarithm": (2, lambda n, m: math.log10(n)),
    "of one more": (2, lambda n, m: math.log1p(n - 3)),
    "with a base": (2, lambda n, m: math.log(n, 2)),
    "root": (2, lambda n, m: math.sqrt(n - 4)),
    "root of a formula": (2, lambda n, m: math.sqrt(n * 0.5 - 1.2)),
    "exponential": (2, lambda n, m: math.exp(n * 100)),
    "exponential less one": (2, lambda n, m: math.expm1(n * 100)),
    "root as a power": (2, lambda n, m: math.pow(n - 3, 0.5)),
    "reciprocal as a power": (2, lambda n, m: float(n) ** -1.0),
    "large power": (2, lambda n, m: math.pow(10.0 * n, 322)),
    "power of a constant": (2, lambda n, m: math.pow(10.0, n * 40)),
    "sine": (2, lambda n, m: math.sin(n)),
    "logarithm of a logarithm": (10, lambda n, m: math.log(math.log(n + 1))),
    "root of a quotient": (10, lambda n, m: math.sqrt(n / (m + 1))),
}


def _went(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args).tolist()
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("name", OF_SIZES)
def test_of_sizes(name: str, used: bool) -> None:
    most, number = OF_SIZES[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        found = number(x.shape[0], x.shape[1])
        return x * found if used else x * 2

    compiled = symshape.compile(program, fullgraph=True)
    for shape in SHAPES:
        x = torch.rand(shape)
        assert _went(compiled, x) == _went(program, x), shape
    assert compiled.stats().traces <= most + sum(0 in shape for shape in SHAPES)


def test_an_error_that_the_program_catches() -> None:
    def tried(n: Any) -> Any:
        try:
            return math.log(n)
        except ValueError:
            return 7.0

    def program(x: torch.Tensor) -> torch.Tensor:
        tried(x.shape[0] - 3)
        return x * tried(x.shape[0] - 5) + tried((x.shape[0] - 6) / (x.shape[1] + 1))

    compiled = symshape.compile(program, fullgraph=True)
    for shape in SHAPES:
        x = torch.rand(shape)
        assert torch.equal(compiled(x), program(x))


def test_used_numbers_leave_no_guard() -> None:
    traced = symshape.trace(
        lambda x: x * math.log(x.shape[0]) / math.sqrt(x.shape[1]), torch.rand(4, 3)
    )
    assert not traced.guards
    unused = symshape.trace(lambda x: (math.log(x.shape[0]), x * 2)[1], torch.rand(4, 3))
    assert [str(guard.term) for guard in unused.guards] == ["s0 >= 1"]


OF_DATA: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "logarithm of an argument": lambda x, rate: math.log(rate),
    "power of an argument": lambda x, rate: rate**-0.5,
    "exponential of an argument": lambda x, rate: math.exp(1000 * rate),
    "one by an argument": lambda x, rate: 1 / rate,
    "root of a product with a size": lambda x, rate: math.sqrt(x.shape[0] * rate),
    "logarithm of a sum": lambda x, rate: math.log(x.sum().item()),
    "root of a count": lambda x, rate: math.log(int((x > -0.5).sum())),
    "root of a root": lambda x, rate: math.sqrt(1 - math.sqrt(x.sum().item())),
}


@pytest.mark.parametrize("caught", [False, True], ids=["raised", "caught"])
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("name", OF_DATA)
def test_of_data(name: str, used: bool, caught: bool) -> None:
    def program(x: torch.Tensor, rate: float) -> torch.Tensor:
        x = x + 1
        try:
            found = OF_DATA[name](x, rate)
        except (ValueError, ArithmeticError):
            if not caught:
                raise
            found = 7.0
        return x * found if used else x * 2

    compiled = symshape.compile(program, fullgraph=True)
    for n, rate in (
        (5, 0.5),
        (6, 0.25),
        (7, 0.75),
        (0, 0.5),
        (3, 0.0),
        (4, -1.0),
        (4, 2.0),
        (5, 0.3),
        (6, -0.5),
    ):
        x = torch.rand(n) - 1
        assert _went(compiled, x, rate) == _went(program, x, rate), (n, rate)


def test_what_is_used_is_computed_once() -> None:
    """The step that computes a number alone goes where another one computes it."""
    for used in (True, False):
        traced = symshape.trace(
            lambda x, used=used: (math.log(x.sum().item()), x * 2)[not used], torch.ones(3)
        )
        assert sum("_assert_scalar" in str(node.op) for node in traced.graph.nodes) == (not used)
        with pytest.raises(ValueError, match=r"math domain error|positive"):
            traced(-torch.ones(5))
