"""Assumptions of a trace about data: they are finite, and no gradient overflows.

A trace may assume what nearly always holds but only data decide, while it can still be abandoned:
then the function runs in eager, as if nothing had happened. The graph asserts it when it runs;
where it fails, the function runs eagerly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from guards.terms import boolean, fold
from guards.terms.term import Term
from symshape.graph.float_terms import FloatTerm
from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Step, Value, drawn_from, draws_random_numbers, written_values
from symshape.torch_internals import dispatch
from symshape.tracing.data.number_questions import COMPARE
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace
from symshape.tracing.trace_state import TraceState

# -- The test whether a trace could still be abandoned.
_PLAIN = ("aten", "prims")
_presumes: ContextVar[bool] = ContextVar("presumes", default=True)


@contextmanager
def presuming(presumes: bool) -> Iterator[None]:
    """Let traces assume what nearly always holds inside, or forbid that."""
    token = _presumes.set(presumes)
    try:
        yield
    finally:
        _presumes.reset(token)


class Abandonable:
    """A watcher of one trace's steps: the storages that they write to, random draws, and calls.

    Args:
        trace: the trace.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._new = StepCursor(trace.steps)
        self._written: set[int] = set()  # ids of storages, which steps keep alive
        self._changed = False

    def __call__(self) -> bool:
        """Return whether no earlier tensor was written to, and no generator drawn from except on
        the CPU.
        """
        self._look(self._new.nodes())
        if self._changed or not _presumes.get():
            return False
        written = self._written | {id(value.storage) for value in self._trace.writes}
        lifted = self._trace.lifting.lifted.values()
        roots = (*self._trace.arguments, *(each.value for each in lifted if not each.constant))
        return not written or written.isdisjoint(id(each.storage) for each in roots)

    def _look(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            # a custom op, a collective, an `autograd.Function`
            others = getattr(node.op, "namespace", "") not in _PLAIN
            drawn = not others and draws_random_numbers(node)
            self._changed |= others or (drawn and drawn_from(node) is None)
            if not self._changed:
                self._written.update(id(value.storage) for value in written_values(node))


# -- Branches on whether data are finite: ``if not torch.isfinite(loss): return``, ``if
# gradient.isnan().any(): ...``.
#
# Such a branch handles an overflow. Where the function can still be run from the beginning, a
# trace assumes that data are finite, and the graph asserts that when it runs.
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


# -- The flag that says whether a gradient overflowed when it was unscaled: ``torch.amp.GradScaler``
# steps unless it did.
#
# The trace assumes that none did, before the program has written anything. After the first
# optimizer's step it is too late for assumptions. So the first question assumes the same of all
# gradients that exist by then: the flags of later optimizers follow from that.
aten = torch.ops.aten
_UNSCALES = frozenset((aten._amp_foreach_non_finite_check_and_unscale_.default,))
"""Ops whose second argument becomes 1 if an element of the first ones is not finite."""
_NOT_0, _ITEM = aten.ne.Scalar, aten._local_scalar_dense.default
_COPIES = frozenset((aten._to_copy.default, aten.clone.default))


class Unscaled:
    """Comparisons of the flags that say whether a gradient overflowed when it was unscaled.

    Args:
        trace: the trace.
        leaves: returns the outer tensors that the trace has read so far.
    """

    def __init__(self, trace: Trace, leaves: Callable[[], Iterable[torch.Tensor]]) -> None:
        self._trace, self._leaves = trace, leaves
        self._zero: dict[Value, int] = {}  # flags that are asserted to be 0, and at which step
        self._finite: dict[
            Value, int
        ] = {}  # gradients that are asserted to be finite, and at which step

    def __call__(
        self, relation: str, left: FloatTerm | float, right: FloatTerm | float
    ) -> bool | None:
        """Return the answer if nothing overflowed, which is asserted; None for other numbers, or if
        it is too late.
        """
        terms = [each for each in (left, right) if isinstance(each, FloatTerm)]
        names = {name for each in terms for name in each.unbacked()}
        values = _told_of_unscaling(self._trace.steps, names)
        if values is None or any(each.symbols() for each in terms):
            return None
        if not all(map(self._is_zero, values)):
            if not self._trace.env.may_begin_again():
                return None
            self._presume(values)
        zero = dict.fromkeys(names, 0.0)
        one, other = (
            each.evaluate({}, zero) if isinstance(each, FloatTerm) else each
            for each in (left, right)
        )
        return bool(COMPARE[relation](one, other))

    def _presume(self, values: Sequence[Value]) -> None:
        others = [
            step.args[1]
            for step in self._trace.steps
            if type(step) is Node and step.op in _UNSCALES
        ]
        given = _unscaled(self._trace.steps)
        pending = [each for each in self._gradients() if each._value not in given]
        for value in dict.fromkeys((*values, *others)):
            stand_in = SymbolicTensor.make(value.spec, value, self._trace, False)
            told = self._trace.dispatch(
                _ITEM, (self._trace.dispatch(_NOT_0, (stand_in, 0), {}),), {}
            )
            self._assert(boolean.not_(told.node.term))
            self._zero[value] = len(self._trace.steps)
        for alike in _sorted(pending):
            found = self._trace.dispatch(aten._foreach_norm.Scalar, (alike, math.inf), {})
            below = self._trace.dispatch(
                aten.lt.Scalar,
                (self._trace.dispatch(aten.stack.default, (found,), {}), math.inf),
                {},
            )
            told = self._trace.dispatch(
                _ITEM, (self._trace.dispatch(aten.all.default, (below,), {}),), {}
            )
            self._assert(told.node.term)
            self._finite.update((each._value, len(self._trace.steps)) for each in alike)

    def _assert(self, finite: Term) -> None:
        env = self._trace.env
        env.presumed.append(f"{FINITE}, {finite} (at {env.origin()})")
        env.expect_true(finite, FINITE)

    def _gradients(self) -> list[SymbolicTensor]:
        """Return the gradients that the trace has put into leaves around the program."""
        with dispatch.DisableTorchFunction():
            found = [each.grad for each in self._leaves() if each.requires_grad and each.is_leaf]
        return [
            each for each in found if type(each) is SymbolicTensor and each._tracer is self._trace
        ]

    def _is_zero(self, value: Value) -> bool:
        """Return whether a flag is 0 by the assertions: no gradient that was unscaled into it had
        overflowed.
        """
        steps = self._trace.steps
        if value in self._zero:
            return not any(_writes(step, value) for step in steps[self._zero[value] :])
        writing = [position for position, step in enumerate(steps) if _writes(step, value)]
        return _began_at_zero(value, steps) and all(
            self._found_none(position) for position in writing
        )

    def _found_none(self, position: int) -> bool:
        step = self._trace.steps[position]
        if type(step) is not Node or step.op not in _UNSCALES:
            return False
        checked = [(each, self._finite.get(each)) for each in step.args[0]]
        return all(
            since is not None
            and not any(_writes(other, each) for other in self._trace.steps[since:position])
            for each, since in checked
        )


def _writes(step: Step, value: Value) -> bool:
    return type(step) is Node and any(
        each.storage is value.storage for each in written_values(step)
    )


def _began_at_zero(value: Value, steps: Sequence[Step]) -> bool:
    """Return whether a value was made as 0, or as a copy of such a value that is never written."""
    made = next((step for step in steps if type(step) is Node and value in step.outputs), None)
    if made is None:
        return False
    if made.op is aten.full.default:
        return bool(made.args[1] == 0)
    if made.op is aten.zeros.default:
        return True
    source = made.args[0] if made.op in _COPIES else None
    if type(source) is not Value or any(_writes(step, source) for step in steps):
        return False
    return _began_at_zero(source, steps)


def _unscaled(steps: Sequence[Step]) -> set[Value]:
    """Return the gradients that were unscaled."""
    return {
        each
        for step in steps
        if type(step) is Node and step.op in _UNSCALES
        for each in step.args[0]
    }


def _sorted(gradients: Sequence[SymbolicTensor]) -> list[list[SymbolicTensor]]:
    """Return gradients grouped by dtype and device, without empty ones, which have no largest
    element.
    """
    found: dict[Any, list[SymbolicTensor]] = {}
    for each in gradients:
        sizes = each._spec.sizes
        if all(type(size) is int and size > 0 for size in sizes):
            found.setdefault((each.dtype, each.device), []).append(each)
    return list(found.values())


def _told_of_unscaling(steps: Sequence[Step], names: set[str]) -> list[Value] | None:
    """Return the values that numbers were read from, if unscaling wrote each last, before the read;
    else None.
    """
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
    told = (
        bool(names)
        and found.keys() == names
        and all(id(each.storage) in unscaled for each in found.values())
    )
    return list(found.values()) if told else None
