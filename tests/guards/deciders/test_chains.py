"""Chains of inequalities: nothing with a solution is refuted, chains of any length are followed in
one walk.
"""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.queries import decide
from guards.deciders import chains
from guards.deciders.chains import at_most_zero, network_of, refutes
from guards.errors import Contradiction, ParseError
from guards.terms.fold import evaluate
from tests.oracles import Question, by_z3

NAMES = ("w", "x", "y", "z")
PRODUCTS = ("x*y", "x*x", "w*x*y", "z*z*z", "w*z", "x*y*z", "y*z*w*w")


def _sum(rng: random.Random, atoms: tuple[str, ...], most: int) -> str:
    parts = [
        f"{rng.choice((1, 1, 1, 2, 3)) * rng.choice((1, -1))}*{rng.choice(atoms)}"
        for _ in range(rng.randint(2, most))
    ]
    return " + ".join([*parts, str(rng.randint(-3, 3))])


def _row(rng: random.Random) -> str:
    if rng.random() < 0.5:
        one, other = rng.sample(NAMES, 2)
        return f"{one} + {rng.randint(-1, 1)} <= {other}"
    atoms = NAMES if rng.random() < 0.7 else (*NAMES, *PRODUCTS[:3])
    return f"{_sum(rng, atoms, 4)} {rng.choice(('<=', '<=', '>=', '=='))} 0"


def _comparison(rng: random.Random) -> str:
    if rng.random() < 0.4:
        one, other = rng.sample(PRODUCTS, 2)
        relation = rng.choice(("<=", "<", ">", "=="))
        return (
            f"{rng.randint(1, 2)}*{one} + {rng.randint(-1, 1)} {relation} "
            f"{rng.randint(1, 3)}*{other}"
        )
    atoms = NAMES if rng.random() < 0.6 else (*NAMES, *PRODUCTS)
    return f"{_sum(rng, atoms, 4)} {rng.choice(('<=', '<', '>', '==', '!='))} 0"


def _formula(rng: random.Random) -> str:
    found = _comparison(rng)
    if rng.random() < 0.3:
        found = f"({found}) {rng.choice(('and', 'or'))} ({_comparison(rng)})"
    return found


@pytest.mark.slow
def test_nothing_with_a_solution_is_refuted() -> None:
    rng = random.Random(20261122)
    refuted = solvable = 0
    for _ in range(1300):
        low = rng.choice((0, 0, 0, 1, -2))
        high = rng.choice((2, 3, 4))
        box = [
            dict(zip(NAMES, point, strict=True))
            for point in product(range(low, high + 1), repeat=len(NAMES))
        ]
        unbounded = rng.random() < 0.5  # above: what holds for all holds in the box
        ranges = dict.fromkeys(NAMES, (low, None if unbounded else high))
        try:
            facts = facts_from(ranges, [_row(rng) for _ in range(rng.randint(1, 5))])
            formula = parse(_formula(rng))
        except (ParseError, Contradiction):
            continue
        component = facts.component(formula)
        if component.contradictory or not formula.symbols:
            continue
        if not refutes(component, formula):
            solvable += 1
            continue
        refuted += 1
        for point in box:
            if all(evaluate(c, point) for c in facts.conditions):
                assert not evaluate(formula, point), (facts, formula, point)
    assert refuted > 100, refuted
    assert solvable > 500, solvable


def test_what_it_proves_z3_does_not_deny() -> None:
    rng = random.Random(7)
    asked = proven = 0
    while asked < 60:
        rows = tuple(_row(rng) for _ in range(rng.randint(2, 5)))
        query = _comparison(rng)
        try:
            facts = facts_from(None, rows)
            formula = parse(f"not ({query})")
        except (ParseError, Contradiction):
            continue
        if not formula.symbols or not refutes(facts.component(formula), formula):
            continue
        asked += 1
        answer = by_z3(Question(query, assume=rows), 400_000)
        assert answer is not False, (rows, query)
        proven += answer is True
    assert proven > 40


@pytest.mark.parametrize("number", [20, 500])
def test_long_chains_are_followed_whatever_their_order(number: int) -> None:
    names = [f"q{i}" for i in range(number + 1)]
    rows = [f"{a} + 1 <= {b}" for a, b in pairwise(names)]
    random.Random(3).shuffle(rows)
    first, last = names[0], names[-1]
    for query, value in (
        (f"{first} + {number} <= {last}", True),
        (f"{first} + {number + 1} <= {last}", None),
        (f"{last} <= {first}", False),
        (f"{first} == {last}", False),
        (f"{first} + {names[1]} + {2 * number - 2} <= {last} + {names[-2]}", True),
        (f"{first} * {names[1]} < {last} * {names[-2]}", None if number < 3 else True),
    ):
        verdict = decide(query, assume=rows)
        if value is not None or "*" not in query:
            assert verdict.value is value, query
        assert verdict.rung in ("chains", "points", "linear", "interval"), (query, verdict)


def test_one_walk_answers_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edges looked at grow as the facts do: counted, not timed."""
    counts = {}
    for number in (50, 100, 200):
        names = [f"r{i}" for i in range(number + 1)]
        facts = facts_from(None, [f"{a} <= {b}" for a, b in pairwise(names)])
        term = parse(f"{names[0]} - {names[-1]}")
        looked = 0
        divided = chains._divided

        def counted(a: int, b: int, c: int, divided=divided) -> chains.Label:  # type: ignore[no-untyped-def]
            nonlocal looked
            looked += 1
            return divided(a, b, c)

        monkeypatch.setattr(chains, "_divided", counted)
        assert at_most_zero(facts.component(term), term)
        monkeypatch.undo()
        counts[number] = looked
    if counts[50]:  # compiled guards do not come by a patched name
        assert counts[200] <= 4.2 * counts[50]
        assert counts[200] <= 3 * 200


def test_products_are_compared_factor_by_factor() -> None:
    for query, assume, value in (
        ("a*a*b <= c*c*c", ["a <= b", "b <= c"], True),
        ("c*c*c < a*a*b", ["a <= b", "b <= c"], False),
        ("a*b <= m", ["a <= n", "b <= n", "n*n <= m"], True),
        ("a*b <= 10*c", ["a <= c", "b <= 10"], True),
        ("a <= b*c", ["a <= b", "c >= 1"], True),
        ("a*b + 8 <= c*d", ["a + 2 <= c", "b + 2 <= d", "a >= 1", "b >= 1"], True),
        ("a*b + 9 <= c*d", ["a + 2 <= c", "b + 2 <= d", "a >= 1", "b >= 1"], None),
        ("a*b < c*d", ["a < c", "b <= d", "b >= 1"], True),
        ("a*b < c*d", ["a < c", "b <= d"], None),
        ("6*a*b <= c*d", ["2*a <= c", "3*b <= d"], True),
        ("a*b <= c*d", ["a <= c", "b <= d + 1"], None),
    ):
        verdict = decide(query, assume=assume)
        assert verdict.value is value, query
        assert verdict.rung != "z3", query
    term = parse("a*b - c*d")
    negative = facts_from({"a": (None, None)}, ["a <= c", "b <= d"]).component(term)
    assert not at_most_zero(negative, term)  # (-1) * 0 <= ... but (-1)*(-1) is not: signs matter
    zero = facts_from(None, ["a <= b", "c >= 0"]).component(parse("a - b*c"))
    assert not at_most_zero(zero, parse("a - b*c"))


def test_large_questions_and_rows_are_left_alone() -> None:
    facts = facts_from(None, ["a + b + c + d + e <= f", "a <= b"])
    wide = parse("a + b + c + d + e - f")
    assert not at_most_zero(facts.component(wide), wide)
    network = network_of(facts.component(wide))
    assert network is network_of(facts.component(wide))
    assert sum(map(len, network.edges)) == 2  # a <= b, and -b <= -a
    assert not refutes(facts.component(wide), parse("a < 3 or b < 3"))
