"""Facts from what people write: ranges by name, and conditions as text."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from guards.asking.arguments import (
    checked_ranges,
    described,
    listed,
    stands_for_term,
    symbols_of_sets,
    term_of,
)
from guards.asking.reading import parse, understood
from guards.domains.interval import Interval
from guards.domains.interval_arithmetic import Pair
from guards.errors import Contradiction, ParseError, RangeError
from guards.facts.facts import Facts
from guards.terms import arithmetic
from guards.terms.term import Term
from guards.text.reader import names_in

_KEPT_LIMIT = 512
_kept: dict[tuple[object, ...], Facts] = {}


def facts_from(ranges: Any = None, assume: Any = ()) -> Facts:
    """Facts from ranges by name and conditions as text (or terms).

    Raises:
        Contradiction: nothing satisfies all of them, and that was seen.
        RangeError: a range is empty, or not a pair.
        ParseError: a condition cannot be read.
        ArgumentError: an argument is of a type that is not taken.

    >>> facts_from({"s0": (2, None)}, ["s0 % 8 == 0"])
    Facts(s0 in [2, inf), s0 % 8 == 0)
    """
    conditions = listed(assume)
    ranges = checked_ranges(ranges)
    if not all(isinstance(each, (str, Term)) for each in conditions):
        ranges = {**symbols_of_sets(conditions), **ranges}
        conditions = tuple([holding(each) for each in conditions])
    try:
        key: tuple[object, ...] = (tuple[object, ...](ranges.items()) if ranges else (), conditions)
        found = _kept.get(key)
    except TypeError as error:
        raise RangeError(f"a range is a pair of integers or None: {error}") from None
    if found is None:
        pairs: dict[Term, Pair] = {}
        given: Mapping[str, object] = ranges or {}
        for name, pair in given.items():
            pairs[arithmetic.symbol(name)] = pair_of(name, pair)
        found = Facts.make(pairs, [holding(item) for item in conditions])
        if found.contradictory:
            shown = tuple(str(condition) for condition in found.conditions)
            raise Contradiction(f"nothing satisfies all that is assumed: {', '.join(shown)}", shown)
        if len(_kept) >= _KEPT_LIMIT:
            _kept.clear()
        _kept[key] = found
    return found


def pair_of(name: Any, pair: object) -> Pair:
    """A range as a pair of bounds.

    Raises:
        RangeError: it is no pair of integers or None.
    """
    if isinstance(pair, Interval):
        return pair.lo, pair.hi
    if (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(type(b) is int or b is None for b in pair)
    ):
        return pair
    raise RangeError(f"the range of {name} must be a pair of integers or None, not {pair!r}")


def condition_of(item: Any) -> Term:
    """A condition given as text or as a term.

    Raises:
        ParseError: it cannot be read, or is an integer.
    """
    term = parse(item) if isinstance(item, str) else item
    if type(term) is not Term:
        if isinstance(item, int) and not isinstance(item, bool):
            raise ParseError(f"a condition is needed, not the integer {item}")
        if not isinstance(item, bool) and not stands_for_term(item):
            raise ParseError(
                f"a condition is a text, a term, a guard or a guard set, not {described(item)}"
            )
        term = term_of(item, "condition_of")
    if not term.is_bool:
        raise ParseError(f"a condition is needed, not the integer {term}")
    return term


def holding(item: Any) -> Term:
    """Return the condition that a text or term is to hold: a text that divides by zero somewhere
    does not hold there.

    Raises:
        ParseError: it cannot be read, or is an integer.

    >>> holding("p % p == 0"), condition_of("p % p == 0")
    (<p != 0>, <True>)
    """
    term = condition_of(item)
    return understood(item).holds if isinstance(item, str) else term


def check_names(ranges: Any, written: Iterable[Any]) -> None:
    """Refuse a range for a name that nothing written mentions, while something mentioned has no
    range: a slip.

    Ranges of further symbols beside those of all that are mentioned do no harm.

    Raises:
        RangeError: with the name that may have been meant.

    >>> check_names({"so": (2, None)}, ["s0 > 1"])
    Traceback (most recent call last):
        ...
    guards.errors.RangeError: a range is given for 'so', which is not among the
    symbols s0; did you mean 's0'?
    """
    named: set[str] = set()
    ranges = checked_ranges(ranges)
    for each in written:
        # of anything else its reader says what is wrong
        if isinstance(each, (str, Term)) or stands_for_term(each):
            named.update([s.name for s in term_of(each, "ranges").symbols])
    if not ranges.keys() - named:
        return
    for each in written:
        if isinstance(each, str):
            named |= names_in(each)
    unknown = sorted(ranges.keys() - named)
    if unknown and named - ranges.keys():
        raise RangeError(unknown_name(unknown[0], named))


def unknown_name(name: str, named: Collection[str]) -> str:
    """Return the error text for a range whose name nothing mentions."""
    near = difflib.get_close_matches(name, named, 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"a range is given for {name!r}, which is not among the symbols "
        f"{', '.join(sorted(named)) or '(none)'}{hint}"
    )


def forget_assumptions() -> None:
    """Empty the cache of facts by what was written."""
    _kept.clear()
