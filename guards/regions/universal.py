"""Universal quantification: the condition on some symbols under which another one holds for all
values of the rest.

``c`` holds for every allowed value of ``u`` where no allowed value of ``u`` falsifies it.  So the
facts about ``u`` and the negation of ``c`` are taken together, ``u`` is eliminated, and what is
left is negated.  Elimination may leave too weak a condition, never too strong a one; its negation
is then too strong, and still sound.

A product with an eliminated factor is no linear term.  Where the sign of the other factors is
known, the bounds of the eliminated factor bound the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice, product

import attrs

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import whole_question
from guards.facts.definedness import guarded, satisfied
from guards.facts.facts import Facts
from guards.regions.elimination import eliminate
from guards.regions.satisfiability import range_conditions
from guards.terms import arithmetic, boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Monomials, Op, Term, among, postorder

_ROWS = 64  # facts taken into account; to leave out further ones is sound
_CHOICES = 8  # ways to bound the products of one relation
_LARGEST = 200  # parts of an answer; a larger one is too slow for a guard, which each call checks


@whole_question()
def for_all(condition: Term, facts: Facts, at: Mapping[str, int]) -> Term | None:
    """Return a condition on the symbols of ``at`` under which ``condition`` holds for all that the
    facts allow.

    The answer speaks of symbols named in ``at`` alone and holds at their values there.  None: no
    answer was found.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt, le
    >>> s, u = symbol("s"), symbol("u")
    >>> facts = Facts().with_symbol(s).with_symbol(u, 0).assume(le(u, s))
    >>> (
    ...     for_all(gt(u + s, 0), facts, {"s": 5}),
    ...     for_all(le(u, 4), facts, {"s": 5}),
    ...     for_all(le(u, 4), facts, {"s": 3}),
    ... )
    (<s >= 1>, None, <s <= 4>)
    """
    wanted = guarded(condition, facts)
    component = facts.component(wanted)
    kept = frozenset(s for s in component.symbols if s.name in at)
    if not kept or not _holds_there(wanted, facts, kept, at):
        return None
    rows = [boolean.not_(wanted), *_about(wanted, facts, kept)]
    bounds = _Bounds(facts, kept, rows)
    relaxed = [each for row in rows for each in (list(bounds.relaxed(row)) or [row])]
    for tried in (rows, relaxed):
        found = boolean.not_(_without_known(eliminate(tried, kept)[0], facts))
        if _small(found) and satisfied(found, at):
            return found
    return None


def _holds_there(condition: Term, facts: Facts, kept: Set[Term], at: Mapping[str, int]) -> bool:
    """Return whether the condition is proven where the kept symbols have their values in ``at``."""
    for s in sorted(kept, key=lambda s: s.order):
        facts = facts.assume(boolean.eq(s, at[s.name]))
    return not facts.contradictory and ask(facts, condition, only=True) is True


def _about(condition: Term, facts: Facts, kept: Set[Term]) -> list[Term]:
    """The facts about the symbols to eliminate, and about further symbols that those facts connect
    them with.
    """
    conditions = facts.component(condition).conditions
    pending = sorted(condition.symbols - kept, key=lambda s: s.order)
    found: dict[Term, None] = {}
    seen = set(pending)
    while pending and len(found) < _ROWS:
        s = pending.pop(0)
        interval = facts.interval(s)
        found.update(dict.fromkeys(range_conditions(s.name, (interval.lo, interval.hi))))
        for row in conditions:
            if s in row.symbols:
                found[guarded(row, facts)] = None
                more = sorted(row.symbols - kept - seen, key=lambda s: s.order)
                pending += more
                seen.update(more)
    return list(found)


def _without_known(condition: Term, facts: Facts) -> Term:
    """The condition without parts that the facts settle: equal to it wherever the facts hold."""
    if condition.op is Op.OR or condition.op is Op.AND:
        connect = boolean.or_ if condition.op is Op.OR else boolean.and_
        return connect(*(_without_known(part, facts) for part in condition.args))
    answer = ask(facts, condition, effort=Effort.CHEAP)
    return condition if answer is None else TRUE if answer else FALSE


def _small(condition: Term) -> bool:
    """Return whether a condition is small enough for a guard."""
    return sum(1 for _ in islice(postorder(condition), _LARGEST + 1)) <= _LARGEST


@attrs.frozen
class _Bounds:
    """Bounds of products in which one factor is eliminated.

    Attributes:
        facts: what is known, the signs of factors among it.
        kept: the symbols that are not eliminated.
        rows: the conditions that bound the eliminated symbols.
    """

    facts: Facts
    kept: Set[Term]
    rows: Sequence[Term]

    def relaxed(self, row: Term) -> Iterator[Term]:
        """Yield consequences of a condition, each without the products that have an eliminated
        factor.
        """
        if row.op is Op.AND:
            for part in row.args:
                yield from self.relaxed(part)
        elif row.op is Op.OR:
            parts = [boolean.and_(*self.relaxed(part)) for part in row.args]
            if not among(TRUE, parts):
                yield boolean.or_(*parts)
        elif row.op is Op.NE:
            yield from self.relaxed(
                boolean.or_(boolean.le(row.args[0], -1), boolean.ge(row.args[0], 1))
            )
        elif row.op is Op.LE or row.op is Op.EQ:
            yield from self._below(row.args[0])
            if row.op is Op.EQ:
                yield from self._below(arithmetic.scale(row.args[0], -1))

    def _below(self, term: Term) -> Iterator[Term]:
        """Yield consequences of ``term <= 0``: with lower bounds in place of the products."""
        constant, items = arithmetic.split(term)
        options: list[list[Term]] = []
        rest: dict[Term, int] = {}
        for monomial, coefficient in items:
            if monomial.op is Op.MUL and not monomial.symbols <= self.kept:
                options.append(
                    [
                        arithmetic.scale(each, coefficient)
                        for each in self._least(monomial, coefficient)
                    ]
                )
            else:
                rest[monomial] = coefficient
        plain = arithmetic.linear(constant, rest)
        for chosen in islice(product(*options), _CHOICES):
            yield boolean.le(arithmetic.total((plain, *chosen)), 0)

    def _least(self, monomial: Term, coefficient: int) -> Iterator[Term]:
        """Yield bounds of a product: lower ones where the coefficient is positive, upper ones where
        it is negative.
        """
        open_ = [factor for factor in monomial.args if not factor.symbols <= self.kept]
        others = arithmetic.prod(factor for factor in monomial.args if factor.symbols <= self.kept)
        if len(open_) != 1:
            return
        for sign in (1, -1):
            if ask(
                self.facts,
                boolean.ge(arithmetic.scale(others, sign), 0),
                effort=Effort.CHEAP,
                only=True,
            ):
                for limit in self._limits(open_[0], lower=(coefficient * sign > 0)):
                    yield arithmetic.mul(limit, others)
                return

    def _limits(self, factor: Term, lower: bool) -> Iterator[Term]:
        """Yield lower or upper bounds of an eliminated factor, in kept symbols."""
        interval = self.facts.interval(factor)
        end = interval.lo if lower else interval.hi
        if end is not None:
            yield arithmetic.const(end)
        for row in self.rows[1:]:
            if row.op is not Op.LE and row.op is not Op.EQ:
                continue
            coefficient, rest = _solved(row.args[0], factor)
            if rest.symbols <= self.kept and (
                coefficient == (-1 if lower else 1) or (coefficient and row.op is Op.EQ)
            ):
                yield arithmetic.scale(rest, -coefficient)


def _solved(term: Term, factor: Term) -> tuple[int, Term]:
    """The coefficient of a factor in a sum, 0 if that is not 1 or -1, and the rest of the sum."""
    items: Monomials = arithmetic.split(term)[1]
    coefficient = next((c for monomial, c in items if monomial is factor), 0)
    if abs(coefficient) != 1:
        return 0, term
    return coefficient, arithmetic.sub(term, arithmetic.scale(factor, coefficient))
