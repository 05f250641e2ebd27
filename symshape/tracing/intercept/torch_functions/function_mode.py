"""The torch function mode of a trace: questions about shapes, and composites, are answered before
C++ sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from symshape.calls.arguments import computes_as_torch_tensor
from symshape.errors import Reason, UnsupportedError
from symshape.graph.steps import Node
from symshape.torch_internals import dispatch, functorch, operators
from symshape.tracing.intercept import autograd, vmapped_ops, vmapped_views
from symshape.tracing.intercept.autograd import Gradients
from symshape.tracing.intercept.exchanges import exchanged
from symshape.tracing.intercept.known_masks import ATTENTION, KnownMasks
from symshape.tracing.intercept.repeats import REPEATED, RepeatingTrace, Repeats
from symshape.tracing.intercept.torch_functions import (
    composites,
    factories,
    nn_functional,
    recurrent,
    sized_composites,
    unbacked_composites,
)
from symshape.tracing.intercept.torch_functions.decompositions import WITHOUT_VECTORS
from symshape.tracing.intercept.torch_functions.factories import maker, plain_maker
from symshape.tracing.intercept.torch_functions.indexing import getitem, is_symbolic, setitem
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import (
    MATMULS,
    PRODUCTS,
    with_symbols,
)
from symshape.tracing.intercept.torch_functions.sized_composites import QUANTILES
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.nodes.texts import wants_text
from symshape.tracing.symbolic.tensors import (
    SymbolicTensor,
    outward,
    refuse_text,
    under_gradients,
)

aten = torch.ops.aten


# -- Functions whose kernels call ops that autocast changes, out of sight of any mode.
#
# A trace writes autocast's casts into the graph, which runs without autocast. Inside such a
# kernel there would be no casts.

_FUNCTIONS: Any = (
    *(torch.bilinear, torch.nn.functional.affine_grid, torch.affine_grid_generator),
    *(torch.linalg.pinv, torch.pinverse, torch.Tensor.pinverse),
    *operators.whole_layers,
    *(aten._trilinear, aten.affine_grid_generator, aten.linalg_pinv),
    *(aten._transformer_encoder_layer_fwd, aten._native_multi_head_attention),
)
_overloads = [
    getattr(each, name)
    for each in _FUNCTIONS
    if hasattr(each, "overloads")
    for name in each.overloads()
]
CAST_INSIDE = frozenset((*_FUNCTIONS, *_overloads))
"""The functions whose kernels call ops that autocast changes.

They were found by running each op of torch's own list with autocast and without.
"""


def check_cast_inside(function: Any) -> None:
    """Refuse a function whose kernel casts inside, where autocast is on.

    Raises:
        UnsupportedError: autocast is on.
    """
    if dispatch.any_autocast():
        name = getattr(function, "__name__", str(function))
        raise UnsupportedError(
            f"{name} runs ops inside it that autocast changes, which a compiled graph, where casts "
            "are ops of their own, would leave out; turn autocast off around that call "
            "(torch.autocast(..., enabled=False))",
            reason=Reason.OPERATOR,
        )


# -- Composites inside ``torch.func.grad``, ``vjp`` and ``jvp``, whose tensors are wrapped around
# symbolic ones.
#
# C++ computes these composites and their gradients with plain sizes, which would fix them.
def _masked_select(input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.masked_select`` by indexing, whose gradient takes symbolic sizes."""
    tensor, chosen = torch.broadcast_tensors(input, mask)
    found: torch.Tensor = tensor[chosen]
    return found


def _where_wrapped(handler: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``handler`` for tensors that a gradient transform wraps around symbolic ones,
    ``function`` for others.
    """

    def answer(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        chosen = function if under_gradients(tensor) is None else handler
        return chosen(tensor, *args, **kwargs)

    return answer


_COMPOSITES: dict[Any, Callable[..., Any]] = {
    **sized_composites.HANDLERS,
    **dict.fromkeys((torch.masked_select, torch.Tensor.masked_select), _masked_select),
}
_WRAPPED = {
    function: _where_wrapped(handler, function) for function, handler in _COMPOSITES.items()
}
"""The replacements inside gradient transforms, by function."""


_plain_data = torch.Tensor.data.__get__  # type: ignore[attr-defined]


def _size(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    sizes = tensor._spec.sizes
    if dim is None:
        return torch.Size([outward(size) for size in sizes])
    if not -len(sizes) <= dim < len(sizes):
        raise IndexError(
            f"dimension {dim} is out of range for a tensor of {len(sizes)} dimension(s)"
        )
    return outward(sizes[dim])


def _stride(tensor: SymbolicTensor, dim: int | None = None) -> Any:
    """Return the strides that a program reads.

    The stride of a dimension of size 1, and every stride of an empty tensor, depends on how the
    tensor was made. Rules do not track these strides: the program then gets a guard on the size,
    and the graph reads the stride when it runs.

    Raises:
        UnsupportedError: the tensor is empty, and a copy in channels last was left out or made
            before, which may be otherwise in eager.
    """
    spec = tensor._spec
    tensor._tracer.looked_at.add(tensor._value)
    every = range(len(spec.sizes))
    dims = every if dim is None else (every[dim],)
    if tensor._value in tensor._tracer.laid_out:
        found = [spec.strides[d] for d in dims]
    else:
        empty = _is_empty(tensor)
        if empty and tensor._tracer.laid_out.guessed:
            raise UnsupportedError(
                "the function reads the strides of an empty tensor after a copy into channels "
                "last, for which the sizes do not tell; check x.numel() == 0 first",
                reason=Reason.MEMORY,
            )
        found = [
            tensor._tracer.read_integer(aten.stride.int, tensor, d)
            if empty or spec.sizes[d] == 1
            else spec.strides[d]
            for d in dims
        ]
    return tuple(map(outward, found)) if dim is None else outward(found[0])


def _is_contiguous(
    tensor: SymbolicTensor, memory_format: torch.memory_format = torch.contiguous_format
) -> Any:
    """Compute ``tensor.is_contiguous()``.

    Raises:
        UnsupportedError: channels last is asked of an empty tensor, whose strides are not tracked
            (see ``_stride``).
    """
    tensor._tracer.looked_at.add(tensor._value)
    images = memory_format is not torch.contiguous_format and len(tensor._spec.sizes) in (4, 5)
    if images and tensor._value not in tensor._tracer.laid_out and _is_empty(tensor):
        raise UnsupportedError(
            f"the function asks whether a tensor is contiguous in {memory_format}; for an empty "
            "tensor the sizes do not tell; check x.numel() == 0 first",
            reason=Reason.MEMORY,
        )
    return torch.Tensor.is_contiguous(tensor, memory_format=memory_format)


def _is_empty(tensor: SymbolicTensor) -> bool:
    return any(bool(size == 0) for size in tensor._spec.sizes)


def _storage_offset(tensor: SymbolicTensor) -> Any:
    """Return a tensor's storage offset; that of an empty tensor depends on untracked strides (see
    ``_stride``).
    """
    tensor._tracer.looked_at.add(tensor._value)
    if (
        tensor._value not in tensor._tracer.laid_out
        and tensor._spec.storage_offset != 0
        and _is_empty(tensor)
    ):
        return outward(tensor._tracer.read_integer(aten.storage_offset.default, tensor))
    return outward(tensor._spec.storage_offset)


def _getter(attribute: Any) -> Any:
    """Return the function that torch hands to a function mode when this attribute of a tensor is
    read.
    """
    return attribute.__get__


def _data(tensor: SymbolicTensor) -> Any:
    """Return ``tensor.data``: a detached view, whose writes autograd does not see when the graph
    runs either.
    """
    steps = tensor._tracer.steps
    number = len(steps)
    made = _plain_data(tensor)
    if (
        len(steps) == number + 1
        and isinstance(steps[-1], Node)
        and steps[-1].op is aten.detach.default
    ):
        steps[-1] = attrs.evolve(steps[-1], untracked=True)
    return made


def _truth(tensor: SymbolicTensor) -> bool:
    """Return the truth of a tensor of one element. C++ would ask for the value of an integer."""
    if tensor._spec.dtype.is_floating_point or tensor._spec.dtype.is_complex or tensor.numel() != 1:
        return torch.Tensor.__bool__(tensor)
    found: Any = tensor.item()
    return bool(found != 0) if type(found) is torch.SymInt else bool(found)


def _is_indexed(function: Any, args: Any) -> bool:
    """Return whether the call indexes a tensor with symbolic numbers, traced tensors or slices."""
    indexing = function is torch.Tensor.__getitem__ or function is torch.Tensor.__setitem__
    return indexing and isinstance(args[0], torch.Tensor) and is_symbolic(args[1])


def _tolist(tensor: torch.Tensor) -> Any:
    return aten.alias.default(
        tensor
    ).tolist()  # the mode makes it symbolic: the graph reads its numbers when it runs


def _truth_outside(tensor: torch.Tensor) -> bool:
    """Return the truth of a real tensor around the program, as :func:`_truth` finds it."""
    whole = not (
        tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype is torch.bool
    )
    found = aten.alias.default(tensor) if whole and tensor.numel() == 1 else tensor
    return _truth(found) if type(found) is SymbolicTensor else torch.Tensor.__bool__(found)


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{what} reads a tensor's data or address while the function is traced, and a compiled "
            "graph would reuse that value in every call; compute with the tensor, or read it "
            "outside the function",
            reason=Reason.DATA_ON_HOST,
        )

    return refuse


_PASS_TEXTS_ON = frozenset(
    (
        __file__,
        torch.Tensor.__repr__.__code__.co_filename,
        *(str(each.__file__) for each in (torch.overrides, torch.nn.parameter)),
    )
)
"""The files with functions that ask for the text of a tensor because another one asked."""


def _text(function: Callable[..., str]) -> Callable[..., str]:
    """Return ``function``, which makes a text of a real tensor's data, for people only."""

    def text(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        if wants_text(_PASS_TEXTS_ON):
            refuse_text()
        return function(tensor, *args, **kwargs)

    return text


def _is_inference(tensor: SymbolicTensor) -> Any:
    """Return whether the tensor was made in inference mode; a view of an argument is as the
    argument is.
    """
    tracer, storage = tensor._tracer, tensor._value.storage
    for value in tracer.originals:
        if value.storage is storage:
            owner = (
                tensor if value is tensor._value else SymbolicTensor.make(value.spec, value, tracer)
            )
            return tracer.ask(owner, "is_inference")
    return torch.Tensor.is_inference(tensor)


def _lazily(tensor: SymbolicTensor) -> tuple[bool, bool]:
    return tensor._tracer.lazy.get(tensor._value, (False, False))


def _resolve(which: int) -> Callable[..., Any]:
    """Return the handler of ``resolve_conj`` or ``resolve_neg``: a copy if the lazy bit is set,
    else the tensor.
    """
    return lambda tensor: tensor.clone() if _lazily(tensor)[which] else tensor


def _refuse_view_question(tensor: SymbolicTensor) -> Any:
    raise UnsupportedError(
        "the function asks whether a tensor is a view (Tensor._is_view), which differs from call "
        "to call and is not guarded; pass the answer as an argument",
        reason=Reason.AUTOGRAD_STATE,
    )


_handlers: dict[Any, Callable[..., Any]] = {
    _getter(torch.Tensor.shape): lambda t: _size(t),
    torch.Tensor.size: _size,
    torch.Tensor.stride: _stride,
    **dict.fromkeys((torch.Tensor.dim, _getter(torch.Tensor.ndim)), lambda t: len(t._spec.sizes)),
    _getter(torch.Tensor.nbytes): lambda t: outward(t._spec.numel() * t._spec.dtype.itemsize),
    _getter(torch.Tensor.dtype): lambda t: t._spec.dtype,
    _getter(torch.Tensor.device): lambda t: t._spec.device,
    _getter(torch.Tensor.data): _data,
    torch.Tensor.is_contiguous: _is_contiguous,
    torch.Tensor.storage_offset: _storage_offset,
    **dict.fromkeys((torch.Tensor.is_inference, torch.is_inference), _is_inference),
    **dict.fromkeys((torch.Tensor.is_conj, torch.is_conj), lambda t: _lazily(t)[0]),
    **dict.fromkeys((torch.Tensor.is_neg, torch.is_neg), lambda t: _lazily(t)[1]),
    **dict.fromkeys((torch.Tensor.resolve_conj, torch.resolve_conj), _resolve(0)),
    **dict.fromkeys((torch.Tensor.resolve_neg, torch.resolve_neg), _resolve(1)),
    torch.Tensor._is_view: _refuse_view_question,
    torch.Tensor.__bool__: _truth,
    torch.Tensor.__getitem__: getitem,
    torch.Tensor.__setitem__: setitem,
    torch.Tensor.new_tensor: plain_maker(torch.Tensor.new_tensor),
    torch.Tensor.reshape: lambda t, *sizes, shape=(): composites.reshape(t, *(sizes or (shape,))),
    torch.reshape: lambda input, shape: composites.reshape(input, *shape),
    torch.Tensor.contiguous: composites.contiguous,
    **dict.fromkeys((torch.Tensor.flatten, torch.flatten), composites.flatten),
    torch.Tensor.fill_diagonal_: composites.fill_diagonal_,
    torch.nn.functional.linear: with_symbols(composites.linear),
    **dict.fromkeys(
        (torch.nn.functional.one_hot, aten.one_hot, aten.one_hot.default), composites.one_hot
    ),
    **dict.fromkeys((torch.max_pool1d, torch.nn.functional.max_pool1d), composites.max_pool1d),
    **dict.fromkeys(MATMULS, with_symbols(composites.matmul)),
    **{
        getattr(torch.Tensor, name): _refuse(f"Tensor.{name}()")
        for name in ("data_ptr", "untyped_storage", "storage", "_typed_storage", "is_shared")
    },
    **autograd.OF_STAND_INS,
    **autograd.OF_ANY_TENSOR,
    **recurrent.HANDLERS,
    **nn_functional.HANDLERS,
    **unbacked_composites.HANDLERS,
    **QUANTILES,
    **sized_composites.HANDLERS,
    **WITHOUT_VECTORS,
}
"""The replacements for functions on symbolic tensors."""


_readers: dict[Any, Callable[..., Any]] = {
    torch.Tensor.tolist: _tolist,
    torch.Tensor.__bool__: _truth_outside,
    torch.Tensor.numpy: _refuse("Tensor.numpy()"),
    torch.Tensor.__array__: _refuse("numpy"),
    torch.nn.functional.interpolate: nn_functional.interpolate_outside,
    **{
        getattr(torch.Tensor, name): _refuse(f"Tensor.{name}()")
        for name in (
            *("data_ptr", "untyped_storage", "storage", "_typed_storage", "is_shared"),
            "__reduce_ex__",
        )
    },
    **{function: _text(function) for function in (torch.Tensor.__repr__, torch.Tensor.__format__)},
    **autograd.OF_ANY_TENSOR,
    **_WRAPPED,
}
"""The replacements for functions on real tensors (parameters, buffers, constants) that a dispatch
mode cannot see.
"""

_ASKED = {
    torch.Tensor.storage_offset: "storage_offset",
    **{
        _getter(getattr(torch.Tensor, name)): name
        for name in ("retains_grad", "_post_accumulate_grad_hooks", "grad_dtype", "output_nr")
        if hasattr(torch.Tensor, name)
    },
}
"""The functions on real tensors whose answers each call asks for again."""


def _sym_ite(condition: Any, then: Any, otherwise: Any) -> Any:
    """Compute ``torch.sym_ite``, which itself knows only torch's own nodes."""
    if type(condition) is bool:
        return then if condition else otherwise
    node = condition.node if isinstance(condition, torch.SymBool) else None
    if not isinstance(node, BoolNode):
        return torch.sym_ite(condition, then, otherwise)
    chosen = node.sym_ite(_node(node, then), _node(node, otherwise))
    kind = {IntNode: torch.SymInt, BoolNode: torch.SymBool, FloatNode: torch.SymFloat}[type(chosen)]
    return kind(chosen)


def _node(like: BoolNode, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return value.node
    wrap = {bool: like.wrap_bool, int: like.wrap_int, float: like.wrap_float}.get(type(value))
    if wrap is None:
        raise TypeError(f"torch.sym_ite chooses between numbers, not a {type(value).__name__}")
    return wrap(value)


_of_data = {each: maker(each) for each in (torch.tensor, torch.as_tensor, torch.asarray)}
_ATTENTION = {
    torch.nn.functional.scaled_dot_product_attention,
    aten.scaled_dot_product_attention.default,
    aten.scaled_dot_product_attention,
}
_pad_sequence: Any = operators.nn.pad_sequence


class FunctionMode(TorchFunctionMode):
    """The torch function mode of a trace: answers the functions above in Python and passes
    everything else to torch.

    Args:
        trace: the trace.
        gradients: the gradients of real tensors.
        chooses: called with the device where fused attention chooses a kernel.
    """

    def __init__(
        self,
        trace: RepeatingTrace,
        gradients: Gradients,
        chooses: Callable[[torch.device], object],
    ) -> None:
        super().__init__()
        self._chooses = chooses
        self._repeats = Repeats(trace)
        self._masks = KnownMasks(trace)
        self._trace = trace
        self._views = vmapped_views.Views(trace)
        self._gradients = {
            **autograd.of_real_tensors(gradients, trace.own),
            **trace.own.hooks_of_real_tensors(),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ATTENTION and args and isinstance(args[0], torch.Tensor):
            self._chooses(args[0].device)
        if func in CAST_INSIDE:
            check_cast_inside(func)
        if kwargs and "out" in kwargs:  # no handler writes into an `out` tensor
            if kwargs["out"] is not None:
                return PRODUCTS.get(func, func)(*args, **kwargs)
            kwargs = {name: each for name, each in kwargs.items() if name != "out"}
        if not args and kwargs and "input" in kwargs and func in _handlers:
            # each of these functions of torch takes its input first
            args = (kwargs["input"],)
            kwargs = {name: each for name, each in kwargs.items() if name != "input"}
        if (
            func in vmapped_ops.RULES
            and (found := vmapped_ops.call(func, args, kwargs)) is not NotImplemented
        ):
            return found
        if (
            func in vmapped_views.RULES
            and (found := self._views.call(func, args, kwargs)) is not NotImplemented
        ):
            return found
        if func in REPEATED:
            if func is ATTENTION:
                args, kwargs = self._masks.left_out(args, kwargs)
            ours = bool(args) and (type(args[0]) is SymbolicTensor or _is_indexed(func, args))
            handler = (_handlers.get(func) if ours else None) or PRODUCTS.get(func, func)
            return self._repeats.call(func, args, kwargs, handler)
        if args and type(args[0]) is SymbolicTensor:
            handler = _handlers.get(func)
            if handler is not None:
                return handler(*args, **kwargs) if kwargs else handler(*args)
        elif func in self._gradients and args and not functorch.is_wrapped(args[0]):
            return self._gradients[func](*args, **kwargs or {})
        elif func in _ASKED and args and isinstance(args[0], torch.Tensor):
            answer = func(*args)
            if not functorch.is_wrapped(args[0]):
                self._trace.on_answer(func, args[0], answer, _ASKED[func])
            return answer
        elif func in _readers and args and isinstance(args[0], torch.Tensor):
            return _readers[func](*args, **kwargs or {})
        elif _is_indexed(func, args):
            return setitem(*args)
        elif func is torch.sym_ite:
            return _sym_ite(*args)
        elif func is torch.autograd.grad:
            return autograd.gradients(*args, **kwargs or {})
        elif func in _of_data:
            return _of_data[func](*args, **kwargs or {})
        elif func is _pad_sequence and all(type(each) is SymbolicTensor for each in args[0]):
            return factories.pad_sequence(*args, **kwargs or {})
        elif func in factories.OPS:
            return factories.make(func, self._trace, args, kwargs or {})
        func = PRODUCTS.get(func, func)
        return func(*args, **kwargs) if kwargs else func(*args)

    def __enter__(self) -> FunctionMode:
        F = torch.nn.functional
        attention = _with_plain_flags(F.scaled_dot_product_attention, self._chooses)
        self._around = ExitStack()
        self._around.enter_context(
            exchanged(
                (F, "scaled_dot_product_attention", attention),
                (torch.overrides, "has_torch_function", _has_torch_function),
            )
        )
        self._around.enter_context(self._trace.own.functions_watched())
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        self._around.__exit__(*error)
        super().__exit__(*error)
        if error[0] is None:
            self._views.settle()


_torch_has_torch_function = torch.overrides.has_torch_function


def _has_torch_function(args: Iterable[Any]) -> bool:
    """Return whether torch functions are overridden other than by our stand-ins and mode.

    Fused attention is for plain tensors.
    """
    stack = dispatch.function_modes()
    args = tuple(args)
    # torch.sym_ite
    numbers = any(isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)) for each in args)
    if not numbers and any(type(mode) is FunctionMode for mode in stack):
        others = [
            each
            for each in args
            if isinstance(each, torch.Tensor) and type(each) is not SymbolicTensor
        ]
        return any(not computes_as_torch_tensor(type(each)) for each in others) or any(
            type(mode) is not FunctionMode for mode in stack
        )
    return bool(_torch_has_torch_function(args))


def _with_plain_flags(
    function: Callable[..., Any], chooses: Callable[[torch.device], object]
) -> Callable[..., Any]:
    """Return ``function`` with symbolic flags (``is_causal=n > 1``) decided first.

    C++ refuses them before it asks a mode.
    """

    def plain(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            chooses(arg.device)  # also inside functions whose calls no mode sees
        return bool(arg) if type(arg) is torch.SymBool else arg

    return lambda *args, **kwargs: function(
        *map(plain, args), **{name: plain(arg) for name, arg in kwargs.items()}
    )
