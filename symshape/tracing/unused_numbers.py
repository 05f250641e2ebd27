"""Numbers that a program computes and never uses, and that another call could not compute: ``math.log(n / m)``.

Eager raises there.  A number that is used is computed in each run, and raises as eager's does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from guards.terms.term import Term
from symshape.errors import UnsupportedError
from symshape.graph.float_domains import needs
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Node, Step
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.float_comparisons import comparison


def see_to_unused(env: ShapeEnv, steps: Sequence[Step], outputs: Sequence[Any]) -> None:
    """Asks the sizes and the arguments of each call whether such numbers can be computed, or fixes the sizes.

    Args:
        env: of the trace.
        steps: those that run.
        outputs: of the graph, flat.

    Raises:
        UnsupportedError: only a run can tell whether one can be computed.
    """
    if not env.partial:
        return
    used = set(_terms((*outputs, *env.data.asked())))
    for step in steps:
        if isinstance(step, Node):
            used.update(_terms(step.numbers))
    for term, origin in reversed(env.partial):  # what another one was made of comes after it
        if term in used:
            continue
        if term.unbacked() or any(env.hint(each) is None for each in term.symbols()):
            if not _is_asked(env, term):
                raise UnsupportedError(
                    f"the program computes {term} ({origin}) and does not use it; where that raises an error, a trace "
                    "would not. Use the number, or leave it away"
                )
        elif not _is_guarded(env, term):
            env.specialize_float(term)
            used.update(_terms([term]))


def _is_guarded(env: ShapeEnv, term: FloatTerm) -> bool:
    """Whether guards make sure that an operation raises nothing, as it does not in this call."""
    needed = needs(term)
    if needed is None:
        return False
    conditions: list[Term] = []
    for each in needed:
        operand = FloatTerm("from_int", (each.operand,)) if isinstance(each.operand, Term) else each.operand
        holds = comparison(env, each.relation, operand, each.constant)
        if holds is None or not env.hint(holds):
            return False
        conditions.append(holds)
    return all(map(env.evaluate, conditions))


def _is_asked(env: ShapeEnv, term: FloatTerm) -> bool:
    """Whether each call is asked for what an operation on float arguments needs, which is there in this call."""
    needed = needs(term)
    return needed is not None and all(
        isinstance(each.operand, FloatTerm) and env.data.decide(each.relation, each.operand, each.constant)
        for each in needed
    )


def _terms(numbers: Any) -> Iterator[FloatTerm]:
    """The formulas of floats in numbers, and in formulas."""
    for each in numbers:
        if isinstance(each, FloatTerm):
            yield each
            yield from _terms(each.args)
