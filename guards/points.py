"""Deciding by values: a few points show which answers are impossible, and a small box is tried completely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from guards import exprs, fold
from guards.exprs import DEEP, Op, Term
from guards.intervals import Pair
from guards.scope import Scope

POINTS = 6  # how many points are kept for a scope
BOX = 1500  # boxes with more points than this are not tried completely
_TRIED = 40  # candidates looked at to find those points

Values = dict[str, int]


def _candidates(pair: Pair) -> tuple[int, ...]:
    lo, hi = pair
    if lo is None:
        return (0, 1, -1, 5, -7, 100) if hi is None else (hi, hi - 1, hi - 6, hi - 3, hi - 101, hi - 16)
    offsets = (0, 1, 6, 3, 101, 16) if hi is None else (0, hi - lo, (hi - lo) // 2, min(1, hi - lo), (hi - lo) // 3)
    return tuple(lo + offset for offset in offsets)


def points(scope: Scope) -> list[Values]:
    """Up to :data:`POINTS` assignments to all symbols of the scope that satisfy what it knows; perhaps none."""
    found = scope.points
    if found is None:
        found = scope.points = _find_points(scope)
    return found


def _find_points(scope: Scope) -> list[Values]:
    free = sorted((s for s in scope.ranges if s.op is Op.SYMBOL), key=lambda s: s.order)
    choices = [_candidates(scope.ranges[s]) for s in free]
    found: list[Values] = []
    plain = not scope.rewrites and not scope.conditions
    for attempt in range(POINTS if plain else _TRIED):
        values = {
            s.name: choice[(attempt * (1 + position * (attempt > 5)) + position * (attempt > 0)) % len(choice)]
            for position, (s, choice) in enumerate(zip(free, choices, strict=True))
        }
        full = values if plain else extended(scope, values)
        if full is not None and full not in found:
            found.append(full)
            if len(found) >= POINTS:
                break
    return found


def extended(scope: Scope, values: Values) -> Values | None:
    """Values for the symbols that were rewritten away too; None when they violate what the scope knows."""
    values = dict(values)
    try:
        for atom, replacement in scope.rewrites.items():
            if atom.op is Op.SYMBOL:
                values[atom.name] = int(fold.evaluate(replacement, values))
        for symbol, (lo, hi) in scope.declared.items():
            value = values[symbol.name]
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                return None
        if not all(fold.evaluate(condition, values) for condition in scope.conditions):
            return None
        return {symbol.name: values[symbol.name] for symbol in scope.declared}
    except ZeroDivisionError:
        return None


def witness(scope: Scope, condition: Term, value: bool) -> Values | None:
    """One of the points of the scope at which the condition has that value."""
    for point in points(scope):
        try:
            if fold.evaluate(condition, point) is value:
                return point
        except ZeroDivisionError:
            continue
    return None


def compiled(term: Term, symbols: Sequence[Term]) -> Callable[..., int | bool] | None:
    """A Python function of the symbols' values that computes the term; None when its text would be too large."""
    if term.depth > DEEP:
        return None
    names = {symbol.name: f"v{position}" for position, symbol in enumerate(symbols)}
    source = fold.python(term, names)
    if len(source) > 5000:
        return None
    code = f"def test({', '.join(names.values())}):\n    return {source}"  # our own operators and v0, v1, ... only
    space: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}
    exec(compile(code, "<guards>", "exec"), space)
    return space["test"]  # type: ignore[no-any-return]


def box_size(scope: Scope, symbols: Sequence[Term]) -> int | None:
    """How many points the ranges of the symbols allow, or None for infinitely many."""
    sizes = []
    for symbol in symbols:
        lo, hi = scope.bounds(symbol)
        if lo is None or hi is None:
            return None
        sizes.append(hi - lo + 1)
    return prod(sizes)


def exhaust(scope: Scope, formula: Term, limit: int = BOX) -> bool | None:
    """Whether the formula has no solution in the scope, by trying all values; None when these are too many.

    With conditions in the scope that tie its symbols to others, a solution found proves nothing: the answer is then
    False or None only for the formula together with them.
    """
    facts = [condition for condition in scope.residue if not condition.symbols.isdisjoint(formula.symbols)]
    for form, (lo, hi) in scope.rows.items():
        term = exprs.linear(0, dict(form))
        if not term.symbols.isdisjoint(formula.symbols):
            facts += [] if lo is None else [exprs.ge(term, lo)]
            facts += [] if hi is None else [exprs.le(term, hi)]
    for atom, (lo, hi) in scope.ranges.items():
        if atom.op is not Op.SYMBOL and not atom.symbols.isdisjoint(formula.symbols):
            facts += [] if lo is None else [exprs.ge(atom, lo)]
            facts += [] if hi is None else [exprs.le(atom, hi)]
    whole = exprs.and_(formula, *facts)
    if whole is exprs.FALSE:
        return True
    symbols = sorted(whole.symbols, key=lambda s: s.order)
    size = box_size(scope, symbols)
    if size is None or size > limit:
        return None
    test = compiled(whole, symbols)
    if test is None:
        return None
    axes = []
    for symbol in symbols:
        low, high = scope.bounds(symbol)
        assert low is not None
        assert high is not None
        axes.append(range(low, high + 1))
    for values in product(*axes):
        try:
            if test(*values):
                return False
        except ZeroDivisionError:  # outside of what the formula speaks about
            continue
    return True
