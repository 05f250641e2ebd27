"""The ladder of deciders: from a look at constants to a solver, the cheap ones first.

Asking never records anything: the same facts and the same question give the same answer, on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from guards.ask.reading import forget_texts, parse, understood
from guards.ask.verdict import Verdict
from guards.deciders import case_split, linear_refutation
from guards.deciders.factoring import refutes as refuted_by_factors
from guards.deciders.local_search import hunt, placed
from guards.deciders.witnesses import Values, exhaust, exhausted, nearer, witness
from guards.deciders.z3_solver import Proved, Unknown, solve_formula
from guards.domains.interval import Interval
from guards.errors import Contradiction, ParseError, RangeError
from guards.facts.component import FREE, TIED, Component, divisors, replaced
from guards.facts.facts import Facts, forget_components
from guards.facts.propagate import with_condition
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term


class Effort(IntEnum):
    """How far up the ladder a question may go."""

    CHEAP = 0  # no SymPy, no Z3
    FULL = 1  # everything, within a deterministic limit


RUNGS = (
    "constant",
    "memo",
    "known",
    "interval",
    "rules",
    "linear",
    "points",
    "enumerate",
    "cases",
    "sympy",
    "z3",
    "unknown",
)
_counts: dict[str, int] = dict.fromkeys(RUNGS, 0)
_ANSWERS_LIMIT = 8192
_LARGE_BOX = 60_000


def counters() -> dict[str, int]:
    """How many questions each rung has settled since the last :func:`reset_counters` (`unknown`: none did)."""
    return dict(_counts)


def reset_counters() -> None:
    """Sets all counters to zero."""
    for rung in _counts:
        _counts[rung] = 0


_YES, _NO = 16, 32  # an answer, in one number with the bits that say what was sought in vain
_SETTLED = _YES | _NO
_TRIED = {(effort, only): 1 << (2 * effort + only) for effort in (0, 1) for only in (False, True)}
_SOUGHT: dict[tuple[int, bool | None], int] = {(effort, only): bit for (effort, only), bit in _TRIED.items()} | {
    (effort, None): _TRIED[effort, False] | _TRIED[effort, True] for effort in (0, 1)
}


def ask(facts: Facts, condition: Term, *, effort: Effort = Effort.FULL, only: bool | None = None) -> bool | None:
    """Whether the facts settle a condition: True, False, or None when they do not (or when it is not known).

    ``only`` restricts the search to one answer, for a caller who knows that the other is impossible.

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
    found = facts._answers.get(condition)
    if found is not None:  # an answer, or which ones were sought in vain
        if found & _SETTLED:
            _counts["memo"] += 1
            return found == _YES
        if found & _SOUGHT[effort, only] == _SOUGHT[effort, only]:
            _counts["memo"] += 1
            return None
    if facts.contradictory:
        return None
    boolean.boolean(condition)
    component = facts.component(condition)
    answer = ask_component(component, condition, effort, only)
    if len(facts._answers) >= _ANSWERS_LIMIT:
        facts._answers.clear()
    if answer is None:
        facts._answers[condition] = (found or 0) | _SOUGHT[effort, only]
    else:
        facts._answers[condition] = _YES if answer else _NO
    return answer


def ask_component(component: Component, condition: Term, effort: Effort, only: bool | None) -> bool | None:
    """As :func:`ask`, within one component."""
    answers = component.answers
    tried = answers.get(condition, 0)
    if tried & _SETTLED:
        _counts["memo"] += 1
        return tried == _YES
    wanted = (True, False) if only is None else (only,)
    if all(tried & _TRIED[effort, answer] for answer in wanted):
        _counts["memo"] += 1
        return None
    if len(answers) >= _ANSWERS_LIMIT:
        answers.clear()
    if not condition.kinds and _fills_its_range(component, condition):
        answer = component.look(condition)
        _counts["interval"] += 1
        wanted = (True, False)
    else:
        climb = _climb(component, condition, effort, only)
        answer = climb.value
        _counts[climb.rung] += 1
    if answer is None:
        for value in wanted:
            tried |= _TRIED[effort, value] | _TRIED[Effort.CHEAP, value]
        answers[condition] = tried
    else:
        answers[condition] = _YES if answer else _NO
    return answer


def _fills_its_range(component: Component, condition: Term) -> bool:
    """Whether bounds alone tell all about a linear condition, as symbols take their values independently.

    A sum takes both of its bounds, which are no holes.  With coefficients 1 and -1 it takes every integer between them,
    if no range has a hole; a single symbol takes every value but its holes.
    """
    freedom = component.freedom
    if freedom == TIED or (component.rewrites and not condition.symbols.isdisjoint(component.rewrites)):
        return False
    if condition.op is Op.LE:
        return True
    if condition.op is Op.EQ or condition.op is Op.NE:
        items = arithmetic.split(condition.args[0])[1]
        return len(items) == 1 or (freedom == FREE and all(abs(coefficient) == 1 for _, coefficient in items))
    return False


# -- the ladder -------------------------------------------------------------------------------------------------------


class _Climb:
    """One way up the ladder: which answers are still possible, and why the others are not."""

    __slots__ = ("fails", "holds", "reason", "rung", "value")

    def __init__(self) -> None:
        self.value: bool | None = None
        self.rung = "unknown"
        self.fails: Values | None = None
        self.holds: Values | None = None
        self.reason = ""

    def settle(self, value: bool | None, rung: str) -> _Climb:
        self.value = value
        self.rung = rung
        return self


def _climb(component: Component, condition: Term, effort: Effort, only: bool | None) -> _Climb:
    climb = _Climb()
    found = component.look(condition)
    if found is not None:
        return climb.settle(found, "interval")
    asked = condition
    for divisor in divisors(condition):
        if component.bounds(divisor)[0] == 0:  # where it is 0 the condition says nothing
            component = with_condition(component, boolean.ge(divisor, 1))
            if component.contradictory:
                climb.reason = "the facts leave no value at which it is defined"
                return climb
    if component.rewrites:
        known = component.canonical(condition)
        if known is TRUE or known is FALSE:
            return climb.settle(known is TRUE, "known")
        if known is not condition:
            condition = known
            found = component.look(condition)
            if found is not None:
                return climb.settle(found, "interval")
    if condition.op >= Op.AND:
        for answer in (True, False) if only is None else (only,):
            if _contradicts_itself(component, boolean.not_(condition) if answer else condition):
                return climb.settle(answer, "known")
    if only is not None and _excluded(climb, component, asked, only):
        return climb.settle(None, "points")
    linear_first = only is not False and condition.op is Op.LE and _divides_by_numbers(condition)
    if linear_first and linear_refutation.refutes(component, boolean.not_(condition)):
        return climb.settle(True, "linear")
    simple = condition if _plainly_linear(condition) else rewritten(component, condition)
    if simple is not condition:
        linear_first = False
        condition = simple
        found = component.look(condition)
        if found is not None:
            return climb.settle(found, "rules")
    # From here on: `condition` holds for all values when `formulas[True]` has no solution, and for none likewise.
    formulas = {True: boolean.not_(condition), False: condition}
    if only is not False and not linear_first and linear_refutation.refutes(component, formulas[True]):
        return climb.settle(True, "linear")
    if only is None:
        both = [_excluded(climb, component, asked, answer) for answer in (True, False)]
        if all(both):
            return climb.settle(None, "points")
    if only is not True and climb.holds is None and linear_refutation.refutes(component, formulas[False]):
        return climb.settle(False, "linear")
    if effort is not Effort.CHEAP:
        return _climb_on(climb, component, asked, formulas, only)
    return climb


def _plainly_linear(condition: Term) -> bool:
    """Whether no rule can fit: a comparison of a symbol, or of symbols added up."""
    if not Op.EQ <= condition.op <= Op.LE:
        return False
    op = condition.args[0].op
    return op is Op.SYMBOL or (op is Op.ADD and condition.depth == 2)


def _divides_by_numbers(condition: Term) -> bool:
    """Whether elimination is likely to do: a comparison of symbols and of their quotients by numbers, added up."""
    if condition.depth > 4 or not Op.EQ <= condition.op <= Op.LE:
        return False
    for monomial, _ in arithmetic.split(condition.args[0])[1]:
        op = monomial.op
        if op is not Op.SYMBOL and not ((op is Op.FLOORDIV or op is Op.MOD) and monomial.args[1].op is Op.CONST):
            return False
    return True


def _contradicts_itself(component: Component, formula: Term) -> bool:
    """Whether an equation among the parts of a conjunction makes another part false: ``x == 0 and x*y != 0``."""
    if formula.op is not Op.AND:
        return False
    for equation in formula.args:
        if equation.op is not Op.EQ:
            continue
        constant, items = arithmetic.split(equation.args[0])
        if len(items) != 1 or abs(items[0][1]) != 1:
            continue
        value = {items[0][0]: arithmetic.const(-constant * items[0][1])}
        for part in formula.args:
            if part is not equation:
                left = replaced(part, value)
                if left is not None and left is not part and component.look(left) is False:
                    return True
    return False


def _excluded(climb: _Climb, component: Component, condition: Term, answer: bool) -> bool:
    """Whether some point shows that the answer is impossible."""
    point = witness(component, condition, not answer)
    if point is not None:
        if answer:
            climb.fails = point
        else:
            climb.holds = point
    return point is not None


def _climb_on(
    climb: _Climb, component: Component, asked: Term, formulas: dict[bool, Term], only: bool | None
) -> _Climb:
    """The dear rungs."""

    def open_answers() -> list[bool]:
        wanted = (True, False) if only is None else (only,)
        return [answer for answer in wanted if (climb.fails if answer else climb.holds) is None]

    def show(answer: bool, point: Values | None) -> None:
        """Takes in a point that rules out an answer."""
        if point is None:
            return
        if answer:
            climb.fails = point
        else:
            climb.holds = point

    for answer in open_answers():
        nowhere, solution = exhausted(component, formulas[answer])
        if nowhere:
            return climb.settle(answer, "enumerate")
        if solution is not None:
            show(answer, placed(component, asked, solution, not answer))
    for answer in open_answers():
        show(answer, hunt(component, asked, formulas[answer], not answer))
    if not open_answers():
        return climb.settle(None, "points")
    for answer in open_answers():
        if case_split.refutes(component, formulas[answer]):
            return climb.settle(answer, "cases")
    for answer in open_answers():
        if refuted_by_factors(component, formulas[answer]):
            return climb.settle(answer, "sympy")
    for answer in open_answers():
        outcome = solve_formula(component, formulas[answer])
        if isinstance(outcome, Proved):
            return climb.settle(answer, "z3")
        if isinstance(outcome, Unknown):
            climb.reason = outcome.reason
            continue
        if answer:
            climb.fails = outcome.model
        else:
            climb.holds = outcome.model
    if not open_answers():
        return climb.settle(None, "z3")
    for answer in open_answers():  # Z3 gave up: a box that is not too large can still be tried completely
        if exhaust(component, formulas[answer], _LARGE_BOX):
            return climb.settle(answer, "enumerate")
    return climb


def clear_caches(*, terms: bool = True) -> None:
    """Forgets texts, facts and decisions, and terms that nobody uses: for measuring, and to give memory back.

    Facts that somebody holds stay, with what was decided on them.
    """
    forget_texts()
    _contexts.clear()
    forget_components()
    if terms:
        boolean.release()


# -- for people -------------------------------------------------------------------------------------------------------

Range = tuple[int | None, int | None]
_CONTEXTS_LIMIT = 512
_contexts: dict[tuple[object, ...], Facts] = {}


def facts_from(ranges: Mapping[str, Range] | None = None, assume: Iterable[str | Term] = ()) -> Facts:
    """Facts from ranges by name and conditions as text (or terms).

    Raises:
        Contradiction: nothing satisfies all of them, and that was seen.
        RangeError: a range is empty, or not a pair.
        ParseError: a condition cannot be read.

    >>> facts_from({"s0": (2, None)}, ["s0 % 8 == 0"])
    Facts(s0 in [2, inf), s0 % 8 == 0)
    """
    assume = (assume,) if isinstance(assume, (str, Term)) else tuple(assume)
    try:
        key: tuple[object, ...] = (tuple[object, ...](ranges.items()) if ranges else (), assume)
        found = _contexts.get(key)
    except TypeError as error:
        raise RangeError(f"a range is a pair of integers or None: {error}") from None
    if found is None:
        pairs: dict[Term, Range] = {}
        given: Mapping[str, object] = ranges or {}
        for name, pair in given.items():
            pairs[arithmetic.symbol(name)] = _checked(name, pair)
        found = Facts.make(pairs, [_condition(item) for item in assume])
        if found.contradictory:
            shown = tuple(str(condition) for condition in found.conditions)
            raise Contradiction(f"nothing satisfies all that is assumed: {', '.join(shown)}", shown)
        if len(_contexts) >= _CONTEXTS_LIMIT:
            _contexts.clear()
        _contexts[key] = found
    return found


def _checked(name: str, pair: object) -> Range:
    if isinstance(pair, Interval):
        return pair.lo, pair.hi
    if isinstance(pair, tuple) and len(pair) == 2 and all(type(b) is int or b is None for b in pair):
        return pair
    raise RangeError(f"the range of {name} must be a pair of integers or None, not {pair!r}")


def _condition(item: str | Term) -> Term:
    term = parse(item) if isinstance(item, str) else item
    if not term.is_bool:
        raise ParseError(f"a condition is needed, not the integer {term}")
    return term


def _defined(facts: Facts, query: str) -> Facts:
    """The facts, and that no divisor is 0 that the query names and its term no longer shows."""
    for divisor in understood(query).lost:
        lo, hi = facts.component(divisor).bounds(divisor)
        if (lo is None or lo <= 0) and (hi is None or hi >= 0):
            more = facts.assume(boolean.ne(divisor, 0))
            if not more.contradictory:
                facts = more
    return facts


def decide(
    query: str | Term, *, ranges: Mapping[str, Range] | None = None, assume: Iterable[str | Term] = ()
) -> Verdict:
    """The verdict on a condition: holds it for all values of its symbols, for none, or does it depend?

    A symbol absent from ``ranges`` is a size: any integer >= 0.

    Raises:
        ParseError: ``query`` or an assumption cannot be read.
        Contradiction: nothing satisfies the assumptions.

    >>> from guards.ask.ladder import decide
    >>> decide("s0 + s1 > 2", ranges={"s0": (2, None), "s1": (1, None)}).value
    True
    >>> verdict = decide("s0 == s1")
    >>> verdict.value, verdict.fails, verdict.holds
    (None, {'s0': 1, 's1': 6}, {'s0': 0, 's1': 0})
    """
    condition = _condition(query)
    facts = facts_from(ranges, assume)
    if type(query) is str:
        facts = _defined(facts, query)
    if condition is TRUE or condition is FALSE:
        return Verdict(condition is TRUE, "constant", reason="it is a constant")
    component = facts.component(condition)
    climb = _climb(component, condition, Effort.FULL, None)
    _counts[climb.rung] += 1
    if climb.value is not None:
        return Verdict(
            climb.value, climb.rung, reason=f"{'always' if climb.value else 'never'}: {_BY_RUNG[climb.rung]}"
        )
    fails = None if climb.fails is None else nearer(component, condition, False, climb.fails)
    holds = None if climb.holds is None else nearer(component, condition, True, climb.holds)
    if fails is not None and holds is not None:
        return Verdict(None, climb.rung, fails, holds, "it depends on the values")
    return Verdict(None, "unknown", fails, holds, f"not known ({climb.reason or 'limits were reached'})")


_BY_RUNG = {
    "constant": "it is a constant",
    "interval": "by the ranges and remainders of its parts",
    "known": "by the equations assumed",
    "rules": "by rewriting",
    "linear": "by linear elimination",
    "enumerate": "by trying all values",
    "sympy": "by the signs of factors",
    "cases": "by looking at all cases",
    "z3": "by Z3",
}


def prove(
    query: str | Term, *, ranges: Mapping[str, Range] | None = None, assume: Iterable[str | Term] = ()
) -> bool | None:
    """Whether a condition holds for all values (True), for none (False), or neither is known to be so (None).

    A symbol absent from ``ranges`` is a size: any integer >= 0.

    Raises:
        ParseError: ``query`` or an assumption cannot be read.
        Contradiction: nothing satisfies the assumptions.

    >>> from guards.ask.ladder import prove
    >>> prove("(s0 + 7) // 8 * 8 >= s0"), prove("s0 // 2 % 4 == 0", assume=["s0 % 8 == 0"]), prove("s0 < 5")
    (True, True, None)
    """
    condition = _condition(query)
    facts = facts_from(ranges, assume)
    return ask(_defined(facts, query) if type(query) is str else facts, condition)


__all__ = ["Effort", "Verdict", "ask", "clear_caches", "counters", "decide", "facts_from", "prove", "reset_counters"]
