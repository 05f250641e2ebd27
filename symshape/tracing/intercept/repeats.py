"""Replayed calls: the same function on operands with the same metadata records the same nodes
again.

A model's layers call the same functions on tensors of the same sizes, strides and dtypes. The nodes
follow from these and from the facts, and facts only grow. So the first call's nodes are recorded
again with the new operands, without C++ and without asking the rules.

Calls are replayed only without gradients, and outside autocast, inference mode, ``torch.func`` and
the program's own modes. Only functions that depend on metadata alone qualify. The call must have
read no data, written to nothing, left no assertion and made no symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, Protocol

import attrs
import torch

from meta_fns import TensorSpec
from meta_fns.core import registry
from symshape.calls.arguments import TENSOR_TYPES
from symshape.graph.reshape_copies import ReshapeCopy
from symshape.graph.steps import Lifted, Node, Value, writes_nothing, written_values
from symshape.torch_internals import dispatch, operators
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace
from symshape.user_code import Location, user_location

_NAMES = """
add sub mul div true_divide neg pow exp sqrt rsqrt sin cos tanh abs __add__ __radd__ __sub__
__rsub__ __mul__ __rmul__ __truediv__ __pow__ __neg__ sigmoid relu gelu silu softmax log_softmax
layer_norm rms_norm mean sum where square relu6 hardtanh hardswish hardsigmoid leaky_relu elu mish
softplus conv1d conv2d conv3d conv_transpose1d conv_transpose2d batch_norm group_norm max_pool2d
avg_pool2d adaptive_avg_pool2d linear matmul __matmul__ mm bmm addmm baddbmm embedding dropout
masked_fill scaled_dot_product_attention view reshape flatten unflatten transpose permute t expand
unsqueeze squeeze contiguous to float type_as chunk split unbind cat stack __getitem__ eq ne lt le
gt ge logical_and logical_not clamp
"""
_PLACES: tuple[Any, ...] = (
    torch.Tensor,
    torch,
    operators.variable_functions,
    torch.nn.functional,
    operators.nn,
)
REPEATED = {
    getattr(place, name)
    for place in _PLACES
    for name in _NAMES.split()
    if callable(getattr(place, name, None))
}
"""Functions whose nodes depend on the metadata of tensors alone."""

_SAME = frozenset(
    (str, torch.dtype, torch.device, torch.memory_format, torch.layout, type(None), EllipsisType)
)
_NUMBERS = frozenset((int, bool))
_kernels: dict[Any, tuple[Callable[[], Any], ...]] = {
    torch.nn.functional.scaled_dot_product_attention: (
        *operators.attention_switches,
        lambda: tuple(operators.attention_order()),
    ),
    torch.nn.functional.batch_norm: (operators.is_cudnn,),
    torch.batch_norm: (operators.is_cudnn,),
}
"""Functions that choose among kernels, and the settings that the choice depends on."""
Key = tuple[Any, ...]


class Repeats:
    """The replayable calls of one trace so far."""

    def __init__(self, trace: RepeatingTrace) -> None:
        self._trace = trace
        self._specs: dict[Key, int] = {}
        self._numbers: dict[int, tuple[TensorSpec, int]] = {}
        self._calls: dict[Key, KeptCall | None] = {}

    def call(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        run: Callable[..., Any],
    ) -> Any:
        """Return ``run(*args, **kwargs)``, which stands for ``function``; replay the nodes of an
        earlier such call.
        """
        if not self._trace.is_plain() or dispatch.function_mode_count():
            return run(*args, **kwargs) if kwargs else run(*args)
        operands: list[torch.Tensor] = []
        try:
            key: Key = (id(function), self._parts(args, operands))
            if kwargs:
                key += (tuple(kwargs), self._parts(kwargs.values(), operands))
        except UnknownCallError:
            return run(*args, **kwargs) if kwargs else run(*args)
        kernels = _kernels.get(function)
        if kernels is not None:
            key += tuple([each() for each in kernels])
        known = self._calls.get(key, _UNSEEN)
        if known is _UNSEEN:
            return self._learnt(key, operands, lambda: run(*args, **kwargs or {}))
        if known is None:
            return run(*args, **kwargs) if kwargs else run(*args)
        return self._again(known, operands)

    # -- what a call depends on
    def _parts(self, args: Any, operands: list[torch.Tensor]) -> Key:
        """Return the parts of arguments that a call may depend on; tensors are appended to
        ``operands``.

        Raises:
            UnknownCallError: it may depend on more.
        """
        parts: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is SymbolicTensor:
                if arg._known is not None or arg._tracer is not self._trace:
                    raise UnknownCallError
                parts.append(self._tensor(arg, arg._spec, operands))
            elif kind in _NUMBERS:
                parts.append((kind, arg))
            else:
                parts.append(arg if kind in _SAME else self._part(arg, kind, operands))
        return tuple(parts)

    def _part(self, arg: Any, kind: type, operands: list[torch.Tensor]) -> Any:
        if kind is float:
            return kind, arg.hex()
        if kind is complex:
            return kind, arg.real.hex(), arg.imag.hex()
        if kind is torch.SymInt and type(arg.node) is IntNode:
            return arg.node
        if kind is tuple or kind is list or kind is torch.Size:
            return kind, self._parts(arg, operands)
        if kind is slice:
            return slice, self._parts((arg.start, arg.stop, arg.step), operands)
        if (
            kind in TENSOR_TYPES
            and not arg.is_neg()
            and not arg.is_conj()
            and arg.layout is torch.strided
        ):
            lifted = self._trace.lifting.lifted.get(id(arg))
            return self._tensor(
                arg, TensorSpec.of(arg) if lifted is None else lifted.value.spec, operands
            )
        raise UnknownCallError

    def _tensor(self, tensor: torch.Tensor, spec: TensorSpec, operands: list[torch.Tensor]) -> Key:
        position = len(operands)
        if position:
            value = tensor._value if type(tensor) is SymbolicTensor else tensor
            for earlier, other in enumerate(operands):
                if (other._value if type(other) is SymbolicTensor else other) is value:
                    if other is not tensor:
                        raise UnknownCallError
                    position = earlier
        if position == len(operands):
            operands.append(tensor)
        known = self._numbers.get(id(spec))
        return position, self._number(spec) if known is None else known[1], tensor.requires_grad

    def _number(self, spec: TensorSpec) -> int:
        """Return a number for the spec; equal specs get the same number."""
        same = (spec.sizes, spec.strides, spec.storage_offset, spec.dtype, spec.device, spec.layout)
        number = self._specs.setdefault(same, len(self._specs))
        self._numbers[id(spec)] = spec, number
        return number

    # -- the first call
    def _learnt(self, key: Key, operands: Sequence[torch.Tensor], run: Callable[[], Any]) -> Any:
        trace = self._trace
        start, copies, before = len(trace.steps), len(trace.copies), trace.looks()
        result = run()
        try:
            self._calls[key] = (
                None if before != trace.looks() else kept(trace, operands, result, start, copies)
            )
        except UnknownCallError:
            self._calls[key] = None
        return result

    # -- a later one
    def _again(self, known: KeptCall, operands: Sequence[torch.Tensor]) -> Any:
        return Replay(self._trace, operands, user_location(_OWN_FRAMES)).of(known)


_UNSEEN: Any = object()
_OWN_FRAMES = 2
"""The number of stack frames of a replayed call that are certainly ours: ``_again`` and ``call``.
"""


# -- The record of a call, from which its nodes are written down again with other operands (see
# :mod:`repeats`).
Output = tuple[TensorSpec, int | None, bool]
"""An output of an op: its metadata, the index of the argument that it views, whether it keeps those
strides.
"""


class Lifting(Protocol):
    """The real tensors of a trace and their values in the graph."""

    @property
    def lifted(self) -> Mapping[int, Lifted]:
        """The lifted tensors, by ``id`` of the real tensor."""

    def lift(self, tensor: torch.Tensor) -> Lifted:
        """Return the graph's value for a real tensor."""


class RepeatingTrace(Trace, Protocol):
    """The members of a tracer that replaying calls needs."""

    on_answer: Callable[[Callable[[Any], Any], torch.Tensor, Any, str], object]
    """Called with a question about a real tensor, the tensor, the answer, and a name."""

    @property
    def lifting(self) -> Lifting:
        """The real tensors and constants of the trace."""

    def is_plain(self) -> bool:
        """Return whether ops behave as at the start of the trace, and no other mode sees them."""

    def looks(self) -> tuple[int, ...]:
        """Return a count of everything that a call may do besides recording nodes."""

    def outputs_of(self, node: Node) -> tuple[Output | None, ...]:
        """Return a description of a node's outputs, for another node with outputs like these."""

    def written_again(self, node: Node, like: Sequence[Output | None]) -> None:
        """Add a node without outputs to the trace; its outputs are made like those described."""

    def stand_in(self, value: Value, tensor: SymbolicTensor | None = None) -> SymbolicTensor:
        """Return a symbolic tensor for a value, or make ``tensor`` keep the value alive."""


class UnknownCallError(Exception):
    """Arguments or results from which the effect of a call cannot be told."""


@attrs.frozen
class _Slot:
    """A placeholder in a stored node's arguments: the number of an operand or, after these, of an
    earlier value.
    """

    number: int


@attrs.frozen(eq=False)
class _Copy:
    """A reshape that copied: the node that it precedes, its source, its copy."""

    before: int
    source: int
    copy: int
    ask: Callable[[], object]
    by: str


_Places = Sequence[tuple[int, int]]


@attrs.frozen(eq=False)
class KeptCall:
    """The stored record of a call.

    Attributes:
        nodes: each node with slots in its arguments; the positions of slots among its positional
            arguments (None where some are nested deeper); a description of its outputs.
        held: for values whose lifetime ended in the call: the slot, and the slot of the last value
            made until then.
        living: the slots of values that lived on, except results.
        made: the slots of the returned values that the call made.
        results: the slots of all returned values.
        kind: the class of the returned container: a tuple, a list, or None for one tensor.
        copies: reshapes that copied.
    """

    nodes: Sequence[tuple[Node, _Places | None, Sequence[Output | None]]]
    held: Sequence[tuple[int, int]]
    living: Sequence[int]
    made: Sequence[int]
    results: Sequence[int]
    kind: type | None
    copies: Sequence[_Copy]


# -- the first call
def kept(
    trace: RepeatingTrace, operands: Sequence[torch.Tensor], result: Any, start: int, copies: int
) -> KeptCall:
    """Return the record of the call that made the trace's steps from ``start`` on, and the copying
    reshapes likewise.

    Raises:
        UnknownCallError: it did more than to write nodes that follow from the metadata of the
            operands.
    """
    slots: dict[Value, int] = {}
    for position, operand in enumerate(operands):
        if type(operand) is SymbolicTensor:
            slots[operand._value] = position
        elif id(operand) in trace.lifting.lifted:
            slots[trace.lifting.lifted[id(operand)].value] = position
    made: list[Value] = []
    nodes: list[tuple[Node, _Places | None, Sequence[Output | None]]] = []
    for step in trace.steps[start:]:
        if not isinstance(step, Node) or not _is_simple(step):
            raise UnknownCallError
        args, kwargs = (
            _with_slots(step.args, slots),
            {k: _with_slots(v, slots) for k, v in step.kwargs.items()},
        )
        node = Node(step.op, args, kwargs, (), step.single)
        nodes.append((node, _places_of(node), trace.outputs_of(step)))
        for output in step.outputs:
            if output is not None:
                slots[output] = len(operands) + len(made)
                made.append(output)
    kind = type(result) if type(result) in (tuple, list) else None
    returned = [_slot_of(each, operands, slots) for each in ((result,) if kind is None else result)]
    held = [
        (slots[each], _slot_at(each.held_until, made, slots))
        for each in made
        if each.held_until is not None
    ]
    living = [
        slots[each] for each in made if each.held_until is None and slots[each] not in returned
    ]
    shown = [slot for slot in dict.fromkeys(returned) if slot >= len(operands)]
    copied = [
        _Copy(each.step - start, slots[each.source], slots[each.copy], each.ask, each.by)
        for each in trace.copies[copies:]
    ]
    return KeptCall(nodes, held, living, shown, returned, kind, copied)


def _is_simple(node: Node) -> bool:
    """Return whether a node only computes values whose metadata follow from those of its arguments.

    The number of nonzero elements of a mask is known for that mask only, not for others with the
    same metadata.
    """
    rule = registry.lookup(node.op)
    if rule is None or rule.data_dependent:
        return False
    plain = (
        node.grad is None and node.inference is None and not node.untracked and node.leaves is None
    )
    return (
        plain
        and not node.bindings
        and (writes_nothing(node) or next(written_values(node), None) is None)
    )


def _with_slots(arg: Any, slots: Mapping[Value, int]) -> Any:
    if type(arg) is Value:
        if arg not in slots:
            raise UnknownCallError  # a constant of the function's own
        return _Slot(slots[arg])
    return tuple([_with_slots(each, slots) for each in arg]) if type(arg) is tuple else arg


def _places_of(node: Node) -> _Places | None:
    found: list[tuple[int, int]] = []
    for position, arg in enumerate(node.args):
        if type(arg) is _Slot:
            found.append((position, arg.number))
        elif type(arg) is tuple and _has_slots(arg):
            return None
    return None if _has_slots(tuple(node.kwargs.values())) else tuple(found)


def _has_slots(args: tuple[Any, ...]) -> bool:
    return any(type(arg) is _Slot or (type(arg) is tuple and _has_slots(arg)) for arg in args)


def _slot_of(result: Any, operands: Sequence[torch.Tensor], slots: Mapping[Value, int]) -> int:
    for position, operand in enumerate(operands):
        if operand is result:
            return position
    slot = slots.get(result._value, -1) if type(result) is SymbolicTensor else -1
    if slot < len(operands):
        raise UnknownCallError
    return slot


def _slot_at(index: int, made: Sequence[Value], slots: Mapping[Value, int]) -> int:
    return max(_slots_before(index, made, slots))


def _slots_before(index: int, made: Sequence[Value], slots: Mapping[Value, int]) -> Iterator[int]:
    return (slots[value] for value in made if value.index <= index)


# -- a later one
class Replay:
    """A replay of a stored call.

    Args:
        trace: the trace that records it.
        operands: the tensors of this call.
        location: the user's line.
    """

    __slots__ = ("_location", "_operands", "_trace", "_values")

    def __init__(
        self, trace: RepeatingTrace, operands: Sequence[torch.Tensor], location: Location | None
    ) -> None:
        self._trace = trace
        self._operands = operands
        self._location = location
        # an operand's value is found at its first use
        self._values: list[Value | None] = [None] * len(operands)

    def of(self, known: KeptCall) -> Any:
        """Record the stored call again; return its result."""
        trace, values, operands = self._trace, self._values, self._operands
        start = len(trace.steps)
        for node, places, like in known.nodes:
            if places is None:
                kwargs = (
                    dict(zip(node.kwargs, self._filled(node.kwargs.values()), strict=True))
                    if node.kwargs
                    else {}
                )
                args = self._filled(node.args)
                again = Node(node.op, args, kwargs, (), node.single, location=self._location)
            else:
                given = list(node.args)
                reads: list[Value] = []
                for position, slot in places:
                    value = values[slot] or self._value(slot)
                    given[position] = value
                    reads.append(value)
                again = node.again(tuple(given), tuple(reads), self._location)
            trace.written_again(again, like)
            values += [each for each in again.outputs if each is not None]
        shown = {slot: trace.stand_in(self._value(slot)) for slot in known.made}
        for slot, until in known.held:
            self._value(slot).held_until = self._value(until).index
        for slot in known.living:
            for tensor in shown.values():
                trace.stand_in(self._value(slot), tensor)
        for each in known.copies:
            source, copy = self._value(each.source), self._value(each.copy)
            trace.copies.append(
                ReshapeCopy(start + each.before, source, copy, each.ask, self._location, each.by)
            )
        results = [
            operands[slot] if slot < len(operands) else shown[slot] for slot in known.results
        ]
        return results[0] if known.kind is None else known.kind(results)

    def _value(self, slot: int) -> Value:
        """Return the value in a slot; a real tensor is lifted at its first use."""
        found = self._values[slot]
        if found is None:
            operand = self._operands[slot]
            found = (
                operand._value
                if type(operand) is SymbolicTensor
                else self._trace.lifting.lift(operand).value
            )
            self._values[slot] = found
        return found

    def _filled(self, args: Iterable[Any]) -> tuple[Any, ...]:
        """Return arguments with values in place of slots."""
        found: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is _Slot:
                found.append(self._value(arg.number))
            else:
                found.append(self._filled(arg) if kind is tuple else arg)
        return tuple(found)
