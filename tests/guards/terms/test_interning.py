"""Sweeping: what only the table holds goes, newest first; what somebody else holds stays, with all
its parts.
"""

from __future__ import annotations

import gc

from guards.terms.arithmetic import symbol
from guards.terms.interning import sweep
from guards.terms.term import children, intern, interned, postorder, sweep_terms


class _Node:
    """As much of a term as sweeping looks at."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts
        self._symbols: object = None


def test_what_nobody_holds_goes() -> None:
    table: dict[object, object] = {}
    one = table[0, ("one",)] = _Node()
    one._symbols = frozenset((one,))  # a symbol is among its own symbols
    two = table[1, (one,)] = _Node(one)
    table[2, (two,)] = _Node(two)
    kept = table[3, (two, one)] = _Node(two, one)
    del one, two
    sweep(table)
    assert [key[0] for key in table] == [0, 1, 3]  # type: ignore[index]
    del kept
    sweep(table)
    assert not table


def test_terms_that_are_held_stay_the_same_objects() -> None:
    x, y = symbol("swept_x"), symbol("swept_y")
    held = ((x + 3) // (y + 1)) % 7 + x * y
    parts = list(postorder(held))
    (x + 1) // (y + 12345)  # held by nobody
    sweep_terms()
    before = interned()
    assert ((x + 3) // (y + 1)) % 7 + x * y is held
    assert [part is again for part, again in zip(parts, postorder(held), strict=True)] == [
        True
    ] * len(parts)
    assert all(intern(part.op, part.args) is part for part in parts if list(children(part)))
    assert interned() == before
    del held, parts
    gc.collect()
    sweep_terms()
    assert interned() < before
