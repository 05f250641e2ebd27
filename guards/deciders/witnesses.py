"""Deciding by values: a few points show which answers are impossible, and a small box is tried
completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from operator import is_
from typing import Any

from guards.domains.interval_arithmetic import Pair
from guards.facts.completion import Values, completed
from guards.facts.component import Component
from guards.terms import boolean, fold, printing
from guards.terms.term import DEEP, Op, Term, postorder

POINTS = 7  # how many points are kept for a component
BOX = 1500  # boxes with more points than this are not tried completely
FAR = (
    2**64
    # how far from the end of an unbounded range the last of them lies: further than any size of a
    # tensor
)
_TRIED = 40  # candidates looked at to find those points


def _candidates(pair: Pair) -> tuple[int, ...]:
    lo, hi = pair
    if lo is None:
        return (
            (0, 1, -1, 5, -7, 100, FAR)
            if hi is None
            else tuple(hi - offset for offset in (0, 1, 6, 3, 101, 16, FAR))
        )
    offsets = (
        (0, 1, 6, 3, 101, 16, FAR)
        if hi is None
        else (0, hi - lo, (hi - lo) // 2, min(1, hi - lo), (hi - lo) // 3)
    )
    return tuple([lo + offset for offset in offsets])


class Found:
    """The points of a component that were found so far; looking goes on where a question needs
    another one.
    """

    __slots__ = (
        "attempt",
        "attempts",
        "choices",
        "conditions",
        "inherited",
        "names",
        "plain",
        "values",
    )

    def __init__(self, component: Component, before: Found | None) -> None:
        self.conditions = component.conditions
        self.inherited: list[
            tuple[Values, int]
        ] = []  # points, and how many of the conditions they satisfy: the last first
        if before is not None:
            count = len(before.conditions)
            assert all(map(is_, self.conditions, before.conditions))
            self.inherited = [
                *before.inherited,
                *[(point, count) for point in reversed(before.values)],
            ]
        free = sorted([s for s in component.ranges if s.op is Op.SYMBOL], key=lambda s: s.order)
        self.names = [s.name for s in free]
        self.choices = [_candidates(component.ranges[s]) for s in free]
        self.plain = not component.rewrites and not component.conditions
        self.attempts = POINTS if self.plain else _TRIED
        self.attempt = 0
        self.values: list[Values] = []

    def more(self, component: Component) -> bool:
        """Look for one more point; return whether there is one."""
        while self.inherited and len(self.values) < POINTS:
            point, count = self.inherited.pop()
            if satisfies(point, self.conditions[count:]):
                self.values.append(point)
                return True
        while self.attempt < self.attempts and len(self.values) < POINTS:
            attempt = self.attempt
            self.attempt += 1
            values: Values = {}
            index = attempt
            step = attempt if attempt >= POINTS else attempt > 0
            for name, choice in zip(self.names, self.choices, strict=True):
                values[name] = choice[index % len(choice)]
                index += step
            full = values if self.plain else completed(component, values)
            if full is not None and full not in self.values:
                self.values.append(full)
                return True
        return False


def each_point(component: Component) -> Iterator[Values]:
    """Up to :data:`POINTS` assignments to all symbols of the component that satisfy what it knows;
    perhaps none.
    """
    found: Found | None = component.memo.points
    if found is None or found.conditions is not component.conditions:
        found = component.memo.points = Found(component, found)
    position = 0
    while position < len(found.values) or found.more(component):
        yield found.values[position]
        position += 1


def points(component: Component) -> list[Values]:
    """Return the points that :func:`each_point` yields, without the far ones."""
    return [point for point in each_point(component) if not _is_far(point)]


def satisfies(point: Values, conditions: Sequence[Term]) -> bool:
    """Return whether all conditions are defined and true at a point."""
    try:
        return all(fold.evaluate(condition, point) for condition in conditions)
    except ZeroDivisionError:
        return False


def _is_far(point: Values) -> bool:
    return any(abs(value) >= FAR // 2 for value in point.values())


def witness(component: Component, condition: Term, value: bool) -> Values | None:
    """One of the points of the component at which the condition has that value."""
    for point in each_point(component):
        try:
            if fold.evaluate(condition, point) is value:
                return point
        except ZeroDivisionError:
            continue
    return None


def nearer(component: Component, condition: Term, value: bool, point: Values) -> Values:
    """A point like a given one that lies less far out, and at which the condition has the same
    value.
    """

    def try_with(name: str, number: int) -> Values | None:
        try:
            values = completed(component, {**point, name: number})
            return (
                values if values is not None and fold.evaluate(condition, values) is value else None
            )
        except ZeroDivisionError:
            return None

    for name in [name for name, number in point.items() if abs(number) >= FAR // 2]:
        far = point[name]
        start = far - FAR if far > 0 else far + FAR
        low, high = 0, FAR  # there it holds, and as far as is known nowhere nearer than `low`
        while high - low > 1:
            middle = 2 * low if 0 < 4 * low < high else (low + high) // 2 if low else 1
            found = try_with(name, start + middle if far > 0 else start - middle)
            if found is None:
                low = middle
            else:
                high, point = middle, found
    return point


def compiled(term: Term, symbols: Sequence[Term]) -> Callable[..., fold.Value] | None:
    """A Python function of the symbols' values that computes the term; None when its text would be
    too large.
    """
    if term.depth > DEEP:
        return None
    names = {symbol.name: f"v{position}" for position, symbol in enumerate(symbols)}
    source = printing.python(term, names)
    if len(source) > 5000:
        return None
    # our own operators and v0, v1, ... only
    code = f"def test({', '.join(names.values())}):\n    return {source}"
    space: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}
    exec(compile(code, "<guards>", "exec"), space)
    return space["test"]  # type: ignore[no-any-return]


def box_size(component: Component, symbols: Sequence[Term]) -> int | None:
    """Return the number of points in the ranges of the symbols, or None if it is infinite."""
    sizes = []
    for symbol in symbols:
        lo, hi = component.bounds(symbol)
        if lo is None or hi is None:
            return None
        sizes.append(hi - lo + 1)
    return prod(sizes)


def exhaust(component: Component, formula: Term, limit: int = BOX) -> bool | None:
    """Return whether trying all values proves the formula unsolvable in the component; None if they
    are too many.

    Conditions of the component may tie the formula's symbols to others. A solution found then
    proves nothing: the answer is False or None only for the formula together with these conditions.
    """
    return exhausted(component, formula, limit)[0]


def exhausted(
    component: Component, formula: Term, limit: int = BOX
) -> tuple[bool | None, Values | None]:
    """Decide as :func:`exhaust` does; return the values that solve the formula, too."""
    known = component.stated(ranges=False)
    facts = [condition for condition in known if not condition.symbols.isdisjoint(formula.symbols)]
    whole = boolean.and_(formula, *facts)
    if whole is boolean.FALSE:
        return True, None
    symbols = sorted(whole.symbols, key=lambda s: s.order)
    size = box_size(component, symbols)
    if size is None or size > limit:
        return None, None
    test = compiled(whole, symbols)
    if test is None:
        return None, None
    choosing = any(part.op is Op.OR or part.op is Op.ITE for part in postorder(whole))
    axes = []
    for symbol in symbols:
        low, high = component.bounds(symbol)
        assert low is not None
        assert high is not None
        axes.append(range(low, high + 1))
    for values in product(*axes):
        try:
            if test(*values):
                return False, {
                    symbol.name: value for symbol, value in zip(symbols, values, strict=True)
                }
        except (
            ZeroDivisionError
        ):  # a conjunction says nothing there; an `or` may still speak through its other part
            if choosing:
                return None, None
    return True, None
