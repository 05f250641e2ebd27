"""Branches on numbers in tensors of one element: questions that each call is asked, and what
remains unknown.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import DataDependentError


def one(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


def counted(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """A counter that is written before it is read, as optimisers have."""
    step += 1
    number = step.item()
    return x * number if number > 3 else x - 0.5**number


def test_a_counter_that_a_branch_reads() -> None:
    compiled = symshape.compile(counted, fullgraph=True)
    mine, theirs = one(0.0), one(0.0)
    for i in range(8):
        x = torch.randn(2 + i)
        assert torch.equal(compiled(x, mine), counted(x, theirs))
    assert torch.equal(mine, theirs)
    assert compiled.stats().traces <= 3
    assert (
        "what the program asks of numbers in its arguments is not what it was"
        in compiled.explain_miss()
    )


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "two numbers": lambda x, a, b: x + 1 if a.item() < b.item() else x,
    "an expression": lambda x, a, b: x + 1 if (a.item() * 2 - 1) / 3 >= b.item() ** 2 else x,
    "one that is computed": lambda x, a, b: x + 1 if (a * b + 1).sqrt().item() > 1.5 else x,
    "lists": lambda x, a, b: (
        torch._foreach_mul_([a, b], 2.0),
        x + a if b.item() > a.item() else x - b,
    )[1],
    "one after another": lambda x, a, b: (
        x * (a.item() if b.item() > 0.5 else 0.0) if a.item() > 0.5 else x
    ),
    "no number": lambda x, a, b: x + 1 if a.item() != a.item() else x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_branch_of_each_call(name: str) -> None:
    compiled = symshape.compile(PROGRAMS[name], fullgraph=True)
    values = (0.1, 0.9, 0.7, 2.0, -1.0, 0.2, 0.5, float("nan"), float("inf"), 1.0)
    for i, a in enumerate(values):
        for b in (values[-1 - i], a):
            mine, theirs = (one(a), one(b)), (one(a), one(b))
            torch.testing.assert_close(
                compiled(torch.ones(3), *mine),
                PROGRAMS[name](torch.ones(3), *theirs),
                rtol=0,
                atol=0,
                equal_nan=True,
            )
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    assert compiled.stats().traces <= 5


WHOLE: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "an integer": lambda x, n, m: x + 1 if n.item() > 2 else x,
    "compared as a tensor": lambda x, n, m: x + 1 if n == 3 else x - 1,
    "its truth": lambda x, n, m: x + 1 if n else x - 1,
    "every other": lambda x, n, m: x + 1 if n.item() % 2 == 0 else x,
    "two": lambda x, n, m: x + 1 if n > m else x,
    "an expression": lambda x, n, m: x + 1 if n.item() * 2 - m.item() >= 3 else x,
    "counted on": lambda x, n, m: (n.add_(1), x * n if n > 3 else x + m)[1],
    "counted by another": lambda x, n, m: (n.add_(m.item()), x + 1 if n > 4 else x)[1],
    "as a float": lambda x, n, m: x * float(n) if float(n) / 4 > 0.6 else x,
    "both ways": lambda x, n, m: x + 1 if n.item() > 2 and m.item() / 2 < 0.9 else x,
}


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", WHOLE)
def test_the_branch_of_each_integer(name: str, sizes: tuple[int, ...]) -> None:
    compiled = symshape.compile(WHOLE[name], fullgraph=True, dynamic={"x": {0: "n"}})
    for i, (n, m) in enumerate(((0, 1), (3, 1), (4, 4), (1, 0), (2, -3), (7, 2), (3, 3), (-2, 1))):
        mine, theirs = ([torch.full(sizes, each) for each in (n, m)] for _ in range(2))
        x = torch.linspace(0, 1, 2 + i)
        assert torch.equal(compiled(x, *mine), WHOLE[name](x, *theirs))
        assert all(map(torch.equal, mine, theirs))
    assert compiled.stats().traces <= 4


def test_an_integer_that_is_seen_through_another_tensor() -> None:
    """A write to the one is a write to the other: such a call runs as it is."""
    whole = torch.zeros(4, dtype=torch.long)

    def count(x: torch.Tensor, n: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        other += 1
        return x + 1 if n > 2 else x - 1

    compiled = symshape.compile(count)
    alone = torch.tensor(0), torch.zeros(4, dtype=torch.long)
    for step in range(3):
        assert torch.equal(compiled(torch.zeros(2), *alone), torch.full((2,), -1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            found = compiled(torch.zeros(2), whole[1], whole)
        assert torch.equal(found, torch.full((2,), 1.0 if step == 2 else -1.0))


def test_outside_the_arguments() -> None:
    level = one(0.0)
    compiled = symshape.compile(lambda x: x + 1 if level.item() > 0.5 else x - 1, fullgraph=True)
    for value in (0.0, 1.0, 0.0, 2.0, -3.0):
        level.fill_(value)
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 1.0 if value > 0.5 else -1.0))
    assert compiled.stats().traces <= 3


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_another_kind_of_tensor_is_asked_nothing() -> None:
    compiled = symshape.compile(lambda x, a: x + 1 if a.item() > 0.5 else x - 1)
    for a in (
        one(0.0),
        one(1.0),
        one(1.0, torch.float64),
        torch.ones(1),
        torch.ones(1, 1),
        one(0.0, torch.float64),
    ):
        assert torch.equal(
            compiled(torch.zeros(2), a), torch.full((2,), 1.0 if a.item() > 0.5 else -1.0)
        )


UNKNOWN: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "many": lambda x, a: x if x.sum().item() > 0.5 else -x,
    "written by many": lambda x, a: x if a.add_(x.sum()).item() > 0.5 else -x,
    "drawn": lambda x, a: x if a.uniform_().item() > 0.5 else -x,
    "a view that many write": lambda x, a: (a.view(1).copy_(x[:1]), x if a.item() > 0.5 else -x)[1],
    "the value itself": lambda x, a: x * len(f"{a.item()}"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_only_a_run_can_tell(name: str) -> None:
    with pytest.raises(DataDependentError):
        symshape.compile(UNKNOWN[name], fullgraph=True)(torch.ones(3), one(1.0))


def test_two_views_of_one_memory() -> None:
    both = torch.zeros(2)
    first, second, alias = both[0], both[1], both[0]

    def fn(x: torch.Tensor) -> torch.Tensor:
        first.fill_(1.0)
        return x + (10 if alias.item() > 0.5 else 20) + second

    with pytest.raises(DataDependentError):
        symshape.compile(fn, fullgraph=True)(torch.zeros(2))
    with pytest.warns(symshape.FallbackWarning):
        assert torch.equal(symshape.compile(fn)(torch.zeros(2)), fn(torch.zeros(2)))


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_arguments_in_one_memory() -> None:
    def fn(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.fill_(1.0)
        return x + (10 if b.item() > 0.5 else 20)

    compiled = symshape.compile(fn)
    for made in (
        lambda: [one(0.0), one(0.0)],
        lambda: [*torch.zeros(2)],
        lambda: [(t := one(0.0)), t.view(())],
    ):
        for _ in range(2):
            assert torch.equal(compiled(torch.zeros(2), *made()), fn(torch.zeros(2), *made()))


def _written_before_read(level: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    before = x.item() > -100
    level.add_(5)
    return x + (10 if x.item() > 3 else 20) + before


def _read_after_another_is_written(level: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x.add_(5)
    return x + (10 if level.item() > 3 else 20)


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("program", [_written_before_read, _read_after_another_is_written])
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.view(()), lambda x: x.data], ids=["it", "view", "data"]
)
@pytest.mark.parametrize("order", [(0, 1, 0, 1, 1), (1, 0, 1, 0, 0)])
def test_an_argument_in_the_memory_of_a_tensor_outside(
    program: Any, view: Any, order: tuple[int, ...]
) -> None:
    mine, theirs = one(0.0), one(0.0)
    compiled = symshape.compile(lambda x: program(mine, x))
    for shared in order:
        x, y = (view(mine), view(theirs)) if shared else (one(0.0), one(0.0))
        assert torch.equal(compiled(x), program(theirs, y))
        assert torch.equal(x, y)
        assert torch.equal(mine, theirs)


def test_a_traced_function_asks_nothing() -> None:
    with pytest.raises(DataDependentError):
        symshape.trace(lambda x, a: x if a.item() > 0.5 else -x, torch.ones(3), one(1.0))
