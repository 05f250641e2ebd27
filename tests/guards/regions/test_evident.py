"""What is plain to see holds at every point, and spares the solver what traces drop most."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import GuardSet
from guards.facts.definedness import guarded
from guards.regions import minimising
from guards.regions.evident import Evident
from guards.terms.arithmetic import symbol
from guards.terms.boolean import and_, eq, ge, gt, le, lt, ne, not_, or_
from guards.terms.division import mod
from guards.terms.extremes import maximum, minimum
from guards.terms.fold import evaluate
from guards.terms.term import among
from tests.guards.making import random_set

S0, S1, S2 = (symbol(f"s{i}") for i in range(3))


def test_what_is_plain_holds_at_all_points() -> None:
    """Of random conditions, and of their negations: never one that a point of the region
    contradicts.
    """
    rng = random.Random(7)
    names = ("s0", "s1", "s2")
    ranges = dict.fromkeys(names, (-1, 5))
    points = [dict(zip(names, values, strict=True)) for values in product(range(-1, 6), repeat=3)]
    plain = 0
    for _ in range(150):
        terms = [guarded(each.term) for each in random_set(rng, names, 7)]
        terms += [eq(S0, S1)] if rng.random() < 0.3 else []
        seen = Evident(kept := terms[: rng.randint(1, 4)], ranges)
        inside = [point for point in points if all(evaluate(term, point) for term in kept)]
        bounds = [
            ge(rng.choice((S0, S1, S2)), rng.randint(-2, 6)),
            ne(2 * rng.choice((S0, S1)), rng.randint(-3, 12)),
        ]
        for term in [*terms, *map(not_, terms), *bounds, or_(*bounds), and_(*bounds)]:
            if seen.implies(term):
                plain += not among(term, kept)
                assert all(evaluate(term, point) for point in inside), (kept, term)
    assert plain > 100


@pytest.mark.parametrize(
    ("kept", "condition"),
    [
        ([ge(S1, 2)], ne(S1, 0)),
        ([ge(S1, 2)], ne(S1, 1)),
        ([le(S1, 128), and_(eq(mod(S0, 8), 0), ne(S1, 0))], ne(S1, 0)),
        ([eq(S1, 3)], or_(eq(S0, 0), ge(S1, 1))),
        ([eq(S0, 32)], and_(ge(S0, 8), lt(S0, 33))),
        ([ne(S0, 0), eq(S0, S2)], ne(S2, 0)),
        ([], ge(S0, 0)),
        ([ne(S0 * S1, S1)], ge(S1, 1)),
        ([ne(S0 * ((S1 + 3) // 4), (S1 + 3) // 4)], or_(eq(S0, 0), ge(S1, 1))),
        ([ne(S0, 1)], ne(S0 * ((S1 + 1) // 2), 1)),
        ([ne((S1 + 1) // 2, 1), ge(S2, 1)], ne(S0 * ((S1 + 1) // 2) * S2, 1)),
        ([eq(S0, S2), ne(S2 * S1, S1)], ge(S1, 1)),
        ([ge(S1, 2)], gt(S1 + minimum(S1, 1), 0)),
        ([ge(S1 // 32, 2)], and_(ge(S1, 8), ge(S1 // 16, 2))),
        ([ge(minimum((S0 + 4) // 8, (S1 + 4) // 8), 5)], ge(minimum(S0 // 4, S1 // 4), 5)),
        ([eq((S1 + mod(-S1, 64)) // 64, 1)], ge(S1, 1)),
        ([ge((S1 + 15) // 20, 3), ne(S0, 0)], ne(S0 + 1, S0 * (S1 // 5))),
    ],
)
def test_plain(kept: list[object], condition: object) -> None:
    assert Evident(kept, {}).implies(condition)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "condition"),
    [
        ([ge(S1, 2)], ne(S1, 2)),
        ([ge(S1, 2)], ge(S1, 3)),
        ([ge(S1, 2)], ne(S0, 0)),
        ([or_(ge(S1, 2), ge(S0, 2))], ge(S1, 2)),
        ([ge(S0 + S1, 2)], ge(S0, 2)),
        ([], ge(S0, 1)),
        ([ne(S0 * S1, S1)], ge(S1, 2)),
        ([ne(S0 * S1, S1 + 1)], ge(S1, 1)),
        ([ne(S0, 1)], ne(S0 * S1, 2)),
        ([ne(S0, 1)], ne(S0 * ((S1 - 1) // 2), 1)),
        ([ge(S0 // S1, 1)], ge(S1, 1)),
    ],
)
def test_not_implied(kept: list[object], condition: object) -> None:
    assert not Evident(kept, {}).implies(condition)  # type: ignore[arg-type]


def test_factors_that_may_be_negative_are_not_taken_for_1() -> None:
    below = {"s0": (-3, None), "s1": (-3, None)}
    assert not Evident([ne(S0, 1)], below).implies(ne(S0 * S1, 1))
    assert not Evident([ne(S0, 1)], {"s0": (None, None), "s1": (0, 9)}).implies(ne(S0 * S1, 1))


def test_what_fails_at_single_values_is_implied_only_where_a_part_is_false_there() -> None:
    """Random products and bounds, against all points of a box."""
    rng = random.Random(3)
    atoms = [S0, S1, S2, (S0 + 1) // 2, (S1 + 3) // 4, (S2 - 1) // 2, mod(S0, 2)]
    atoms += [minimum(S0, S2 + 1), maximum(S1, 2), (S0 - S1) // 3, mod(S1 + S2, -3)]
    found = 0
    for low in (0, 0, -2):
        ranges = dict.fromkeys(("s0", "s1", "s2"), (low, 4))
        points = [
            dict(zip(ranges, values, strict=True)) for values in product(range(low, 5), repeat=3)
        ]
        for _ in range(150):
            a, b, c = (rng.choice(atoms) for _ in range(3))
            kept = [
                rng.choice((ne(a * b, b), ne(a, 1), ne(a * b, c), ge(a * b, c + 1), le(a, 3 * b)))
                for _ in range(rng.randint(1, 3))
            ]
            seen = Evident(kept, ranges)
            inside = [point for point in points if all(evaluate(term, point) for term in kept)]
            for term in (
                *(ge(each, rng.randint(low, 2)) for each in (S0, S1, S2)),
                *(le(each, rng.randint(2, 4)) for each in (S0, S1, S2)),
                ne(a * b, rng.randint(-1, 2)),
                ne(a * b * c, 1),
                or_(ne(a * b, 1), ge(S1, low + 1)),
            ):
                if seen.implies(term):
                    found += 1
                    assert all(evaluate(term, point) for point in inside), (kept, term)
    assert found > 150


def test_a_range_without_zero_as_its_end_is_asked_for() -> None:
    assert not Evident([], {"s0": (None, None)}).implies(ge(S0, 0))
    assert Evident([], {"s0": (None, 4)}).implies(lt(S0, 5))


def test_minimising_asks_no_solver_for_what_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        minimising, "_confirmed", lambda kept, dropped, ranges: bool(asked.append(dropped)) or True
    )
    guards = GuardSet([ne(S1, 0), ge(S1, 2), eq(S0, S2), ne(S0, 0), ne(S2, 0)])
    assert len(guards.minimise()) == 3
    assert not asked
    GuardSet([gt(S0, S1), gt(S1, S2), gt(S0, S2)]).minimise()
    assert asked
