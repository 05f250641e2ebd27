"""Asking facts: a question goes up the ladder once, and its answer is kept beside the component
that it depends on.

Asking never records anything: the same facts and the same question give the same answer, on every
machine.
"""

from __future__ import annotations

from typing import Any

from guards.asking.ladder import COUNTS, Effort, climb_up
from guards.deciders.independence import bounds_tell_all
from guards.errors import ArgumentError
from guards.facts.component import Component
from guards.facts.facts import Facts
from guards.terms import boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Term

_ANSWERS_LIMIT = 8192
_YES, _NO = 64, 128  # an answer, in one number with the bits that say what was sought in vain
_SETTLED = _YES | _NO
_TRIED = {
    (effort, only): 1 << (2 * effort + only) for effort in (0, 1, 2) for only in (False, True)
}
_SOUGHT: dict[tuple[int, bool | None], int] = {
    (effort, only): bit for (effort, only), bit in _TRIED.items()
} | {(effort, None): _TRIED[effort, False] | _TRIED[effort, True] for effort in (0, 1, 2)}


def ask(
    facts: Any, condition: Any, *, effort: Effort = Effort.FULL, only: bool | None = None
) -> bool | None:
    """Return whether the facts imply a condition (True) or its negation (False); None if neither is
    known.

    ``only`` restricts the search to one answer, for a caller who knows that the other is
    impossible.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, lt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> facts = Facts().with_symbol(s0, 1).assume(ge(s1, s0 + 8))
    >>> ask(facts, ge(s1, 9)), ask(facts, lt(s1, s0)), ask(facts, ge(s1, 10))
    (True, False, None)
    """
    if condition is TRUE:
        return True
    if condition is FALSE:
        return False
    if type(facts) is not Facts:
        raise ArgumentError(f"ask takes facts of the class Facts, not {type(facts).__name__}")
    if type(condition) is not Term:
        raise ArgumentError(
            f"ask takes a condition as a term, not {type(condition).__name__}: read a text by parse"
        )
    found = facts._answers.get(condition)
    if found is not None:  # an answer, or which ones were sought in vain
        if found & _SETTLED:
            COUNTS["memo"] += 1
            return found == _YES
        if found & _SOUGHT[effort, only] == _SOUGHT[effort, only]:
            COUNTS["memo"] += 1
            return None
    if facts.contradictory:
        return None
    boolean.boolean(condition)
    component = facts.component(condition)
    answer = ask_component(component, condition, effort, only)
    if len(facts._answers) >= _ANSWERS_LIMIT:
        facts._answers.clear()
    # the component keeps what was sought in vain, unless the search was cut short
    if answer is None:
        facts._answers[condition] = (found or 0) | component.memo.answers.get(condition, 0)
    else:
        facts._answers[condition] = _YES if answer else _NO
    return answer


def ask_component(
    component: Component, condition: Term, effort: Effort, only: bool | None
) -> bool | None:
    """Decide a condition as :func:`ask` does, within one component."""
    answers = component.memo.answers
    tried = answers.get(condition, 0)
    if tried & _SETTLED:
        COUNTS["memo"] += 1
        return tried == _YES
    wanted = (True, False) if only is None else (only,)
    if all(tried & _TRIED[effort, answer] for answer in wanted):
        COUNTS["memo"] += 1
        return None
    if len(answers) >= _ANSWERS_LIMIT:
        answers.clear()
    if not condition.kinds and bounds_tell_all(component, condition):
        answer = component.look(condition)
        COUNTS["interval"] += 1
        wanted = (True, False)
    else:
        climb = climb_up(component, condition, effort, only)
        answer = climb.value
        COUNTS[climb.rung] += 1
        if climb.cut_short and answer is None:
            return None
    if answer is None:
        for value in wanted:
            for less in range(effort + 1):
                tried |= _TRIED[less, value]
        answers[condition] = tried
    else:
        answers[condition] = _YES if answer else _NO
    return answer
