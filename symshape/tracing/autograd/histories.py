"""The autograd history of symbolic tensors: of arguments that are no leaves, of subgraphs, and of
results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from symshape.calls.questions import HAS_HISTORY, Question
from symshape.errors import Reason, UnsupportedError
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import Node, Value
from symshape.torch_internals import dispatch, pytree
from symshape.tracing.intercept.autograd import reached
from symshape.tracing.intercept.exchanges import exchanged, own
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import of_symbols_if_transformed
from symshape.tracing.restart import needs_loops
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState


class MadeByAutograd(torch.autograd.Function):
    """Give the symbolic tensor of an argument that is no leaf an autograd history."""

    @staticmethod
    def forward(ctx: Any, tensor: SymbolicTensor) -> SymbolicTensor:
        """Return another symbolic tensor of the same value."""
        return SymbolicTensor.make(tensor._spec, tensor._value, tensor._tracer)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradient unchanged."""
        return gradient


def histories(tracer: TraceState, result: Any) -> list[Any]:
    """Return the autograd nodes of the results.  Must be called within the trace: for a view
    autograd runs ops anew.
    """
    with dispatch.DisableTorchFunction(), tracer.inferring():
        return [
            leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, SymbolicTensor)
        ]


class MadeInside(torch.autograd.Function):
    """Give a symbolic tensor inside a subgraph a history that leads to the tensors which the
    subgraph is run with.
    """

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], SymbolicTensor], *tensors: torch.Tensor
    ) -> SymbolicTensor:
        """Return the symbolic tensor."""
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse a backward pass inside of a subgraph; the subgraph's results do not lead here.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "the function computes gradients through a part of it that runs again and again",
            reason=Reason.LOST_GRADIENTS,
        )


class MadeOfParts(torch.autograd.Function):
    """Give the results of a control-flow node a history that leads to the tensors which its
    subgraphs read.
    """

    @staticmethod
    def forward(
        ctx: Any,
        make: Callable[[], list[SymbolicTensor]],
        floating: Sequence[bool],
        name: str,
        *tensors: torch.Tensor,
    ) -> Any:
        """Return the results; ``floating`` says which of them have gradients."""
        ctx.name = name
        made = make()
        ctx.mark_non_differentiable(
            *(each for each, is_so in zip(made, floating, strict=True) if not is_so)
        )
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse a backward pass through the node: the trace does not know which subgraph runs, and
        how often.

        Raises:
            Restart: always, with loops unrolled.
        """
        raise needs_loops(
            f"the function computes gradients of a {ctx.name} itself, of which a trace does not "
            "know what it runs; call backward outside of the function, or train through "
            "torch.compile(backend='symshape')"
        )


# -- Histories that ran backward inside a program and freed their saved tensors: another backward
# fails.
#
# Training steps return such a loss. A graph that kept its ops' history would keep their saved
# tensors, step after step.
class _Spent(torch.autograd.Function):
    """The ``autograd.Function`` of a tensor whose history has run backward."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
        """Return the same memory; the leaves are inputs only so that gradients lead to them."""
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Raise the error that eager raises."""
        raise RuntimeError(
            "Trying to backward through the graph a second time: the compiled function ran "
            "backward through what this result was computed by; specify retain_graph=True there if "
            "you need to backward through it again"
        )


def as_spent(tensor: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
    """Return the tensor with a history that leads to the same leaves, saves nothing, and cannot run
    backward.
    """
    # in the modes where the program ran backward
    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(each for each in leaves if each.requires_grad) or (
            torch.empty((), requires_grad=True),
        )
        return _Spent.apply(tensor.detach(), *leaves)  # type: ignore[no-any-return]


class SpentHistories:
    """The autograd nodes of one trace that ran backward and freed their saved tensors.

    Attributes:
        runs: how often a backward pass ran.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self.runs = 0
        self._nodes: dict[int, Any] = {}
        self._shown: dict[Value, Value] = {}

    def __contains__(self, node: Any) -> bool:
        """Return whether a backward pass from a node would reach a node that freed its saved
        tensors.
        """
        return bool(self._nodes) and any(id(each) in self._nodes for each in reached([node]))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the backward passes that this thread runs inside.

        (Where torch's Python code hands over to the engine, a private name; checked on 2.11 to
        2.13.)
        """
        engine = own(torch.autograd, "_engine_run_backward")
        thread = threading.get_ident()

        def run(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                self.runs += 1
                self._check_given(outputs, args[3])
            with of_symbols_if_transformed():
                result = engine(outputs, *args, **kwargs)
            kept, inputs = args[1], args[3]
            if not kept and threading.get_ident() == thread:
                self._note(outputs, inputs)
            return result

        with exchanged((torch.autograd, "_engine_run_backward", run)):
            yield

    def output(self, tensor: SymbolicTensor, value: Value) -> Value:
        """Return the value that a graph returns for a tensor; a history that ran backward becomes a
        spent one.
        """
        node = _node_of(tensor)
        if node is None or node not in self:
            return value
        if value not in self._shown:
            shown = self._shown[value] = self._trace.new_value(value.spec, value.storage)
            args = (value, *self._leaves(node))
            tree = pytree.tree_structure((args, {}))
            op: Any = LiveCall(as_spent, tree, [()], "as_spent", sees_history=False)
            self._trace.steps.append(Node(op, args, {}, (shown,), False))
        return self._shown[value]

    def _leaves(self, node: Any) -> list[Value]:
        """Return the outer tensors that a history leads to, and all arguments if one of them is no
        leaf.
        """
        found: set[Value] = set()
        for each in reached([node]):
            leaf = getattr(each, "variable", None)
            if type(leaf) is SymbolicTensor:
                found |= {leaf._value} & self._trace.arguments
            elif isinstance(leaf, torch.Tensor):
                found.add(self._trace.lifting.lift(leaf).value)
            elif type(each).__name__ == f"{MadeByAutograd.__name__}Backward":
                found |= self._trace.arguments
        return sorted(found, key=lambda value: value.index)

    def _check_given(self, outputs: Iterable[Any], inputs: Sequence[Any]) -> None:
        """Check gradients of outer tensors: backward may reach them through the history of another
        argument.

        Raises:
            UnsupportedError: an argument has a history.
        """
        arguments = self._trace.arguments
        outside = [
            each for each in inputs if type(each) is not SymbolicTensor or each._value in arguments
        ]
        if not outside:
            return
        alone = outside if len(outside) == 1 else ()  # its own history does not lead to it
        ends = {id(_node_of(each)) for each in alone}
        asked = {each._value for each in alone if type(each) is SymbolicTensor}
        for node in reached(map(_node_of, outputs)):
            made = (
                type(node).__name__ == f"{MadeByAutograd.__name__}Backward" and id(node) not in ends
            )
            leaf = getattr(node, "variable", None)
            if (
                type(leaf) is SymbolicTensor
                and leaf._value in self._trace.originals
                and leaf._value not in asked
            ):
                position, original = self._trace.originals[leaf._value]
                made = bool(self._trace.note(Question(position, HAS_HISTORY), original))
            if made:
                raise UnsupportedError(
                    "the function computes gradients of a tensor created outside it, and backward "
                    "passes through an argument that was itself computed with gradients: that part "
                    "of backward differs from call to call and is not in a compiled graph; detach "
                    "that argument, or compute it inside the function",
                    reason=Reason.LOST_GRADIENTS,
                )

    def _note(self, outputs: Iterable[Any], inputs: Sequence[Any]) -> None:
        nodes = list(reached(map(_node_of, outputs)))
        ran = _leading_to(inputs, nodes) if inputs else nodes
        self._nodes |= {id(each): each for each in ran if _saves(each)}


def _node_of(end: Any) -> Any:
    """Return the autograd node of a tensor, or of an edge of its graph."""
    with dispatch.DisableTorchFunction():
        return end.grad_fn if isinstance(end, torch.Tensor) else end.node


def _leading_to(inputs: Iterable[Any], nodes: Sequence[Any]) -> list[Any]:
    """Return the nodes that run to compute the gradients of these inputs."""
    leaves = {id(each) for each in inputs}
    ends = {id(_node_of(each)) for each in inputs}
    waiting = [
        each for each in nodes if id(each) in ends or id(getattr(each, "variable", None)) in leaves
    ]
    users: dict[int, list[Any]] = {}
    for each in nodes:
        for parent, _ in each.next_functions:
            users.setdefault(id(parent), []).append(each)
    found: dict[int, Any] = {}
    while waiting:
        for each in users.get(id(waiting.pop()), ()):
            if id(each) not in found:
                found[id(each)] = each
                waiting.append(each)
    return list(found.values())


def _saves(node: Any) -> bool:
    """Return whether an operator's node saves tensors for backward."""
    return any(
        name.startswith("_raw_saved_") for name in dir(type(node)) if name != "_raw_saved_tensors"
    )
