"""Terms as Z3 expressions: each kind of node means in Z3 what it means in Python."""

from __future__ import annotations

import random

import pytest
import z3

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.z3_lowering import Lowering, degree, is_linear, more_parts_than
from guards.errors import ParseError
from guards.terms.fold import evaluate
from tests.strategies import condition


def test_lowered_terms_have_pythons_values() -> None:
    """At a point the expression and its definitions are satisfiable where the condition holds, and
    only there.
    """
    rng = random.Random(6)
    truths = {True: 0, False: 0}
    context = z3.Context()
    for _ in range(150):
        try:
            term = parse(condition(rng))
        except ParseError:
            continue
        if not term.is_bool or not term.symbols:
            continue
        lowered, definitions = Lowering(z3, context, None).lower(term)
        for _ in range(3):
            point = {s.name: rng.randint(-6, 9) for s in term.symbols}
            try:
                wanted = evaluate(term, point)
            except ZeroDivisionError:
                continue
            solver = z3.Solver(ctx=context)
            solver.add(
                lowered,
                *definitions,
                *(z3.Int(name, context) == value for name, value in point.items()),
            )
            assert (solver.check() == z3.sat) is wanted, (term, point)
            truths[wanted] += 1
    assert min(truths.values()) > 60


@pytest.mark.parametrize("pair", [(1, 9), (-9, -1), (-9, 9), (0, 9), (-9, 0)])
def test_quotients_by_terms_are_pythons(pair: tuple[int, int]) -> None:
    """Whatever is known of the sign of the divisor, quotient and remainder are determined and
    right.
    """
    term = parse("a // d == q and a % d == r")
    component = facts_from(
        {"a": (None, None), "d": pair, "q": (None, None), "r": (None, None)}
    ).component(term)
    context = z3.Context()
    lowered, definitions = Lowering(z3, context, component).lower(term)
    a, d, q, r = (z3.Int(name, context) for name in "adqr")
    for value, divisor in [(7, 3), (-7, 3), (7, -3), (-7, -3), (6, 3), (-6, -3), (0, 5)]:
        if not pair[0] <= divisor <= pair[1]:
            continue
        for shift in (0, 1):
            solver = z3.Solver(ctx=context)
            quotient, rest = divmod(value, divisor)
            solver.add(
                lowered, *definitions, a == value, d == divisor, q == quotient + shift, r == rest
            )
            assert solver.check() == (z3.unsat if shift else z3.sat)


def test_a_quotient_is_defined_once() -> None:
    lowering = Lowering(z3, z3.Context(), None)
    _, definitions = lowering.lower(parse("x // y <= 3 and x % y == 1"))
    assert len(lowering.divisions) == 1
    assert definitions
    _, again = lowering.lower(parse("x // y >= 9"))
    assert len(lowering.divisions) == 1
    assert [str(each) for each in again] == [str(each) for each in definitions[: len(again)]]
    assert lowering.lower(parse("x // 8 == 3"))[1] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x + y <= 3", 1),
        ("x*y <= 3", 2),
        ("x*x*y == z", 3),
        ("x // y == 2", 2),
        ("x % (y*z) == 0", 3),
        ("x // 8 == y", 1),
    ],
)
def test_degree(text: str, wanted: int) -> None:
    assert degree(parse(text)) == wanted
    assert is_linear(parse(text)) is (wanted == 1)


def test_counting_parts() -> None:
    term = parse("x + 2*y <= x*y")
    parts = next(count for count in range(100) if not more_parts_than(count, term))
    assert more_parts_than(parts - 1, term)
    assert parts == 5  # x, y, x*y, their sum, the comparison
