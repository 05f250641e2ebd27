"""Learning of a condition by a component: as a range, a bound of a linear form, a rewrite, or
unchanged.

Everything here works on a component that is still being made. Once :func:`assume` has returned a
component, it never changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from guards.facts.component import Component, divisors, replaced
from guards.facts.equations import solved
from guards.facts.laws_of_relations import two_remainders
from guards.facts.learning import Learning, replace_everywhere
from guards.facts.ranges import add_row, narrow_inside, propagate_row
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import SYMBOLIC_DIVISION, Op, Term

_ASSUMED_LIMIT = 64
_ROUNDS = 4  # how often ranges are propagated through all rows after new conditions


def assume(component: Component, conditions: Iterable[Term]) -> Component:
    """``component`` and more conditions (whose symbols it must have)."""
    made = component.copy()
    # those that satisfy the new conditions too are found first
    made.memo.points = component.memo.points
    return learn(made, conditions)


def with_condition(component: Component, condition: Term) -> Component:
    """Assume one condition as :func:`assume` does, and cache the result for the next time."""
    assumed = component.memo.assumed
    found: Component | None = assumed.get(condition)
    if found is None:
        if len(assumed) >= _ASSUMED_LIMIT:
            assumed.clear()
        found = assumed[condition] = assume(component, (condition,))
    return found


def learn(made: Component, conditions: Iterable[Term]) -> Component:
    """Has a component that nobody else knows yet take in conditions; returns it."""
    learning = Learning(made)
    for condition in conditions:
        made.conditions += (condition,)
        learning.steps += 1  # its own: the limit is on what is derived
        _equate(made, condition)
        learning.pending.append(condition)
        _work(learning)
    _finish(learning)
    return made


def declare(component: Component) -> None:
    """Rewrite symbols whose declared range has one value only."""
    learning = Learning(component)
    for symbol, (lo, hi) in component.declared.items():
        if lo is not None and lo == hi:
            replace_everywhere(learning, symbol, arithmetic.const(lo))
    _work(learning)


def _with(term: Term, replacements: dict[Term, Term]) -> Term:
    """The term with what is equal to parts of it, where that leaves no division by 0."""
    found = replaced(term, replacements)
    return term if found is None else found


def _equate(component: Component, condition: Term) -> None:
    """Keep ``equals``, the rewrites for showing, up to date with a new condition."""
    for part in condition.args if condition.op is Op.AND else (condition,):
        if part.op is not Op.EQ:
            continue
        constant, items = arithmetic.split(_with(part.args[0], component.equals))
        for atom, coefficient in reversed(items):
            if atom.op is Op.SYMBOL and coefficient in (1, -1):
                rest = {m: c * -coefficient for m, c in items if m is not atom}
                replacement = arithmetic.linear(constant * -coefficient, rest)
                if atom not in replacement.symbols:
                    one = {atom: replacement}
                    component.equals = {s: _with(t, one) for s, t in component.equals.items()}
                    component.equals[atom] = replacement
                    break


def _work(learning: Learning) -> None:
    """Learn the pending conditions."""
    component = learning.component
    while learning.pending and not component.contradictory:
        learning.steps -= 1
        condition = learning.pending.pop()
        if learning.steps < 0:  # enough: keep it as it stands
            component.residue[condition] = None
            continue
        _take_in(learning, condition)


def _finish(learning: Learning) -> None:
    """Propagate ranges until nothing new comes out, within limits."""
    for _ in range(_ROUNDS):
        if learning.component.contradictory or not (_propagate(learning) or learning.pending):
            return
        _work(learning)


def _take_in(learning: Learning, condition: Term) -> None:
    component = learning.component
    if component.rewrites:
        found = replaced(condition, component.rewrites)
        if found is None:
            return
        condition = found
    if condition.kinds & SYMBOLIC_DIVISION and Op.EQ <= condition.op <= Op.LE:
        condition = _simplified(learning, condition)
    op = condition.op
    if op is Op.TRUE:
        return
    if op is Op.FALSE:
        component.contradictory = True
    elif op is Op.AND:
        learning.pending.extend(condition.args)
    elif op is Op.LE:
        _require_divisors(learning, condition)
        add_row(learning, condition.args[0], False)
    elif op is Op.EQ:
        _require_divisors(learning, condition)
        remainder = two_remainders(condition.args[0]) if condition.kinds else None
        zero = condition.args[0] if remainder is None else remainder
        if zero.op is not Op.CONST:
            _add_equation(learning, zero)
        elif zero is not arithmetic.ZERO:  # two remainders of terms that differ by a constant
            component.contradictory = True
    else:
        _require_divisors(learning, condition)
        component.residue[condition] = None
        _sharpen(learning, condition)


def _simplified(learning: Learning, condition: Term) -> Term:
    """A comparison with its operand rewritten by the rules."""
    component = learning.component
    made = rewritten(component, condition.args[0])
    component.memo.simplified.clear()  # more will be known
    return condition if made is condition.args[0] else fold.rebuild(condition, [made])


def _require_divisors(learning: Learning, condition: Term) -> None:
    """Has the divisors of a comparison taken in as different from 0: elsewhere it cannot hold."""
    for divisor in divisors(condition):
        lo, hi = learning.component.bounds(divisor)
        if lo == 0:
            learning.pending.append(boolean.ge(divisor, 1))
        if hi == 0:
            learning.pending.append(boolean.le(divisor, -1))


def _sharpen(learning: Learning, condition: Term) -> None:
    """Derive the bound that a ``!=`` excludes, and the only possible part of an ``or``."""
    component = learning.component
    if condition.op is Op.NE:
        lo, hi = component.bounds(condition.args[0])
        if lo == 0 or hi == 0:
            term = condition.args[0]
            component.residue.pop(condition, None)  # the bound says it all
            learning.pending.append(boolean.ge(term, 1) if lo == 0 else boolean.le(term, -1))
    elif condition.op is Op.OR:
        left = [part for part in condition.args if component.look(part) is not False]
        if len(left) == len(condition.args):
            return
        component.residue.pop(condition, None)
        learning.pending.append(boolean.or_(*left))


def _add_equation(learning: Learning, term: Term) -> None:
    """Learn ``term == 0``: solve it for an atom where that is possible."""
    found = solved(learning, term)
    if found is None:
        if not learning.component.contradictory:
            add_row(learning, term, True)
    else:
        replace_everywhere(learning, *found)


def _propagate(learning: Learning) -> bool:
    """Derive ranges of atoms from rows, and what ``!=`` and ``or`` imply then; return whether
    anything is new.

    Looks only at rows that are new and at what mentions a symbol whose range changed.
    """
    component = learning.component
    fresh, moved = learning.fresh, learning.moved
    learning.fresh, learning.moved = set(), set()
    for form in list(component.rows):
        if form in fresh or (moved and any(not moved.isdisjoint(m.symbols) for m, _ in form)):
            propagate_row(learning, form)
            if component.contradictory:
                return True
    for monomial, pair in list(component.ranges.items()):
        if (
            monomial.op is Op.MUL
            and not moved.isdisjoint(monomial.symbols)
            and component.ranges.get(monomial) == pair
        ):
            narrow_inside(learning, monomial, pair)
        elif (
            monomial.op is Op.MOD
            and pair[0] is not None
            and pair[0] == pair[1]
            and monomial in component.ranges
        ):
            if monomial.args[1].op is Op.CONST or moved.isdisjoint(monomial.args[1].symbols):
                continue
            # the sign of the divisor may be known now
            found = solved(learning, arithmetic.sub(monomial, pair[0]))
            if found is not None:
                del component.ranges[monomial]
                replace_everywhere(learning, *found)
    for condition in list(component.residue):
        if not moved.isdisjoint(condition.symbols):
            _sharpen(learning, condition)
    return bool(learning.moved or learning.fresh)
