"""Calls that a trace has seen before: the same function on operands with the same metadata writes the same nodes.

A model's layers call the same functions on tensors of the same sizes, strides and dtypes.  What such a call does
follows from these and from the facts, and facts only grow: so the nodes of the first one are written down again with
the operands of the next, without C++ and without asking the rules once more.

Only without gradients, and outside of everything else that changes what a call does (autocast, inference mode,
``torch.func``, modes of the program's own); only functions that are known to depend on metadata alone, and only calls
that read no data, wrote to nothing, left no assertion and made no symbol.
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
from symshape.graph.reshape_copies import Copied
from symshape.graph.steps import Lifted, Node, Value, writes_nothing, written_values
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace
from symshape.user_code import user_location

_NAMES = frozenset(
    (
        *("add", "sub", "mul", "div", "true_divide", "neg", "pow", "exp", "sqrt", "rsqrt", "sin", "cos", "tanh", "abs"),
        *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__pow__", "__neg__"),
        *("sigmoid", "relu", "gelu", "silu", "softmax", "log_softmax", "layer_norm", "rms_norm", "mean", "sum"),
        *("where", "square", "relu6", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "mish", "softplus"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "batch_norm", "group_norm"),
        *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"),
        *("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "embedding", "dropout", "masked_fill"),
        *("scaled_dot_product_attention", "view", "reshape", "flatten", "unflatten", "transpose", "permute", "t"),
        *("expand", "unsqueeze", "squeeze", "contiguous", "to", "float", "type_as", "chunk", "split", "unbind", "cat"),
        *("stack", "__getitem__", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_not", "clamp"),
    )
)
_PLACES: tuple[Any, ...] = (torch.Tensor, torch, torch._C._VariableFunctions, torch.nn.functional, torch._C._nn)
REPEATED = {getattr(place, name) for place in _PLACES for name in _NAMES if callable(getattr(place, name, None))}
"""Functions of tensors' metadata alone."""

_SAME = frozenset((str, torch.dtype, torch.device, torch.memory_format, torch.layout, type(None), EllipsisType))
_NUMBERS = frozenset((int, bool))
_kernels: dict[Any, tuple[Callable[[], Any], ...]] = {
    torch.nn.functional.scaled_dot_product_attention: (
        torch._C._get_flash_sdp_enabled,
        torch._C._get_mem_efficient_sdp_enabled,
        torch._C._get_math_sdp_enabled,
        torch._C._get_cudnn_sdp_enabled,
        lambda: tuple(torch._C._get_sdp_priority_order()),
    ),
    torch.nn.functional.batch_norm: (torch._C._get_cudnn_enabled,),
    torch.batch_norm: (torch._C._get_cudnn_enabled,),
}
"""Functions that choose among kernels, and what they may choose."""
Key = tuple[Any, ...]


class Lifting(Protocol):
    """The real tensors of a trace."""

    @property
    def lifted(self) -> Mapping[int, Lifted]:
        """By ``id`` of the real tensor."""

    def lift(self, tensor: torch.Tensor) -> Lifted:
        """The graph's name for a real tensor."""


class RepeatingTrace(Trace, Protocol):
    """What is needed of a tracer here."""

    @property
    def lifting(self) -> Lifting:
        """Real tensors and constants."""

    def is_plain(self) -> bool:
        """Whether ops do what they did at the start of the trace, and nothing else sees them."""

    def looks(self) -> tuple[int, ...]:
        """A count of everything that a call may do besides writing nodes down."""

    def written_again(self, node: Node, like: Sequence[Value | None]) -> None:
        """Adds a node that lacks its outputs, which are like those of another one."""

    def stand_in(self, value: Value, tensor: SymbolicTensor | None = None) -> SymbolicTensor:
        """A symbolic tensor for a value; or one that the value lives as long as."""


class _Unknown(Exception):
    """Arguments or results that say nothing of what a call does."""


@attrs.frozen
class _Slot:
    """In the arguments of a node that is kept: which operand, or (after those) which value made by an earlier node."""

    number: int


@attrs.frozen(eq=False)
class _Copy:
    """A reshape that copied: before which of the nodes, of what, into what."""

    before: int
    source: int
    copy: int
    ask: Callable[[], object]


@attrs.frozen(eq=False)
class _Call:
    """What a call did.

    Attributes:
        nodes: with slots in their arguments.
        places: for each node, where in its arguments slots stand, and which; None where they stand deeper.
        held: for each value that the nodes make, the slot of the last one that was made while it was held; None if it
            lived on.
        results: the slots of what is returned.
        kind: what holds them: a tuple, a list, or None for one tensor.
        copies: reshapes that copied.
    """

    nodes: Sequence[Node]
    places: Sequence[tuple[tuple[int, int], ...] | None]
    held: Sequence[int | None]
    results: Sequence[int]
    kind: type | None
    copies: Sequence[_Copy]


class Repeats:
    """The calls of one trace so far."""

    def __init__(self, trace: RepeatingTrace) -> None:
        self._trace = trace
        self._specs: dict[Key, int] = {}
        self._numbers: dict[int, tuple[TensorSpec, int]] = {}
        self._calls: dict[Key, _Call | None] = {}

    def call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, run: Callable[..., Any]
    ) -> Any:
        """What ``run(*args, **kwargs)`` answers, which stands for ``function``; repeated if there was such a call."""
        if not self._trace.is_plain() or torch._C._len_torch_function_stack():
            return run(*args, **kwargs) if kwargs else run(*args)
        operands: list[torch.Tensor] = []
        try:
            key: Key = (id(function), self._parts(args, operands))
            if kwargs:
                key += (tuple(kwargs), self._parts(kwargs.values(), operands))
        except _Unknown:
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

    # -- what a call hangs on
    def _parts(self, args: Any, operands: list[torch.Tensor]) -> Key:
        return tuple([self._part(arg, operands) for arg in args])

    def _part(self, arg: Any, operands: list[torch.Tensor]) -> Any:
        """What of an argument a call may depend on; tensors go to ``operands``.

        Raises:
            _Unknown: it may depend on more.
        """
        kind = type(arg)
        if kind is SymbolicTensor:
            if arg._known is not None or arg._tracer is not self._trace:
                raise _Unknown
            return self._tensor(arg, arg._spec, operands)
        if kind in _SAME:
            return arg
        if kind in _NUMBERS:
            return kind, arg
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
        if kind in TENSOR_TYPES and not arg.is_neg() and not arg.is_conj() and arg.layout is torch.strided:
            lifted = self._trace.lifting.lifted.get(id(arg))
            return self._tensor(arg, TensorSpec.of(arg) if lifted is None else lifted.value.spec, operands)
        raise _Unknown

    def _tensor(self, tensor: torch.Tensor, spec: TensorSpec, operands: list[torch.Tensor]) -> Key:
        value = tensor._value if type(tensor) is SymbolicTensor else tensor
        position = len(operands)
        for earlier, other in enumerate(operands):
            if (other._value if type(other) is SymbolicTensor else other) is value:
                if other is not tensor:
                    raise _Unknown
                position = earlier
        if position == len(operands):
            operands.append(tensor)
        return position, self._number(spec), tensor.requires_grad

    def _number(self, spec: TensorSpec) -> int:
        """The same for specs that say the same."""
        found = self._numbers.get(id(spec))
        if found is not None:
            return found[1]
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
            self._calls[key] = None if before != trace.looks() else self._kept(operands, result, start, copies)
        except _Unknown:
            self._calls[key] = None
        return result

    def _kept(self, operands: Sequence[torch.Tensor], result: Any, start: int, copies: int) -> _Call:
        trace = self._trace
        slots: dict[Value, int] = {}
        for position, operand in enumerate(operands):
            if type(operand) is SymbolicTensor:
                slots[operand._value] = position
            elif id(operand) in trace.lifting.lifted:
                slots[trace.lifting.lifted[id(operand)].value] = position
        made: list[Value] = []
        nodes: list[Node] = []
        for step in trace.steps[start:]:
            if not isinstance(step, Node) or not _is_simple(step):
                raise _Unknown
            args, kwargs = _with_slots(step.args, slots), {k: _with_slots(v, slots) for k, v in step.kwargs.items()}
            nodes.append(Node(step.op, args, kwargs, step.outputs, step.single))
            for output in step.outputs:
                if output is not None:
                    slots[output] = len(operands) + len(made)
                    made.append(output)
        kind = type(result) if type(result) in (tuple, list) else None
        returned = [_slot_of(each, operands, slots) for each in ((result,) if kind is None else result)]
        held = [None if each.held_until is None else _slot_at(each.held_until, made, slots) for each in made]
        copied = [
            _Copy(each.step - start, slots[each.source], slots[each.copy], each.ask) for each in trace.copies[copies:]
        ]
        return _Call(nodes, [_places_of(node) for node in nodes], held, returned, kind, copied)

    # -- a later one
    def _again(self, known: _Call, operands: Sequence[torch.Tensor]) -> Any:
        trace = self._trace
        location = user_location(_OWN_FRAMES)
        values = _Values(operands, trace.lifting)
        start = len(trace.steps)
        for node, places in zip(known.nodes, known.places, strict=True):
            if places is None:
                kwargs = dict(zip(node.kwargs, values.filled(node.kwargs.values()), strict=True)) if node.kwargs else {}
                again = Node(node.op, values.filled(node.args), kwargs, (), node.single, location=location)
            else:
                args = list(node.args)
                reads = [values.value(slot) for _, slot in places]
                for (position, _), value in zip(places, reads, strict=True):
                    args[position] = value
                again = node.again(tuple(args), tuple(reads), location)
            trace.written_again(again, node.outputs)
            values.made += [each for each in again.outputs if each is not None]
        results: list[Any] = []
        shown: dict[int, SymbolicTensor] = {}
        for slot in known.results:
            if slot < len(operands):
                results.append(operands[slot])
                continue
            if slot not in shown:
                shown[slot] = trace.stand_in(values.made[slot - len(operands)])
            results.append(shown[slot])
        for slot, (value, until) in enumerate(zip(values.made, known.held, strict=True), len(operands)):
            if until is not None:
                value.held_until = values.made[until - len(operands)].index
            elif slot not in shown:
                for tensor in shown.values():
                    trace.stand_in(value, tensor)
        for each in known.copies:
            source, copy = values.value(each.source), values.value(each.copy)
            trace.copies.append(Copied(start + each.before, source, copy, each.ask, location))
        return results[0] if known.kind is None else known.kind(results)


_UNSEEN: Any = object()
_OWN_FRAMES = 2
"""Of a call that are ours, for sure: those of ``_again`` and ``call``."""


def _places_of(node: Node) -> tuple[tuple[int, int], ...] | None:
    found: list[tuple[int, int]] = []
    for position, arg in enumerate(node.args):
        if type(arg) is _Slot:
            found.append((position, arg.number))
        elif type(arg) is tuple and _has_slots(arg):
            return None
    return None if _has_slots(tuple(node.kwargs.values())) else tuple(found)


def _has_slots(args: tuple[Any, ...]) -> bool:
    return any(type(arg) is _Slot or (type(arg) is tuple and _has_slots(arg)) for arg in args)


class _Values:
    """The values of a call's slots; a real tensor gets its own where it is first used."""

    def __init__(self, operands: Sequence[torch.Tensor], lifting: Lifting) -> None:
        self._operands = operands
        self._lifting = lifting
        self.made: list[Value] = []

    def value(self, slot: int) -> Value:
        """The value in a slot."""
        if slot >= len(self._operands):
            return self.made[slot - len(self._operands)]
        operand = self._operands[slot]
        return operand._value if type(operand) is SymbolicTensor else self._lifting.lift(operand).value

    def filled(self, args: Iterable[Any]) -> tuple[Any, ...]:
        """Arguments with values in place of slots."""
        found: list[Any] = []
        for arg in args:
            kind = type(arg)
            if kind is _Slot:
                found.append(self.value(arg.number))
            else:
                found.append(self.filled(arg) if kind is tuple else arg)
        return tuple(found)


def _is_simple(node: Node) -> bool:
    """Whether a node does nothing but compute its values, whose metadata follow from those of its arguments.

    How many elements of a mask are not 0 is known of that very mask, not of others with the same metadata.
    """
    rule = registry.lookup(node.op)
    if rule is None or rule.data_dependent:
        return False
    plain = node.grad is None and node.inference is None and not node.untracked and node.leaves is None
    return plain and not node.bindings and (writes_nothing(node) or next(written_values(node), None) is None)


def _with_slots(arg: Any, slots: Mapping[Value, int]) -> Any:
    if type(arg) is Value:
        if arg not in slots:
            raise _Unknown  # a constant of the function's own
        return _Slot(slots[arg])
    return tuple([_with_slots(each, slots) for each in arg]) if type(arg) is tuple else arg


def _slot_of(result: Any, operands: Sequence[torch.Tensor], slots: Mapping[Value, int]) -> int:
    for position, operand in enumerate(operands):
        if operand is result:
            return position
    slot = slots.get(result._value, -1) if type(result) is SymbolicTensor else -1
    if slot < len(operands):
        raise _Unknown
    return slot


def _slot_at(index: int, made: Sequence[Value], slots: Mapping[Value, int]) -> int:
    return max(_slots_before(index, made, slots))


def _slots_before(index: int, made: Sequence[Value], slots: Mapping[Value, int]) -> Iterator[int]:
    return (slots[value] for value in made if value.index <= index)
