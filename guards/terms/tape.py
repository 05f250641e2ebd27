"""Terms as a tape: a flat list of steps that a program in any language can run, operands before
what uses them.

A page in a browser checks guards by running their tape (``symshape/exploring/assets/tape.js``). A
tape and not source text, since many pages may not run text as code, since parts that occur twice
are computed once, and since its length is that of the graph of terms however deeply they nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from guards.errors import GuardsError
from guards.terms.fold import fold
from guards.terms.term import Op, Term

EXACT = 2**53
"""Doubles hold every integer below this, and so do the numbers of JSON as most languages read them.
"""
_EXPONENTS = (50, 44, 40, 36, 32, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0)


class Tape:
    """Terms over named slots, as steps; terms share what they have in common.

    A step is ``[kind, *operands]``. Its result goes to the register of its own number, which is
    what operands mean. ``symbol`` reads a slot, ``const`` is a number (as text from ``2**53`` on),
    ``add`` is a constant followed by pairs of a factor and a register; ``le``, ``eq`` and ``ne``
    compare a register with 0; the others are named as in Python. Where a divisor is 0 there is no
    result, nor where it is needed.

    Attributes:
        slots: the names of the symbols, in the order in which their values arrive.
        steps: the steps so far.

    >>> from guards.asking.reading import parse
    >>> tape = Tape(["n", "m"])
    >>> tape.add(parse("n // 8 >= m"))
    5
    >>> tape.steps
    [['symbol', 1], ['symbol', 0], ['const', 8], ['floordiv', 1, 2],
     ['add', 0, 1, 0, -1, 3], ['le', 4]]
    """

    def __init__(self, slots: Sequence[str]) -> None:
        self.slots = tuple(slots)
        self.steps: list[list[Any]] = []
        self._positions = {name: index for index, name in enumerate(self.slots)}
        self._registers: dict[Term, int] = {}

    def add(self, term: Term) -> int:
        """Append the missing steps of a term; return the register of its value.

        Raises:
            GuardsError: a symbol of the term has no slot.
        """
        missing = sorted(s.name for s in term.symbols if s.name not in self._positions)
        if missing:
            raise GuardsError(
                f"no slot gives the value of {', '.join(missing)}; there are "
                f"{', '.join(self.slots)}"
            )
        return fold(term, self._step, self._registers)

    def _step(self, term: Term, operands: list[int]) -> int:
        op = term.op
        if op is Op.SYMBOL:
            found: list[Any] = [self._positions[term.name]]
        elif op is Op.CONST:
            found = [number(term.value)]
        elif op is Op.ADD:
            constant, items = term.args
            pairs = [
                part for (_, c), r in zip(items, operands, strict=True) for part in (number(c), r)
            ]
            found = [number(constant), *pairs]
        else:
            found = list(operands)
        self.steps.append([op.name.lower(), *found])
        return len(self.steps) - 1

    def exact_up_to(self) -> int:
        """A number: where no slot holds a greater one (in magnitude), doubles compute every step
        exactly; -1 for none.

        >>> from guards.asking.reading import parse
        >>> tape = Tape(["n"])
        >>> _ = tape.add(parse("n * n >= 10"))
        >>> tape.exact_up_to() == 2**26
        True
        """
        return next(
            (2**e for e in _EXPONENTS if all(m < EXACT for m in self._magnitudes(2**e))), -1
        )

    def _magnitudes(self, most: int) -> Iterable[int]:
        """Yield a bound on the magnitude of each step's result, where no slot exceeds ``most``."""
        found: list[int] = []
        for kind, *operands in self.steps:
            found.append(_magnitude(kind, operands, found, most))
            yield found[-1]


def _magnitude(kind: str, operands: list[Any], found: list[int], most: int) -> int:
    if kind == "symbol":
        return most
    if kind == "const":
        return abs(int(operands[0]))
    if kind == "add":
        pairs = zip(operands[1::2], operands[2::2], strict=True)
        total: int = sum(abs(int(factor)) * found[register] for factor, register in pairs)
        return total + abs(int(operands[0]))
    parts: list[int] = [found[register] for register in operands]
    if kind == "mul":
        return prod(max(1, part) for part in parts)
    if kind in ("floordiv", "mod"):  # the remainder is subtracted before the division
        return sum(parts)
    if kind == "ite":
        return max(parts[1:])
    return max(parts) if kind in ("min", "max") else 1


def run_tape(steps: Sequence[Sequence[Any]], values: Sequence[int]) -> list[Any]:
    """The register of each step: an integer, a bool, or None for no value.

    >>> from guards.asking.reading import parse
    >>> tape = Tape(["n", "m"])
    >>> at = tape.add(parse("m == 0 or n % m == 1"))
    >>> [run_tape(tape.steps, point)[at] for point in ((7, 3), (7, 2), (8, 2), (8, 0))]
    [True, True, False, True]
    """
    found: list[Any] = []
    for kind, *operands in steps:
        found.append(_run(kind, operands, found, values))
    return found


def _run(kind: str, operands: list[Any], found: list[Any], values: Sequence[int]) -> Any:
    if kind == "symbol":
        return values[operands[0]]
    if kind in ("const", "add"):
        total = int(operands[0])
        for factor, register in zip(operands[1::2], operands[2::2], strict=True):
            if found[register] is None:
                return None
            total += int(factor) * found[register]
        return total
    parts = [found[register] for register in operands]
    if kind == "ite":
        return None if parts[0] is None else parts[1] if parts[0] else parts[2]
    if kind in ("and", "or"):
        stop = kind == "or"  # a part that decides does so whatever the others are
        return stop if stop in parts else None if None in parts else not stop
    if None in parts or (kind in ("floordiv", "mod") and parts[1] == 0):
        return None
    return _SIMPLE[kind](*parts)


_SIMPLE: dict[str, Callable[..., Any]] = {
    "true": lambda: True,
    "false": lambda: False,
    "mul": lambda *parts: prod(parts),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "eq": lambda a: a == 0,
    "ne": lambda a: a != 0,
    "le": lambda a: a <= 0,
}


def number(value: int) -> int | str:
    """An integer as JSON can carry it to any language: as text where a double would not hold it.

    >>> number(12), number(2**53)
    (12, '9007199254740992')
    """
    return value if -EXACT < value < EXACT else str(value)
