"""Numbers that a program computes and never uses, and that another call could not compute: ``math.log(n / m)``.

Eager raises there.  A number that is used is computed in each run, and raises as eager's does; of the others, those of
data are computed alone in each run, and those of sizes leave guards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from guards.terms.term import Term
from symshape.graph.float_domains import needs
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Node, Step
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.float_comparisons import comparison

_ASSERT = torch.ops.aten._assert_scalar.default


def computed_alone(term: FloatTerm) -> Node:
    """A step that computes a number and does nothing with it."""
    return Node(_ASSERT, (FloatTerm("max", (term, 1.0)), "a number that is not 0"), {}, (), False)


def see_to_unused(env: ShapeEnv, steps: Sequence[Step], outputs: Sequence[Any]) -> tuple[Step, ...]:
    """The steps, of those that compute a number alone only the ones whose number is not used.

    Guards are left where such numbers of sizes can be computed, or fix the sizes.

    Args:
        env: of the trace.
        steps: those that run.
        outputs: of the graph, flat.
    """
    alone = [step for step in steps if isinstance(step, Node) and step.op is _ASSERT]
    if not alone and not env.partial.of_sizes:
        return tuple(steps)
    used = set(_terms(outputs))
    for step in steps:
        if isinstance(step, Node) and step.op is not _ASSERT:
            used.update(_terms(step.numbers))
    for term, where in reversed(env.partial.of_sizes):  # what another one was made of comes after it
        env.at = where
        if term not in used and not _is_guarded(env, term):
            env.specialize_float(term)
            used.update(_terms([term]))
    env.at = None
    dropped: set[Step] = set()
    for each in reversed(alone):
        number = each.args[0].args[0]
        if number in used:
            dropped.add(each)
        used.update(_terms([number]))
    return tuple(step for step in steps if step not in dropped)


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


def _terms(numbers: Any) -> Iterator[FloatTerm]:
    """The formulas of floats in numbers, and in formulas."""
    for each in numbers:
        if isinstance(each, FloatTerm):
            yield each
            yield from _terms(each.args)
