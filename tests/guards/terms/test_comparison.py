"""Comparisons of terms build relations; what cannot be told is never silently False; terms stay
keys.
"""

from __future__ import annotations

import operator
import pickle
import random
from collections.abc import Callable

import attrs
import pytest

import guards
from guards import Guard, GuardSet, Term, parse, prove, symbol
from guards.terms.fold import evaluate

s, b = symbol("s"), symbol("b")
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_comparison_means_what_python_means(compare: Callable[..., Term]) -> None:
    rng = random.Random(1)
    pairs = [(s, b), (s, 3), (4, b), (s * b, b + 1), (s // 2, 3 - b), (s % 3, True)]
    for left, right in pairs:
        built = compare(left, right)
        assert type(built) is Term
        for _ in range(20):
            values = {"s": rng.randint(-4, 6), "b": rng.randint(-4, 6)}
            a, c = (
                evaluate(each, values) if isinstance(each, Term) else each for each in (left, right)
            )
            assert evaluate(built, values) is compare(a, c), (built, values)


def test_conditions_combine_and_agree() -> None:
    p, q = s > 2, b > 3
    for values in ({"s": x, "b": y} for x in (2, 3) for y in (3, 4)):
        a, c = evaluate(p, values), evaluate(q, values)
        built = (p & q, p | q, ~p, p == q, p != q, p & True, False | q)
        assert tuple(evaluate(each, values) for each in built) == (
            a and c,
            a or c,
            not a,
            a is c,
            a is not c,
            a,
            c,
        )
    assert (p == p) is parse("True")
    assert p.eq(q) is (p == q)
    assert s.ne(b) is (s != b)


@pytest.mark.parametrize("wrong", ["s", 1.5, (1,), [s], {"s"}, object()])
def test_what_is_no_integer_is_an_error_and_never_just_unequal(wrong: object) -> None:
    for compare in COMPARISONS:
        with pytest.raises(TypeError, match="compare a term with a term or an integer"):
            compare(s, wrong)
    with pytest.raises(TypeError, match="compare it first"):
        s & (b > 1)
    with pytest.raises(TypeError, match="integer term is needed"):
        (s > 1) < b  # noqa: B015
    assert (s == None) is False  # noqa: E711 - nothing is no term
    assert (s != None) is True  # noqa: E711


def test_no_truth_value_is_made_up() -> None:
    for condition in (s == b, s <= b, s != 3, (s > 1) & (b > 1)):
        with pytest.raises(TypeError, match=r"depends on its symbols: ask guards\.prove"):
            bool(condition)
    with pytest.raises(TypeError, match="has no truth value"):
        bool(s)
    with pytest.raises(TypeError):
        s in [b, s]  # noqa: B015 - the second would be found only after the first was compared
    assert [
        bool(each) for each in (s == s, s + 1 == 1 + s, s < s, s == s + 1, s - s, s - s + 2)
    ] == [1, 1, 0, 0, 0, 1]


def test_terms_are_keys() -> None:
    many = [symbol(f"k{number}") * number + 1 for number in range(1, 500)]
    table = {term: place for place, term in enumerate(many)}
    assert [table[symbol(f"k{number}") * number + 1] for number in range(1, 500)] == list(
        range(499)
    )
    assert b not in table
    assert b not in set(many)
    assert {(s, b): 1}[s, b] == 1
    assert hash(pickle.loads(pickle.dumps(s * b + 1))) == hash(s * b + 1)


def test_records_that_hold_terms_compare_as_before() -> None:
    assert Guard(s > 1) == Guard(parse("s >= 2"))
    assert Guard(s > 1) != Guard(s > 2)
    assert GuardSet(s > 1) != GuardSet(b > 1)
    assert len({Guard(s > 1), Guard(s >= 2), Guard(b > 1)}) == 2
    assert attrs.evolve(Guard(s > 1), term=b > 1) == Guard(b > 1)


def test_relations_go_wherever_conditions_go() -> None:
    assert prove(8 * (s // 8) == s, assume=[s % 8 == 0]) is True
    assert prove((s < b) & (b < s)) is False
    assert guards.decide(s == b).holds is not None
    assert GuardSet(s == 8 * b, "s > 3", ranges={"b": (1, 4)}).holds({"s": 8, "b": 1})
    with pytest.raises(TypeError, match="compare terms, not their text or type"):
        GuardSet(s is b)  # type: ignore[arg-type]


def test_substitution_is_evaluation() -> None:
    rng = random.Random(2)
    term = parse("(s * b + 7) // 8 - max(s % 3, b) + (s if s > b else 2)")
    for _ in range(50):
        values = {"s": rng.randint(-9, 20), "b": rng.randint(-9, 20)}
        assert term.subs(values).value == evaluate(term, values)
        assert term.subs({"s": b, "b": s}).subs(
            {b: values["b"], "s": values["s"]}
        ).value == evaluate(term, {"s": values["b"], "b": values["s"]})
    assert (s <= b).subs({"s": 3, "b": 4}) is parse("True")
    assert s.subs({"unknown": 3}) is s
    assert (s // 8 + b).subs({s // 8: b}) is 2 * b
    with pytest.raises(TypeError, match="subs replaces symbols, names and terms"):
        s.subs({1: 2})
    with pytest.raises(TypeError, match="an integer term is needed"):
        s.subs({s: b > 1})
