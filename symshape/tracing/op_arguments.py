"""The arguments of an op call in two forms: for the rule (specs and sizes) and for the graph
(values and terms); the real tensors that a program reads get values, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms import boolean
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.calls.arguments import computes_as_torch_tensor
from symshape.errors import Reason, SymShapeError, UnsupportedError
from symshape.graph.steps import Lifted, Value
from symshape.torch_internals import autograd, dispatch
from symshape.tracing.intercept.torch_functions.random_state import address
from symshape.tracing.state.instrument.hooks import tell
from symshape.tracing.state.record.class_lookups import special_methods
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace


class OpArguments:
    """A converter of op arguments in a trace; refuses arguments that a graph cannot hold.

    Args:
        trace: the trace that they belong to.
        lifting: gives real tensors their values.
        saved: results that autograd saved.
        generators: the addresses of the random generators that existed before the trace; None for
            any.

    Attributes:
        seen: if not None, collects the tensors that were passed, by their values.
    """

    def __init__(
        self,
        trace: Trace,
        lifting: Lifting,
        saved: SavedResults,
        generators: Collection[int] | None,
    ) -> None:
        self._trace = trace
        self._lifting = lifting
        self._saved = saved
        self._generators = generators
        self.seen: dict[Value, SymbolicTensor] | None = None

    def both(self, args: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """Return positional arguments for the rule, and for the graph."""
        trace = self._trace
        specs: list[Any] = []
        values: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is SymbolicTensor:
                if arg._tracer is not trace:
                    raise UnsupportedError(
                        "the program uses a tensor that belongs to an earlier trace, whose "
                        "function stored it outside itself; return that tensor from the function "
                        "and pass it as an argument",
                        reason=Reason.OTHER_TRACE,
                    )
                specs.append(arg._spec)
                values.append(self._saved.of(arg) if torch.is_grad_enabled() else arg._value)
                if self.seen is not None:
                    self.seen[values[-1]] = arg
            elif kind is int or kind is float or arg is None or kind is bool:
                specs.append(arg)
                values.append(arg)
            elif kind is list or kind is tuple or kind is torch.Size:
                inner, inner_values = self.both(arg)
                specs.append(inner)
                values.append(inner_values)
            elif isinstance(arg, torch.Tensor):
                value = self._lifting.lift(arg).value
                specs.append(value.spec)
                values.append(value)
            elif isinstance(arg, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                spec, value = _scalar(arg)
                specs.append(spec)
                values.append(value)
            else:
                if type(arg) is torch.Generator:
                    self._check_generator(arg)
                specs.append(arg)
                values.append(arg)
        return specs, tuple(values)

    def keywords(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return keyword arguments for the rule, and for the graph."""
        specs, values = self.both(tuple(kwargs.values()))
        return dict(zip(kwargs, specs, strict=True)), dict(zip(kwargs, values, strict=True))

    def _check_generator(self, generator: torch.Generator) -> None:
        known = self._generators
        if known is not None and address(generator) not in known:
            where = self._trace.env.origin()
            raise UnsupportedError(
                f"the function creates a torch.Generator (used at {where}), which a compiled graph "
                "would not create again: its numbers would continue where they should start over; "
                "create it outside and pass it as an argument",
                reason=Reason.GENERATOR,
            )


def _scalar(arg: torch.SymInt | torch.SymFloat | torch.SymBool) -> tuple[Any, Any]:
    """Return a symbolic scalar for the rule and for the graph; a plain number where it is
    constant.
    """
    node = arg.node
    if not isinstance(node, (IntNode, FloatNode, BoolNode)):
        raise SymShapeError(
            "an argument of an op is a torch.SymInt of another tracer (torch.compile, "
            "torch.export); pass plain integers, or trace outside that tracer"
        )
    term = node.term
    if isinstance(term, Term):
        if term.op is Op.CONST:
            return term.value, term.value
        if term is boolean.TRUE or term is boolean.FALSE:
            return term is boolean.TRUE, term is boolean.TRUE
    elif isinstance(term, float):
        return term, term
    return node, term


# -- Tensors that autograd saved and hands out again, whose history a graph would lose.
#
# Autograd saves a result as a detached copy and restores the copy's history where backward needs
# it. The trace sees the detaching, twice, and nothing of the history. Without gradients of
# gradients this does not matter. With them (``create_graph=True``), the graph has to use the
# result itself.
_History = tuple[int, int]
"""The sequence number of the autograd node that made a tensor (in this thread), and which result it
is.
"""


@attrs.define(eq=False)
class _Detached:
    """A detached value.

    Attributes:
        root: the value with a history, of which this is a copy (or a copy of a copy …); None where
            there is none.
        history: the history of ``root``.
        written: whether something wrote to its memory afterwards.
    """

    root: Value | None
    history: _History | None
    written: bool = False


class SavedResults:
    """The detached values of one trace.

    Args:
        told: the values on which the program itself set ``requires_grad``.
    """

    def __init__(self, told: Collection[Value]) -> None:
        self._told = told
        self._found: dict[Value, _Detached] = {}
        self._hooked = False  # whether hooks may recreate a leaf that autograd saved
        self._by_memory: dict[object, list[_Detached]] = {}

    def detached(self, value: Value, tensor: torch.Tensor, source: Value) -> None:
        """Record that ``value`` was made by detaching ``tensor``, whose value is ``source``."""
        history, before = _history(tensor), self._found.get(source)
        if history is not None:
            made = _Detached(source, history)
        else:
            made = (
                _Detached(None, None) if before is None else _Detached(before.root, before.history)
            )
        self._found[value] = made
        self._hooked |= autograd.saving._top_saved_tensors_default_hooks(True) is not None
        self._by_memory.setdefault(value.storage, []).append(made)

    def written(self, values: Iterable[Value]) -> None:
        """Record that an op wrote to these values: a detached one may have a history of its own
        now.
        """
        for value in values:
            for each in self._by_memory.get(value.storage, ()):
                each.written = True

    def of(self, tensor: SymbolicTensor) -> Value:
        """Return the value that a graph uses for a tensor, so that gradients flow through it.

        Raises:
            UnsupportedError: the tensor has a history, and which result of the graph's has the same
                is not known.
        """
        value = tensor._value
        found = self._found.get(value)
        if found is None or not _requires_grad(tensor) or value in self._told:
            return value
        history = _history(tensor)
        if (
            history is not None
            and history == found.history
            and not found.written
            and found.root is not None
        ):
            return found.root
        if history is None and not self._hooked:
            return value  # requires_grad was set unseen, in a gradient of the program's own
        if (
            history is not None
            and history != found.history
            and (found.written or _is_custom(tensor))
        ):
            return value
        raise UnsupportedError(
            "the function computes gradients of gradients through a tensor that autograd saved and "
            "that was recomputed or overwritten since (a checkpoint, "
            "torch.autograd.graph.saved_tensors_hooks); a compiled graph would lose them; compute "
            "them without the checkpoint or the hooks",
            reason=Reason.LOST_GRADIENTS,
        )


def _requires_grad(tensor: SymbolicTensor) -> bool:
    with dispatch.DisableTorchFunction():  # our own read, not the program's
        return tensor.requires_grad


def _history(tensor: torch.Tensor) -> _History | None:
    with dispatch.DisableTorchFunction():
        node = tensor.grad_fn
        return None if node is None else (node._sequence_nr(), tensor.output_nr)


def _is_custom(tensor: SymbolicTensor) -> bool:
    """Return whether an ``autograd.Function`` made a tensor: it may return what it detached."""
    with dispatch.DisableTorchFunction():
        return isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction)


# -- The real tensors that a program reads, and the constants in its code.
_SMALL_CONSTANT = 256  # elements of a constant whose value is stored for .item()


class Lifting:
    """The real tensors of one trace, each with one value in the graph.

    Attributes:
        lifted: the lifted tensors, by ``id`` of the real tensor.
        tensors: the same tensors, by their values.
        constants: the ones among them that are constants in the program's code.
        in_memory: the number of these tensors in each storage, by its address.
    """

    def __init__(
        self, new_value: Callable[[TensorSpec, object], Value], names: Mapping[int, str]
    ) -> None:
        self.lifted: dict[int, Lifted] = {}
        self.tensors: dict[Value, torch.Tensor] = {}
        self.constants: dict[Value, torch.Tensor] = {}
        self.in_memory: Counter[int] = Counter()
        self._new_value = new_value
        self._names = names
        self._storages: dict[int, object] = {}
        self._made: dict[int, list[SymbolicTensor]] = {}

    def lift(self, tensor: torch.Tensor, constant: bool = False) -> Lifted:
        """Return the graph's entry for a real tensor that the program reads."""
        found = self.lifted.get(id(tensor))
        if found is None:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                if not computes_as_torch_tensor(type(tensor)):
                    raise UnsupportedError(
                        f"the program reads a {type(tensor).__name__}, which cannot be traced",
                        reason=Reason.LAYOUT,
                    )
                # subclasses may be changed later to override torch's functions
                tell(special_methods, type(tensor))
            if tensor.is_nested:
                raise UnsupportedError(
                    "the program reads a nested tensor, which cannot be traced",
                    reason=Reason.LAYOUT,
                )
            if tensor.layout is not torch.strided:
                raise UnsupportedError(
                    f"the program reads a tensor of layout {tensor.layout}; only strided is "
                    "supported",
                    reason=Reason.LAYOUT,
                )
            try:
                with dispatch.DisableTorchFunction():  # our own read, not the program's
                    key = tensor.untyped_storage()._cdata
            except (RuntimeError, NotImplementedError) as error:
                raise UnsupportedError(
                    "the program reads a tensor without storage", reason=Reason.LAYOUT
                ) from error
            storage = self._storages.setdefault(key, object())
            name = self._names.get(id(tensor)) or f"constant{len(self.lifted)}"
            value = self._new_value(TensorSpec.of(tensor), storage)
            found = self.lifted[id(tensor)] = Lifted(name, tensor, value, constant)
            self.tensors[value] = tensor
            self.in_memory[key] += 1
            if constant:
                self.constants[value] = tensor
        return found

    def constant(self, tensor: torch.Tensor, trace: Trace) -> SymbolicTensor:
        """Return a stand-in for a constant in the code (``torch.tensor([1, 2])``), which each run
        copies afresh.
        """
        with dispatch.modes_disabled():
            kept = tensor.detach().clone()
        value = self.lift(kept, constant=True).value
        made = SymbolicTensor.make(value.spec, value, trace)
        if kept.numel() <= _SMALL_CONSTANT:
            made._known = kept
            self._made.setdefault(id(value.storage), []).append(made)
        return made

    def let_go(self) -> None:
        """Release the tensors after the trace: objects that live on for their sizes keep no tensor
        alive.
        """
        self.lifted, self.tensors, self.constants, self._made = {}, {}, {}, {}

    def forget(self, written: Iterable[Value]) -> None:
        """Forget the known values of constants in written memory, whichever tensor views it."""
        for value in written:
            for tensor in self._made.pop(id(value.storage), ()):
                tensor._known = None
