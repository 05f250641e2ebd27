"""Autograd calls of the program itself: ``requires_grad_()``, ``autograd.Function``, hooks,
gradients of its own.

A graph of ATen ops repeats none of these, and most programs do not need that: a training step with
its backward is all in its ops. Where a result depends on such a tensor, or on an
``autograd.Function``, the graph makes the call itself, as eager does, in place of the ops that the
function ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NoReturn, TypeGuard

import attrs
import torch

from symshape.calls.questions import TRANSFORMED, Question, is_transformed
from symshape.errors import Reason, UnsupportedError
from symshape.graph.control_flow import ControlFlow
from symshape.graph.opaque_calls import LiveCall, Path
from symshape.graph.steps import COLLECTIVES, Node, Step, Value, values_in, written_values
from symshape.torch_internals import dispatch, pytree
from symshape.torch_internals.functions import End, calls_watched
from symshape.tracing.autograd.checkpoint_rng import keeps_state
from symshape.tracing.autograd.histories import (
    MadeByAutograd,
    MadeInside,
    MadeOfParts,
    SpentHistories,
)
from symshape.tracing.intercept.autograd import AutogradHooks, reached
from symshape.tracing.intercept.torch_functions.whole_composites import OneOfSeveral, WholeOp
from symshape.tracing.op_arguments import OpArguments
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState
from symshape.tracing.traced_modes import outside_transforms
from symshape.user_code import Location, user_location

_OWN = frozenset((MadeByAutograd, MadeInside, MadeOfParts, OneOfSeveral, WholeOp))
_OWN_NODES = frozenset(f"{each.__name__}Backward" for each in _OWN)
_PLAIN = frozenset(
    (
        *(int, float, bool, str, type(None), torch.SymInt, torch.SymFloat, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    )
)
"""The types of arguments besides tensors that a function may get; subclasses (an enumeration) do
not count.
"""
_ADVICE = "call it under torch.no_grad(), or train through torch.compile(backend='symshape')"


class OwnHistories:
    """The autograd calls of one trace's program.

    Args:
        trace: the trace.
        arguments: converts the arguments of calls.

    Attributes:
        told: the values on which the program set ``requires_grad``.
        spent: the histories that ran backward.
    """

    def __init__(self, trace: TraceState, arguments: OpArguments, told: set[Value]) -> None:
        self._trace = trace
        self._arguments = arguments
        self.told = told
        self._tellings: dict[Value, list[Node]] = {}
        self._applied: list[Applied] = []
        self._needed: set[Value] = set()
        self._called: list[Applied] = []
        self._by_operators: list[Any] = []
        self._hooks = AutogradHooks(lambda: trace.steps)
        self._transformed = is_transformed()
        self.spent = SpentHistories(trace)

    def forget(self) -> None:
        """Release autograd's nodes after the trace: they would keep the parameters alive that they
        lead to.
        """
        self._applied, self._called, self._by_operators = [], [], []
        self._hooks, self.spent = (
            AutogradHooks(lambda: self._trace.steps),
            SpentHistories(self._trace),
        )

    # -- while the program runs
    def looks(self) -> tuple[int, ...]:
        """Return a count of all autograd calls of the program."""
        return (
            len(self.told),
            len(self._tellings),
            len(self._applied),
            self.spent.runs,
            *self._hooks.looks(),
        )

    def transformed(self) -> bool:
        """Return whether a transform of ``torch.func`` is around the call; later calls must answer
        the same.
        """
        for position, _ in islice(self._trace.originals.values(), 1):
            self._trace.questions[Question(position, TRANSFORMED)] = self._transformed
        return self._transformed

    def hooks_of_real_tensors(self) -> dict[Any, Any]:
        """Return the replacements for methods that register hooks on tensors around the program."""
        return self._hooks.of_real_tensors()

    def hooked(self, tensor: SymbolicTensor, *, retained: bool) -> None:
        """Record that a tensor that the program made has a hook, or retains its gradient."""
        self._hooks.on_tensor(tensor, retained)

    def require(self, tensor: SymbolicTensor, required: bool) -> None:
        """Record a call of ``requires_grad_`` on a tensor that the program made."""
        self.told.add(tensor._value)
        node = self._telling(tensor._value, required, user_location())
        self._trace.steps.append(node)
        self._tellings.setdefault(tensor._value, []).append(node)

    def tell(self, tensor: torch.Tensor, required: bool) -> None:
        """Record a call of ``requires_grad_`` on a tensor around the program."""
        value = self._trace.lifting.lift(tensor).value
        self._trace.steps.append(self._telling(value, required, user_location()))

    @contextmanager
    def functions_watched(self) -> Iterator[None]:
        """Record calls of ``autograd.Function`` inside, however ``apply`` is reached, and hooks and
        backward passes.
        """
        with calls_watched(self._begun), self._hooks.watched(), self.spent.watched():
            yield

    def _begun(self, cls: Any) -> End | None:
        """Begin to record a call of a function's ``apply``; return the callback for its end."""
        if cls in _OWN:
            return None
        transformed = self.transformed()  # a transform would see the ops, not the function
        start, location, autocast = len(self._trace.steps), user_location(), dispatch.any_autocast()
        modes = self._trace.modes_now()  # inside the call gradients are not recorded

        def ended(
            args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Any
        ) -> None:
            node = node_of(result) if known is None else known
            inside = self._trace.steps[start:]
            if node is not None and is_of_operator(inside, cls):
                for step in inside:  # just one, as the operator was called
                    step.grad, step.inference = modes
                self._by_operators.append(node)
            elif node is not None or (transformed and made_in(inside)):
                end = len(self._trace.steps)
                try:
                    if autocast:
                        raise NotLive("under autocast")
                    live = self._live(cls, args, kwargs, result, (start, end), location)
                    live.grad, live.inference = modes
                    found: Node | str = live
                except NotLive as reason:
                    found = str(reason)
                self._applied.append(Applied(cls.__name__, node, start, end, found))

        return ended

    def _live(
        self,
        cls: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        region: tuple[int, int],
        location: Location | None,
    ) -> Node:
        """Return the call itself as a step.

        Raises:
            NotLive: another call might differ from the steps that the trace has of this one.
        """
        leaves, tree = pytree.tree_flatten(
            (args, kwargs), is_leaf=lambda each: type(each) is torch.Size
        )
        values = [self._argument(each) for each in leaves]
        inside = self._trace.steps[slice(*region)]
        made = made_in(inside)
        items = result if isinstance(result, tuple) else (result,)
        paths: dict[Value, Path] = {}
        for position, item in enumerate(items):
            if isinstance(item, torch.Tensor):
                if type(item) is not SymbolicTensor or item._value not in made:
                    raise NotLive("which returns a tensor that it did not make")
                paths.setdefault(item._value, (position,) if isinstance(result, tuple) else ())
            elif isinstance(item, (list, tuple, dict)):
                raise NotLive("which returns tensors in containers")
        sizes = frozenset(i for i, each in enumerate(leaves) if type(each) is torch.Size)
        op: Any = LiveCall(cls.apply, tree, list(paths.values()), f"{cls.__name__}.apply", sizes)
        outputs = tuple(paths)
        return Node(op, tuple(values), {}, outputs, False, location=location)

    def _argument(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) and type(leaf) not in _PLAIN:
            raise NotLive(f"which is given a {type(leaf).__name__}")
        return self._arguments.both((leaf,))[1][0]

    def _telling(self, value: Value, required: bool, location: Location | None) -> Node:
        tree = pytree.tree_structure(((value, required), {}))
        op: Any = LiveCall(torch.Tensor.requires_grad_, tree, [], "requires_grad_")
        return Node(
            op, (value, required), {}, (), False, (), *self._trace.modes_now(), location=location
        )

    # -- at its end
    def settle(self, histories: Sequence[Any], changes: Sequence[Any]) -> None:
        """Check the histories that results depend on; find the functions that the graph has to
        call.

        Args:
            histories: autograd's nodes of results.
            changes: the program's writes to outside objects, at its end.

        Raises:
            UnsupportedError: no graph could make such a call.
        """
        if self._hooks.retains(histories):
            raise UnsupportedError(
                "the function returns, or stores outside, a tensor that retains its gradient "
                "(Tensor.retain_grad()), which a compiled graph would not set; return the gradient",
                reason=Reason.LOST_GRADIENTS,
            )
        nodes = list(reached(each for each in histories if each not in self.spent))
        for node in nodes:
            own = type(node).__name__ in _OWN_NODES or any(
                each is node for each in self._by_operators
            )
            if isinstance(node, NODE) and not own:
                self._call(self._of(node))
            leaf = getattr(node, "variable", None)
            if type(leaf) is SymbolicTensor and leaf._value not in self._trace.arguments:
                self.need(leaf._value)
        self._check_hooks(nodes, changes)
        for each in outermost(self._applied) if self._transformed else ():
            self._call(each)
        if self._called and changes:  # each call would repeat a write of the function
            self._refuse(self._called[0].name, "besides writing to what is outside")

    def _check_hooks(self, nodes: Collection[Any], changes: Sequence[Any]) -> None:
        """Check the side effects of a backward that runs outside, after the call.

        Raises:
            UnsupportedError: it calls hooks of the program's, or recomputes steps that also write.
        """
        leaves = [
            each.tensor for each in self._trace.lifting.lifted.values() if each.tensor.requires_grad
        ]
        what = "registers hooks on a tensor created outside it" if self._hooks.left else ""
        # autograd has no node for others
        tracked = (leaf for leaf in leaves if not leaf.is_inference())
        if self._hooks.on(chain(nodes, map(node_for, tracked))):
            what = (
                "registers hooks on autograd nodes (a module's backward hooks do), or on "
                "tensors that it creates"
            )
        elif nodes and self._hooks.own:
            what = "registers saved-tensor hooks (torch.autograd.graph.saved_tensors_hooks)"
        elif nodes and any(
            changes or not_twice(self._trace.steps[slice(*each)]) for each in self._hooks.again
        ):
            what = (
                "writes to a tensor or variable outside it, inside or beside a checkpoint, "
                "whose backward writes again"
            )
        if what:
            raise UnsupportedError(
                f"the function {what}, which a compiled graph would not repeat in backward; "
                f"{_ADVICE}",
                reason=Reason.HOOKS,
            )

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise UnsupportedError(
            f"the function uses the autograd.Function {name} {why}, on tensors that require "
            "gradients, whose "
            f"backward a compiled graph would lose; {_ADVICE}",
            reason=Reason.LOST_GRADIENTS,
        )

    def _of(self, node: Any) -> Applied:
        """Return the call that made an autograd node."""
        applied = next((each for each in self._applied if each.node is node), None)
        if applied is None:
            self._refuse(
                type(node).__name__.removesuffix("Backward"), "by another way than apply()"
            )
        return applied

    def _call(self, applied: Applied) -> None:
        """Have the graph make this call."""
        if isinstance(applied.live, str):
            self._refuse(applied.name, applied.live)
        if applied not in self._called:
            self._called.append(applied)

    def need(self, value: Value) -> None:
        """Record that a result depends on a tensor on which the program set ``requires_grad``.

        Raises:
            UnsupportedError: it is a constant, which a graph shares between calls; or the flag was
                set unseen, inside a gradient of the program's own.
        """
        constant = any(each.value is value for each in self._trace.lifting.lifted.values())
        if constant or (self._applied and value not in self._tellings):
            raise UnsupportedError(
                "the function returns a result that depends on a "
                f"{'constant' if constant else 'tensor'} to which "
                "it applied requires_grad_(), which a compiled graph would not repeat; return "
                "detached results, or pass that tensor as an argument",
                reason=Reason.LOST_GRADIENTS,
            )
        self._needed.add(value)

    def steps(self, outputs: Sequence[Any]) -> list[Step]:
        """Return the steps of the trace, with the autograd calls that the results need and without
        the others.

        Raises:
            UnsupportedError: a function would have to be called whose steps the graph needs.
        """
        if not self._tellings and not self._called and not self._needed:
            return self._trace.steps
        found: list[Step] = list(self._trace.steps)
        found = self._with_calls(found, outputs) if self._called else found
        idle = {
            id(each)
            for value, of in self._tellings.items()
            if value not in self._needed
            for each in of
        }
        untold = self._needed - self._tellings.keys()
        kept: list[Step] = []
        for step in found:
            if id(step) in idle:
                continue
            kept.append(step)
            # made with the flag: torch.zeros(3, requires_grad=True)
            if untold and isinstance(step, Node):
                kept += [
                    self._telling(each, True, step.location)
                    for each in step.outputs
                    if each in untold
                ]
        return kept

    def _with_calls(self, steps: list[Step], outputs: Sequence[Any]) -> list[Step]:
        for each in sorted(self._called, key=lambda each: each.start, reverse=True):
            assert isinstance(each.live, Node)
            inside = steps[each.start : each.end]
            hidden = made_in(inside) - set(each.live.outputs)
            rest = [*steps[: each.start], *steps[each.end :]]
            read = {value for step in rest if isinstance(step, Node) for value in step.reads}
            reason = not_again(inside) or (
                "" if hidden.isdisjoint(read | set(values_in(outputs))) else _INSIDE
            )
            if reason:
                self._refuse(each.name, reason)
            steps = [*steps[: each.start], each.live, *steps[each.end :]]
        return steps


_INSIDE = "which saves tensors of its own that the program then computes gradients with"


# -- Calls of ``autograd.Function`` in a trace: their records, and whether a graph can call them.
NODE = torch.autograd.function.BackwardCFunction
# gradients of custom operators: an operator in a graph calls its own
_OF_OPERATORS = "torch._library.autograd"


@attrs.frozen(eq=False)
class Applied:
    """A call of an ``autograd.Function``: its range of steps, and the node that calls the function
    in a graph.

    Attributes:
        name: the function's name.
        node: the autograd node of its results; None under a transform that hides the history from
            the trace.
        start, end: the range of steps that it made.
        live: a node that makes the call, or the reason why a graph cannot make it.
    """

    name: str
    node: Any
    start: int
    end: int
    live: Node | str


def outermost(applied: Iterable[Applied]) -> list[Applied]:
    """Return the calls that no other call contains, in the order in which they ended."""
    found: list[Applied] = []
    for each in reversed(list(applied)):
        if not found or each.start < found[-1].start:
            found.append(each)
    return found[::-1]


def is_of_operator(inside: Sequence[Step], cls: Any) -> TypeGuard[Sequence[Node]]:
    """Return whether a function belongs to a custom operator (``register_autograd``), which a graph
    calls instead.
    """
    if getattr(cls.forward, "__module__", "") != _OF_OPERATORS or [
        type(each) for each in inside
    ] != [Node]:
        return False
    op: Any = inside[0].op  # type: ignore[union-attr]
    # gradients that exchange data were never tested on several ranks
    return bool(op.namespace != COLLECTIVES)


class NotLive(Exception):
    """The reason why a graph cannot call an ``autograd.Function``."""


def node_of(result: Any) -> Any:
    """Return the autograd node of a function's result if an ``autograd.Function`` made it; else
    None.
    """
    for each in result if isinstance(result, tuple) else (result,):
        if type(each) is SymbolicTensor:
            with dispatch.DisableTorchFunction():  # our own read, not the program's
                node: Any = each.grad_fn
            if isinstance(node, NODE):
                return node
    return None


def node_for(leaf: torch.Tensor) -> Any:
    """Return the autograd node of a tensor: its history, or the gradient accumulator of a leaf.

    Transforms (``torch.func.grad`` around the call) are left: inside, a view of the leaf has a
    history of their level.
    """
    with outside_transforms(), torch.inference_mode(False), torch.enable_grad():
        return leaf.grad_fn or leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


def made_in(steps: Sequence[Step]) -> set[Value]:
    """Return the values that steps make."""
    return {
        value
        for step in steps
        if isinstance(step, Node)
        for value in step.outputs
        if value is not None
    }


def not_again(inside: Sequence[Step]) -> str:
    """Return why a function cannot be called in place of these steps; empty if it can."""
    if any(not isinstance(step, Node) or step.bindings for step in inside):
        return "which reads data"
    return not_twice(inside)


def not_twice(inside: Sequence[Step]) -> str:
    """Return why steps may behave differently when eager's backward runs them again; empty if they
    do not.
    """
    nodes = [step for step in inside if isinstance(step, Node)]
    made = made_in(inside)
    outside = {id(value.storage) for node in nodes for value in node.reads if value not in made}
    for node in nodes:
        op: Any = node.op
        if isinstance(op, LiveCall) and not isinstance(op, ControlFlow) and not keeps_state(node):
            return "which uses gradients of its own"
        if any(id(value.storage) in outside for value in written_values(node)):
            return "which writes to tensors that it is given"
    return ""
