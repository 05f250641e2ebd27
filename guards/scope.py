"""What is known about one set of connected symbols, in the form that deciding wants.

A :class:`Scope` is immutable once made.  It turns conditions into ranges, bounds of linear forms and rewrites: an equation
that can be solved for a symbol, and a divisibility fact, which becomes a rewrite to a multiple of a new symbol
(``s0 % 8 == 0`` lets ``s0`` be written ``8*k``), so that what follows from it is seen by plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from guards import congruence, exprs, fold, intervals
from guards.congruence import Class
from guards.exprs import DEEP, Monomials, Op, Term
from guards.intervals import EVERYTHING, Pair, meet

_ROUNDS = 4  # how often ranges are propagated through all rows after a new condition
_WIDEST = 10**12  # bounds beyond this are not propagated (a chain of doublings would never end)


class Scope:
    """Ranges, rows, rewrites and conditions about connected symbols.

    Attributes:
        declared: the range with which each symbol came.
        symbols: the symbols it speaks about (without the new ones of divisibility facts).
        ranges: the best known range of symbols and other atoms.
        rows: bounds of linear forms: ``{items: (lo, hi)}``, items being those of a sum without constant, divided by their
            greatest common divisor, the first coefficient positive.
        rewrites: atoms that are always replaced, and by what (never by something that can be rewritten again).
        equals: the rewrites among the symbols that came from outside, for showing.
        conditions: all that was assumed, as it was given.
        residue: rewritten conditions that are neither ranges nor rows (``!=``, ``or``).
        contradictory: whether nothing can satisfy it, as far as cheap means saw.
        answers: decisions already made, by condition: kept here so that they live and die with what they depend on.
    """

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_canonical",
        "_classes",
        "answers",
        "conditions",
        "contradictory",
        "declared",
        "equals",
        "points",
        "ranges",
        "residue",
        "rewrites",
        "rows",
        "simplified",
        "symbols",
    )

    def __init__(self, declared: dict[Term, Pair]) -> None:
        self.declared = declared
        self.symbols = frozenset(declared)
        self.ranges: dict[Term, Pair] = dict(declared)
        self.rows: dict[Monomials, Pair] = {}
        self.rewrites: dict[Term, Term] = {}
        self.equals: dict[Term, Term] = {}
        self.conditions: tuple[Term, ...] = ()
        self.residue: dict[Term, None] = {}
        self.contradictory = False
        self.answers: dict[Term, object] = {}
        self.points: list[dict[str, int]] | None = None  # assignments that satisfy all this
        self.simplified: dict[Term, Term] = {}  # what the rewrite rules made of terms
        self._bounds: dict[Term, Pair] = {}
        self._classes: dict[Term, Class] = {}
        self._canonical: dict[Term, Term] = {}

    @classmethod
    def joined(cls, scopes: Sequence[Scope]) -> Scope:
        """One scope for several that share no symbol."""
        made = cls({})
        for scope in scopes:
            made._take(scope)
        made.symbols = frozenset(made.declared)
        return made

    def _take(self, other: Scope) -> None:
        self.declared = {**self.declared, **other.declared}
        self.ranges.update(other.ranges)
        self.rows.update(other.rows)
        self.rewrites.update(other.rewrites)
        self.equals.update(other.equals)
        self.conditions += other.conditions
        self.residue.update(other.residue)
        self.contradictory |= other.contradictory

    # -- reading ------------------------------------------------------------------------------------------------------

    def canonical(self, term: Term) -> Term:
        """``term`` with all rewrites applied."""
        if not self.rewrites:
            return term
        found = self._canonical.get(term)
        if found is None:
            found = self._canonical[term] = replaced(term, self.rewrites) or term
        return found

    def bounds(self, term: Term) -> Pair:
        """A range that contains all values of an integer term."""
        found = self._bounds.get(term)
        if found is None:
            if term.depth > DEEP:
                for part in exprs.postorder(term):
                    if not part.is_bool and part not in self._bounds:
                        self._bounds[part] = self._bound(part)
                return self._bounds[term]
            found = self._bounds[term] = self._bound(term)
        return found

    def _bound(self, term: Term) -> Pair:
        op = term.op
        args = term.args
        if op is Op.CONST:
            return args[0], args[0]
        if op is Op.ADD:
            return self._bound_sum(args[0], args[1])
        if op is Op.SYMBOL:
            found = self.ranges.get(term)
            if found is None:  # rewritten away, or never declared: then it is a size
                known = self.rewrites.get(term)
                found = (
                    intervals.SIZES if known is None else meet(self.declared.get(term, EVERYTHING), self.bounds(known))
                )
            return found
        if op is Op.MUL:
            pair = self._bound_product(args)
        elif op is Op.FLOORDIV:
            pair = intervals.floordiv(self.bounds(args[0]), self.bounds(args[1]))
        elif op is Op.MOD:
            pair = intervals.mod(self.bounds(args[0]), self.bounds(args[1]))
        elif op is Op.MIN or op is Op.MAX:
            pick = min if op is Op.MIN else max
            pairs = [self.bounds(part) for part in args]
            los = [lo for lo, _ in pairs if lo is not None]
            his = [hi for _, hi in pairs if hi is not None]
            needs_all_los = op is Op.MIN
            lo = pick(los) if los and (len(los) == len(pairs) or not needs_all_los) else None
            hi = pick(his) if his and (len(his) == len(pairs) or needs_all_los) else None
            pair = (lo, hi)
        elif op is Op.ITE:
            pair = intervals.hull(self.bounds(args[1]), self.bounds(args[2]))
        else:
            raise TypeError(f"{term} is no integer")
        known = self.ranges.get(term)
        return pair if known is None else meet(pair, known)

    def _bound_sum(self, constant: int, items: Monomials) -> Pair:
        lo: int | None = constant
        hi: int | None = constant
        bounds = self._bounds
        for monomial, coefficient in items:
            low, high = bounds.get(monomial) or self.bounds(monomial)
            if coefficient < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + low * coefficient
            hi = None if hi is None or high is None else hi + high * coefficient
        if self.rows and len(items) > 1:
            form, factor = normal_form(items)
            known = self.rows.get(form)
            if known is not None:
                known = intervals.add(intervals.scaled(known, factor), (constant, constant))
                return meet((lo, hi), known)
        return lo, hi

    def _bound_product(self, atoms: tuple[Term, ...]) -> Pair:
        pair: Pair | None = None
        index = 0
        while index < len(atoms):
            atom = atoms[index]
            count = 1
            while index + count < len(atoms) and atoms[index + count] is atom:
                count += 1
            part = self.bounds(atom)
            if count > 1:
                part = intervals.power(part, count)
            pair = part if pair is None else intervals.product(pair, part)
            index += count
        assert pair is not None
        return pair

    def congruence(self, term: Term) -> Class:
        """A remainder class that contains all values of an integer term."""
        found = self._classes.get(term)
        if found is None:
            if term.depth > DEEP:
                return congruence.ANY
            found = self._classes[term] = self._class(term)
        return found

    def _class(self, term: Term) -> Class:
        op = term.op
        args = term.args
        if op is Op.CONST:
            return 0, args[0]
        if op is Op.ADD:
            total: Class = (0, args[0])
            for monomial, coefficient in args[1]:
                total = congruence.add(total, congruence.scaled(self.congruence(monomial), coefficient))
            return total
        if op is Op.MUL:
            total = (0, 1)
            for atom in args:
                total = congruence.product(total, self.congruence(atom))
            return total
        if op is Op.MIN or op is Op.MAX or op is Op.ITE:
            first, *rest = args[1:] if op is Op.ITE else args
            total = self.congruence(first)
            for part in rest:
                total = congruence.hull(total, self.congruence(part))
            return total
        if (op is Op.MOD or op is Op.FLOORDIV) and args[1].op is Op.CONST:
            step = congruence.mod if op is Op.MOD else congruence.floordiv
            return step(self.congruence(args[0]), args[1].args[0])
        if op is Op.SYMBOL:
            lo, hi = self.bounds(term)
            if lo is not None and lo == hi:
                return 0, lo
        return congruence.ANY

    # -- assuming -----------------------------------------------------------------------------------------------------

    def assume(self, condition: Term) -> Scope:
        """This scope and one more condition (whose symbols it must have)."""
        made = Scope({})
        made._take(self)
        made.symbols = self.symbols
        made.conditions += (condition,)
        made._equate(condition)
        pending = [condition]
        while pending and not made.contradictory:
            made._add(pending.pop(), pending)
        if not made.contradictory:
            made._propagate()
        return made

    def _add(self, condition: Term, pending: list[Term]) -> None:
        if self.rewrites:
            found = replaced(condition, self.rewrites)
            if found is None:
                return
            condition = found
        op = condition.op
        if op is Op.TRUE:
            return
        if op is Op.FALSE:
            self.contradictory = True
        elif op is Op.AND:
            pending.extend(condition.args)
        elif op is Op.LE:
            self._add_row(condition.args[0], False)
        elif op is Op.EQ:
            self._add_equation(condition.args[0], pending)
        else:
            self.residue[condition] = None
            self._add_residue(condition)

    def _add_residue(self, condition: Term) -> None:
        if condition.op is Op.NE:  # sharpens a bound that it excludes
            constant, items = exprs.split(condition.args[0])
            if len(items) == 1 and constant % items[0][1] == 0:
                monomial, value = items[0][0], -constant // items[0][1]
                lo, hi = self.bounds(monomial)
                if lo == value:
                    self._narrow(monomial, (value + 1, None))
                if hi == value:
                    self._narrow(monomial, (None, value - 1))

    def _add_row(self, term: Term, equation: bool) -> None:
        """Records ``term <= 0``, or ``term == 0``."""
        constant, items = exprs.split(term)
        form, factor = normal_form(items)
        if equation:
            if constant % factor:
                self.contradictory = True
                return
            pair: Pair = (-constant // factor, -constant // factor)
        elif factor > 0:
            pair = (None, -constant // factor)
        else:
            pair = (-(constant // factor), None)
        if len(form) == 1:
            self._narrow(form[0][0], pair)
            return
        known = self.rows.get(form)
        pair = pair if known is None else meet(known, pair)
        self.rows[form] = pair
        if pair[0] is not None and pair[1] is not None and pair[0] > pair[1]:
            self.contradictory = True
        self._bounds.clear()
        self._classes.clear()

    def _narrow(self, monomial: Term, pair: Pair) -> None:
        """Records a range of a monomial and what it says of the atoms inside."""
        old = self.bounds(monomial)
        new = meet(old, pair)
        if new == old:
            return
        if new[0] is not None and new[1] is not None and new[0] > new[1]:
            self.contradictory = True
            return
        self.ranges[monomial] = new
        self._bounds.clear()
        self._classes.clear()
        self._narrow_inside(monomial, new)

    def _narrow_inside(self, monomial: Term, pair: Pair) -> None:
        lo, hi = pair
        op = monomial.op
        args = monomial.args
        if op is Op.FLOORDIV and args[1].op is Op.CONST:
            divisor = args[1].args[0]
            self._narrow_sum(
                args[0], (None if lo is None else lo * divisor, None if hi is None else hi * divisor + divisor - 1)
            )
        elif op is Op.MIN and lo is not None:
            for part in args:
                self._narrow_sum(part, (lo, None))
        elif op is Op.MAX and hi is not None:
            for part in args:
                self._narrow_sum(part, (None, hi))
        elif op is Op.MUL and hi is not None:  # x*y <= hi with y >= least > 0 and x >= 0
            for index, atom in enumerate(args):
                low, _ = self.bounds(atom)
                least, _ = self._bound_product(args[:index] + args[index + 1 :])
                if least is not None and least > 0 and low is not None and low >= 0 and not self.contradictory:
                    self._narrow(atom, (None, hi // least))

    def _narrow_sum(self, term: Term, pair: Pair) -> None:
        if self.contradictory:
            return
        if pair[0] is not None:
            below = exprs.le(pair[0], term)
            if below is exprs.FALSE:
                self.contradictory = True
            elif below is not exprs.TRUE:
                self._add_row(below.args[0], False)
        if pair[1] is not None and not self.contradictory:
            above = exprs.le(term, pair[1])
            if above is exprs.FALSE:
                self.contradictory = True
            elif above is not exprs.TRUE:
                self._add_row(above.args[0], False)

    def _propagate(self) -> None:
        """Draws ranges of atoms from rows, a few times round."""
        for _ in range(_ROUNDS):
            changed = False
            for form, pair in list(self.rows.items()):
                for index, (monomial, coefficient) in enumerate(form):
                    rest = self._bound_sum(0, form[:index] + form[index + 1 :])
                    lo = None if pair[0] is None or rest[1] is None else pair[0] - rest[1]
                    hi = None if pair[1] is None or rest[0] is None else pair[1] - rest[0]
                    if coefficient < 0:
                        lo, hi, coefficient = None if hi is None else -hi, None if lo is None else -lo, -coefficient
                    lo = None if lo is None or abs(lo) > _WIDEST else -(-lo // coefficient)
                    hi = None if hi is None or abs(hi) > _WIDEST else hi // coefficient
                    if lo is None and hi is None:
                        continue
                    old = self.bounds(monomial)
                    if meet(old, (lo, hi)) != old:
                        changed = True
                        self._narrow(monomial, (lo, hi))
                    if self.contradictory:
                        return
            for condition in self.residue:
                self._add_residue(condition)
                if self.contradictory:
                    return
            if not changed:
                return

    # -- equations ----------------------------------------------------------------------------------------------------

    def _add_equation(self, term: Term, pending: list[Term]) -> None:
        found = self._solved(term, pending)
        if found is None:
            self._add_row(term, True)
            return
        atom, replacement = found
        self._rewrite(atom, replacement, pending)

    def _equate(self, condition: Term) -> None:
        """Keeps :attr:`equals` up to date with a new condition."""
        for part in condition.args if condition.op is Op.AND else (condition,):
            if part.op is not Op.EQ:
                continue
            constant, items = exprs.split(replaced(part.args[0], self.equals) or part.args[0])
            for index in range(len(items) - 1, -1, -1):
                atom, coefficient = items[index]
                if atom.op is Op.SYMBOL and coefficient in (1, -1):
                    rest = {m: c * -coefficient for m, c in items if m is not atom}
                    replacement = exprs.linear(constant * -coefficient, rest)
                    if atom not in replacement.symbols:
                        one = {atom: replacement}
                        self.equals = {s: replaced(t, one) or t for s, t in self.equals.items()}
                        self.equals[atom] = replacement
                        break

    def _solved(self, term: Term, pending: list[Term]) -> tuple[Term, Term] | None:
        """An atom to replace and its replacement, drawn from ``term == 0``."""
        constant, items = exprs.split(term)
        if len(items) == 1 and items[0][0].op is Op.MOD:
            divided = self._divided(items[0][0], constant // items[0][1], pending)
            if divided is not None:
                return divided
        for op in (Op.SYMBOL, Op.FLOORDIV):
            for index in range(len(items) - 1, -1, -1):
                atom, coefficient = items[index]
                if atom.op is not op or coefficient not in (1, -1):
                    continue
                rest = exprs.linear(
                    constant * -coefficient, {m: c * -coefficient for m, c in items if m is not atom}
                )
                if not contains(rest, atom):
                    if op is Op.FLOORDIV:
                        self._bracket(atom, rest, pending)
                    return atom, rest
        return None

    def _bracket(self, atom: Term, value: Term, pending: list[Term]) -> None:
        """What ``a // b == value`` says of ``a``."""
        dividend, divisor = atom.args
        low, _high = self.bounds(divisor)
        if low is not None and low > 0:
            slack = exprs.sub(dividend, exprs.mul(divisor, value))
            pending += [exprs.ge(slack, 0), exprs.lt(slack, divisor)]

    def _divided(self, remainder: Term, offset: int, pending: list[Term]) -> tuple[Term, Term] | None:
        """Solves ``a % b + offset == 0`` by a new symbol for ``a // b``."""
        dividend, divisor = remainder.args
        lo, hi = self.bounds(remainder)
        if (lo is not None and -offset < lo) or (hi is not None and -offset > hi):
            self.contradictory = True
            return None
        if divisor.op is not Op.CONST:
            lo, hi = self.bounds(divisor)
            if not ((lo is not None and lo > 0) or (hi is not None and hi < 0)):
                return None
        constant, items = exprs.split(dividend)
        for index in range(len(items) - 1, -1, -1):
            atom, coefficient = items[index]
            if atom.op is not Op.SYMBOL or coefficient not in (1, -1) or atom in divisor.symbols:
                continue
            rest = exprs.linear(constant, {m: c for m, c in items if m is not atom})
            if atom in rest.symbols:
                continue
            quotient = new_symbol(f"{divisor}\u00b7{atom.name}" + ("" if coefficient > 0 else "\u2212"))
            lo, hi = intervals.floordiv(self.bounds(dividend), self.bounds(divisor))
            self.ranges[quotient] = (lo, hi)
            if divisor.op is not Op.CONST:
                pending += (
                    [exprs.lt(-offset, divisor)] if (self.bounds(divisor)[0] or 0) > 0 else [exprs.gt(-offset, divisor)]
                )
                pending += [exprs.ge(-offset, 0)] if (self.bounds(divisor)[0] or 0) > 0 else [exprs.le(-offset, 0)]
            value = exprs.add(exprs.mul(divisor, quotient), -offset)
            return atom, exprs.mul(coefficient, exprs.sub(value, rest))
        return None

    def _rewrite(self, atom: Term, replacement: Term, pending: list[Term]) -> None:
        """Replaces ``atom`` everywhere."""
        one = {atom: replacement}
        if atom.op is Op.SYMBOL:
            lo, hi = self.ranges.pop(atom, intervals.SIZES)
            if lo is not None:
                pending.append(exprs.ge(replacement, lo))
            if hi is not None:
                pending.append(exprs.le(replacement, hi))
        self.rewrites = {a: replaced(t, one) or t for a, t in self.rewrites.items()}
        self.rewrites[atom] = replacement
        for known, pair in list(self.ranges.items()):
            if known.op is not Op.SYMBOL and contains(known, atom):
                del self.ranges[known]
                moved = replaced(known, one)
                if moved is None:
                    continue
                if pair[0] is not None:
                    pending.append(exprs.ge(moved, pair[0]))
                if pair[1] is not None:
                    pending.append(exprs.le(moved, pair[1]))
        for form, pair in list(self.rows.items()):
            if any(contains(m, atom) for m, _ in form):
                del self.rows[form]
                moved = replaced(exprs.linear(0, dict(form)), one)
                if moved is None:
                    continue
                if pair[0] is not None and pair[0] == pair[1]:
                    pending.append(exprs.eq(moved, pair[0]))
                    continue
                if pair[0] is not None:
                    pending.append(exprs.ge(moved, pair[0]))
                if pair[1] is not None:
                    pending.append(exprs.le(moved, pair[1]))
        for condition in list(self.residue):
            if contains(condition, atom):
                del self.residue[condition]
                pending.append(condition)
        self._bounds.clear()
        self._classes.clear()


def normal_form(items: Monomials) -> tuple[Monomials, int]:
    """A linear form with coprime coefficients, the first positive, and the factor that was taken out."""
    factor = gcd(*(c for _, c in items))
    if items[0][1] < 0:
        factor = -factor
    if factor == 1:
        return items, 1
    return tuple((m, c // factor) for m, c in items), factor


def replaced(term: Term, replacements: dict[Term, Term]) -> Term | None:
    """``term`` with parts replaced, or None where that divides by zero: there it says nothing."""
    try:
        return fold.substitute(term, replacements)
    except ZeroDivisionError:
        return None


def contains(term: Term, part: Term) -> bool:
    """Whether ``part`` occurs in ``term``."""
    if part.op is Op.SYMBOL:
        return part in term.symbols
    if not part.symbols <= term.symbols:
        return False
    return any(found is part for found in exprs.postorder(term))


def new_symbol(name: str) -> Term:
    """A symbol whose name no user can give (it is no identifier)."""
    return exprs._intern(Op.SYMBOL, (name,))


__all__ = ["EVERYTHING", "Scope", "contains", "new_symbol", "normal_form"]
