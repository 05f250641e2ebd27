"""Sweeping the table of terms: what is in it and nowhere else goes.

Weak references would do the same one term at a time, at twice the cost of making a term, and
classes compiled by mypyc have none. This module counts references, as CPython keeps them; it is
never compiled (CONTRIBUTING, "Compiled guards").
"""

from __future__ import annotations

import sys
from typing import Any


def _references(container: Any, key: Any) -> int:
    return sys.getrefcount(container[key])


# what is counted for something that only its container holds
_ALONE = _references({0: object()}, 0)


def sweep(table: dict[Any, Any]) -> None:
    """Remove the terms that nobody but the table holds; ``{(op, args): term}``, parts made before
    wholes.

    Nobody else may add to the table meanwhile; looking things up is allowed.
    """
    keys = list(table)
    while keys:  # the newest first: what a term is made of is free once the term is gone
        key = keys.pop()
        if key[1] and type(key[1][0]) is str:
            table[key]._symbols = None  # a symbol is among its own symbols
        if _references(table, key) <= _ALONE:
            taken = {key: table.pop(key)}
            if _references(taken, key) > _ALONE:  # somebody has looked it up in between
                table[key] = taken[key]
            taken.clear()
