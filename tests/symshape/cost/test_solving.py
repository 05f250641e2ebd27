"""The largest size within a budget, against trying all of them."""

from __future__ import annotations

import random

import pytest

from guards import GuardSet, parse
from guards.facts.definedness import satisfied
from guards.terms import fold
from symshape.cost import solving
from symshape.cost.domain import Domain
from symshape.cost.solving import allowed_range, largest, limiting, solved
from symshape.errors import GuardViolation, InputError

FORMULAS = (
    ["3*s + 7*s*t + 5"],
    ["s*s*t + 40", "900*s + 3"],
    ["(s + 7)//8*8*t", "s*(s + 1)//2"],
    ["max(s*t, 50) + min(s, 4)*9"],
    ["s % 16 + s*3"],
    ["(s - 20)*(s - 20) + 5*t"],  # falls before it grows
)
GUARDS = ((), ("s % 4 == 0",), ("s >= 3", "s <= 37"), ("s != 21", "s*t < 400"), ("s % 8 == t % 8",))
LIMIT = 3000


def domain(*guards: str) -> Domain:
    return Domain("f", ["s", "t"], GuardSet.read(*guards, f"s <= {LIMIT}"), {})


@pytest.mark.slow
@pytest.mark.parametrize("texts", FORMULAS)
def test_against_trying(texts: list[str]) -> None:
    rng = random.Random(str(texts))
    terms = [parse(text) for text in texts]
    solved = 0
    for guards in GUARDS:
        d = domain(*guards)
        run = d.compiled(terms)
        for _ in range(6):
            t, budget = rng.randint(0, 12), rng.randint(0, 9000)
            fits = [
                s
                for s in range(1, LIMIT + 1)
                if d.guards.holds({"s": s, "t": t}) and max(run((s, t))) <= budget
            ]
            if fits:
                assert largest(d, terms, "s", budget, {"t": t}) == fits[-1]
                solved += 1
            else:
                with pytest.raises(InputError, match="nothing fits"):
                    largest(d, terms, "s", budget, {"t": t})
    assert solved > 8


@pytest.mark.parametrize("texts", FORMULAS[:4])
def test_bisection_finds_the_same(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*args: object) -> object:
        raise solving.TooMany

    d, terms = domain("s % 4 == 0"), [parse(text) for text in texts]
    exact = [largest(d, terms, "s", budget, {"t": 3}) for budget in (4000, 8000, 20_000)]
    monkeypatch.setattr(solving, "pieces_of", too_many)
    assert [largest(d, terms, "s", budget, {"t": 3}) for budget in (4000, 8000, 20_000)] == exact


def test_what_is_not_proven_to_grow_is_not_bisected(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*args: object) -> object:
        raise solving.TooMany

    monkeypatch.setattr(solving, "pieces_of", too_many)
    with pytest.raises(InputError, match="not proven to grow with s"):
        largest(domain(), [parse("(s - 20)*(s - 20)")], "s", 100, {"t": 0})


def test_refusals() -> None:
    d = domain("t != 1")
    with pytest.raises(InputError, match="has no symbol 'batch'"):
        largest(d, [parse("s*t")], "batch", 10, {})
    with pytest.raises(InputError, match="is the size to solve for, but also given"):
        largest(d, [parse("s*t")], "s", 10, {"s": 3, "t": 2})
    with pytest.raises(InputError, match="needs a value for t"):
        largest(d, [parse("s*t")], "s", 10, {})
    with pytest.raises(GuardViolation, match="t != 1"):
        largest(d, [parse("s*t")], "s", 10, {"t": 1})
    with pytest.raises(
        InputError,
        match="nothing fits: s=1, the least that the guards allow, takes 52, more than 10",
    ):
        largest(d, [parse("s*t + 50")], "s", 10, {"t": 2})
    free = Domain("f", ["s"], GuardSet.read(ranges={"s": (0, None)}), {})
    with pytest.raises(InputError, match="every s fits"):
        largest(free, [parse("7")], "s", 10, {})


def test_solved_as_a_guard() -> None:
    """It holds where the budget does, with the other size given or left in it."""
    d = Domain("f", ["s", "t"], GuardSet.read(ranges={"s": (0, 60), "t": (0, 30)}), {})
    for texts in (["3*s + 7*s*t + 5"], ["900*s + 3", "s*t + 40"], ["(s + 7)//8*8*t"]):
        terms = [parse(text) for text in texts]
        for free in (False, True):
            for t in (0, 1, 5, 29):
                found = solved(d, terms, "s", 2000, {} if free else {"t": t})
                for s in range(61):
                    point = {"s": s, "t": t}
                    within = all(fold.evaluate(term, point) <= 2000 for term in terms)
                    assert all(satisfied(each, point) for each in found) == within, (texts, point)


def test_what_is_not_solved() -> None:
    d = Domain("f", ["s", "t"], GuardSet.read(ranges={"s": (0, None), "t": (0, None)}), {})
    with pytest.raises(InputError, match=r"the budget is not solved for s: .*; give values for t"):
        solved(d, [parse("s*s*t + s*t*t")], "s", 2000, {})
    assert [*map(str, solved(d, [parse("s*s*t + s*t*t")], "s", 2000, {"t": 2}))] == ["s <= 30"]
    with pytest.raises(InputError, match="is the size to solve for, but also given"):
        solved(d, [parse("s")], "s", 2000, {"s": 3})


@pytest.mark.parametrize("pieces", [True, False])
def test_the_allowed_range_against_trying(pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pieces:

        def too_many(*_: object) -> None:
            raise solving.TooMany

        monkeypatch.setattr(solving, "pieces_of", too_many)
    for guards in (*GUARDS, ("s % 4 == 3", "s >= 9"), ("s*t >= 500",), ("s % 7 == t",)):
        d = domain(*guards)
        for t in (1, 5, 12):
            fits = [s for s in range(1, LIMIT + 1) if d.guards.holds({"s": s, "t": t})]
            if fits:
                least, greatest = allowed_range(d, "s", {"t": t})
                assert least == fits[0]
                assert greatest == (fits[-1] if pieces else None)
            else:
                with pytest.raises(InputError, match="no s that the guards allow"):
                    allowed_range(d, "s", {"t": t})


def test_the_greatest_allowed_size_by_bisection(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*_: object) -> None:
        raise solving.TooMany

    monkeypatch.setattr(solving, "pieces_of", too_many)
    guards = GuardSet(
        GuardSet.read("s % 4 == 3").conditions, ranges={"s": (0, 1000), "t": (0, None)}
    )
    assert allowed_range(Domain("f", ["s", "t"], guards, {}), "s", {"t": 2}) == (3, 999)


def test_the_guards_that_are_the_limit() -> None:
    d = Domain("f", ["s", "t"], GuardSet.read("s % 4 == 0", "s <= 37", "t <= 9"), {})
    assert allowed_range(d, "s", {"t": 2}) == (4, 36)
    assert limiting(d, "s", 36, {"t": 2}) == ("s <= 37",)
    assert limiting(d, "s", 32, {"t": 2}) == ()
    free = Domain("f", ["s"], GuardSet.read("s % 4 == 0"), {})
    assert allowed_range(free, "s", {}) == (4, None)
    assert limiting(free, "s", 400, {}) == ()
    with pytest.raises(GuardViolation, match="t <= 9"):
        allowed_range(d, "s", {"t": 10})


def test_a_size_that_a_guard_divides_by() -> None:
    """At 0 the guard does not hold, whatever the size that is asked for."""
    terms = [parse("s//t*4 + s")]
    d = domain("s % t == 0")
    for find in (
        lambda: largest(d, terms, "s", 100, {"t": 0}),
        lambda: allowed_range(d, "s", {"t": 0}),
    ):
        with pytest.raises(GuardViolation, match="s % t == 0"):
            find()
    assert largest(d, terms, "s", 100, {"t": 7}) == 63
    with pytest.raises(InputError, match="the formula has no value at t=0"):
        solved(d, terms, "s", 100, {"t": 0})
