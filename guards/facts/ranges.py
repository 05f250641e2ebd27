"""Ranges: how a bound of a sum becomes a row, a row narrows its atoms, and an atom what it is made
of.
"""

from __future__ import annotations

from math import isqrt

from guards.domains import interval_arithmetic
from guards.domains.interval_arithmetic import Pair, meet
from guards.domains.linear_form import bounded
from guards.facts.learning import Learning, replace_everywhere
from guards.terms import arithmetic, boolean
from guards.terms.term import Monomials, Op, Term

_WIDEST = 10**12  # bounds beyond this are not propagated (a chain of doublings would never end)


def add_row(learning: Learning, term: Term, equation: bool) -> None:
    """Record ``term <= 0``, or ``term == 0``."""
    component = learning.component
    constant, items = arithmetic.split(term)
    form, pair = bounded(constant, items, 0 if equation else None, 0)
    if pair[0] is not None and pair[1] is not None and pair[0] > pair[1]:
        component.contradictory = True
        return
    if len(form) == 1:
        narrow(learning, form[0][0], pair)
        return
    known = component.rows.get(form)
    pair = pair if known is None else meet(known, pair)
    if pair == known:
        return
    component.rows[form] = pair
    learning.fresh.add(form)
    learning.changed()
    if pair[0] is None or pair[1] is None:
        return
    if pair[0] > pair[1]:
        component.contradictory = True
    elif pair[0] == pair[1] and not equation:  # two bounds that meet are an equation
        del component.rows[form]
        learning.pending.append(boolean.eq(arithmetic.linear(0, dict(form)), pair[0]))


def narrow(learning: Learning, monomial: Term, pair: Pair) -> None:
    """Record a range of a monomial and what it says of the atoms inside."""
    component = learning.component
    old = component.bounds(monomial)
    new = meet(old, pair)
    if new == old:
        return
    learning.moved |= monomial.symbols
    if new[0] is not None and new[0] == new[1] and monomial.op is Op.SYMBOL:
        component.ranges[monomial] = new
        learning.changed()
        replace_everywhere(learning, monomial, arithmetic.const(new[0]))
        return
    if new[0] is not None and new[1] is not None and new[0] > new[1]:
        component.contradictory = True
        return
    component.ranges[monomial] = new
    learning.changed()
    narrow_inside(learning, monomial, new)


def narrow_inside(learning: Learning, monomial: Term, pair: Pair) -> None:
    """Learn what the range of a monomial says of its operands."""
    lo, hi = pair
    op = monomial.op
    args = monomial.args
    if op is Op.FLOORDIV and args[1].op is Op.CONST:
        d = args[1].args[0]
        learning.between(
            args[0], None if lo is None else lo * d, None if hi is None else hi * d + d - 1
        )
    elif op is Op.MIN and lo is not None:
        for part in args:
            learning.between(part, lo, None)
    elif op is Op.MAX and hi is not None:
        for part in args:
            learning.between(part, None, hi)
    elif op is Op.MUL:
        _narrow_factors(learning, monomial, lo, hi)


def _narrow_factors(learning: Learning, monomial: Term, lo: int | None, hi: int | None) -> None:
    args = monomial.args
    if lo is not None and lo > 0:
        for atom in args:  # no factor is 0
            if learning.component.bounds(atom)[0] == 0:
                learning.pending.append(boolean.ge(atom, 1))
    if hi is not None:
        if len(args) == 2 and args[0] is args[1]:
            if hi < 0:
                learning.component.contradictory = True
            else:
                narrow(learning, args[0], (-isqrt(hi), isqrt(hi)))
            return
        for index, atom in enumerate(args):  # x*y <= hi with y >= least > 0 and x >= 0
            if learning.component.contradictory or monomial not in learning.component.ranges:
                return
            low, _ = learning.component.bounds(atom)
            least, _ = learning.component._bound_product(args[:index] + args[index + 1 :])
            if least is not None and least > 0 and low is not None and low >= 0:
                narrow(learning, atom, (None, hi // least))


def propagate_row(learning: Learning, form: Monomials) -> None:
    """Derive the ranges of the monomials of one row."""
    component = learning.component
    # it may have been rewritten meanwhile
    pair = component.rows.get(form, interval_arithmetic.EVERYTHING)
    for index, (monomial, coefficient) in enumerate(form):
        rest = component._bound_sum(0, form[:index] + form[index + 1 :])
        lo = None if pair[0] is None or rest[1] is None else pair[0] - rest[1]
        hi = None if pair[1] is None or rest[0] is None else pair[1] - rest[0]
        if coefficient < 0:
            lo, hi, coefficient = (
                None if hi is None else -hi,
                None if lo is None else -lo,
                -coefficient,
            )
        lo = None if lo is None or abs(lo) > _WIDEST else -(-lo // coefficient)
        hi = None if hi is None or abs(hi) > _WIDEST else hi // coefficient
        if lo is None and hi is None:
            continue
        old = component.bounds(monomial)
        if meet(old, (lo, hi)) != old:
            narrow(learning, monomial, (lo, hi))
            if component.contradictory or form not in component.rows:
                return
