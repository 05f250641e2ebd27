"""Branches on whether data are finite: ``if not torch.isfinite(loss): return``,
``if gradient.isnan().any(): ...``.

Such a branch handles an overflow. Where the function can still be run from the beginning, a trace
assumes that data are finite, and the graph asserts that when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from guards.terms import fold
from guards.terms.term import Term
from symshape.graph.steps import Node, Step, Value

_ANSWERS = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}
_SAME = {"eq": True, "ne": False}
"""The answer when a finite number is compared with itself; the opposite when it is compared with an
infinity.
"""
_KEPT = frozenset(
    ("all", "any", "view", "detach", "alias", "clone", "_to_copy", "squeeze", "unsqueeze", "expand")
)
_NEGATED = frozenset(("logical_not", "bitwise_not"))
_BOTH = frozenset(("logical_and", "bitwise_and", "mul"))
_EITHER = frozenset(("logical_or", "bitwise_or"))


FINITE = "data are taken to be finite here"


def holds_for_finite(steps: Sequence[Step], condition: Term) -> bool | None:
    """Return whether a condition holds where all numbers are finite; None if it depends on anything
    else.

    Args:
        steps: the steps of the trace.
        condition: a condition that depends on data.
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
    """Return the truth of all elements of a value where numbers are finite; None if they depend on
    anything else.
    """
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
