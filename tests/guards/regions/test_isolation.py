"""One relation with the symbol brought to one side, by a solver that only knows how to start."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from guards import CannotSolve, Facts, Term, parse
from guards.facts.definedness import satisfied
from guards.regions.isolation import Solver, compared, divided_out, factor_of, isolated, replaced
from guards.terms import arithmetic, boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE
from guards.terms.term import Op

S, T = symbol("s"), symbol("t")


class Literal:
    """Solves nothing further: a case is its condition and what is solved in it, an inner relation
    stays as it is.
    """

    def __init__(self) -> None:
        self.facts = Facts()
        self.symbol = S

    def solve(self, relation: Term) -> Term:
        return relation

    def where(self, condition: Term, solved: Callable[[Solver], Term]) -> Term:
        return boolean.and_(condition, solved(self))

    def fail(self) -> CannotSolve:
        return CannotSolve("here")


def _same(found: Term, relation: Term) -> None:
    """Both hold at the same values, wherever the relation is defined."""
    for s, t in product(range(14), range(-6, 7)):
        values = {"s": s, "t": t}
        if satisfied(boolean.or_(relation, boolean.not_(relation)), values):
            assert satisfied(found, values) is satisfied(relation, values), (
                found,
                relation,
                values,
            )


def _factored(text: str) -> Term | None:
    _, items = arithmetic.split(arithmetic.integer(parse(text)))
    return factor_of(S, [(m, c) for m, c in items if S in m.symbols])


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("3*s", "3"),
        ("s*t - 2*s", "t - 2"),
        ("s*t*t + s + 4", "t*t + 1"),
        ("s - s*(t % 5)", "1 - t % 5"),
    ],
)
def test_factor(text: str, factor: str) -> None:
    assert _factored(text) is parse(factor)


@pytest.mark.parametrize("text", ["s*s", "s*(s % 3)", "s // 2", "s + min(s, t)"])
def test_no_factor(text: str) -> None:
    assert _factored(text) is None


@pytest.mark.parametrize("op", [Op.LE, Op.EQ, Op.NE])
@pytest.mark.parametrize(
    ("factor", "rest"), [("3", "t"), ("-2", "t + 5"), ("t", "-12"), ("t - 2", "t + 6")]
)
def test_divided_out(op: Op, factor: str, rest: str) -> None:
    relation = compared(op, parse(factor) * S + parse(rest))
    found = divided_out(Literal(), op, parse(factor), parse(rest))
    for s, t in product(range(14), range(-6, 7)):
        values = {"s": s, "t": t}
        if parse(factor) is T - 2 and t == 2:
            continue  # only a factor that is a symbol is put to 0 in the rest
        assert satisfied(found, values) is satisfied(relation, values), values


@pytest.mark.parametrize("op", [Op.LE, Op.EQ, Op.NE])
@pytest.mark.parametrize("c", [1, -1, 2, -3])
@pytest.mark.parametrize(
    "atom", ["s // 3", "(2*s + 1) // 5", "(3*s - t) // 4", "min(s, t, 4)", "max(s, 2*t)"]
)
def test_isolated(op: Op, c: int, atom: str) -> None:
    rest = T * 2 - 3
    _same(isolated(Literal(), op, parse(atom), c, rest), compared(op, c * parse(atom) + rest))


@pytest.mark.parametrize("op", [Op.EQ, Op.NE])
@pytest.mark.parametrize(
    "atom", ["s % 4", "(s + 3) % 5", "(2*s + t) % 7", "(t - s) % 6", "(s + 1) % (t*t + 1)"]
)
def test_isolated_remainders(op: Op, atom: str) -> None:
    _same(
        isolated(Literal(), op, parse(atom), 1, arithmetic.integer(-2)),
        compared(op, parse(atom) - 2),
    )


@pytest.mark.parametrize("atom", ["(2*s + t) % 6", "(s*s) % 7", "s % (s + 1)"])
def test_what_has_no_inverse(atom: str) -> None:
    with pytest.raises(CannotSolve):
        isolated(Literal(), Op.EQ, parse(atom), 1, arithmetic.integer(-2))


def test_replaced_where_it_is_undefined() -> None:
    assert replaced(parse("t // s == 2"), {S: arithmetic.integer(0)}) is FALSE
    assert replaced(parse("t // s == 2"), {S: arithmetic.integer(2)}) is parse("t // 2 == 2")
