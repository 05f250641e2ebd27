"""Minimising: nothing that is implied stays, nothing that is needed goes, whichever way it is
asked.
"""

from __future__ import annotations

import random
from itertools import product
from time import process_time

import pytest

from guards import Effort, Facts, Guard, GuardSet, Origin
from guards.deciders.z3_solver import Together
from guards.regions import minimising
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE, eq, ge, gt, le, ne
from guards.terms.division import floordiv, mod
from guards.terms.extremes import maximum
from guards.terms.term import Term
from tests.guards.making import random_set

S0, S1, S2 = (symbol(f"s{i}") for i in range(3))


def of_chance(count: int, symbols: int, seed: int) -> list[Term]:
    """Unrelated guards on a few symbols, dense enough that many follow from others."""
    rng = random.Random(seed)
    names = [symbol(f"s{index}") for index in range(symbols)]
    terms: list[Term] = []
    for _ in range(count):
        a, b, c = (rng.choice(names) for _ in range(3))
        number = rng.randint(2, 500)
        choices = (
            le(a, b + number),
            ge(a, number % 40),
            ge(a + b, number % 9),
            eq(mod(a, 4), 0),
            ne(a, number % 3),
        )
        terms.append(
            rng.choice([*choices, le(floordiv(a, 2) + c, b + 200), le(maximum(a, b), c + 1000)])
        )
    return terms


@pytest.mark.parametrize("many", [0, 24])
def test_minimal_and_the_same_by_trying_all_points(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimising, "_MANY", many)
    rng = random.Random(1)
    names = ("s0", "s1")
    dropped = left_over = 0
    for _ in range(60):
        guards = random_set(rng, names, 7).intersect(GuardSet((), dict.fromkeys(names, (-1, 6))))
        small = guards.minimise()
        dropped += len(guards) - len(small)
        points = [
            dict(zip(names, values, strict=True)) for values in product(range(-2, 8), repeat=2)
        ]
        inside = [point for point in points if guards.holds(point)]
        assert inside == [point for point in points if small.holds(point)]
        for guard in small if inside else ():
            rest = GuardSet(tuple(other for other in small if other is not guard), small.ranges)
            left_over += inside == [point for point in points if rest.holds(point)]
    assert dropped > 10
    assert left_over <= 2  # kept where nobody found the proof


def test_a_dense_set_loses_nothing() -> None:
    """The kept conditions imply every dropped one, by Z3 told nothing else; and none of them
    follows from the rest.
    """
    terms = of_chance(120, 6, 3)
    guards = GuardSet(terms)
    start = process_time()
    small = guards.minimise()
    assert process_time() - start < 5  # about 0.3 s
    kept = [guard.term for guard in small]
    sizes = [ge(symbol(name), 0) for name in guards.ranges]
    confirmed = Together([*sizes, *kept])
    assert all(confirmed.implies([], term) for term in terms if term not in set(kept))
    for term in kept:
        rest = Together([*sizes, *(other for other in kept if other is not term)])
        assert rest.implies([], term) is not True, term
    assert len(kept) < 60
    assert guards.minimise(Effort.CHEAP).implies(small) is True


def test_ranges_of_one_form_are_compared_without_a_proof() -> None:
    terms = [
        le(S0 + S1, 9),
        le(S0 + S1, 7),
        ge(S0 + S1, 2),
        ge(S0 + S1, 7),
        eq(S0, 4),
        le(S0, 9),
        ge(S0, 4),
    ]
    assert minimising._tightest(terms) == [1, 3, 4]
    # these also say that s1 is not 0
    assert minimising._tightest([le(S0 % S1, 4), le(S0 % S1, 3)]) == [0, 1]


def test_an_equation_does_not_hide_a_contradiction() -> None:
    guards = GuardSet([eq(S0, 4), le(S0, 3)])
    assert guards.minimise().is_satisfiable() is False


def test_together() -> None:
    asked = Together([ge(S0, 1)], [ge(S1, S0), le(S1, 4)])
    assert asked.implies([0], ge(S1, 1)) is True
    assert asked.implies([1], ge(S1, 1)) is False
    assert asked.implies([0, 1], le(S0, 4)) is True
    assert asked.implies([0], le(S1, 4)) is False
    product_of = Together([ge(S0, 2), ge(S1, 2)])
    assert product_of.implies([], ge(S0 * S1, 4)) is True
    assert product_of.implies([], ge(S0 * S1, 5)) is False


class TestOfGuardSets:
    def test_keeps_origins(self) -> None:
        strong = Guard(ge(S0, 3), Origin("m.py", 7))
        small = GuardSet((Guard(ge(S0, 2), Origin("m.py", 3)), strong, Guard(ne(S0, 1)))).minimise()
        assert small.guards == (strong,)

    def test_drops_what_ranges_imply(self) -> None:
        assert len(GuardSet([ge(S0, 2), le(S0, 64)], {"s0": (2, 64)}).minimise()) == 0

    def test_keeps_one_of_equals(self) -> None:
        small = GuardSet(
            [eq(S0, S1), eq(S1, S0), eq(2 * S0, 2 * S1), ge(S0, 5), ge(S1, 5)]
        ).minimise()
        assert len(small) == 2

    def test_contradictions_stay(self) -> None:
        guards = GuardSet([gt(S0, 5), le(S0, 2), ne(S1, 3)])
        assert guards.minimise() == guards

    def test_division_by_zero_is_not_implied(self) -> None:
        """`s0 % s1 >= 0` holds wherever it is defined, but it also says that s1 is not 0."""
        guards = GuardSet([ge(S0 % S1, 0)])
        assert guards.minimise() == guards

    def test_same_object_when_minimal(self) -> None:
        guards = GuardSet([gt(S0 + S1, 2)])
        assert guards.minimise() is guards

    def test_true_goes(self) -> None:
        assert len(GuardSet([TRUE]).minimise(Effort.CHEAP)) == 0

    def test_three_hundred_guards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kind of guards that a transformer leaves: the same few conditions again for each
        layer.

        Most go without a look at the whole ladder, which few questions climb.
        """
        asked: list[Effort] = []
        ask = minimising.ask

        def counted(facts: Facts, query: Term, *, effort: Effort, only: bool) -> bool | None:
            asked.append(effort)
            return ask(facts, query, effort=effort, only=only)

        monkeypatch.setattr(minimising, "ask", counted)
        terms = []
        for layer in range(25):
            terms += [
                ge(S0 * S1, 1),
                ne(S0 * S1 * 768, 0),
                le(S1, 1024),
                gt(S0 * S1 * 768, layer),
                ne(S1, 1),
            ]
            terms += [
                ge(S1, 1 + layer % 3),
                ne(S0, 0),
                le(S0 * S1 * 64, 64 * 1024 * S0),
                ge(S0 + S1, 2),
            ]
            terms += [eq((S1 + S2) % 8, 0), ge((S1 + S2 + 7) // 8, 1), le(S2, 4096 - S1)]
        guards = GuardSet(terms, {"s0": (1, 64)})
        small = guards.minimise()
        assert asked.count(Effort.CHEAP) <= len(guards) / 2
        assert asked.count(Effort.FULL) <= len(small) + 1
        assert len(small) <= 5
        assert small.equivalent(guards) is True
