"""Places that are single pointers: what functions, classes and variables of closures refer to, compared by C++ at once.

Asked through Python, from 3.12 on each attribute of a function takes 300 ns.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symshape.tracing.state import compiled
from symshape.tracing.state.places import MISSING, Attribute, Cell

__all__ = ["is_pointer", "same_pointers"]


def is_pointer(cell: Cell | Attribute) -> bool:
    """Whether C++ compares a place: what it reads there now is what Python reads."""
    owner = cell.owner
    if compiled.POINTERS is None or not isinstance(owner, (types.FunctionType, types.CellType, type)):
        return False
    now = cell.read()
    try:
        return now is not MISSING and bool(compiled.POINTERS(((owner, _name_of(cell), now),)).same())
    except TypeError:  # another attribute
        return False


def same_pointers(cells: Sequence[Cell | Attribute], values: Mapping[int, Any]) -> Callable[[], bool]:
    """What answers whether such places refer to the very objects that they held, or, by number, to these values."""
    places = [(each.owner, _name_of(each), values.get(i, each.value)) for i, each in enumerate(cells)]
    same: Callable[[], bool] = compiled.POINTERS(tuple(places)).same
    return same


def _name_of(cell: Cell | Attribute) -> str:
    """What a place is called in C++."""
    return cell.key if type(cell) is Attribute else ""
