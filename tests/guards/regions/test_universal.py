"""Universal quantification: an answer is sound at every point, and known examples have the weakest
answer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

import pytest

from guards import parse
from guards.errors import ParseError
from guards.facts.definedness import satisfied
from guards.facts.facts import Facts
from guards.regions.universal import for_all
from guards.terms.arithmetic import symbol
from guards.terms.term import Term

S0, S1, U0, U1 = (symbol(name) for name in ("s0", "s1", "u0", "u1"))
SMALL = range(6)


def facts_from(*texts: str) -> Facts:
    facts = Facts()
    for each in (S0, S1, U0, U1):
        facts = facts.with_symbol(each)
    for text in texts:
        facts = facts.assume(parse(text))
    return facts


def always(condition: Term, known: Facts, values: Mapping[str, int], most: int = 40) -> bool:
    """Whether the condition holds for all values of u0 and u1 that the facts allow there, found by
    trying them.
    """
    unknown = [
        s
        for s in (U0, U1)
        if s in condition.symbols or any(s in each.symbols for each in known.conditions)
    ]
    for chosen in product(range(most), repeat=len(unknown)):
        point = {**values, **{s.name: value for s, value in zip(unknown, chosen, strict=True)}}
        if all(satisfied(each, point) for each in known.conditions) and not satisfied(
            condition, point
        ):
            return False
    return True


@pytest.mark.parametrize(
    ("facts", "condition", "at", "wanted"),
    [
        (("u0 <= s0",), "s0 + u0 > 0", {"s0": 5}, "s0 >= 1"),
        (("u0 <= s0",), "s0 + u0 >= 3", {"s0": 5}, "s0 >= 3"),
        (("u0 <= s0",), "s0 + u0 == 0", {"s0": 0}, "s0 == 0"),
        (("u0 <= s0",), "u0 <= 4", {"s0": 3}, "s0 <= 4"),
        (("u0 <= s0",), "u0 != 7", {"s0": 3}, "s0 <= 6"),
        (("u0 <= s0", "u1 <= s1"), "u0 + u1 < 10", {"s0": 3, "s1": 2}, "s0 + s1 <= 9"),
        (("u0 <= s0", "u1 <= u0"), "u1 < s1", {"s0": 3, "s1": 9}, "s0 < s1"),
        ((), "(s0 + u0) * s1 != 0", {"s0": 3, "s1": 9}, "s0 * s1 >= 1"),
        (("u0 <= s0",), "u0 * s1 <= 20", {"s0": 3, "s1": 4}, "s0 * s1 <= 20"),
        ((), "(s0 + u0) // 2 >= 2", {"s0": 6}, "s0 // 2 >= 2"),
        ((), "max(s0 + u0, 4) > 6", {"s0": 9}, "s0 >= 7"),
        (("u1 == u0 * s1", "u0 >= 1"), "u1 >= 2", {"s0": 0, "s1": 4}, "s1 >= 2"),
        (("u0 <= s0",), "u0 // s1 <= 100 and s1 >= 1", {"s0": 3, "s1": 0}, None),
        (("u0 <= s0",), "u0 == 0", {"s0": 5}, None),
        (("u0 <= s0",), "(s0 + u0) % 2 == 0", {"s0": 5}, None),
        ((), "u0 <= 1000000", {"s0": 5}, None),
    ],
)
def test_what_settles_a_question(
    facts: tuple[str, ...], condition: str, at: dict[str, int], wanted: str | None
) -> None:
    """The answer is the weakest condition: equal at each point to the one that a person would
    write.
    """
    found = for_all(parse(condition), facts_from(*facts), at)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert {s.name for s in found.symbols} <= at.keys()
    for values in product(range(25), repeat=len(at)):
        point = dict(zip(at, values, strict=True))
        assert satisfied(found, point) is satisfied(parse(wanted), point), (str(found), point)


def test_no_answer_where_data_alone_tell() -> None:
    assert for_all(parse("u0 > 0"), facts_from(), {}) is None
    assert for_all(parse("u0 >= 0"), facts_from("s0 >= 2"), {"s0": 1}) is None


def _term(rng: random.Random, depth: int = 2) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(["s0", "s1", "u0", "u1", "u0", str(rng.randint(0, 4))])
    a, b = _term(rng, depth - 1), _term(rng, depth - 1)
    form = rng.choice(["({a} + {b})", "({a} - {b})", "{c} * {a}", "({a}) // {n}", "({a}) % {n}"])
    form = rng.choice(
        [form, form, form, "min({a}, {b})", "max({a}, {b})", "({a}) * ({b})", "({a}) // ({b})"]
    )
    return form.format(a=a, b=b, c=rng.randint(-2, 3), n=rng.randint(2, 3))


def _condition(rng: random.Random) -> str:
    relation = rng.choice(["<", "<=", "==", "!=", ">", ">="])
    text = f"{_term(rng)} {relation} {_term(rng)}"
    return (
        f"{text} {rng.choice(['and', 'or'])} {_term(rng, 1)} <= {_term(rng, 1)}"
        if rng.random() < 0.2
        else text
    )


LIMITS: tuple[str, ...] = (
    "u0 <= s0",
    "u1 <= s1",
    "u1 <= u0",
    "u0 + u1 <= s0",
    "u0 >= 1",
    "u0 <= 3",
    "u1 == u0 * s1",
    "u1 == 2 * u0",
)
LIMITS += (
    "s0 == s1",
    "s0 >= 1",
    "u0 % 2 == 0",
    "u1 <= 2 * s0 + 1",
    "u0 <= s0 // 2",
    "u0 <= s0 * s1",
)


def check_one(rng: random.Random) -> str:
    """Try one random question; the kind of its outcome."""
    text, limits = _condition(rng), rng.sample(LIMITS, rng.randint(0, 3))
    at = {"s0": rng.choice(SMALL), "s1": rng.choice(SMALL)}
    known = facts_from(*limits)
    try:
        condition = parse(text)
    except ParseError:  # it divides by 0
        return "constant"
    if not condition.symbols:
        return "constant"
    found = for_all(condition, known, at)
    if found is None:
        return "open where it holds" if always(condition, known, at) else "open"
    assert satisfied(found, at), (text, limits, at)
    for values in product(SMALL, repeat=2):
        point = {"s0": values[0], "s1": values[1]}
        if satisfied(found, point):
            assert always(condition, known, point, 16), (text, limits, at, str(found), point)
    return "answered"


def test_random_questions() -> None:
    outcomes = [check_one(random.Random(seed)) for seed in range(150)]
    assert outcomes.count("answered") >= 20
