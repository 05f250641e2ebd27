"""``max``, ``min`` and ``sorted`` of sizes as terms in traced code: one program serves whichever
size is the greatest.

Python would compare the sizes, and each comparison would leave a guard.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import GeneratorType
from typing import Any

import torch

from symshape.tracing.intercept.python_numbers.operators import is_ours, of_numpy

_MOST_SORTED = 4  # sizes: with more, the terms become long
_VIEWS: tuple[Any, ...] = ({}.keys(), {}.values(), iter([]), iter(()), iter({}))
_ITERABLES = {
    map,
    filter,
    zip,
    set,
    frozenset,
    enumerate,
    reversed,
    GeneratorType,
    *map(type, _VIEWS),
}
"""Python's own iterables, some of which can be read only once."""


def is_term(numbers: Sequence[Any]) -> bool:
    """Return whether the greatest of these numbers becomes a term, so that no guard says which one
    is the greatest.

    It becomes a term if some integers depend on data, or if two are different sizes. A size and
    constants are compared instead: that costs one guard, and later terms stay simple.
    """
    if len(numbers) < 2 or not all(type(each) in (int, torch.SymInt) for each in numbers):
        return False
    symbolic = [each for each in numbers if type(each) is torch.SymInt]
    if not all(is_ours(each) and not of_numpy(each) for each in symbolic):
        return False
    of_data = any(not each.node.has_hint() for each in symbolic)
    return of_data or len({each.node.term for each in symbolic}) > 1


def listed_once(items: Any) -> Any:
    """Return the items of a Python container or iterator as a list; any other value unchanged."""
    if type(items) in (list, tuple, torch.Size):
        return items
    return list(items) if type(items) in _ITERABLES else items


def greatest(numbers: Sequence[Any]) -> Any:
    """Return ``max(numbers)``: a term for several sizes (see :func:`is_term`)."""
    return functools.reduce(torch.sym_max, numbers) if is_term(numbers) else max(numbers)


def least(numbers: Sequence[Any]) -> Any:
    """Return ``min(numbers)``: a term for several sizes (see :func:`is_term`)."""
    return functools.reduce(torch.sym_min, numbers) if is_term(numbers) else min(numbers)


def plain_sorted(items: Any, /, **options: Any) -> Any:
    """Compute ``sorted``; the order of a few sizes is given by terms: the least of them, the next
    one, and so on.

    >>> plain_sorted([3, 1, 2], reverse=True)
    [3, 2, 1]
    """
    listed = listed_once(items)
    wanted = type(listed) in (list, tuple, torch.Size) and options.keys() <= {"reverse"}
    if not wanted or len(listed) > _MOST_SORTED or not is_term(listed):
        return sorted(listed, **options)
    found = list(listed)
    for end in range(len(found) - 1, 0, -1):
        for i in range(end):
            found[i], found[i + 1] = (
                torch.sym_min(found[i], found[i + 1]),
                torch.sym_max(found[i], found[i + 1]),
            )
    return found[::-1] if options.get("reverse") else found
