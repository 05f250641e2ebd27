"""Floats among the arguments of compiled functions: one program serves every value, and each result
is eager's.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import symshape
from tests.symshape.eager import call_seen

NAN, INF = float("nan"), float("inf")
VALUES = (0.5, 0.1, 2.5, -0.5, 0.0, -0.0, NAN, INF, -INF, 1e300, 5e-324, 2, True, 1, 0.3, 3.7, -2.5)


def _caught(x: torch.Tensor, s: float) -> torch.Tensor:
    try:
        return x * (1 / s)
    except ZeroDivisionError:
        return x


Fn = Callable[[torch.Tensor, float], Any]
ONE_PROGRAM: dict[str, Fn] = {
    "times": lambda x, s: x * s,
    "in whole numbers": lambda x, s: x.long() * s,
    "in half precision": lambda x, s: x.half() * s + s,
    "times a size": lambda x, s: x * (s * x.size(0)),
    "compared": lambda x, s: torch.where(x > s, x, s),
    "clamped": lambda x, s: x.clamp(max=s),
    "filled": lambda x, s: torch.full((3,), s) + torch.ones(1).fill_(s),
    "a tensor of it": lambda x, s: torch.stack([x, torch.tensor([s, 1, 2.5])]) + torch.as_tensor(s),
    "returned": lambda x, s: (x, s, s * 2, -s, abs(s)),
    "squared": lambda x, s: x * (s**2) * (2**s if s == s else 1.0),
    "the larger": lambda x, s: x * max(s, 0.25) + min(s, 0.25, 1.0),
    "a number of its kind": lambda x, s: (x * s if isinstance(s, float) else x, type(s) is float),
    "activated": lambda x, s: functional.leaky_relu(x - 2, s) + functional.dropout(x, 0.0) * s,
}
BRANCHES: dict[str, Fn] = {
    "one": lambda x, s: x * 2 if s > 0.5 else x * s,
    "two": lambda x, s: x * s if 0.1 < s <= 2 else x + s,
    "of truth": lambda x, s: x * s if s else x - 1,
    "for what is no number": lambda x, s: x * (s if s == s else 0.0),
    "among two": lambda x, s: x * (s in (0.5, 1.0)),
    "that catches": _caught,
}
BY_VALUE: dict[str, Fn] = {
    "inverse": lambda x, s: x * (1 / s),
    "a root, perhaps complex": lambda x, s: x * (s**0.5),
    "floor division": lambda x, s: (x, s // 0.1, 1.0 // s if s else 0, divmod(s, 0.3)),
    "remainder": lambda x, s: x * (s % 0.3),
    "a whole number": lambda x, s: x[: int(abs(s)) if abs(s) < 5 else 1],
    "rounded": lambda x, s: x * round(s, 1),
    "of math's": lambda x, s: x * math.copysign(1.0, s) if not math.isnan(s) else x,
    "a text": lambda x, s: (x, f"{s:.2f}", str(s)),
    "a key": lambda x, s: x * {0.5: 1, 0.1: 2}.get(s, 3),
    "an order": lambda x, s: torch.linalg.vector_norm(x, s),
    "one of C++'s doubles": lambda x, s: functional.layer_norm(x, (3,), eps=abs(s)),
}


def shown(fn: Callable[..., Any], *args: Any) -> Any:
    """All that a call leaves to be seen, or the error that it raises."""
    try:
        return call_seen(fn, args, {})
    except Exception as error:
        return type(error)


def _agrees(fn: Fn, values: tuple[float, ...]) -> symshape.Compiled:
    compiled: symshape.Compiled = symshape.compile(fn)
    x = torch.arange(1.0, 4.0)
    for value in (*values, *values[::-1]):
        assert shown(compiled, x, value) == shown(fn, x, value), value
    return compiled


@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_one_program_serves_every_value(name: str) -> None:
    compiled = _agrees(ONE_PROGRAM[name], VALUES)
    stats = compiled.stats()
    assert stats.fallbacks == stats.untraced == 0
    assert stats.traces <= 2 + 3 + (name in ("squared", "times a size")), (
        "floats; integers and True are others"
    )


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_a_branch_is_a_guard(name: str) -> None:
    compiled = _agrees(BRANCHES[name], VALUES)
    floats = symshape.compile(BRANCHES[name], fullgraph=True)
    for value in (0.7, 0.6, 0.3, 0.2, 0.05, *(0.01 * i for i in range(1, 90))):
        floats(torch.ones(3), value)
    assert floats.stats().traces <= 5
    assert compiled.stats().fallbacks <= 6


@pytest.mark.parametrize("name", BY_VALUE)
@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_what_needs_the_value_gets_it(name: str) -> None:
    _agrees(BY_VALUE[name], VALUES)


def test_floats_anywhere_in_the_arguments() -> None:
    def fn(
        x: torch.Tensor, betas: tuple[float, float], how: dict[str, Any], *, eps: float = 1e-8
    ) -> torch.Tensor:
        return (x * betas[0] + betas[1]) * how["scale"][0] + eps

    compiled = symshape.compile(fn, fullgraph=True)
    for i in range(1, 8):
        args = torch.randn(2 + i), (0.1 * i, 0.9), {"scale": [1.0 / i, "name"]}
        assert torch.equal(compiled(*args, eps=i * 1e-3), fn(*args, eps=i * 1e-3))
    assert compiled.stats().traces == 2
    assert "is a float, but was traced as the float" in compiled.explain_miss()


def test_one_of_two_is_a_constant_by_value() -> None:
    compiled = symshape.compile(lambda x, a, b: x * a + int(b), fullgraph=True)
    for i in range(12):
        a, b = 0.1 * i, float(i % 2)
        assert torch.equal(compiled(torch.ones(3), a, b), torch.ones(3) * a + int(b))
    assert compiled.stats().traces <= 4


def test_lists_that_are_written_stay_the_callers() -> None:
    def fn(x: torch.Tensor, seen: list[Any], s: float) -> torch.Tensor:
        seen.append(s * 2)
        return x * s + seen[0]

    compiled = symshape.compile(fn)
    for s in (0.1, 0.2, 0.3, 0.4):
        mine, theirs = [s], [s]
        assert torch.equal(compiled(torch.ones(2), mine, s), fn(torch.ones(2), theirs, s))
        assert mine == theirs == [s, s * 2]


def test_a_tensor_is_no_float() -> None:
    def fn(x: torch.Tensor, s: Any) -> Any:
        return (x * s, s * 1)

    compiled = symshape.compile(fn, fullgraph=True)
    for s in (
        0.1,
        0.2,
        torch.tensor(0.2, dtype=torch.float64),
        0.3,
        torch.tensor(0.3, dtype=torch.float64),
    ):
        assert shown(compiled, torch.ones(2), s) == shown(fn, torch.ones(2), s)


def test_as_asked() -> None:
    x = torch.ones(2)
    calls = [0.1 * i for i in range(6)]
    made: dict[str, Any] = {
        "one by one": symshape.compile(lambda x, s: x * s, dynamic=False),
        "verified": symshape.compile(lambda x, s: x * s, options=symshape.Options(verify=1.0)),
        "stored": symshape.compile(lambda x, s: x * s, store=tempfile.mkdtemp()),
        "padded": symshape.compile(lambda x, s: x * s, dynamic=True, runner="padded"),
    }
    for compiled in made.values():
        for s in calls:
            assert torch.equal(compiled(x, s), x * s)
    traces = {name: each.stats().traces for name, each in made.items()}
    assert traces == {"one by one": 6, "verified": 2, "stored": 2, "padded": 5}, (
        "padding is worth some constants"
    )


def test_inside_another_program() -> None:
    inner = symshape.compile(lambda x, s: x * s, fullgraph=True)
    outer = symshape.compile(lambda x, s: inner(x, s) + s, fullgraph=True)
    for compiled in (inner, outer):
        for s in (0.1, 0.2, 0.3):
            compiled(torch.ones(2), s)
    assert torch.equal(outer(torch.ones(2), 0.7), torch.ones(2) * 0.7 + 0.7)
    assert outer.stats().traces == 2


def test_what_fails_is_eagers_error() -> None:
    compiled = symshape.compile(lambda x, s: x * math.log(s), fullgraph=True)
    for s in (0.5, 0.6, 0.7):
        compiled(torch.ones(2), s)
    with pytest.raises(ValueError, match=r"math domain error|positive"):
        compiled(torch.ones(2), -1.0)
