"""Arguments as people pass them: texts, terms, guards and guard sets alike, ranges by name, and
values of symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guards.asking.reading import parse
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.errors import ArgumentError, Missing
from guards.facts.definedness import guarded
from guards.terms import arithmetic, boolean
from guards.terms.term import Term

Stated = Any
"""A condition or an integer: a text, a term, a guard or a guard set."""


def stands_for_term(given: object) -> bool:
    """Return whether an object is a guard or a guard set, known by its attribute ``term``."""
    return type(getattr(given, "term", None)) is Term


def described(given: object) -> str:
    """Return the type and the beginning of an argument, for messages.

    >>> described(3), described([1, 2])
    ('int (3)', 'list ([1, 2])')
    """
    shown = repr(given)
    return f"{type(given).__name__} ({shown if len(shown) <= 40 else shown[:37] + '...'})"


def term_of(given: Stated, function: str) -> Term:
    """Return the term of a text, a term, a guard, a guard set, an integer or a truth value.

    A guard or a guard set divides by zero nowhere: where one of its conditions would, it does not
    hold.

    Raises:
        ArgumentError: it is none of these.
        ParseError: a text cannot be read.

    >>> term_of("s0 + 1", "latex"), term_of(True, "latex")
    (<s0 + 1>, <True>)
    >>> term_of([1], "latex")
    Traceback (most recent call last):
        ...
    guards.errors.ArgumentError: latex takes a text, a term, a guard or a guard set, not list ([1])
    """
    if isinstance(given, str):
        return parse(given)
    if type(given) is Term:
        return given
    if isinstance(given, bool):
        return boolean.boolean(given)
    if isinstance(given, int):
        return arithmetic.const(int(given))
    if stands_for_term(given):
        return guarded(given.term)
    raise ArgumentError(
        f"{function} takes a text, a term, a guard or a guard set, not {described(given)}"
    )


def listed(assume: object) -> tuple[Any, ...]:
    """Return the conditions of an argument ``assume``: one, or several.

    Raises:
        ArgumentError: it is neither.
    """
    if isinstance(assume, str | Term) or stands_for_term(assume):
        return (assume,)
    if isinstance(assume, Iterable):
        return tuple(assume)
    raise ArgumentError(
        "assume is one condition or several (texts, terms, guards or guard sets), not "
        f"{described(assume)}"
    )


def symbols_of_sets(given: Iterable[Stated]) -> dict[str, Pair]:
    """Return the values that the symbols of guard sets may have at all, by name; nothing for texts
    and terms.

    The ranges of a set are among its conditions: so only their sign counts here.
    """
    found: dict[str, Pair] = {}
    for each in given:
        for name, (low, _) in getattr(each, "ranges", {}).items():
            found.setdefault(name, SIZES if low is not None and low >= 0 else (None, None))
    return found


def checked_ranges(ranges: object) -> Mapping[str, Any]:
    """Return an argument ``ranges`` as a mapping from names.

    Raises:
        ArgumentError: it is no mapping from texts.
    """
    if ranges is None:
        return {}
    if not isinstance(ranges, Mapping):
        raise ArgumentError(f"ranges map names of symbols to (low, high), not {described(ranges)}")
    for name in ranges:
        if not isinstance(name, str):
            raise ArgumentError(
                "ranges map names of symbols to (low, high): a name is a text, not "
                f"{described(name)}"
            )
    return ranges


def checked_values(values: object, needed: Iterable[str]) -> Mapping[str, int]:
    """Return the values of symbols, each an integer.

    Raises:
        ArgumentError: ``values`` is no mapping, or a value is no integer.
        Missing: a symbol that is needed has no value.

    >>> checked_values({"s0": 8}, ["s0", "s1"])
    Traceback (most recent call last):
        ...
    guards.errors.Missing: no value is given for s1; there are values for s0
    """
    if not isinstance(values, Mapping):
        raise ArgumentError(f"values map names of symbols to integers, not {described(values)}")
    for name in needed:
        if name not in values:
            known = ", ".join(map(str, values)) or "(none)"
            raise Missing(f"no value is given for {name}; there are values for {known}")
        if not hasattr(type(values[name]), "__index__"):
            raise ArgumentError(f"the value of {name} is an integer, not {described(values[name])}")
    return values
