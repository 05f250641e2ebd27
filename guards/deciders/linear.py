"""An exact simplex over the integers' linear hull: can these linear constraints hold together?

Variables and linear forms have integer bounds; nothing is ever rounded: a row is kept as integers
over one denominator. The tableau answers feasibility over the rationals. Infeasible there means
infeasible over the integers; the converse does not hold, and callers branch where it matters.
"""

from __future__ import annotations

from math import gcd

from guards.domains.interval_arithmetic import Pair, some_value
from guards.terms.term import Monomials, Term


class OutOfBudget(Exception):
    """The pivots allowed for one question are used up."""


class Tableau:
    """Variables (one for each monomial, one for each linear form) with bounds, and the rows that
    tie them.

    Attributes:
        index: the variable of each monomial.
        lower, upper: the bounds of each variable (None: unbounded).
        value: the value of each variable that is not basic (an integer, within its bounds).
        rows: for each basic variable ``b``: ``(d, {v: c})`` with ``d * b == sum(c * v)`` and
            ``d > 0``.
        pivots: how many pivots may still be made.
    """

    __slots__ = ("forms", "index", "lower", "pivots", "rows", "upper", "value")

    def __init__(self, pivots: int) -> None:
        self.index: dict[Term, int] = {}
        self.forms: dict[Monomials, int] = {}
        self.lower: list[int | None] = []
        self.upper: list[int | None] = []
        self.value: list[int] = []
        self.rows: dict[int, tuple[int, dict[int, int]]] = {}
        self.pivots = pivots

    def copy(self) -> Tableau:
        """A tableau that can be changed on its own; the pivots left are copied too."""
        made = Tableau(self.pivots)
        made.index = self.index.copy()
        made.forms = self.forms.copy()
        made.lower = self.lower.copy()
        made.upper = self.upper.copy()
        made.value = self.value.copy()
        made.rows = self.rows.copy()
        return made

    def variable(self, pair: Pair) -> int:
        """A new variable within the bounds."""
        lo, hi = pair
        self.lower.append(lo)
        self.upper.append(hi)
        self.value.append(some_value(pair))
        return len(self.value) - 1

    def form(self, items: Monomials) -> int:
        """The variable that equals a linear form in monomials that have variables already."""
        if len(items) == 1 and items[0][1] == 1:
            return self.index[items[0][0]]
        found = self.forms.get(items)
        if found is not None:
            return found
        common = 1
        parts: list[tuple[int, int, dict[int, int]]] = []
        row: dict[int, int] = {}
        for monomial, coefficient in items:
            variable = self.index[monomial]
            basic = self.rows.get(variable)
            if basic is None:
                row[variable] = row.get(variable, 0) + coefficient
            else:
                parts.append((coefficient, basic[0], basic[1]))
                common = common * basic[0] // gcd(common, basic[0])
        if parts:
            if common != 1:
                row = {v: c * common for v, c in row.items()}
            for coefficient, denominator, inner in parts:
                factor = coefficient * (common // denominator)
                for v, c in inner.items():
                    row[v] = row.get(v, 0) + factor * c
            row = {v: c for v, c in row.items() if c}
        made = self.forms[items] = self.variable((None, None))
        self.rows[made] = (common, row)
        return made

    def restrict(self, variable: int, lo: int | None, hi: int | None) -> bool:
        """Tighten the bounds of a variable; return False when they become empty."""
        old_lo, old_hi = self.lower[variable], self.upper[variable]
        if lo is not None and (old_lo is None or lo > old_lo):
            self.lower[variable] = old_lo = lo
            if self.value[variable] < lo:
                self.value[variable] = lo
        if hi is not None and (old_hi is None or hi < old_hi):
            self.upper[variable] = old_hi = hi
            if self.value[variable] > hi:
                self.value[variable] = hi
        return old_lo is None or old_hi is None or old_lo <= old_hi

    def numerator(self, row: dict[int, int]) -> int:
        """The value of a row times its denominator."""
        value = self.value
        total = 0
        for v, c in row.items():
            total += c * value[v]
        return total

    def at(self, variable: int) -> tuple[int, int]:
        """The value of a variable as numerator and positive denominator."""
        row = self.rows.get(variable)
        return (self.value[variable], 1) if row is None else (self.numerator(row[1]), row[0])

    def feasible(self) -> bool:
        """Move to a point within all bounds; return False when there is none.

        Raises:
            OutOfBudget: before that was found out.
        """
        lower, upper, value, rows = self.lower, self.upper, self.value, self.rows
        while True:
            leaving = -1
            for basic, (denominator, row) in rows.items():
                if leaving >= 0 and basic > leaving:
                    continue
                total = 0
                for v, c in row.items():
                    total += c * value[v]
                lo, hi = lower[basic], upper[basic]
                if lo is not None and total < lo * denominator:
                    leaving, target, rising = basic, lo, True
                elif hi is not None and total > hi * denominator:
                    leaving, target, rising = basic, hi, False
            if leaving < 0:
                return True
            entering = -1
            for v, c in rows[leaving][1].items():
                if entering >= 0 and v > entering:
                    continue
                if (c > 0) is rising:
                    limit = upper[v]
                    free = limit is None or value[v] < limit
                else:
                    limit = lower[v]
                    free = limit is None or value[v] > limit
                if free:
                    entering = v
            if entering < 0:
                return False
            self.pivots -= 1
            if self.pivots < 0:
                raise OutOfBudget
            self._pivot(leaving, entering)
            value[leaving] = target

    def _pivot(self, leaving: int, entering: int) -> None:
        denominator, row = self.rows.pop(leaving)
        row = dict(row)  # copies of a tableau share their rows
        factor = row.pop(entering)
        # denominator * leaving == factor * entering + row
        if factor > 0:
            made = {v: -c for v, c in row.items()}
            made[leaving] = denominator
        else:
            made = row
            made[leaving] = -denominator
            factor = -factor
        for basic, (other, inner) in self.rows.items():
            share = inner.get(entering)
            if share is None:
                continue
            scale = factor // gcd(factor, share)
            share = share * scale // factor
            merged = {v: c * scale for v, c in inner.items()} if scale != 1 else dict(inner)
            del merged[entering]
            for v, c in made.items():
                total = merged.get(v, 0) + share * c
                if total:
                    merged[v] = total
                else:
                    del merged[v]
            other *= scale
            if other != 1:
                shared = gcd(other, *merged.values())
                if shared != 1:
                    other //= shared
                    merged = {v: c // shared for v, c in merged.items()}
            self.rows[basic] = (other, merged)
        if factor != 1:
            shared = gcd(factor, *made.values())
            if shared != 1:
                factor //= shared
                made = {v: c // shared for v, c in made.items()}
        self.rows[entering] = (factor, made)
