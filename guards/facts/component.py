"""The facts about one set of connected symbols, in the form that the deciders need.

A :class:`Component` is immutable once made. It turns conditions into ranges, bounds of linear forms
and rewrites: an equation that can be solved for a symbol, and a divisibility fact, which becomes a
rewrite to a multiple of a new symbol (``s0 % 8 == 0`` lets ``s0`` be written ``8*k``), so that what
follows from it is seen by plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guards.domains import congruence, interval_arithmetic
from guards.domains.congruence import Class
from guards.domains.interval_arithmetic import EVERYTHING, Pair, meet
from guards.domains.linear_form import normal_form
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import DEEP, SYMBOLIC_DIVISION, Monomials, Op, Term, intern, postorder


class Memo:
    """Caches about one component. Nothing here changes what is known; any of them may be emptied at
    any time.

    Attributes:
        answers: decisions already made, by condition, in bits; filled by
            ``guards.asking.questions``.
        assumed: components with one more condition, by condition; filled by
            ``guards.facts.propagate``.
        points: a ``Found``, the assignments found so far (None before that); filled by
            ``guards.deciders.witnesses``.
        simplified: what the rewrite rules made of terms; filled by ``guards.facts.rewrite_rules``.
        network: a ``Network``, its rows as edges (None before that); filled by
            ``guards.deciders.chains``.
        freedom: how freely symbols take their values (-1 before that); filled by
            ``guards.deciders.independence``.
    """

    __slots__ = ("answers", "assumed", "freedom", "network", "points", "simplified")

    def __init__(self) -> None:
        self.answers: dict[Term, int] = {}
        self.assumed: dict[Term, Component] = {}
        self.points: Any = None  # the classes of this one and the next stand above this file
        self.network: Any = None
        self.simplified: dict[Term, Term] = {}
        self.freedom = -1


class Component:
    """Ranges, rows, rewrites and conditions about connected symbols.

    Attributes:
        declared: the range with which each symbol came.
        symbols: the symbols it speaks about (without the new ones of divisibility facts).
        ranges: the best known range of symbols and other atoms.
        rows: bounds of linear forms: ``{items: (lo, hi)}``, items being those of a sum without
            constant, in normal form (divided by their greatest common divisor, the first
            coefficient positive).
        rewrites: atoms that are always replaced, and by what (never by something that can be
            rewritten again).
        equals: the rewrites among the symbols that came from outside, for showing.
        fresh: for each new symbol ``k`` made by a rewrite ``atom -> factor*k + value``: factor,
            atom and value.
        conditions: all that was assumed, as it was given.
        residue: rewritten conditions that are neither ranges nor rows (``!=``, ``or``).
        contradictory: whether nothing can satisfy it, as far as cheap means saw.
        memo: what other modules found out about it; no part of what it knows.
    """

    __slots__ = (
        "_bounds",
        "_canonical",
        "_classes",
        "conditions",
        "contradictory",
        "declared",
        "equals",
        "fresh",
        "memo",
        "ranges",
        "residue",
        "rewrites",
        "rows",
        "symbols",
    )

    def __init__(self, declared: dict[Term, Pair]) -> None:
        self.declared = declared
        self.symbols = frozenset(declared)
        self.ranges: dict[Term, Pair] = dict(declared)
        self.rows: dict[Monomials, Pair] = {}
        self.rewrites: dict[Term, Term] = {}
        self.equals: dict[Term, Term] = {}
        self.fresh: dict[Term, tuple[Term, Term, Term]] = {}
        self.conditions: tuple[Term, ...] = ()
        self.residue: dict[Term, None] = {}
        self.contradictory = False
        self.memo = Memo()
        self._bounds: dict[Term, Pair] = {}
        self._classes: dict[Term, Class] = {}
        self._canonical: dict[Term, Term] = {}

    @classmethod
    def joined(cls, components: Sequence[Component]) -> Component:
        """One component for several that share no symbol."""
        declared: dict[Term, Pair] = {}
        for component in components:
            declared.update(component.declared)
        made = cls(declared)
        for component in components:
            if component.conditions or component.rewrites:
                made._take(component)
        return made

    def _take(self, other: Component) -> None:
        """Learn what a component of some of the declared symbols knows."""
        if other.rewrites:
            for symbol in other.declared:
                self.ranges.pop(symbol, None)
            self.rewrites.update(other.rewrites)
            self.fresh.update(other.fresh)
            self.equals.update(other.equals)
        self.ranges.update(other.ranges)
        self.rows.update(other.rows)
        self.conditions += other.conditions
        self.residue.update(other.residue)
        self.contradictory = self.contradictory or other.contradictory

    def copy(self) -> Component:
        """A component to be changed by who makes it."""
        made = Component(self.declared)
        made.symbols = self.symbols
        made.ranges = dict(self.ranges)
        made.rows = dict(self.rows)
        made.rewrites = dict(self.rewrites)
        made.equals = dict(self.equals)
        made.fresh = dict(self.fresh)
        made.conditions = self.conditions
        made.residue = dict(self.residue)
        made.contradictory = self.contradictory
        return made

    def stated(self, *, ranges: bool = True) -> list[Term]:
        """All that it knows, as conditions over the symbols that are left after its rewrites.

        Without ``ranges`` those of symbols are left out (those of other atoms are not).
        """
        facts: list[Term] = []
        for atom, (lo, hi) in self.ranges.items():
            if not ranges and atom.op is Op.SYMBOL:
                continue
            if lo is not None:
                facts.append(boolean.ge(atom, lo))
            if hi is not None:
                facts.append(boolean.le(atom, hi))
        for form, (lo, hi) in self.rows.items():
            term = arithmetic.linear(0, dict(form))
            if lo is not None and lo == hi:
                facts.append(boolean.eq(term, lo))
                continue
            if lo is not None:
                facts.append(boolean.ge(term, lo))
            if hi is not None:
                facts.append(boolean.le(term, hi))
        facts.extend(self.residue)
        return facts

    # -- reading -----------------------------------------------------------------------------------

    def canonical(self, term: Term) -> Term:
        """``term`` with all rewrites applied."""
        if not self.rewrites:
            return term
        found = self._canonical.get(term)
        if found is None:
            found = replaced(term, self.rewrites)
            if found is None:
                found = term
            self._canonical[term] = found
        return found

    def bounds(self, term: Term) -> Pair:
        """A range that contains all values of an integer term."""
        found = self._bounds.get(term)
        if found is None:
            if term.depth > DEEP:
                known = self._bounds
                for part in postorder(term, lambda part: part.op >= Op.TRUE or part in known):
                    known[part] = self._bound(part)
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
            return self.ranges.get(term) or self._bound_symbol(term)
        if op is Op.MUL:
            pair = self._bound_product(args)
        elif op is Op.FLOORDIV or op is Op.MOD:
            pair = self._bound_division(op, args[0], args[1])
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
            pair = interval_arithmetic.hull(self.bounds(args[1]), self.bounds(args[2]))
        else:
            raise TypeError(f"{term} is no integer")
        known = self.ranges.get(term)
        return pair if known is None else meet(pair, known)

    def _bound_division(self, op: Op, dividend: Term, divisor: Term) -> Pair:
        divide = interval_arithmetic.floordiv if op is Op.FLOORDIV else interval_arithmetic.mod
        lo, hi = self.bounds(divisor)
        least = arithmetic.content(divisor) if divisor.op is Op.ADD else 1
        if least == 1:
            return divide(self.bounds(dividend), (lo, hi))
        # a multiple of `least`, and not 0
        over = divide(self.bounds(dividend), (least if lo is None else max(lo, least), hi))
        if lo is not None and lo > -least:
            return over
        under = divide(self.bounds(dividend), (lo, -least if hi is None else min(hi, -least)))
        return under if hi is not None and hi < least else interval_arithmetic.hull(over, under)

    def _bound_symbol(self, symbol: Term) -> Pair:
        """The range of a symbol that was rewritten away, or never declared: then it is a size."""
        replacement = self.rewrites.get(symbol)
        if replacement is None:
            return interval_arithmetic.SIZES
        return meet(self.declared.get(symbol, EVERYTHING), self.bounds(replacement))

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
                known = interval_arithmetic.add(
                    interval_arithmetic.scaled(known, factor), (constant, constant)
                )
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
                part = interval_arithmetic.power(part, count)
            pair = part if pair is None else interval_arithmetic.product(pair, part)
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
                total = congruence.add(
                    total, congruence.scaled(self.congruence(monomial), coefficient)
                )
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

    # -- asking ------------------------------------------------------------------------------------

    def look(self, condition: Term) -> bool | None:
        """Decide a condition by ranges, remainders and assumptions, without any search; None if
        they leave it open.
        """
        op = condition.op
        if op is Op.LE:
            lo, hi = self.bounds(condition.args[0])
            if hi is not None and hi <= 0:
                return True
            return False if lo is not None and lo > 0 else None
        if op is Op.EQ or op is Op.NE:
            found = self._is_zero(condition)
            return found if found is None or op is Op.EQ else not found
        if op is Op.TRUE:
            return True
        if op is Op.FALSE:
            return False
        if condition in self.residue:
            return True
        if condition.depth > DEEP:
            return None
        stop = op is Op.OR
        undecided = False
        for part in condition.args:
            found = self.look(part)
            if found is stop:
                return stop
            undecided = undecided or found is None
        return None if undecided else not stop

    def _is_zero(self, condition: Term) -> bool | None:
        term = condition.args[0]
        lo, hi = self.bounds(term)
        if (lo is not None and lo > 0) or (hi is not None and hi < 0):
            return False
        if lo == 0 and hi == 0:
            return True
        if (
            self.residue
            and (condition if condition.op is Op.NE else boolean.not_(condition)) in self.residue
        ):
            return False
        if not term.kinds:
            return None  # no remainder of symbols alone is known
        return None if congruence.meets(self.congruence(term), 0) else False


_DIVISORS_LIMIT = 4096
_divisors: dict[Term, tuple[Term, ...]] = {}


def divisors(condition: Term) -> tuple[Term, ...]:
    """The symbolic divisors that are not 0 wherever a comparison says anything.

    None for a connective, and none under an ``ite``: there a division may be left out.
    """
    if (
        not condition.kinds & SYMBOLIC_DIVISION
        or not Op.EQ <= condition.op <= Op.LE
        or condition.depth > DEEP
    ):
        return ()
    found = _divisors.get(condition)
    if found is None:
        if len(_divisors) >= _DIVISORS_LIMIT:
            _divisors.clear()
        seen: dict[Term, None] = {}
        for part in postorder(condition, lambda part: part.op is Op.ITE):
            if (part.op is Op.FLOORDIV or part.op is Op.MOD) and part.args[1].op is not Op.CONST:
                seen[part.args[1]] = None
        found = _divisors[condition] = tuple(seen)
    return found


def replaced(term: Term, replacements: dict[Term, Term]) -> Term | None:
    """``term`` with parts replaced, or None where that divides by zero: there it says nothing."""
    try:
        return fold.substitute(term, replacements)
    except ZeroDivisionError:
        return None


def contains(term: Term, part: Term) -> bool:
    """Return whether ``part`` occurs in ``term``."""
    if part.op is Op.SYMBOL:
        return part in term.symbols
    if not part.symbols <= term.symbols:
        return False
    return any(found is part for found in postorder(term))


def new_symbol(name: str) -> Term:
    """A symbol whose name no user can give (it is no identifier)."""
    return intern(Op.SYMBOL, (name,))
