"""Solving a condition for one symbol: the set of its values as ranges, remainders and exclusions.

What speaks of the symbol alone is solved exactly, as the pieces of a function of one integer.  In a
relation with other symbols the symbol is brought to one side; where the sign of what divides is not
known, by cases.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm, prod

from guards.asking.assumptions import holding
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import whole_question
from guards.domains.linear_form import bounded_by
from guards.domains.quasi_polynomial import MOST, TooMany, pieces_of
from guards.domains.value_sets import MOST_ATOMS, condition
from guards.errors import ArgumentError, CannotSolve
from guards.facts.definedness import guarded, partial, total
from guards.facts.facts import Facts
from guards.regions.isolation import Solver, compared, divided_out, factor_of, isolated, replaced
from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term, among, postorder, same_form

_RESIDUES = 32  # a symbol is split into no more remainder classes than this
_LISTED = 16  # values of a small range that are tried one by one
_DEPTH = 6  # cases within cases
_ANSWERS = 8  # different solutions for different remainders


@whole_question()
def solve(relation: Term | str, symbol: Term | str, facts: Facts | None = None) -> Term:
    """The values of ``symbol`` for which a condition holds, as a condition in which the symbol
    stands alone.

    Where the symbol stands, it is compared itself (``s <= t // 2``, ``s != 3``), or its remainder
    is (``s % 8 == 5``), with what does not contain it.  The answer holds at the same values as the
    condition does, wherever the facts hold (a symbol of which they say nothing is a size: 0 or
    more).  Both are read as guards: where a comparison divides by 0, it does not hold.

    Raises:
        CannotSolve: no such form is known.
        ParseError: the text cannot be read, or is an integer.

    >>> print(solve("2*s + 3 <= t", "s"))
    s + 2 <= (t + 1)//2
    >>> print(
    ...     solve("(3*s + 1) % 8 == 0", "s"),
    ...     "|",
    ...     solve("s // 4 == 2", "s"),
    ...     "|",
    ...     solve("s*s < 50", "s"),
    ... )
    s % 8 == 5 | s >= 8 and s <= 11 | s <= 7
    >>> print(solve("(s + 3) // 4 * 4 == s + 3", "s"), "|", solve("min(s, 8) % 3 == 0", "s"))
    s % 4 == 1 | s == 0 or s == 6 or s == 3
    >>> print(solve("s * t == 12", "s"))
    s == 12//t and 12 % t == 0 and t >= 1
    """
    relation = holding(relation)
    symbol = arithmetic.symbol(symbol) if isinstance(symbol, str) else symbol
    if type(symbol) is not Term or symbol.op is not Op.SYMBOL:
        raise ArgumentError(f"a condition is solved for a symbol, not for {symbol!r}")
    known = Facts() if facts is None else facts
    if known.contradictory:
        return FALSE
    solver = _Solver(known, symbol)
    found = solver.top(relation)
    if sum(1 for part in postorder(found) if part.is_bool) > 2 * MOST_ATOMS:
        raise solver.fail()
    return found


def _alone(part: Term, symbol: Term) -> bool:
    """Return whether the symbol is the only one of a condition."""
    return part.symbols == {symbol}


class _Solver:
    """One symbol to solve for, and what is known meanwhile."""

    def __init__(self, facts: Facts, symbol: Term, depth: int = 0) -> None:
        self.facts = facts
        self.symbol = symbol
        self.depth = depth

    def top(self, relation: Term) -> Term:
        """The solution of a condition, also of that it is defined."""
        if self.symbol not in relation.symbols:
            return relation
        if _alone(relation, self.symbol):
            return self._exactly(relation)
        if relation.op is Op.AND or relation.op is Op.OR:
            return self._connected(relation, self.top)
        try:
            found = self.solve(relation)
        except CannotSolve:
            verdict = ask(self.facts, relation)  # it may not depend on the symbol
            if verdict is None:
                raise
            found = TRUE if verdict else FALSE
        if not partial(relation):
            return found
        needed = total(relation, self.facts)
        known = self.facts.assume(guarded(found, self.facts))
        for part in needed.args if needed.op is Op.AND else ():
            if (
                part is not relation
                and ask(known, part, effort=Effort.CHEAP, only=True) is not True
            ):
                found = boolean.and_(found, self.solve(part))
        return found

    def _connected(self, relation: Term, solve: Callable[[Term], Term]) -> Term:
        """``and`` or ``or``: what speaks of the symbol alone is solved together."""
        connect = boolean.and_ if relation.op is Op.AND else boolean.or_
        own = [part for part in relation.args if _alone(part, self.symbol)]
        parts = [solve(part) for part in relation.args if not among(part, own)]
        return connect(*parts, *([self._exactly(connect(*own))] if own else ()))

    def fail(self) -> CannotSolve:
        return CannotSolve(f"no closed form for {self.symbol} is known")

    def where(self, condition: Term, solved: Callable[[Solver], Term]) -> Term:
        """A case: the condition, and what is solved where it holds; neither where the facts exclude
        the condition.
        """
        if self.depth >= _DEPTH:
            raise self.fail()
        facts = self.facts.assume(condition)
        if facts.contradictory:
            return FALSE
        inner = _Solver(facts, self.symbol, self.depth + 1)
        here = _Solver(self.facts, self.symbol, self.depth + 1)
        known = ask(self.facts, condition, effort=Effort.CHEAP, only=True) is True
        return boolean.and_(TRUE if known else here.solve(condition), solved(inner))

    # -- conditions --------------------------------------------------------------------------------

    def solve(self, relation: Term) -> Term:
        """The solution of a condition, where it is defined."""
        if self.symbol not in relation.symbols:
            return relation
        if _alone(relation, self.symbol):
            return self._exactly(relation)
        if relation.op is Op.AND or relation.op is Op.OR:
            return self._connected(relation, self.solve)
        try:
            return self._relation(relation)
        except CannotSolve:
            return self._by_values(relation)

    def _exactly(self, relation: Term) -> Term:
        try:
            return self._pieces(relation)
        except TooMany:
            bounds = [
                part for part in relation.args if relation.op is Op.AND and self._is_bound(part)
            ]
            others = [part for part in relation.args if not among(part, bounds)]
            if not bounds or not others:
                raise self.fail() from None
        within = boolean.and_(*bounds)
        inner = _Solver(self.facts.assume(within), self.symbol, self.depth)
        return self._pieces(boolean.and_(within, inner._exactly(boolean.and_(*others))))

    def _is_bound(self, part: Term) -> bool:
        found = bounded_by(part) if part.op is Op.LE else None
        return found is not None and same_form(found[0], ((self.symbol, 1),))

    def _pieces(self, relation: Term) -> Term:
        found = self.facts.interval(self.symbol)
        component = self.facts.component(self.symbol)
        number, rest = component.congruence(component.canonical(self.symbol))
        known = (number, rest) if 0 < number <= MOST else (1, 0)  # what is known need not be used
        return condition(pieces_of(relation, (found.lo, found.hi), known), self.symbol)

    def _relation(self, relation: Term) -> Term:
        op = relation.op
        constant, items = arithmetic.split(relation.args[0])
        inside = [(m, c) for m, c in items if self.symbol in m.symbols]
        rest = arithmetic.linear(constant, {m: c for m, c in items if self.symbol not in m.symbols})
        factor = factor_of(self.symbol, inside)
        if factor is not None:
            return divided_out(self, op, factor, rest)
        if len(inside) == 1 and inside[0][0].op is not Op.MUL:
            try:
                return isolated(self, op, *inside[0], rest)
            except CannotSolve:
                pass
        return self._by_cases(relation)

    # -- cases -------------------------------------------------------------------------------------

    def _by_cases(self, relation: Term) -> Term:
        """Split by the operand that a ``min``, ``max`` or ``ite`` takes, or by the remainder of the
        symbol.

        A case's condition may divide by 0 where the whole is defined, inside an ``ite`` that takes
        the other way: the cases cover that too.
        """
        for part in postorder(relation.args[0]):
            if self.symbol not in part.symbols:
                continue
            if part.op is Op.ITE:
                asked = guarded(part.args[0], self.facts)
                choices = [(asked, part.args[1]), (boolean.not_(asked), part.args[2])]
            elif part.op is Op.MIN or part.op is Op.MAX:
                first, *others = part.args
                other = (extremes.minimum if part.op is Op.MIN else extremes.maximum)(*others)
                smaller = guarded(boolean.le(first, other), self.facts)
                choices = [(smaller, first), (boolean.not_(smaller), other)]
                if part.op is Op.MAX:
                    choices = [(smaller, other), (boolean.not_(smaller), first)]
            else:
                continue
            return boolean.or_(
                *(self._case(relation, part, asked, taken) for asked, taken in choices)
            )
        return self._by_remainder(relation)

    def _case(self, relation: Term, part: Term, asked: Term, taken: Term) -> Term:
        left = replaced(relation, {part: taken})
        return self.where(asked, lambda inner: inner.solve(left))

    def _by_remainder(self, relation: Term) -> Term:
        """With the symbol written ``n*k + r`` for each ``r``, quotients and remainders by numbers
        go away.
        """
        divisors = [
            abs(part.args[1].value)
            for part in postorder(relation.args[0])
            if part.op in (Op.FLOORDIV, Op.MOD)
            and part.args[1].op is Op.CONST
            and self.symbol in part.symbols
        ]
        # nested ones repeat more slowly
        for number in dict.fromkeys((lcm(*divisors), prod(divisors))):
            if 1 < number <= _RESIDUES:
                try:
                    return self._by_classes(relation, number)
                except CannotSolve:
                    continue
        raise self.fail()

    def _by_classes(self, relation: Term, number: int) -> Term:
        found: dict[Term, list[int]] = {}
        for rest in range(number):
            left = replaced(relation, {self.symbol: number * self.symbol + rest})
            found.setdefault(self._in_class(left, number, rest), []).append(rest)
        found.pop(FALSE, None)
        if len(found) > _ANSWERS:
            raise self.fail()
        parts = []
        for solved, rests in found.items():
            classes = boolean.or_(
                *(boolean.eq(division.mod(self.symbol, number), rest) for rest in rests)
            )
            parts.append(boolean.and_(solved, self._exactly(classes)))
        return boolean.or_(*parts)

    def _in_class(self, left: Term, number: int, rest: int) -> Term:
        """``left`` speaks of ``k``, under the name of the symbol; solved for the symbol,
        ``number*k + rest``.
        """
        if self.symbol not in left.symbols:
            return left
        constant, items = arithmetic.split(left.args[0]) if Op.EQ <= left.op <= Op.LE else (0, ())
        factor = factor_of(self.symbol, [(m, c) for m, c in items if self.symbol in m.symbols])
        if factor is None or factor.op is not Op.CONST or not factor.value:
            raise self.fail()
        others = arithmetic.linear(
            constant, {m: c for m, c in items if self.symbol not in m.symbols}
        )
        scaled = arithmetic.add(
            arithmetic.scale(self.symbol - rest, factor.value), arithmetic.scale(others, number)
        )
        return self._relation(compared(left.op, scaled))

    def _by_values(self, relation: Term) -> Term:
        """One case for each value that the symbol can have, or another symbol."""
        others = sorted(relation.symbols - {self.symbol}, key=lambda s: s.order)
        for s in (self.symbol, *others):
            values = self._range(s)
            if values is None or self.depth >= _DEPTH:
                continue
            inner = _Solver(self.facts, self.symbol, self.depth + 1)
            cases = [
                (boolean.eq(s, value), replaced(relation, {s: arithmetic.const(value)}))
                for value in values
            ]
            return boolean.or_(*(boolean.and_(asked, inner.solve(left)) for asked, left in cases))
        raise self.fail()

    def _range(self, s: Term) -> range | None:
        found = self.facts.interval(s)
        if found.lo is None or found.hi is None or found.hi - found.lo >= _LISTED:
            return None
        return range(found.lo, found.hi + 1)
