"""Unused numbers of a program that another call could not compute: ``math.log(n / m)``.

Eager raises an error in such a call. A number that is used is computed in each run, and raises as
eager's does. An unused number of data is computed in a step of its own; an unused number of sizes
leaves guards.
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
from symshape.tracing.symbolic.nodes.float_node import comparison

_ASSERT = torch.ops.aten._assert_scalar.default


def computed_alone(term: FloatTerm) -> Node:
    """Return a step that computes a number and does nothing with it."""
    return Node(_ASSERT, (FloatTerm("max", (term, 1.0)), "a number that is not 0"), {}, (), False)


def see_to_unused(env: ShapeEnv, steps: Sequence[Step], outputs: Sequence[Any]) -> tuple[Step, ...]:
    """Return the steps; a step that only computes a number is dropped if the number is used
    elsewhere.

    For unused numbers of sizes, guards are left that they can be computed, or that fix the sizes.

    Args:
        env: the environment of the trace.
        steps: the steps that run.
        outputs: the outputs of the graph, flat.
    """
    alone = [step for step in steps if isinstance(step, Node) and step.op is _ASSERT]
    if not alone and not env.partial.of_sizes:
        return tuple(steps)
    used = set(_terms(outputs))
    for step in steps:
        if isinstance(step, Node) and step.op is not _ASSERT:
            used.update(_terms(step.numbers))
    # operands come before the numbers made of them
    for term, where in reversed(env.partial.of_sizes):
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
    """Return whether guards can ensure that an operation raises no error, as in this call; leave
    these guards.
    """
    needed = needs(term)
    if needed is None:
        return False
    conditions: list[Term] = []
    for each in needed:
        operand = (
            FloatTerm("from_int", (each.operand,))
            if isinstance(each.operand, Term)
            else each.operand
        )
        holds = comparison(env, each.relation, operand, each.constant)
        if holds is None or not env.hint(holds):
            return False
        conditions.append(holds)
    return all(map(env.evaluate, conditions))


def _terms(numbers: Any) -> Iterator[FloatTerm]:
    """Yield the float formulas among numbers, and inside these formulas."""
    for each in numbers:
        if isinstance(each, FloatTerm):
            yield each
            yield from _terms(each.args)
