"""How a component learns a condition: as a range, a bound of a linear form, a rewrite, or as it stands.

Everything here works on a component that is still being made; once :func:`assume` has returned it, it is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, isqrt

from guards.domains import interval_arithmetic
from guards.domains.interval_arithmetic import Pair, meet
from guards.facts.component import Component, contains, divisors, new_symbol, normal_form, replaced
from guards.facts.laws_of_relations import two_remainders
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import SYMBOLIC_DIVISION, Monomials, Op, Term

_ASSUMED_LIMIT = 64
_ROUNDS = 4  # how often ranges are propagated through all rows after new conditions
_WIDEST = 10**12  # bounds beyond this are not propagated (a chain of doublings would never end)
_SOLVABLE = (Op.SYMBOL, Op.FLOORDIV, Op.MIN, Op.MAX, Op.ITE)  # atoms that an equation may rewrite, best first
_STEPS = 400  # conditions that one call may work off, those that it derives included


def assume(component: Component, conditions: Iterable[Term]) -> Component:
    """``component`` and more conditions (whose symbols it must have)."""
    made = component.copy()
    made.points = component.points  # those that satisfy the new conditions too are found first
    return learn(made, conditions)


def with_condition(component: Component, condition: Term) -> Component:
    """As :func:`assume`, for one condition that is likely to be needed again."""
    found = component.assumed.get(condition)
    if found is None:
        if len(component.assumed) >= _ASSUMED_LIMIT:
            component.assumed.clear()
        found = component.assumed[condition] = assume(component, (condition,))
    return found


def learn(made: Component, conditions: Iterable[Term]) -> Component:
    """Has a component that nobody else knows yet take in conditions; returns it."""
    learning = _Learning(made)
    for condition in conditions:
        made.conditions += (condition,)
        _equate(made, condition)
        learning.pending.append(condition)
        learning.work()
    learning.finish()
    return made


def declare(component: Component) -> None:
    """Rewrites symbols whose declared range has one value only."""
    learning = _Learning(component)
    for symbol, (lo, hi) in component.declared.items():
        if lo is not None and lo == hi:
            learning.rewrite(symbol, arithmetic.const(lo))
    learning.work()


def _equate(component: Component, condition: Term) -> None:
    """Keeps ``equals``, the rewrites for showing, up to date with a new condition."""
    for part in condition.args if condition.op is Op.AND else (condition,):
        if part.op is not Op.EQ:
            continue
        constant, items = arithmetic.split(replaced(part.args[0], component.equals) or part.args[0])
        for atom, coefficient in reversed(items):
            if atom.op is Op.SYMBOL and coefficient in (1, -1):
                rest = {m: c * -coefficient for m, c in items if m is not atom}
                replacement = arithmetic.linear(constant * -coefficient, rest)
                if atom not in replacement.symbols:
                    one = {atom: replacement}
                    component.equals = {s: replaced(t, one) or t for s, t in component.equals.items()}
                    component.equals[atom] = replacement
                    break


class _Learning:
    """A component being made and the conditions that it has yet to take in."""

    __slots__ = ("component", "fresh", "moved", "pending", "steps")

    def __init__(self, component: Component) -> None:
        self.component = component
        self.pending: list[Term] = []
        self.steps = _STEPS
        self.fresh: set[Monomials] = set()  # rows that were not propagated yet
        self.moved: set[Term] = set()  # symbols of which a range changed since

    def work(self) -> None:
        """Takes in what is pending."""
        component = self.component
        while self.pending and not component.contradictory:
            self.steps -= 1
            condition = self.pending.pop()
            if self.steps < 0:  # enough: keep it as it stands
                component.residue[condition] = None
                continue
            self.add(condition)

    def finish(self) -> None:
        """Propagates ranges until nothing new comes out, within limits."""
        for _ in range(_ROUNDS):
            if self.component.contradictory or not (self.propagate() or self.pending):
                return
            self.work()

    def changed(self) -> None:
        self.component._bounds.clear()
        self.component._classes.clear()

    # -- taking in ----------------------------------------------------------------------------------------------------

    def add(self, condition: Term) -> None:
        component = self.component
        if component.rewrites:
            found = replaced(condition, component.rewrites)
            if found is None:
                return
            condition = found
        if condition.kinds & SYMBOLIC_DIVISION and Op.EQ <= condition.op <= Op.LE:
            condition = self.simplified(condition)
        op = condition.op
        if op is Op.TRUE:
            return
        if op is Op.FALSE:
            component.contradictory = True
        elif op is Op.AND:
            self.pending.extend(condition.args)
        elif op is Op.LE:
            self.require(condition)
            self.add_row(condition.args[0], False)
        elif op is Op.EQ:
            self.require(condition)
            remainder = two_remainders(condition.args[0]) if condition.kinds else None
            self.add_equation(condition.args[0] if remainder is None else remainder)
        else:
            self.require(condition)
            component.residue[condition] = None
            self.sharpen(condition)

    def simplified(self, condition: Term) -> Term:
        """A comparison with its operand rewritten by the rules."""
        component = self.component
        made = rewritten(component, condition.args[0])
        component.simplified.clear()  # more will be known
        return condition if made is condition.args[0] else fold.rebuild(condition, [made])

    def require(self, condition: Term) -> None:
        """Has the divisors of a comparison taken in as different from 0: elsewhere it cannot hold."""
        for divisor in divisors(condition):
            lo, hi = self.component.bounds(divisor)
            if lo == 0:
                self.pending.append(boolean.ge(divisor, 1))
            if hi == 0:
                self.pending.append(boolean.le(divisor, -1))

    def sharpen(self, condition: Term) -> None:
        """Draws from a ``!=`` the bound that it excludes, and from an ``or`` the part that alone is possible."""
        component = self.component
        if condition.op is Op.NE:
            lo, hi = component.bounds(condition.args[0])
            if lo == 0 or hi == 0:
                term = condition.args[0]
                component.residue.pop(condition, None)  # the bound says it all
                self.pending.append(boolean.ge(term, 1) if lo == 0 else boolean.le(term, -1))
        elif condition.op is Op.OR:
            left = [part for part in condition.args if component.look(part) is not False]
            if len(left) == len(condition.args):
                return
            component.residue.pop(condition, None)
            self.pending.append(boolean.or_(*left))

    def add_row(self, term: Term, equation: bool) -> None:
        """Records ``term <= 0``, or ``term == 0``."""
        component = self.component
        constant, items = arithmetic.split(term)
        form, factor = normal_form(items)
        if equation:
            if constant % factor:
                component.contradictory = True
                return
            pair: Pair = (-constant // factor, -constant // factor)
        elif factor > 0:
            pair = (None, -constant // factor)
        else:
            pair = (-(constant // factor), None)
        if len(form) == 1:
            self.narrow(form[0][0], pair)
            return
        known = component.rows.get(form)
        pair = pair if known is None else meet(known, pair)
        if pair == known:
            return
        component.rows[form] = pair
        self.fresh.add(form)
        self.changed()
        if pair[0] is None or pair[1] is None:
            return
        if pair[0] > pair[1]:
            component.contradictory = True
        elif pair[0] == pair[1] and not equation:  # two bounds that meet are an equation
            del component.rows[form]
            self.pending.append(boolean.eq(arithmetic.linear(0, dict(form)), pair[0]))

    def narrow(self, monomial: Term, pair: Pair) -> None:
        """Records a range of a monomial and what it says of the atoms inside."""
        component = self.component
        old = component.bounds(monomial)
        new = meet(old, pair)
        if new == old:
            return
        self.moved |= monomial.symbols
        if new[0] is not None and new[0] == new[1] and monomial.op is Op.SYMBOL:
            component.ranges[monomial] = new
            self.changed()
            self.rewrite(monomial, arithmetic.const(new[0]))
            return
        if new[0] is not None and new[1] is not None and new[0] > new[1]:
            component.contradictory = True
            return
        component.ranges[monomial] = new
        self.changed()
        self.narrow_inside(monomial, new)

    def narrow_inside(self, monomial: Term, pair: Pair) -> None:
        lo, hi = pair
        op = monomial.op
        args = monomial.args
        if op is Op.FLOORDIV and args[1].op is Op.CONST:
            d = args[1].args[0]
            self.between(args[0], None if lo is None else lo * d, None if hi is None else hi * d + d - 1)
        elif op is Op.MIN and lo is not None:
            for part in args:
                self.between(part, lo, None)
        elif op is Op.MAX and hi is not None:
            for part in args:
                self.between(part, None, hi)
        elif op is Op.MUL:
            self.narrow_factors(monomial, lo, hi)

    def narrow_factors(self, monomial: Term, lo: int | None, hi: int | None) -> None:
        args = monomial.args
        if lo is not None and lo > 0:
            for atom in args:  # no factor is 0
                if self.component.bounds(atom)[0] == 0:
                    self.pending.append(boolean.ge(atom, 1))
        if hi is not None:
            if len(args) == 2 and args[0] is args[1]:
                if hi < 0:
                    self.component.contradictory = True
                else:
                    self.narrow(args[0], (-isqrt(hi), isqrt(hi)))
                return
            for index, atom in enumerate(args):  # x*y <= hi with y >= least > 0 and x >= 0
                if self.component.contradictory or monomial not in self.component.ranges:
                    return
                low, _ = self.component.bounds(atom)
                least, _ = self.component._bound_product(args[:index] + args[index + 1 :])
                if least is not None and least > 0 and low is not None and low >= 0:
                    self.narrow(atom, (None, hi // least))

    def between(self, term: Term, lo: int | None, hi: int | None) -> None:
        """Has ``lo <= term <= hi`` taken in."""
        if lo is not None:
            self.pending.append(boolean.ge(term, lo))
        if hi is not None:
            self.pending.append(boolean.le(term, hi))

    def propagate(self) -> bool:
        """Draws ranges of atoms from rows, and what ``!=`` and ``or`` say once more; whether anything is new.

        Looks only at rows that are new and at what mentions a symbol whose range changed.
        """
        component = self.component
        fresh, moved = self.fresh, self.moved
        self.fresh, self.moved = set(), set()
        for form in list(component.rows):
            if form in fresh or (moved and any(not moved.isdisjoint(m.symbols) for m, _ in form)):
                self.propagate_row(form)
                if component.contradictory:
                    return True
        for monomial, pair in list(component.ranges.items()):
            if (
                monomial.op is Op.MUL
                and not moved.isdisjoint(monomial.symbols)
                and component.ranges.get(monomial) == pair
            ):
                self.narrow_inside(monomial, pair)
            elif monomial.op is Op.MOD and pair[0] is not None and pair[0] == pair[1] and monomial in component.ranges:
                if monomial.args[1].op is Op.CONST or moved.isdisjoint(monomial.args[1].symbols):
                    continue
                found = self.solved(arithmetic.sub(monomial, pair[0]))  # the sign of the divisor may be known now
                if found is not None:
                    del component.ranges[monomial]
                    self.rewrite(*found)
        for condition in list(component.residue):
            if not moved.isdisjoint(condition.symbols):
                self.sharpen(condition)
        return bool(self.moved or self.fresh)

    def propagate_row(self, form: Monomials) -> None:
        """Draws from one row the ranges of its monomials."""
        component = self.component
        pair = component.rows.get(form, interval_arithmetic.EVERYTHING)  # it may have been rewritten meanwhile
        for index, (monomial, coefficient) in enumerate(form):
            rest = component._bound_sum(0, form[:index] + form[index + 1 :])
            lo = None if pair[0] is None or rest[1] is None else pair[0] - rest[1]
            hi = None if pair[1] is None or rest[0] is None else pair[1] - rest[0]
            if coefficient < 0:
                lo, hi, coefficient = None if hi is None else -hi, None if lo is None else -lo, -coefficient
            lo = None if lo is None or abs(lo) > _WIDEST else -(-lo // coefficient)
            hi = None if hi is None or abs(hi) > _WIDEST else hi // coefficient
            if lo is None and hi is None:
                continue
            old = component.bounds(monomial)
            if meet(old, (lo, hi)) != old:
                self.narrow(monomial, (lo, hi))
                if component.contradictory or form not in component.rows:
                    return

    # -- equations ----------------------------------------------------------------------------------------------------

    def add_equation(self, term: Term) -> None:
        """Takes in ``term == 0``: solved for an atom where that is possible."""
        found = self.solved(term)
        if found is None:
            if not self.component.contradictory:
                self.add_row(term, True)
        else:
            self.rewrite(*found)

    def solved(self, term: Term) -> tuple[Term, Term] | None:
        """An atom to replace and its replacement, drawn from ``term == 0``."""
        constant, items = arithmetic.split(term)
        if len(items) == 1 and items[0][0].op is Op.MOD:
            divided = self.divided(items[0][0], constant // items[0][1])
            if divided is not None:
                return divided
        for op in _SOLVABLE:
            for atom, coefficient in reversed(items):
                if atom.op is not op or coefficient not in (1, -1):
                    continue
                rest = arithmetic.linear(
                    constant * -coefficient, {m: c * -coefficient for m, c in items if m is not atom}
                )
                if not contains(rest, atom):
                    if op is not Op.SYMBOL:
                        self.pending += self.meaning(atom, rest)
                    return atom, rest
        return self.parametrised(constant, items)

    def parametrised(self, constant: int, items: Monomials) -> tuple[Term, Term] | None:
        """Solves an equation without unit coefficients by a new symbol (as Pugh's Omega test does)."""
        if len(items) < 2:
            return None
        atom, coefficient = min(items, key=lambda item: (abs(item[1]), item[0].op is not Op.SYMBOL))
        if atom.op is not Op.SYMBOL or any(atom in m.symbols for m, _ in items if m is not atom):
            return None
        sign = 1 if coefficient > 0 else -1
        least = abs(coefficient)
        # t = atom + sum(q * m) + q0 turns the equation into least*t + sum(r * m) + r0 == 0 with smaller r
        parts = {m: (sign * c) // least for m, c in items if m is not atom}
        whole = arithmetic.linear((sign * constant) // least, parts)
        fresh = new_symbol(f"{least}:{atom.name}")
        lo, hi = self.component.bounds(arithmetic.add(atom, whole))
        self.component.ranges[fresh] = (lo, hi)
        self.component.fresh[fresh] = arithmetic.ONE, atom, arithmetic.scale(whole, -1)
        rest = {m: (sign * c) % least for m, c in items if m is not atom}
        self.pending.append(boolean.is_zero(arithmetic.linear((sign * constant) % least, {fresh: least, **rest})))
        return atom, arithmetic.sub(fresh, whole)

    def meaning(self, atom: Term, value: Term) -> list[Term]:
        """What ``atom == value`` says of the operands of the atom."""
        args = atom.args
        if atom.op is Op.FLOORDIV:
            low, _ = self.component.bounds(args[1])
            if low is None or low <= 0:
                return []
            slack = arithmetic.sub(args[0], arithmetic.mul(args[1], value))
            return [boolean.ge(slack, 0), boolean.lt(slack, args[1])]
        if atom.op is Op.ITE:
            yes = boolean.and_(args[0], boolean.eq(value, args[1]))
            return [boolean.or_(yes, boolean.and_(boolean.not_(args[0]), boolean.eq(value, args[2])))]
        below = boolean.le if atom.op is Op.MIN else boolean.ge
        return [boolean.or_(*[boolean.eq(value, part) for part in args]), *[below(value, part) for part in args]]

    def divided(self, remainder: Term, offset: int) -> tuple[Term, Term] | None:
        """Solves ``a % b + offset == 0`` for a symbol in ``a`` by a new symbol, in effect for ``a // b``."""
        component = self.component
        dividend, divisor = remainder.args
        lo, hi = component.bounds(remainder)
        if (lo is not None and -offset < lo) or (hi is not None and -offset > hi):
            component.contradictory = True
            return None
        if divisor.op is Op.CONST:
            return self.divided_by_number(dividend, divisor.args[0], -offset)
        lo, hi = component.bounds(divisor)
        positive = lo is not None and lo > 0
        if not positive and not (hi is not None and hi < 0):
            return None
        constant, items = arithmetic.split(dividend)
        for atom, coefficient in reversed(items):
            if atom.op is not Op.SYMBOL or coefficient not in (1, -1) or atom in divisor.symbols:
                continue
            rest = arithmetic.linear(constant, {m: c for m, c in items if m is not atom})
            if atom in rest.symbols:
                continue
            quotient = new_symbol(f"{divisor}\u00b7{atom.name}")
            component.ranges[quotient] = interval_arithmetic.floordiv(
                component.bounds(dividend), component.bounds(divisor)
            )
            if positive:
                self.pending += [boolean.lt(-offset, divisor), boolean.ge(-offset, 0)]
            else:
                self.pending += [boolean.gt(-offset, divisor), boolean.le(-offset, 0)]
            value = arithmetic.add(arithmetic.mul(divisor, quotient), -offset)
            value = arithmetic.mul(coefficient, arithmetic.sub(value, rest))
            component.fresh[quotient] = (
                divisor,
                atom,
                arithmetic.sub(value, arithmetic.mul(arithmetic.scale(divisor, coefficient), quotient)),
            )
            if coefficient < 0:
                component.fresh[quotient] = arithmetic.scale(divisor, -1), *component.fresh[quotient][1:]
            return atom, value
        return None

    def divided_by_number(self, dividend: Term, number: int, rest: int) -> tuple[Term, Term] | None:
        """Solves ``dividend % number == rest`` for a symbol whose coefficient has an inverse."""
        constant, items = arithmetic.split(dividend)
        best = None
        for atom, coefficient in items:
            if atom.op is Op.SYMBOL and gcd(coefficient, number) == 1:
                others = {m: c for m, c in items if m is not atom}
                if not any(atom in m.symbols for m in others) and (best is None or abs(coefficient) <= abs(best[1])):
                    best = atom, coefficient, others
        if best is None:
            return None
        atom, coefficient, others = best
        inverse = coefficient if coefficient in (1, -1) else pow(coefficient, -1, number)
        # coefficient*atom + others + constant == rest (mod number)
        value = arithmetic.linear((rest - constant) * inverse, {m: -c * inverse for m, c in others.items()})
        if not others:
            value = arithmetic.const((rest - constant) * inverse % number)
        quotient = new_symbol(f"{number}\u00b7{atom.name}")
        lo, hi = self.component.bounds(arithmetic.sub(atom, value))
        self.component.ranges[quotient] = (
            None if lo is None else -(-lo // number),
            None if hi is None else hi // number,
        )
        self.component.fresh[quotient] = arithmetic.const(number), atom, value
        return atom, arithmetic.add(arithmetic.scale(quotient, number), value)

    def rewrite(self, atom: Term, replacement: Term) -> None:
        """Replaces ``atom`` everywhere."""
        component = self.component
        one = {atom: replacement}
        if atom.op is Op.SYMBOL:
            self.between(replacement, *component.ranges.pop(atom, interval_arithmetic.SIZES))
        known_rewrites, component.rewrites = component.rewrites, {}
        for left, right in known_rewrites.items():
            new = replaced(right, one) or right
            if left.op is not Op.SYMBOL and (contains(left, atom) or (new is not right and left.op is new.op)):
                self.pending.append(boolean.eq(left, new))  # it may say more now
            else:
                component.rewrites[left] = new
        component.rewrites[atom] = replacement
        self.moved |= replacement.symbols
        for known, pair in list(component.ranges.items()):
            if known.op is not Op.SYMBOL and contains(known, atom):
                del component.ranges[known]
                moved = replaced(known, one)
                if moved is not None:
                    self.between(moved, *pair)
        for form, pair in list(component.rows.items()):
            if any(contains(m, atom) for m, _ in form):
                del component.rows[form]
                moved = replaced(arithmetic.linear(0, dict(form)), one)
                if moved is None:
                    continue
                if pair[0] is not None and pair[0] == pair[1]:
                    self.pending.append(boolean.eq(moved, pair[0]))
                else:
                    self.between(moved, *pair)
        for condition in list(component.residue):
            if contains(condition, atom):
                del component.residue[condition]
                self.pending.append(condition)
        self.changed()
