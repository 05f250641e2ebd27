"""The rungs of the ladder: each takes a climb as far as it can and returns whether that ends the
climb.

A climb ends with a value, or with points that exclude every answer sought. The table of the rungs,
and when each is asked, is in :mod:`guards.asking.ladder`.
"""

from __future__ import annotations

from guards.asking.climb import Climb
from guards.budget import current, whole_question
from guards.deciders import case_split, chains, linear_refutation
from guards.deciders.factoring import refutes as refuted_by_factors
from guards.deciders.local_search import hunt, placed
from guards.deciders.pushing import push
from guards.deciders.witnesses import exhaust, exhausted, witness
from guards.deciders.z3_solver import Proved, Refuted, solve_formula
from guards.facts.completion import Values
from guards.facts.component import Component, divisors, replaced
from guards.facts.definedness import defined
from guards.facts.propagate import with_condition
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, fold
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import SYMBOLIC_DIVISION, Op, Term

_LARGE_BOX = 60_000
_MANY_ROWS = 12

# -- when a rung is asked --------------------------------------------------------------------------


def always(climb: Climb) -> bool:
    """Whatever is asked."""
    return True


def divides_by_terms(climb: Climb) -> bool:
    """Return whether the question as asked divides by terms, and so is undefined where a divisor is
    0.
    """
    return bool(climb.asked.kinds & SYMBOLIC_DIVISION)


def has_rewrites(climb: Climb) -> bool:
    """Return whether known equations rewrite some term."""
    return bool(climb.component.rewrites)


def was_rewritten(climb: Climb) -> bool:
    """Return whether the condition was rewritten since it was asked."""
    return climb.condition is not climb.asked


def is_connective(climb: Climb) -> bool:
    """Return whether the condition is an ``and`` or an ``or``."""
    return climb.condition.op >= Op.AND


def seeks_one_answer(climb: Climb) -> bool:
    """Return whether the caller knows that the other answer is impossible."""
    return climb.only is not None


def seeks_both_answers(climb: Climb) -> bool:
    """Return whether the caller accepts either answer."""
    return climb.only is None


def divides_by_numbers(climb: Climb) -> bool:
    """Return whether elimination is likely to prove the condition.

    It is an inequality of symbols and of their quotients by numbers.
    """
    condition = climb.condition
    if climb.only is False or condition.op is not Op.LE or condition.depth > 4:
        return False
    for monomial, _ in arithmetic.split(condition.args[0])[1]:
        op = monomial.op
        if op is not Op.SYMBOL and not (
            (op is Op.FLOORDIV or op is Op.MOD) and monomial.args[1].op is Op.CONST
        ):
            return False
    return True


def may_be_chained(climb: Climb) -> bool:
    """Return whether there are more inequalities than elimination accepts, or products to
    compare.
    """
    condition = climb.condition
    if len(climb.component.rows) > _MANY_ROWS:
        return True
    if condition.op is not Op.LE or not condition.kinds:
        return False
    products = [c > 0 for m, c in arithmetic.split(condition.args[0])[1] if m.op is Op.MUL]
    return bool(products) and bool(climb.component.rows)


def may_be_rewritten(climb: Climb) -> bool:
    """Return whether a rewrite rule can match: none matches a comparison of a symbol or of a sum of
    symbols.
    """
    condition = climb.condition
    if not Op.EQ <= condition.op <= Op.LE:
        return True
    op = condition.args[0].op
    return op is not Op.SYMBOL and not (op is Op.ADD and condition.depth == 2)


def may_always_hold(climb: Climb) -> bool:
    """Return whether True is sought and elimination has not yet tried to prove this form."""
    return climb.only is not False and climb.eliminated is not climb.condition


def may_never_hold(climb: Climb) -> bool:
    """Return whether False is sought and no point is known to satisfy the condition."""
    return climb.only is not True and climb.holds is None


# -- the cheap rungs -------------------------------------------------------------------------------


def look(climb: Climb) -> bool:
    """Decide by the ranges and remainders of the parts."""
    return climb.settle(climb.component.look(climb.condition))


def restrict_to_defined(climb: Climb) -> bool:
    """Assume that no divisor is 0, as the condition says nothing there; end the climb if nothing is
    left.
    """
    for divisor in divisors(climb.asked):
        if climb.component.bounds(divisor)[0] == 0:
            climb.component = with_condition(climb.component, boolean.ge(divisor, 1))
            if climb.component.contradictory:
                climb.reason = "the facts leave no value at which it is defined"
                return True
    return False


def replace_known(climb: Climb) -> bool:
    """Replace parts of the condition by what known equations make of them."""
    known = climb.condition = climb.component.canonical(climb.condition)
    if known is TRUE or known is FALSE:
        return climb.settle(known is TRUE)
    return False


def contradict_parts(climb: Climb) -> bool:
    """Refute a conjunction in which an equation makes another part false:
    ``x == 0 and x*y != 0``.
    """
    for answer in (True, False) if climb.only is None else (climb.only,):
        if _contradicts_itself(climb.component, climb.counterexamples(answer)):
            return climb.settle(answer)
    return False


def _contradicts_itself(component: Component, formula: Term) -> bool:
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


def eliminate_for_true(climb: Climb) -> bool:
    """Try to prove the condition by linear elimination."""
    climb.eliminated = climb.condition
    if linear_refutation.refutes(climb.component, climb.counterexamples(True)):
        return climb.settle(True)
    return False


def eliminate_for_false(climb: Climb) -> bool:
    """Try to refute the condition by linear elimination."""
    if linear_refutation.refutes(climb.component, climb.counterexamples(False)):
        return climb.settle(False)
    return False


def follow_chains(climb: Climb) -> bool:
    """Follow chains of inequalities, and compare products factor by factor."""
    return climb.refute(chains.refutes)


def rewrite(climb: Climb) -> bool:
    """Apply the table of laws, and decide the result by ranges."""
    simple = rewritten(climb.component, climb.condition)
    if simple is climb.condition:
        return False
    climb.condition = simple
    return look(climb)


def try_points(climb: Climb) -> bool:
    """Evaluate the condition at the known points: each excludes an answer."""
    for answer in (True, False) if climb.only is None else (climb.only,):
        climb.exclude(answer, witness(climb.component, climb.asked, not answer))
    return not climb.possible()


# -- the dear rungs --------------------------------------------------------------------------------


def try_all_values(climb: Climb) -> bool:
    """Try all values of a small box."""
    for answer in climb.possible():
        nowhere, solution = exhausted(climb.component, climb.counterexamples(answer))
        if nowhere:
            return climb.settle(answer)
        if solution is not None:
            climb.exclude(answer, placed(climb.component, climb.asked, solution, not answer))
    return False


def search_points(climb: Climb) -> bool:
    """Search for points, starting from known ones."""
    for answer in climb.possible():
        sought = climb.component, climb.asked, climb.counterexamples(answer), not answer
        climb.exclude(answer, hunt(*sought) or push(*sought))
    return not climb.possible()


def split_cases(climb: Climb) -> bool:
    """Split into cases: of a choice, of a few values, of a sign, of a remainder."""
    return climb.refute(case_split.refutes)


def factor(climb: Climb) -> bool:
    """Decide by the signs of factors, which SymPy finds."""
    return climb.refute(refuted_by_factors)


def ask_z3(climb: Climb) -> bool:
    """Z3, within limits that count its steps: one for each try, and what the whole question has
    left.
    """
    around = current()
    with whole_question():
        for answer in climb.possible():
            formula = climb.counterexamples(answer)
            outcome = solve_formula(climb.component, formula)
            if isinstance(outcome, Refuted) and not _answers(climb, outcome.model, not answer):
                # the form reached has a value where what was asked divides by zero
                formula = boolean.and_(formula, defined(climb.asked))
                outcome = solve_formula(climb.component, formula)
            if isinstance(outcome, Proved):
                return climb.settle(answer)
            if not isinstance(outcome, Refuted):
                climb.reason = outcome.reason
            elif _answers(climb, outcome.model, not answer):
                climb.exclude(answer, outcome.model)
    climb.cut_short = around is not None and around.steps <= 0
    return not climb.possible()


def _answers(climb: Climb, point: Values, value: bool) -> bool:
    """Return whether what was asked is defined and has that value at a point."""
    try:
        return fold.evaluate(climb.asked, point) is value
    except ZeroDivisionError:
        return False


def try_large_box(climb: Climb) -> bool:
    """Try all values of a box that is not too large, after Z3 gave up."""
    for answer in climb.possible():
        if exhaust(climb.component, climb.counterexamples(answer), _LARGE_BOX):
            return climb.settle(answer)
    return False
