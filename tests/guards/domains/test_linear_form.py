"""Linear forms: a relation and the range of its form say the same, for every integer."""

from __future__ import annotations

import random
from math import gcd

from guards import parse
from guards.domains.interval import Interval
from guards.domains.linear_form import bounded, bounded_by, normal_form
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate

x, y = symbol("x"), symbol("y")


def test_the_range_of_the_form_says_the_same() -> None:
    rng = random.Random(3)
    empty = 0
    for _ in range(500):
        a, b, constant = (rng.choice([c for c in range(-9, 10) if c]) for _ in range(3))
        lo = rng.choice((None, rng.randint(-20, 20)))
        hi = rng.choice((None, lo, rng.randint(-20, 20)))
        form, (low, high) = bounded(constant, ((x, a), (y, b)), lo, hi)
        empty += low is not None and high is not None and low > high
        assert form[0][1] > 0
        assert gcd(*(c for _, c in form)) == 1
        for _ in range(30):
            point = {x: rng.randint(-9, 9), y: rng.randint(-9, 9)}
            value = constant + a * point[x] + b * point[y]
            inside = (lo is None or lo <= value) and (hi is None or value <= hi)
            at = sum(c * point[m] for m, c in form)
            assert ((low is None or low <= at) and (high is None or at <= high)) is inside
    assert empty > 20


def test_forms_that_differ_by_a_factor_are_one() -> None:
    items = ((x, 2), (y, -6))
    form, factor = normal_form(items)
    assert (form, factor) == (((x, 1), (y, -3)), 2)
    for times in (-5, -1, 2, 7):
        again, other = normal_form(tuple((m, c * times) for m, c in items))
        assert again == form
        assert other == factor * times
    assert normal_form(form)[0] is form


def test_relations() -> None:
    for text in ("x + y <= 3", "x > y + 2", "2*x == 4 - 2*y", "x % 8 == 3", "5 >= x"):
        relation = parse(text)
        found = bounded_by(relation)
        assert found is not None
        form, pair = found
        for a in range(-6, 13):
            for b in range(-6, 7):
                point = {"x": a, "y": b}
                at = sum(c * evaluate(m, point) for m, c in form)
                assert (at in Interval(*pair)) is evaluate(relation, point)
    for text in ("x != y", "x == 1 or y == 2", "True"):
        assert bounded_by(parse(text)) is None
