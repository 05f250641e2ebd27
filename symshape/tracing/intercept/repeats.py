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

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import torch

from meta_fns import TensorSpec
from symshape.calls.arguments import TENSOR_TYPES
from symshape.torch_internals import dispatch, operators
from symshape.tracing.intercept.replay import (
    KeptCall,
    RepeatingTrace,
    Replay,
    UnknownCallError,
    kept,
)
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.user_code import user_location

_NAMES = frozenset(
    (
        *(
            "add",
            "sub",
            "mul",
            "div",
            "true_divide",
            "neg",
            "pow",
            "exp",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tanh",
            "abs",
        ),
        *(
            "__add__",
            "__radd__",
            "__sub__",
            "__rsub__",
            "__mul__",
            "__rmul__",
            "__truediv__",
            "__pow__",
            "__neg__",
        ),
        *(
            "sigmoid",
            "relu",
            "gelu",
            "silu",
            "softmax",
            "log_softmax",
            "layer_norm",
            "rms_norm",
            "mean",
            "sum",
        ),
        *(
            "where",
            "square",
            "relu6",
            "hardtanh",
            "hardswish",
            "hardsigmoid",
            "leaky_relu",
            "elu",
            "mish",
            "softplus",
        ),
        *(
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "batch_norm",
            "group_norm",
        ),
        *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"),
        *(
            "linear",
            "matmul",
            "__matmul__",
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "embedding",
            "dropout",
            "masked_fill",
        ),
        *(
            "scaled_dot_product_attention",
            "view",
            "reshape",
            "flatten",
            "unflatten",
            "transpose",
            "permute",
            "t",
        ),
        *(
            "expand",
            "unsqueeze",
            "squeeze",
            "contiguous",
            "to",
            "float",
            "type_as",
            "chunk",
            "split",
            "unbind",
            "cat",
        ),
        *(
            "stack",
            "__getitem__",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_not",
            "clamp",
        ),
    )
)
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
    for name in _NAMES
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
