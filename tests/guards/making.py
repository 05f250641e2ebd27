"""Guard sets for tests, fuzzers and benchmarks: random ones, and the families that entries of a
cache form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs

from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.origin import Origin
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE
from guards.terms.term import Term

SLOTS = ("s0", "s1", "s2", "s3")


def text_of_integer(rng: random.Random, names: Sequence[str], depth: int = 2) -> str:
    """A random integer expression in Python syntax."""
    kind = rng.randrange(10)
    if depth == 0 or kind < 3:
        return rng.choice(names) if rng.random() < 0.85 else str(rng.randint(-3, 12))
    a, b = (text_of_integer(rng, names, depth - 1) for _ in range(2))
    if kind == 3:
        return f"({a} + {b})"
    if kind == 4:
        return f"({a} - {rng.randint(1, 4)}*{b})"
    if kind == 5:
        return f"({a} * {b})"
    if kind == 6:
        return f"({a} // {rng.choice(['2', '3', '8', '(-3)', rng.choice(names)])})"
    if kind == 7:
        return f"({a} % {rng.choice(['2', '3', '8', '(-3)', rng.choice(names)])})"
    if kind == 8:
        return f"{rng.choice(['min', 'max'])}({a}, {b}, {rng.randint(0, 9)})"
    return f"({a} if {text_of_condition(rng, names, 0)} else {b})"


def text_of_condition(rng: random.Random, names: Sequence[str], depth: int = 1) -> str:
    """A random condition in Python syntax."""
    kind = rng.randrange(12)
    if depth and kind < 2:
        parts = [text_of_condition(rng, names, depth - 1) for _ in range(2)]
        return f"({parts[0]} {rng.choice(['and', 'or'])} {parts[1]})"
    if kind < 6:
        return (
            f"{rng.choice(names)} {rng.choice(['==', '<=', '>=', '!=', '<', '>'])} "
            f"{rng.randint(0, 12)}"
        )
    left = text_of_integer(rng, names)
    right = text_of_integer(rng, names, 1) if rng.random() < 0.4 else str(rng.randint(0, 12))
    return f"{left} {rng.choice(['==', '!=', '<=', '<', '>=', '>'])} {right}"


def random_set(rng: random.Random, names: Sequence[str] = SLOTS, most: int = 4) -> GuardSet:
    """A random guard set, some of whose symbols have a declared range."""
    guards: list[Guard] = []
    while len(guards) < rng.randint(0, most):
        try:
            term = boolean.boolean(GuardSet.read(text_of_condition(rng, names)).guards[0].term)
        except ZeroDivisionError:
            continue
        guards.append(Guard(term, Origin("model.py", len(guards) + 1)))
    ranges = {
        name: (rng.choice([0, 1, 2, None]), rng.choice([None, None, 4, 9]))
        for name in names
        if rng.random() < 0.3
    }
    return GuardSet(tuple(guards), ranges)


@attrs.frozen
class Family:
    """Guard sets that one program's entries could have, and for each the values that reach it."""

    name: str
    slots: tuple[str, ...]
    guard_set: Callable[[int], GuardSet]
    values: Callable[[int], tuple[int, ...]]


def _set(*terms: Term) -> GuardSet:
    return GuardSet(
        tuple(
            Guard(term, Origin("model.py", line + 1))
            for line, term in enumerate(terms)
            if term is not TRUE
        )
    )


def families() -> list[Family]:
    """The typical families of entries."""
    slots = ("a", "b", "c", "d")
    a, b, c, d = map(symbol, slots)
    eq, le, gt, ge = boolean.eq, boolean.le, boolean.gt, boolean.ge

    def span(s: Term, index: int, step: int) -> tuple[Term, Term]:
        return gt(s, step * index), le(s, step * index + step)

    return [
        Family(
            "static sizes",
            slots,
            lambda i: _set(eq(a, i % 32), eq(b, i // 32), eq(c, 64), eq(d, 128)),
            lambda i: (i % 32, i // 32, 64, 128),
        ),
        Family(
            "buckets",
            slots,
            lambda i: _set(*span(a, i, 8), eq(b, 7)),
            lambda i: (8 * i + 3, 7, 1, 1),
        ),
        Family(
            "buckets of two sizes",
            slots,
            lambda i: _set(*span(a, i % 32, 8), *span(b, i // 32, 16)),
            lambda i: (8 * (i % 32) + 3, 16 * (i // 32) + 3, 1, 1),
        ),
        Family(
            "growing caps", slots, lambda i: _set(le(a, 8 * i + 8)), lambda i: (8 * i + 3, 7, 1, 1)
        ),
        Family(
            "growing caps, multiples",
            slots,
            lambda i: _set(le(a, 8 * i + 8), eq(b % 8, 0)),
            lambda i: (8 * i + 3, 8, 1, 1),
        ),
        Family(
            "static and a sum",
            slots,
            lambda i: _set(eq(a, i), gt(b + c, 2), eq(d % 8, 0)),
            lambda i: (i, 7, 1, 8),
        ),
        Family(
            "remainders",
            slots,
            lambda i: _set(eq(a % 1024, i), gt(b + c, 2)),
            lambda i: (3 * 1024 + i, 7, 1, 8),
        ),
        Family("sums", slots, lambda i: _set(eq(a + b, i)), lambda i: (i - i // 2, i // 2, 1, 8)),
        Family(
            "growing minima",
            slots,
            lambda i: _set(ge(a, 2000 - i), eq(c, 4)),
            lambda i: (2000 - i, 8, 4, 8),
        ),
        Family(
            "static, then dynamic",
            slots,
            lambda i: (
                _set(eq(a, i), eq(b, 4)) if i % 8 else _set(ge(a, 2 + i), eq(b % 2, 0), eq(c, i))
            ),
            lambda i: (i, 4, 1, 1) if i % 8 else (2000, 4, i, 0),
        ),
        Family(
            "powers of two",
            slots,
            lambda i: _set(gt(a, 2 ** (i % 20)), le(a, 2 ** (i % 20 + 1)), eq(b, i // 20)),
            lambda i: (2 ** (i % 20) + 1, i // 20, 1, 1),
        ),
        Family(
            "caps of two sizes",
            slots,
            lambda i: _set(le(a, 2 ** (i % 32)), le(b, 2 ** (i // 32))),
            lambda i: (2 ** (i % 32), 2 ** (i // 32), 1, 1),
        ),
        Family(
            "multiples of powers of two",
            slots,
            lambda i: _set(eq(a % 2 ** (8 - i % 8), 0), eq(b, i // 8)),
            lambda i: (2 ** (8 - i % 8), i // 8, 1, 1),
        ),
        Family(
            "sliding windows",
            slots,
            lambda i: _set(ge(a, i), le(a, i + 200)),
            lambda i: (i + 200, 1, 1, 1),
        ),
    ]


def overlapping() -> list[Family]:
    """Families whose ranges overlap in two sizes: a value lies in many of them, and a scan often
    ends early.
    """
    slots = ("a", "b", "c", "d")
    a, b, c, _ = map(symbol, slots)
    return [
        Family(
            "overlapping boxes",
            slots,
            lambda i: _set(
                *_around(a, 37 * i % 900, 10 ** (i % 3)),
                *_around(b, 61 * i % 900, 10 ** (i // 3 % 3)),
            ),
            lambda i: (37 * i % 900, 61 * i % 900, 1, 1),
        ),
        Family(
            "overlapping boxes that share a size",
            slots,
            lambda i: _set(
                *_around(a, 37 * i % 900, 40), *_around(b, 61 * i % 900, 40), boolean.eq(c, 4)
            ),
            lambda i: (37 * i % 900, 61 * i % 900, 4, 1),
        ),
    ]


def _around(s: Term, middle: int, reach: int) -> tuple[Term, Term]:
    return boolean.ge(s, middle - reach), boolean.le(s, middle + reach)
