"""A conjunction of conditions as a box: a range for each linear form, and the conditions that are
not ranges.

Every relation ``t == 0`` or ``t <= 0`` bounds one linear form: ``s0 + s1 > 2`` says that the form
``s0 + s1`` lies in ``[3, inf)``, ``s0 % 8 == 0`` that the form ``s0 % 8`` lies in ``[0, 0]``.  In
this view equalities, buckets and multiples are all intervals, and what tells two sets of guards
apart is a form on which their intervals differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs

from guards.domains.interval_arithmetic import EVERYTHING, Pair, meet
from guards.domains.linear_form import bounded_by
from guards.facts.definedness import partial
from guards.sets.codegen import Writer, source_function
from guards.sets.guard_set import GuardSet
from guards.terms import arithmetic, boolean
from guards.terms.arithmetic import symbol
from guards.terms.printing import python, tree_sizes
from guards.terms.straight_line import DEEPEST, LARGEST
from guards.terms.term import Op, Term, among

Values = tuple[int, ...]
Test = Callable[[Values], bool]
Getter = Callable[[Values], Any]
Atom = tuple[Term, Pair | None]


def bounded_form(condition: Term) -> tuple[Term, Pair] | None:
    """The linear form that a relation bounds, and its bounds; None for ``!=``, connectives, and
    relations that are partial or very deep.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> bounded_form(gt(s0 + s1, 2)), bounded_form(eq(s0 % 8, 0)), bounded_form(gt(8, s0))
    ((<s0 + s1>, (3, None)), (<s0 % 8>, (0, 0)), (<s0>, (None, 7)))
    """
    if condition.depth > DEEPEST or tree_sizes(condition, {}) > LARGEST or partial(condition):
        return None
    found = bounded_by(condition)
    return None if found is None else (arithmetic.linear(0, dict(found[0])), found[1])


def conjuncts(condition: Term) -> tuple[Term, ...]:
    """The parts of a conjunction: none for True, the condition itself where it is none.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import TRUE, ge
    >>> conjuncts(TRUE), conjuncts(ge(symbol("s0"), 1))
    ((), (<s0 >= 1>,))
    """
    if condition.op is Op.AND:
        return condition.args
    return () if condition is boolean.TRUE else (condition,)


@attrs.frozen(eq=False)
class Box:
    """A conjunction as ranges of linear forms and what is left.

    Attributes:
        limits: a range for each form, all of them to be met.
        rest: further conditions, in order.
        atoms: for each guard what it asks, before ranges of one form were met:
            ``(form or condition, range or None)``.
    """

    limits: Mapping[Term, Pair]
    rest: tuple[Term, ...]
    atoms: tuple[tuple[Atom, ...], ...]

    @classmethod
    def of(cls, guard_set: GuardSet, sizes: Iterable[str] = ()) -> Box:
        """The box of a guard set; bounds that every size meets are left out for the symbols in
        ``sizes``.
        """
        limits: dict[Term, Pair] = {}
        rest: dict[Term, None] = {}
        atoms: list[tuple[Atom, ...]] = []
        free = {symbol(name) for name in sizes}
        for guard in guard_set.conditions:
            own: list[Atom] = []
            for condition in conjuncts(guard.term):
                found = bounded_form(condition)
                if found is None:
                    rest[condition] = None
                    own.append((condition, None))
                    continue
                form, pair = found
                if form in free and pair[1] is None and pair[0] is not None and pair[0] <= 0:
                    continue
                limits[form] = meet(limits.get(form, EVERYTHING), pair)
                own.append(found)
            if own:
                atoms.append(tuple(own))
        return cls(limits, tuple(rest), tuple(atoms))

    @property
    def empty(self) -> bool:
        """Return whether a form has an empty range, or a condition is never true."""
        crossed = any(
            low is not None and high is not None and low > high
            for low, high in self.limits.values()
        )
        return crossed or among(boolean.FALSE, self.rest)


class Compiler:
    """Makes tests of boxes and readers of forms for values that arrive in the order of ``slots``.

    Boxes that differ only in their numbers share their code: the numbers are bound afterwards.
    """

    def __init__(self, slots: Sequence[str]) -> None:
        self.slots = tuple(slots)
        self.position = {symbol(name): index for index, name in enumerate(slots)}
        self._names = {name: f"values[{index}]" for index, name in enumerate(slots)}
        self._makers: dict[tuple[Any, ...], Callable[..., Test]] = {}
        self._getters: dict[tuple[Term, ...], Getter] = {}

    def getter(self, forms: tuple[Term, ...]) -> Getter:
        """A function that reads the value of one form, or the tuple of the values of several."""
        found: Getter | None = self._getters.get(forms)
        if found is None:
            positions = [self.position[form] for form in forms if form in self.position]
            if len(positions) == len(forms):
                found = itemgetter(*positions)
            else:
                text = ", ".join(python(form, self._names) for form in forms)
                result = f"({text})" if len(forms) > 1 else text
                found = source_function(f"def read(values):\n    return {result}\n", "read", "form")
            self._getters[forms] = found
        return found

    def test(self, box: Box, verified: frozenset[Term]) -> Test | None:
        """A function that says whether a box holds where the ranges of the forms in ``verified``,
        and the conditions in it, are met already.

        None when there is nothing left to test.
        """
        points: list[tuple[int, int]] = []
        spans: list[tuple[Term, Pair]] = []
        for form, pair in box.limits.items():
            if form not in verified:
                position = self.position.get(form)
                if position is not None and pair[0] == pair[1] and pair[0] is not None:
                    points.append((position, pair[0]))
                else:
                    spans.append((form, pair))
        rest = tuple(term for term in box.rest if term not in verified)
        if not points and not spans and not rest:
            return None
        points.sort()
        kinds = tuple(
            (form, low is not None, high is not None, low == high) for form, (low, high) in spans
        )
        key = (tuple(position for position, _ in points), kinds, rest)
        maker = self._makers.get(key)
        if maker is None:
            if len(self._makers) >= 4096:
                self._makers.clear()
            maker = self._makers[key] = self._maker(*key)
        numbers = [
            number for _, pair in spans for number in dict.fromkeys(pair) if number is not None
        ]
        if not points:
            return maker(None, *numbers)
        return maker(
            points[0][1] if len(points) == 1 else tuple(value for _, value in points), *numbers
        )

    def _maker(
        self,
        points: tuple[int, ...],
        kinds: Sequence[tuple[Term, bool, bool, bool]],
        rest: Sequence[Term],
    ) -> Callable[..., Test]:
        tests: list[str] = []
        count = 0
        if points == tuple(range(len(self.slots))) and len(points) > 1:
            tests.append("values == point")
        elif len(points) > 3:
            tests.append("pick(values) == point")
        else:
            subscript = "point" if len(points) == 1 else "point[{}]"
            tests += [f"values[{p}] == {subscript.format(i)}" for i, p in enumerate(points)]
        for form, low, high, same in kinds:
            text = python(form, self._names)
            if same:
                tests.append(f"{text} == n{count}")
            elif low and high:
                tests.append(f"n{count} <= {text} <= n{count + 1}")
            else:
                tests.append(f"{text} {'>=' if low else '<='} n{count}")
            count += 2 if low and high and not same else 1
        writer = Writer(self._names)
        tests += [writer.condition(term) for term in rest]
        body = [*writer.steps, f"return {' and '.join(tests)}"]
        if any(partial(term) for term in rest):
            body = [
                "try:",
                *(f"    {line}" for line in body),
                "except ZeroDivisionError:",
                "    return False",
            ]
        numbers = "".join(f", n{index}" for index in range(count))
        lines = [
            f"def make(point{numbers}):",
            "    def test(values):",
            *(f"        {line}" for line in body),
        ]
        source = "\n".join([*lines, "    return test", ""])
        maker = source_function(source, "make", "entry")
        if len(points) > 3:
            maker.__globals__["pick"] = itemgetter(*points)
        return maker
