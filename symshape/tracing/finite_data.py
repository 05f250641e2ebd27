"""Branches on whether data are finite: ``if not torch.isfinite(loss): return``, ``if gradient.isnan().any(): ...``.

Such a branch is there for the day on which something overflows.  A trace presumes that it is not today, where the
function can still be run from the beginning; that is asserted when the graph runs.  So it is with the number that tells
whether a gradient overflowed as it was unscaled, by which ``torch.amp.GradScaler`` decides whether to step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from guards.terms import boolean, fold
from guards.terms.term import Term
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Node, Step, Value, written_values
from symshape.tracing.asked_numbers import COMPARE
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

_ANSWERS = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}
_SAME = {"eq": True, "ne": False}
"""Of a number with itself; the other way round with an infinity."""
_KEPT = frozenset(("all", "any", "view", "detach", "alias", "clone", "_to_copy", "squeeze", "unsqueeze", "expand"))
_NEGATED = frozenset(("logical_not", "bitwise_not"))
_BOTH = frozenset(("logical_and", "bitwise_and", "mul"))
_EITHER = frozenset(("logical_or", "bitwise_or"))


_UNSCALES = frozenset((torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default,))
"""Ops whose second argument becomes 1 where a number is not finite."""
_NOT_0, _ITEM = torch.ops.aten.ne.Scalar, torch.ops.aten._local_scalar_dense.default
FINITE = "data are taken to be finite here"


class Unscaled:
    """Comparisons of numbers that tell whether something overflowed as it was unscaled.

    Args:
        trace: what is traced.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __call__(self, relation: str, left: FloatTerm | float, right: FloatTerm | float) -> bool | None:
        """The answer where nothing did, which is asserted; None: it is about something else, or it is too late."""
        terms = [each for each in (left, right) if isinstance(each, FloatTerm)]
        names = {name for each in terms for name in each.unbacked()}
        values = _told_of_unscaling(self._trace.steps, names)
        env = self._trace.env
        if values is None or any(each.symbols() for each in terms) or not env.may_begin_again():
            return None
        for value in values:
            told = self._trace.dispatch(_NOT_0, (SymbolicTensor.make(value.spec, value, self._trace, False), 0), {})
            finite = boolean.not_(self._trace.dispatch(_ITEM, (told,), {}).node.term)
            env.presumed.append(f"{FINITE}, {finite} (at {env.origin()})")
            env.expect_true(finite, FINITE)
        zero = dict.fromkeys(names, 0.0)
        one, other = (each.evaluate({}, zero) if isinstance(each, FloatTerm) else each for each in (left, right))
        return bool(COMPARE[relation](one, other))


def _told_of_unscaling(steps: Sequence[Step], names: set[str]) -> list[Value] | None:
    """The values that numbers were read from, if each was written by an unscaling, and by nothing since it was read."""
    found: dict[str, Value] = {}
    unscaled: set[int] = set()
    for step in steps:
        if type(step) is not Node:
            continue
        if step.op is _ITEM and step.bindings and step.bindings[0].symbol in names:
            found[step.bindings[0].symbol] = step.reads[0]
        for value in written_values(step):
            if any(each.storage is value.storage for each in found.values()):
                return None
            if step.op in _UNSCALES and value is step.args[1]:
                unscaled.add(id(value.storage))
            else:
                unscaled.discard(id(value.storage))
    told = bool(names) and found.keys() == names and all(id(each.storage) in unscaled for each in found.values())
    return list(found.values()) if told else None


def holds_for_finite(steps: Sequence[Step], condition: Term) -> bool | None:
    """Whether a condition holds where all numbers are finite, if it asks nothing else of them; None if it does.

    Args:
        steps: of the trace.
        condition: on what data tell.
    """
    nodes = [step for step in steps if type(step) is Node]
    bound = {each.symbol: node for node in nodes for each in node.bindings if each.kind == "bool"}
    made = {output: node for node in nodes for output in node.outputs if output is not None}
    known: dict[str, int] = {}
    for symbol in condition.symbols:
        node = bound.get(symbol.name)
        answer = None if node is None or not node.reads else _answer(node.reads[0], made)
        if answer is None:
            return None
        known[symbol.name] = int(answer)
    return bool(fold.evaluate(condition, known))


def _answer(value: Value, made: dict[Value, Node]) -> bool | None:
    """What all elements of a value are where numbers are finite; None: it asks something else, too."""
    node = made.get(value)
    if node is None or node.op.namespace != "aten" or not node.args:
        return None
    name, given = node.op._schema.name.removeprefix("aten::"), node.args
    if name in _ANSWERS:
        return _ANSWERS[name]
    if name in _SAME and len(given) > 1:
        return _compared(name, given[0], given[1])
    if name in _KEPT or name in _NEGATED:
        found = _answer(given[0], made) if type(given[0]) is Value else None
        return found if found is None or name in _KEPT else not found
    if (name in _BOTH or name in _EITHER) and len(given) > 1:
        answers = [_answer(each, made) if type(each) is Value else None for each in given[:2]]
        if None in answers:
            return None
        return all(answers) if name in _BOTH else any(answers)
    return None


def _compared(name: str, left: Any, right: Any) -> bool | None:
    if left is right and type(left) is Value:
        return _SAME[name]
    infinite = type(right) is float and math.isinf(right)
    return not _SAME[name] if infinite else None
