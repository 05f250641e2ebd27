"""The public doors: is a condition, given as people write it, always true, never, or does it
depend?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guards.asking.arguments import checked_ranges, listed, symbols_of_sets
from guards.asking.assumptions import check_names, condition_of, facts_from
from guards.asking.ladder import COUNTS, WORDS, Effort, climb_up
from guards.asking.questions import ask
from guards.asking.reading import understood
from guards.asking.verdict import Verdict
from guards.deciders.witnesses import nearer
from guards.domains.interval_arithmetic import Pair
from guards.facts.facts import Facts
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Term


def decide(query: Any, *, ranges: Mapping[str, Pair] | None = None, assume: Any = ()) -> Verdict:
    """The verdict on a condition: holds it for all values of its symbols, for none, or does it
    depend?

    The condition is a text, a term, a guard or a guard set.

    A symbol absent from ``ranges`` is a size: any integer >= 0.

    Raises:
        ParseError: ``query`` or an assumption cannot be read.
        ArgumentError: an argument is of a type that is not taken.
        Contradiction: nothing satisfies the assumptions.
        RangeError: a range is empty, is no pair, or is for a name that is not mentioned.

    >>> from guards.asking.queries import decide
    >>> decide("s0 + s1 > 2", ranges={"s0": (2, None), "s1": (1, None)}).value
    True
    >>> verdict = decide("s0 == s1")
    >>> verdict.value, verdict.fails, verdict.holds
    (None, {'s0': 1, 's1': 6}, {'s0': 0, 's1': 0})
    """
    condition, facts = _asked(query, ranges, assume)
    if facts.contradictory:
        return Verdict(None, "unknown", reason="the facts leave no value at which it is defined")
    if condition is TRUE or condition is FALSE:
        when = "always" if condition is TRUE else "never"
        return Verdict(condition is TRUE, "constant", reason=f"{when}: it is a constant")
    component = facts.component(condition)
    climb = climb_up(component, condition, Effort.FULL, None)
    COUNTS[climb.rung] += 1
    if climb.value is not None:
        when = "always" if climb.value else "never"
        return Verdict(climb.value, climb.rung, reason=f"{when}: {WORDS[climb.rung]}")
    fails = None if climb.fails is None else nearer(component, condition, False, climb.fails)
    holds = None if climb.holds is None else nearer(component, condition, True, climb.holds)
    if fails is not None and holds is not None:
        return Verdict(None, climb.rung, fails, holds, "it depends on the values")
    return Verdict(
        None, "unknown", fails, holds, f"not known ({climb.reason or 'limits were reached'})"
    )


def prove(query: Any, *, ranges: Mapping[str, Pair] | None = None, assume: Any = ()) -> bool | None:
    """Return True if a condition holds for all values, False if it holds for none, None if neither
    is known.

    A symbol absent from ``ranges`` is a size: any integer >= 0.

    Raises:
        ParseError: ``query`` or an assumption cannot be read.
        ArgumentError: an argument is of a type that is not taken.
        Contradiction: nothing satisfies the assumptions.
        RangeError: a range is empty, is no pair, or is for a name that is not mentioned.

    >>> from guards.asking.queries import prove
    >>> (
    ...     prove("(s0 + 7) // 8 * 8 >= s0"),
    ...     prove("s0 // 2 % 4 == 0", assume=["s0 % 8 == 0"]),
    ...     prove("s0 < 5"),
    ... )
    (True, True, None)
    """
    condition, facts = _asked(query, ranges, assume)
    return ask(facts, condition)


def _asked(query: Any, ranges: Mapping[str, Pair] | None, assume: Any) -> tuple[Term, Facts]:
    """Return the condition that a query means, and what is known about its symbols.

    Where the term no longer shows a divisor of the query's text, the facts say that it is not 0.
    """
    condition = condition_of(query)
    if assume or isinstance(assume, Term):
        assume = listed(assume)
    # a guard set may speak about other values than sizes
    if type(query) is not str and type(query) is not Term:
        ranges = {**symbols_of_sets((query,)), **checked_ranges(ranges)}
    if ranges and not {s.name for s in condition.symbols}.issuperset(checked_ranges(ranges)):
        check_names(ranges, (query, *assume))
    facts = facts_from(ranges, assume)
    if type(query) is str:
        needed = understood(query).defined
        if needed is not TRUE:
            facts = facts.assume(needed)
    return condition, facts
