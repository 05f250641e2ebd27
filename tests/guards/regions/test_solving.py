"""Solving for one symbol: the answer holds at the same values, and the symbol stands alone in
it.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guards import CannotSolve, Contradiction, Facts, ParseError, Term, parse, solve
from guards.asking.assumptions import facts_from
from guards.domains.quasi_polynomial import TooMany, pieces_of
from guards.domains.value_sets import condition as told
from guards.facts.definedness import satisfied
from guards.terms.arithmetic import split, symbol
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, children, postorder
from tests.strategies import assumption, condition, range_of_symbol, relation

x, y = symbol("x"), symbol("y")
ANY = (None, None)


def alone(answer: Term, s: Term) -> bool:
    """Whether the symbol stands in the answer alone, or as the dividend of a remainder that stands
    alone.
    """
    for part in postorder(answer):
        if not Op.EQ <= part.op <= Op.LE:
            continue
        inside = [(m, c) for m, c in split(part.args[0])[1] if s in m.symbols]
        for m, c in inside:
            plain = m is s or (m.op is Op.MOD and m.args[0] is s and s not in m.args[1].symbols)
            if not plain or abs(c) != 1 or len(inside) > 1:
                return False
    return True


def differs(
    relation: Term, answer: Term, names: tuple[str, ...], facts: Facts, low: int, high: int
) -> dict[str, int]:
    """Values within the facts at which one of the two holds and the other does not; empty for
    none.
    """
    for values in product(range(low, high), repeat=len(names)):
        point = dict(zip(names, values, strict=True))
        if any(point[s.name] not in facts.declared(s) for s in facts.symbols | relation.symbols):
            continue
        if not all(satisfied(known, point) for known in facts.conditions):
            continue
        if satisfied(relation, point) is not satisfied(answer, point):
            return point
    return {}


# -- one symbol ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s % 8 // 2 == 1", "2 <= s % 8 <= 3"),
        ("(s + 3) // 4 * 4 == s + 3", "s % 4 == 1"),
        ("s % 6 < 2", "s % 6 <= 1"),
        ("min(s, 8) % 3 == 0", "s == 0 or s == 3 or s == 6"),
        ("s * s < 50", "s <= 7"),
        ("s * s >= 50", "s >= 8"),
        ("s == 2 or 4 <= s < 8 or 8 <= s <= 9", "s == 2 or 4 <= s <= 9"),
        ("s != 4 and s != 9 and s > 1", "s != 4 and s != 9 and s >= 2"),
        ("s % 2 == 0 and s % 3 == 0", "s % 6 == 0"),
        ("s % 2 == 0 and s != 4", "s % 2 == 0 and s != 4"),
        ("s % 2 == 0 or s == 5", "s % 2 == 0 or s == 5"),
        ("s * s % 8 == 1", "s % 2 == 1"),
        ("12 % s == 0", "1 <= s <= 6 and s != 5 or s == 12"),
        ("100 // s == 7", "13 <= s <= 14"),
        ("100 // s >= 7", "1 <= s <= 14"),
        ("s // 8 * 8 >= 100", "s >= 104"),
        ("(3*s + 1) % 8 == 0", "s % 8 == 5"),
        ("(s - 3) * (s - 7) <= 0", "3 <= s <= 7"),
        ("s*s*s < 9", "s <= 2"),
        ("s // 4 == 2", "8 <= s <= 11"),
        ("(s if s > 3 else 9) <= 5", "4 <= s <= 5"),
        ("s*s == 2", "False"),
        ("s >= 0", "True"),
        ("s % 8 <= 3", "s % 8 <= 3"),
        ("s*(s + 1) // 2 <= 20", "s <= 5"),
        ("(s + 7) // 8 * 8 - s <= 2", "s % 8 == 0 or s % 8 >= 6"),
        ("1000000007 % s == 0 and s < 30", "s == 1"),
        ("s*s - 1000003*s >= 0", "s == 0 or s >= 1000003"),
    ],
)
def test_sets_of_sizes(text: str, wanted: str) -> None:
    answer = solve(text, "s")
    assert answer is parse(wanted)
    assert not differs(parse(text), answer, ("s",), Facts(), 0, 200)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s*s <= 20", "-4 <= s <= 4"),
        ("s*s >= 20", "s <= -5 or s >= 5"),
        ("s*s == 16", "s == 4 or s == -4"),
        ("s // -3 == 2", "-8 <= s <= -6"),
        ("s % -4 == -1", "s % 4 == 3"),
        ("-7 // s == 2", "s == -3"),
    ],
)
def test_sets_of_integers(text: str, wanted: str) -> None:
    facts = facts_from({"s": ANY})
    answer = solve(text, "s", facts)
    assert answer is parse(wanted)
    assert not differs(parse(text), answer, ("s",), facts, -100, 100)


def test_facts_shorten_the_answer() -> None:
    assert solve("s // 8 * 8 == s", "s", facts_from(assume=["s % 8 == 0"])) is TRUE
    assert solve("s % 4 == 1", "s", facts_from(assume=["s % 8 == 0"])) is FALSE
    assert solve("3 <= s and s != 7", "s", facts_from({"s": (5, 9)})) is parse("s != 7")
    assert solve("s >= 2", "s", Facts().assume(FALSE)) is FALSE


@pytest.mark.slow
def test_what_has_too_many_pieces_says_so() -> None:
    with pytest.raises(CannotSolve, match="no closed form for s is known"):
        solve("s * s % 997 < s % 991", "s")
    # two thousand primes and their multiples
    with pytest.raises(CannotSolve, match="no closed form"):
        solve("s * s % 4001 <= 2000", "s")


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ParseError, match="condition"):
        solve("s + 1", "s")
    with pytest.raises(TypeError, match="for a symbol"):
        solve("s > 1", parse("s + 1"))
    with pytest.raises(ParseError):
        solve("s >", "s")


# -- several symbols -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2*s + 3 <= t", "s <= (t - 3) // 2"),
        ("t - 3*s <= 0", "s >= (t + 2) // 3"),
        ("2*s == t", "s == t // 2 and t % 2 == 0"),
        ("s + t == 5", "s == 5 - t"),
        ("s // 4 <= t", "s <= 4*t + 3"),
        ("max(s, t) <= 9", "s <= 9 and t <= 9"),
        ("t < 4", "t < 4"),
        ("s*u <= t", "s <= t // u"),
        ("s*u + s <= t", "s <= t // (u + 1)"),
        ("s*u == 12", "s == 12 // u and 12 % u == 0"),
        ("s % t == 1", "s % t == 1"),
        ("s % 8 <= t", "s % 8 <= t"),
        ("(3*s + t) % 8 == 2", "s % 8 == (6 - 3*t) % 8"),
        ("s % 4 == t % 4", "s % 4 == t % 4"),
        ("t // u <= s", "s >= t // u"),
        ("s // u == t", "t*u <= s and s < t*u + u"),
        ("s + max(s, u) <= 9", "s <= u and s + u <= 9 or s > u and s <= 4"),
        ("s // 2 + s % 2 <= t", "s % 2 == 0 and s <= 2*t or s % 2 == 1 and s + 1 <= 2*t"),
    ],
)
def test_bounds_in_other_symbols(text: str, wanted: str) -> None:
    facts = facts_from({"u": (1, None), "t": ANY, "s": ANY})
    answer = solve(text, "s", facts)
    assert answer is parse(wanted)
    assert not differs(parse(text), answer, ("s", "t", "u"), facts, -9, 14)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s * t == 12", "t >= 1 and 12 % t == 0 and s == 12 // t"),
        ("s * t <= 3", "t == 0 or t >= 1 and s <= 3 // t"),
        ("s * t != 12", "t == 0 or t >= 1 and (s != 12 // t or 12 % t != 0)"),
        ("s // t <= 3", "t >= 1 and s < 4*t"),
        ("t // s <= 3", "s >= 1 and t // 4 < s"),
    ],
)
def test_cases_where_a_divisor_may_be_zero(text: str, wanted: str) -> None:
    answer = solve(text, "s")
    assert answer is parse(wanted)
    assert not differs(parse(text), answer, ("s", "t"), Facts(), 0, 20)


def test_undefined_is_not_a_solution() -> None:
    """Where it divides by zero the relation does not hold, so neither does the answer."""
    answer = solve("min(s, t // u) <= 9", "s")
    assert not satisfied(answer, {"s": 3, "t": 5, "u": 0})
    assert satisfied(answer, {"s": 3, "t": 5, "u": 1})


def test_a_small_range_is_told_value_by_value() -> None:
    facts = facts_from({"t": (1, 3), "s": (0, None)})
    answer = solve("s*s*t <= 40", "s", facts)
    assert answer is parse("t == 1 and s <= 6 or t == 2 and s <= 4 or t == 3 and s <= 3")


def test_what_does_not_depend_on_the_symbol() -> None:
    assert solve("s * (t // s) + t % s == t", "s") is parse("s >= 1")


@pytest.mark.parametrize("text", ["s*s <= t", "t % s == 1", "s % t <= s // 3", "s*s*t <= 9"])
def test_what_cannot_be_solved_says_so(text: str) -> None:
    with pytest.raises(CannotSolve, match="no closed form for s"):
        solve(text, "s", facts_from({"t": ANY, "s": ANY}))


def test_random_conditions_in_one_symbol() -> None:
    """All but a few of them are solved, and exactly."""
    rng = random.Random(61)
    asked = failed = 0
    for _ in range(500):
        ranges = {"x": range_of_symbol(rng)}
        try:
            term = parse(condition(rng, ("x",)))
            facts = facts_from(ranges, [assumption(rng, ("x",)) for _ in range(rng.randint(0, 1))])
        except (ParseError, Contradiction):
            continue
        if not term.is_bool:
            continue
        asked += 1
        try:
            answer = solve(term, x, facts)
        except CannotSolve:
            failed += 1
            continue
        assert alone(answer, x), (term, answer)
        assert not differs(term, answer, ("x",), facts, -60, 80), (ranges, facts, term, answer)
    assert asked > 400
    assert failed <= asked // 100


@given(st.integers(0, 2**40))
def test_random_relations_in_two_symbols(seed: int) -> None:
    rng = random.Random(seed)
    ranges = {name: range_of_symbol(rng) for name in ("x", "y")} if rng.random() < 0.7 else {}
    try:
        term = parse(relation(rng, ("x", "y"), rng.choice([1, 2])))
        facts = facts_from(ranges, [assumption(rng, ("x", "y"))] if rng.random() < 0.3 else [])
        answer = solve(term, x, facts)
    except (ParseError, Contradiction, CannotSolve):
        return
    assert alone(answer, x), (term, answer)
    assert not differs(term, answer, ("x", "y"), facts, -9, 17), (ranges, facts, term, answer)


def test_most_random_relations_in_two_symbols_are_solved() -> None:
    rng = random.Random(6)
    asked = failed = 0
    for _ in range(400):
        try:
            term = parse(relation(rng, ("x", "y"), 2))
            asked += term.is_bool
            solve(term, x)
        except CannotSolve:
            failed += 1
        except (ParseError, TypeError):
            continue
    assert asked > 300
    assert failed <= asked // 10


# -- the pieces ------------------------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_pieces_are_the_function(seed: int) -> None:
    """At every value of the domain, near and far, the pieces say what evaluating says; None where
    it is undefined.
    """
    from guards.terms.fold import evaluate

    rng = random.Random(seed)
    try:
        term = parse(relation(rng, ("x",), rng.choice([1, 2, 3])))
        inner = term.args[0] if term.args and rng.random() < 0.5 else term
        domain = rng.choice([(0, None), ANY, (None, 5), (-7, 30)])
        known = rng.choice([(1, 0), (4, 2)])
        found = pieces_of(inner, domain, known)
    except (ParseError, TooMany):
        return
    for value in [*range(-30, 50), 1000, -1000, 12347, -99999]:
        inside = (domain[0] is None or value >= domain[0]) and (
            domain[1] is None or value <= domain[1]
        )
        if value % known[0] != known[1] or not inside:
            continue
        try:
            wanted: int | bool | None = evaluate(inner, {"x": value})
        except ZeroDivisionError:
            wanted = None
        got = found.at(value)
        if isinstance(got, tuple):
            got = sum(c * value**power for power, c in enumerate(got))
        assert got == wanted, (inner, value, domain, known)


def test_a_set_is_told_without_needless_bounds() -> None:
    truths = pieces_of(parse("x >= 5 and x % 8 == 0"), (3, None))
    assert told(truths, x) is parse("x % 8 == 0")
    truths = pieces_of(parse("x >= 9 and x % 8 == 0"), (3, None))
    assert told(truths, x) is parse("x % 8 == 0 and x >= 16")
    assert list(children(told(pieces_of(parse("x > 1"), (3, None)), x))) == []


def test_a_remainder_of_a_huge_modulus_is_no_list() -> None:
    """``z`` is known to be 0 modulo 2**63 - 1; its classes were made one by one."""
    facts = facts_from({"x": (None, None), "z": (1, None)}, ["x * 9223372036854775807 == 5 * z"])
    assert solve("z <= 8 and x > -4", "z", facts) is FALSE  # z is at least 2**63 - 1


@pytest.mark.parametrize(
    ("text", "name", "ranges", "assumed"),
    [
        (
            "((x if (x)//((x)//16) < 16 else y) if x == -2 else (y)//(-16)) >= (y + -6)",
            "y",
            {"x": (1, None), "y": (0, 2)},
            ["x - 6 <= y"],
        ),
        (
            (
                "((min((x)%y, x))//x if (x + 7) <= z else (z - x)) >= (2*(y) if (z if z > -2 else "
                "x) != z else y)"
            ),
            "x",
            {"x": (0, None), "y": (0, 0), "z": (None, None)},
            ["z * x >= x"],
        ),
    ],
)
def test_what_is_undefined_in_a_way_not_taken_does_not_matter(
    text: str, name: str, ranges: dict[str, tuple[int | None, int | None]], assumed: list[str]
) -> None:
    facts = facts_from(ranges, assumed)
    relation = parse(text)
    solved = solve(relation, name, facts)
    for values in product(range(-3, 24), repeat=3):
        point = dict(zip("xyz", values, strict=True))
        within = all(
            (lo is None or lo <= point[n]) and (hi is None or point[n] <= hi)
            for n, (lo, hi) in ranges.items()
        )
        if within and all(satisfied(parse(each), point) for each in assumed):
            assert satisfied(solved, point) == satisfied(relation, point), point
