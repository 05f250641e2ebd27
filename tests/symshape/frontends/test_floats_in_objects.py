"""Floats in objects that are arguments: once they are others, one program serves every value."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import pytest
import torch

import symshape

X = torch.randn(3, 4)
VALUES = [0.05 + 0.1 * i for i in range(8)]


@dataclasses.dataclass
class Settings:
    rate: float
    steps: int = 2


@dataclasses.dataclass(slots=True)
class Slotted:
    rate: float


@attrs.define
class Defined:
    rate: float


class Named(NamedTuple):
    rate: float
    steps: int = 2


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    rate: float


@dataclasses.dataclass
class Nested:
    settings: Settings
    rates: list[float]
    table: dict[str, float]


def _agree(fn: Callable[..., Any], calls: list[tuple[Any, ...]], traces: int) -> Any:
    """Results, and what is left of the arguments, are eager's."""
    compiled = symshape.compile(fn, fullgraph=True)
    for args in calls:
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        torch.testing.assert_close(compiled(*mine), fn(*theirs))
        assert repr(mine) == repr(theirs)
    assert compiled.stats().traces == traces, compiled.explain_miss()
    return compiled


@pytest.mark.parametrize(
    "make", [Settings, Slotted, Defined, Named, lambda rate: types.SimpleNamespace(rate=rate)]
)
def test_of_each_kind(make: Callable[[float], Any]) -> None:
    _agree(lambda x, c: x * c.rate + 1, [(X, make(rate)) for rate in VALUES], 2)


def test_beside_tensors_and_sizes() -> None:
    calls = [(Batch(torch.randn(2 + i, 4), rate),) for i, rate in enumerate(VALUES)]
    _agree(lambda batch: batch.x * batch.rate, calls, 2)


def test_the_same_object_changed() -> None:
    settings = Settings(1.0)
    compiled = symshape.compile(lambda x, c: x * c.rate, fullgraph=True)
    for rate in VALUES:
        settings.rate = rate
        assert torch.equal(compiled(X, settings), X * rate)
    assert compiled.stats().traces == 2
    assert type(settings.rate) is float


def test_in_objects_in_objects() -> None:
    calls = [(X, Nested(Settings(v), [v + 1, 2.0], {"a": v + 2})) for v in VALUES]
    _agree(lambda x, n: x * n.settings.rate + n.rates[0] * n.rates[1] + n.table["a"], calls, 2)
    _agree(lambda x, n: x * n[0]["it"].rate, [(X, [{"it": Settings(v)}]) for v in VALUES], 2)


def test_by_keyword() -> None:
    compiled = symshape.compile(lambda x, *, c: x * c.rate, fullgraph=True)
    for rate in VALUES:
        assert torch.equal(compiled(X, c=Settings(rate)), X * rate)
    assert compiled.stats().traces == 2


def test_one_object_twice_is_one() -> None:
    def fn(x: torch.Tensor, a: Settings, b: Settings) -> torch.Tensor:
        a.rate = a.rate * 2
        return x * b.rate

    calls: list[tuple[Any, ...]] = []
    for rate in VALUES[:4]:
        one = Settings(rate)
        calls += [(X, one, one), (X, Settings(rate), Settings(rate))]
    _agree(fn, calls, 4)


def test_floats_that_are_written() -> None:
    def fn(c: Batch) -> torch.Tensor:
        c.rate = c.rate * 0.5 + 1
        c.x = c.x * c.rate
        return c.x.sum()

    _agree(fn, [(Batch(X.clone(), rate),) for rate in VALUES], 2)


def test_a_list_of_them_that_grows() -> None:
    def fn(x: torch.Tensor, n: Nested) -> torch.Tensor:
        n.rates.append(n.rates[-1] * 2)
        n.table["b"] = n.settings.rate
        return x * n.rates[-1]

    _agree(fn, [(X, Nested(Settings(v), [v + 1], {"a": v})) for v in VALUES], 2)


def test_a_branch_is_a_guard() -> None:
    def fn(x: torch.Tensor, c: Settings) -> torch.Tensor:
        return x * c.rate if c.rate > 0.3 else x - c.rate

    _agree(fn, [(X, Settings(rate)) for rate in VALUES + VALUES[::-1]], 3)


def test_the_very_value_is_a_constant() -> None:
    def fn(x: torch.Tensor, c: Settings) -> torch.Tensor:
        return x * int(c.rate * 10)

    _agree(fn, [(X, Settings(rate)) for rate in VALUES[:4] + VALUES[:4]], 5)


def test_what_stays_is_a_constant() -> None:
    found = _agree(
        lambda x, c, d: x * c.rate * d.rate, [(X, Settings(v), Settings(3.0)) for v in VALUES], 2
    )
    keys = [str(each) for each in found.entries[-1].program.call.keys]
    assert "float" in keys
    assert "the float 3.0" in keys


def test_other_attributes_and_classes_are_told_apart() -> None:
    compiled = symshape.compile(lambda x, c: x * c.rate * getattr(c, "steps", 1), fullgraph=True)
    for rate in VALUES:
        for made in (Settings(rate), Settings(rate, 5), Defined(rate), Named(rate, 3)):
            assert torch.equal(compiled(X, made), X * rate * getattr(made, "steps", 1))


def test_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = symshape.compile(lambda c: (c.x * c.rate).sum(), fullgraph=True)
    for rate in VALUES[:4]:
        (found,) = torch.autograd.grad(compiled(Batch(x, rate)), x)
        torch.testing.assert_close(found, torch.full((3,), rate))


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (lambda x, c: x * c.rate, lambda rate: (X, Settings(rate))),
        (lambda x, c: x * c["rate"], lambda rate: (X, {"rate": rate})),
        (lambda b: b.x * b.rate, lambda rate: (Batch(X, rate),)),
        (lambda x, y, c: x * y * c[0].rate * c[1], lambda rate: (X, rate, (Settings(rate), 2.5))),
    ],
)
def test_new_values_are_found_quickly(fn: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for rate in VALUES[:4]:
        compiled(*make(rate))

    def slow(*args: Any) -> Any:
        raise AssertionError("it was looked up slowly")

    monkeypatch.setattr(compiled, "_slow_call", slow)
    for rate in VALUES:
        torch.testing.assert_close(compiled(*make(rate)), fn(*make(rate)))


def test_an_integer_in_a_floats_place() -> None:
    compiled = symshape.compile(lambda x, c: x * c["rate"], fullgraph=True)
    for rate in (0.5, 1, 1.5, 2, 2.5, 2.5, True, 3.5, 2, 0.5, 4.5):
        assert torch.equal(compiled(X, {"rate": rate}), X * rate)


def test_an_object_in_the_place_of_a_dictionary() -> None:
    compiled = symshape.compile(
        lambda x, c: x * (c["rate"] if isinstance(c, dict) else c.rate), fullgraph=True
    )
    for rate in VALUES:
        for made in ({"rate": rate}, Settings(rate)):
            assert torch.equal(compiled(X, made), X * rate)
    assert compiled.stats().traces == 4
