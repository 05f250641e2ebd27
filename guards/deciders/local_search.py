"""Looking for values at which a formula holds: from known points, by small repairs, where the dear
rungs would begin.

What is found is checked exactly before it is believed, so everything here may guess. Each step
takes a comparison that fails, walks along one symbol to where it turns, and keeps the move that
leaves the fewest comparisons failing. All limits are counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from guards.deciders.witnesses import each_point
from guards.facts.completion import Values, completed, with_defaults
from guards.facts.component import Component
from guards.terms import fold, printing
from guards.terms.term import DEEP, NONLINEAR, Op, Term, postorder

ROUNDS = 8  # repairs from one start
STARTS = 3
_LOOKS = 900  # values of terms computed for one question
_LARGEST = 24  # comparisons, in the formula and in what is known
_SOURCE = 4000  # characters of all of them
_FURTHEST = 4**12
_GRID = {1: 24, 2: 6, 3: 4}  # values of each symbol tried together, by the number of symbols


class _Spent(Exception):
    pass


class _Hunt:
    """The comparisons that are to hold together, as functions of the free symbols' values."""

    __slots__ = ("functions", "left", "offsets", "parts", "ranges", "symbols")

    def __init__(self, component: Component, parts: list[Term], relations: list[Term]) -> None:
        self.parts = parts
        self.left = _LOOKS
        self.offsets = {relation: _offsets(relation) for relation in relations}
        self.symbols = sorted(
            frozenset().union(*[part.symbols for part in parts]), key=lambda s: s.order
        )
        self.ranges = [component.bounds(symbol) for symbol in self.symbols]
        names = {symbol: f"v{position}" for position, symbol in enumerate(self.symbols)}
        spelled = {symbol.name: name for symbol, name in names.items()}
        arguments = ", ".join(spelled.values())
        lines = [
            f"lambda {arguments}: {printing.python(relation.args[0], spelled)}"
            for relation in relations
        ]
        source = f"made = ({', '.join(lines)},)"  # our own operators and v0, v1, ... only
        self.functions: dict[Term, Callable[..., int]] = {}
        if len(source) <= _SOURCE:
            space: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}
            exec(compile(source, "<guards>", "exec"), space)
            self.functions = dict(zip(relations, space["made"], strict=True))

    def number(self, relation: Term, values: list[int]) -> int | None:
        """The value of the term that a relation compares with 0; None where a divisor is 0."""
        self.left -= 1
        if self.left < 0:
            raise _Spent
        try:
            return int(self.functions[relation](*values))
        except ZeroDivisionError:
            return None

    def holds(self, part: Term, values: list[int]) -> bool:
        op = part.op
        if op is Op.AND or op is Op.OR:
            stop = op is Op.OR
            for inner in part.args:
                if self.holds(inner, values) is stop:
                    return stop
            return not stop
        return _satisfied(op, self.number(part, values))

    def failing(self, values: list[int], most: int) -> int:
        """Count the parts that fail, stopping once there are more than ``most``."""
        count = 0
        for part in self.parts:
            if not self.holds(part, values):
                count += 1
                if count > most:
                    break
        return count

    def repaired(self, values: list[int]) -> list[int] | None:
        """Values near the given ones at which all parts hold."""
        seen = {tuple(values)}
        for _ in range(ROUNDS):
            open_ones = [part for part in self.parts if not self.holds(part, values)]
            if not open_ones:
                return values
            best: list[int] | None = None
            fewest = len(self.parts)
            nearest = 0
            for relation in self.targets(open_ones[0], values):
                for position, symbol in enumerate(self.symbols):
                    if symbol not in relation.symbols:
                        continue
                    for value in self.moves(relation, values, position):
                        trial = values.copy()
                        trial[position] = value
                        if tuple(trial) in seen:
                            continue
                        count = self.failing(trial, fewest)
                        if not count:
                            return trial
                        gap = abs(self.number(relation, trial) or 0)
                        if best is None or count < fewest or (count == fewest and gap < nearest):
                            best, fewest, nearest = trial, count, gap
            if best is None:
                return None
            values = best
            seen.add(tuple(values))
        return None

    def targets(self, part: Term, values: list[int]) -> Iterator[Term]:
        """Comparisons to repair so that a part that fails may hold."""
        if part.op is Op.OR:
            for inner in part.args[:4]:
                yield from self.targets(inner, values)
        elif part.op is Op.AND:
            for inner in part.args:
                if not self.holds(inner, values):
                    yield from self.targets(inner, values)
                    return
        else:
            yield part

    def moves(self, relation: Term, values: list[int], position: int) -> Iterator[int]:
        """Values of one symbol at which a comparison that fails holds, the near ones first."""
        low, high = self.ranges[position]
        now = values[position]
        op = relation.op
        trial = values.copy()
        start = self.number(relation, values)
        for sign in (1, -1):
            end = high if sign > 0 else low
            room = _FURTHEST if end is None else abs(end - now)
            for offset in self.offsets[relation]:
                if offset > room:
                    continue
                trial[position] = now + sign * offset
                if _satisfied(op, self.number(relation, trial)):
                    yield trial[position]
                    break
            if op is Op.NE or start is None:
                continue
            inner, step = 0, 4
            while step <= _FURTHEST and inner < room:
                step = min(step, room)
                trial[position] = now + sign * step
                there = self.number(relation, trial)
                if there is not None and (there <= 0 if start > 0 else there >= 0):
                    outer = step
                    while outer - inner > 1:
                        middle = (inner + outer) // 2
                        trial[position] = now + sign * middle
                        there = self.number(relation, trial)
                        if there is not None and (there <= 0 if start > 0 else there >= 0):
                            outer = middle
                        else:
                            inner = middle
                    yield now + sign * outer
                    if outer < room:
                        yield now + sign * (outer + 1)
                    break
                inner, step = step, 4 * step
            else:
                if 0 < room < _FURTHEST:
                    yield now + sign * room

    def grid(self, formula: Term, values: list[int]) -> list[int] | None:
        """Values at which all parts hold, the formula's symbols tried near the ends of their
        ranges, or around 0.
        """
        places = [
            position for position, symbol in enumerate(self.symbols) if symbol in formula.symbols
        ]
        width = _GRID.get(len(places))
        if width is None:
            return None
        axes: list[range] = []
        for position in places:
            low, high = self.ranges[position]
            first = low if low is not None else -(width // 2) if high is None else high - width + 1
            axes.append(
                range(first, first + width if high is None else min(first + width, high + 1))
            )
        trial = values.copy()
        for chosen in product(*axes):
            for position, value in zip(places, chosen, strict=True):
                trial[position] = value
            if self.holds(formula, trial) and not self.failing(trial, 0):
                return trial
        return None


def _offsets(relation: Term) -> tuple[int, ...]:
    """Return the first steps to move a symbol by: small ones, and some near the constant
    divisors.
    """
    steps = dict.fromkeys((1, 2, 3, 4))
    if relation.kinds & NONLINEAR:
        for part in postorder(relation):
            if (
                (part.op is Op.MOD or part.op is Op.FLOORDIV)
                and part.args[1].op is Op.CONST
                and len(steps) < 12
            ):
                number = part.args[1].args[0]
                steps.update(dict.fromkeys((number - 1, number, number // 2 + 1)))
    return tuple(steps)


def _satisfied(op: Op, number: int | None) -> bool:
    if number is None:
        return False
    return number <= 0 if op is Op.LE else number == 0 if op is Op.EQ else number != 0


def _relations(parts: list[Term]) -> list[Term] | None:
    """The comparisons that the parts are made of; None when there are too many, or something
    else.
    """
    found: dict[Term, None] = {}
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if part.op is Op.AND or part.op is Op.OR:
            waiting.extend(part.args)
        elif Op.EQ <= part.op <= Op.LE:
            found[part] = None
        else:
            return None
        if len(found) > _LARGEST or part.depth > DEEP:
            return None
    return list(found)


def starts(component: Component, symbols: list[Term]) -> Iterator[tuple[list[int], Values]]:
    """Values for the symbols, and for all free ones, from known points of the component, or within
    ranges.
    """
    free = [symbol.name for symbol in component.ranges if symbol.op is Op.SYMBOL]
    points: list[Values] = []
    for point in each_point(component):
        points.append(point)
        if len(points) == STARTS:
            break
    for point in points or [{}]:
        whole = with_defaults(component, {name: point[name] for name in free if name in point})
        for symbol, (
            factor,
            atom,
            value,
        ) in component.fresh.items():  # atom == factor*symbol + value
            try:
                known = point[atom.name] if atom.name in point else whole[atom.name]
                whole[symbol.name] = (known - fold.evaluate(value, whole)) // fold.evaluate(
                    factor, whole
                )
            except (KeyError, ZeroDivisionError):
                continue
        yield [whole.get(symbol.name, 0) for symbol in symbols], whole


def hunt(component: Component, asked: Term, formula: Term, value: bool) -> Values | None:
    """A point of the component at which ``asked`` has that value, sought where ``formula`` holds;
    None: none was found.

    >>> from guards.facts.facts import Facts
    >>> from guards import parse
    >>> asked = parse("(x + 55) // 64 == 6")
    >>> hunt(Facts().component(asked), asked, asked, True)
    {'x': 329}
    """
    parts = [
        *(formula.args if formula.op is Op.AND else (formula,)),
        *component.stated(ranges=False),
    ]
    relations = _relations(parts)
    if relations is None:
        return None
    looking = _Hunt(component, parts, relations)
    if not looking.functions:
        return None
    try:
        first = True
        for values, whole in starts(component, looking.symbols):
            found = looking.repaired(values)
            if found is None and first:
                found = looking.grid(formula, values)
            first = False
            if found is not None:
                for symbol, number in zip(looking.symbols, found, strict=True):
                    whole[symbol.name] = number
                point = checked(component, asked, whole, value)
                if point is not None:
                    return point
    except _Spent:
        pass
    return None


def placed(component: Component, asked: Term, solution: Values, value: bool) -> Values | None:
    """A point with the values of a solution at which ``asked`` has that value; None if none was
    found.
    """
    for _, whole in starts(component, []):
        point = checked(component, asked, {**whole, **solution}, value)
        if point is not None:
            return point
    return None


def checked(component: Component, asked: Term, whole: Values, value: bool) -> Values | None:
    """The point with these values of the free symbols, if it satisfies all that is known and shows
    the value.
    """
    try:
        point = completed(component, whole)
        return point if point is not None and fold.evaluate(asked, point) is value else None
    except (ZeroDivisionError, KeyError):
        return None
