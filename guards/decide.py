"""The ladder of deciders: from a look at constants to a solver, the cheap ones first.

Asking never records anything: the same facts and the same question give the same answer, on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from guards import congruence, exprs
from guards.exprs import FALSE, TRUE, Op, Term
from guards.facts import Facts
from guards.refute import refutes
from guards.rules import rewritten
from guards.scope import Scope


class Effort(IntEnum):
    """How far up the ladder a question may go."""

    CHEAP = 0  # no SymPy, no Z3
    FULL = 1  # everything, within a deterministic limit


RUNGS = ("constant", "memo", "known", "interval", "rules", "linear", "sympy", "z3", "unknown")
_counts: dict[str, int] = dict.fromkeys(RUNGS, 0)
_ANSWERS_LIMIT = 8192


def counters() -> dict[str, int]:
    """How many questions each rung has settled since the last :func:`reset_counters` (`unknown`: none did)."""
    return dict(_counts)


def reset_counters() -> None:
    """Sets all counters to zero."""
    for rung in _counts:
        _counts[rung] = 0


# -- the cheap rungs --------------------------------------------------------------------------------------------------


def look(scope: Scope, condition: Term) -> bool | None:
    """What ranges, remainders and what was assumed say about a condition."""
    op = condition.op
    if op is Op.LE:
        lo, hi = scope.bounds(condition.args[0])
        if hi is not None and hi <= 0:
            return True
        return False if lo is not None and lo > 0 else None
    if op is Op.EQ or op is Op.NE:
        found = _is_zero(scope, condition)
        return found if found is None or op is Op.EQ else not found
    if op is Op.TRUE:
        return True
    if op is Op.FALSE:
        return False
    if condition in scope.residue:
        return True
    stop = op is Op.OR
    undecided = False
    for part in condition.args:
        found = look(scope, part)
        if found is stop:
            return stop
        undecided = undecided or found is None
    return None if undecided else not stop


def _is_zero(scope: Scope, condition: Term) -> bool | None:
    term = condition.args[0]
    lo, hi = scope.bounds(term)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    if lo == 0 and hi == 0:
        return True
    if scope.residue and (condition if condition.op is Op.NE else exprs.not_(condition)) in scope.residue:
        return False
    return None if congruence.meets(scope.congruence(term), 0) else False


Rung = Callable[[Scope, Term], bool]
"""Whether a formula (in canonical form) certainly has no solution in the scope."""

_cheap: list[tuple[str, Rung]] = [("linear", refutes)]
_dear: list[tuple[str, Rung]] = []

_TRIED = {(effort, only): 1 << (2 * effort + only) for effort in (0, 1) for only in (False, True)}


def ask(facts: Facts, condition: Term, *, effort: Effort = Effort.FULL, only: bool | None = None) -> bool | None:
    """Whether the facts settle a condition: True, False, or None when they do not (or when it is not known).

    ``only`` restricts the search to one answer, for a caller who knows that the other is impossible.

    >>> from guards.exprs import symbol, ge, lt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> facts = Facts().with_symbol(s0, 1).assume(ge(s1, s0 + 8))
    >>> ask(facts, ge(s1, 9)), ask(facts, lt(s1, s0)), ask(facts, ge(s1, 10))
    (True, False, None)
    """
    if condition is TRUE:
        return True
    if condition is FALSE:
        return False
    found = facts._answers.get(condition)
    if found is not None:
        _counts["memo"] += 1
        return found
    if facts.contradictory:
        return None
    scope = facts.scope(condition)
    answer = ask_scope(scope, condition, effort, only)
    if answer is not None:
        if len(facts._answers) >= _ANSWERS_LIMIT:
            facts._answers.clear()
        facts._answers[condition] = answer
    return answer


def ask_scope(scope: Scope, condition: Term, effort: Effort, only: bool | None) -> bool | None:
    """As :func:`ask`, within one scope."""
    answers = scope.answers
    known = answers.get(condition, 0)
    if known is True or known is False:
        _counts["memo"] += 1
        return known
    wanted = (True, False) if only is None else (only,)
    tried = known
    assert type(tried) is int
    if all(tried & _TRIED[effort, answer] for answer in wanted):
        _counts["memo"] += 1
        return None
    answer, rung = _climb(scope, condition, effort, wanted)
    _counts[rung] += 1
    if len(answers) >= _ANSWERS_LIMIT:
        answers.clear()
    if answer is None:
        for value in wanted:
            tried |= _TRIED[effort, value] | _TRIED[Effort.CHEAP, value]
        answers[condition] = tried
    else:
        answers[condition] = answer
    return answer


def _climb(scope: Scope, condition: Term, effort: Effort, wanted: tuple[bool, ...]) -> tuple[bool | None, str]:
    found = look(scope, condition)
    if found is not None:
        return found, "interval"
    if scope.rewrites:
        known = scope.canonical(condition)
        if known is TRUE or known is FALSE:
            return known is TRUE, "known"
        if known is not condition:
            condition = known
            found = look(scope, condition)
            if found is not None:
                return found, "interval"
    simple = rewritten(scope, condition)
    if simple is not condition:
        condition = simple
        found = look(scope, condition)
        if found is not None:
            return found, "rules"
    goals = [(answer, exprs.not_(condition) if answer else condition) for answer in wanted]
    for rungs in (_cheap, _dear) if effort else (_cheap,):
        for name, rung in rungs:
            for answer, formula in goals:
                if rung(scope, formula):
                    return answer, name
    return None, "unknown"


__all__ = ["Effort", "ask", "counters", "reset_counters"]
