"""A guard: a condition on symbols, together with the place in the user's program that needs it.

A guard whose value is undefined at some point (it divides by zero there) does not hold at that
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from guards.asking.arguments import checked_values
from guards.facts.definedness import satisfied
from guards.sets.origin import Origin
from guards.terms import boolean
from guards.terms.printing import text
from guards.terms.term import Term

Names = Mapping[str, str]


@attrs.frozen
class Guard:
    """One condition on symbols, and why it is needed.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt
    >>> print(Guard(gt(symbol("s0") + symbol("s1"), 2), Origin("model.py", 7)))
    s0 + s1 > 2  # model.py:7
    """

    term: Term = attrs.field(eq=id)
    origin: Origin | None = None

    @term.validator
    def _is_condition(self, _: object, term: Term) -> None:
        boolean.boolean(term)

    def __str__(self) -> str:
        return f"{self.text()}  # {self.origin}" if self.origin else self.text()

    def text(self, names: Names | None = None) -> str:
        """The condition as Python-like text, its symbols renamed by ``names``.

        >>> from guards.asking.reading import parse
        >>> Guard(parse("s0 > 2")).text({"s0": "x.size(0)"})
        'x.size(0) >= 3'
        """
        return text(self.term, names)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Return whether the condition is defined and true at ``values``.

        Raises:
            Missing: a symbol of the condition has no value.

        >>> from guards.asking.reading import parse
        >>> guard = Guard(parse("s0 % s1 == 0"))
        >>> guard.holds({"s0": 8, "s1": 2}), guard.holds({"s0": 8, "s1": 0})
        (True, False)
        """
        return satisfied(
            self.term, checked_values(values, [symbol.name for symbol in self.term.symbols])
        )


@attrs.frozen
class Violation:
    """A guard that failed at some values.

    Attributes:
        guard: the guard.
        text: the guard and the values that broke it, in one line.
        values: the values of the symbols that the guard speaks about.
    """

    guard: Guard
    text: str
    values: tuple[tuple[str, int], ...] = ()

    @property
    def origin(self) -> Origin | None:
        """The place in the user's program that the guard comes from."""
        return self.guard.origin

    def __str__(self) -> str:
        return f"{self.text}  # {self.origin}" if self.origin else self.text


def violation(guard: Guard, values: Mapping[str, int], names: Names | None = None) -> Violation:
    """The :class:`Violation` of ``guard`` at ``values``, spelled with ``names``.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt
    >>> violation(Guard(gt(symbol("s0") + symbol("s1"), 2)), {"s0": 1, "s1": 0}).text
    's0 + s1 > 2, but s0 = 1 and s1 = 0'
    """
    seen = tuple(
        (s.name, values[s.name]) for s in sorted(guard.term.symbols, key=lambda s: s.order)
    )
    spelled = [f"{names.get(name, name) if names else name} = {value}" for name, value in seen]
    return Violation(
        guard, f"{guard.text(names)}, but {listed(spelled)}" if seen else guard.text(names), seen
    )


def listed(words: Sequence[str]) -> str:
    """Words as an English list.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
