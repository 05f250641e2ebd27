"""The tensor that user code sees while it is traced: a ``TensorSpec`` and a graph value, without
data.

Its sizes are stored in Python.  C++ asks for them through ``__torch_dispatch__`` (the ``sizes``
policy of a wrapper subclass, checked on torch 2.11 to 2.13), so they cost nothing until they are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from meta_fns import TensorSpec
from meta_fns.core import dense, layout
from meta_fns.torch_internals import OpOverload
from symshape.calls.constant_keys import PLAIN
from symshape.calls.questions import ABSENT, Question
from symshape.errors import Reason, UnsupportedError
from symshape.graph.reshape_copies import ReshapeCopy
from symshape.graph.steps import Step, Value
from symshape.torch_internals import functorch, pytree
from symshape.torch_internals.operators import foreach_classes
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.nodes.texts import wants_value

aten = torch.ops.aten
_ONES = [(1,) * n for n in range(65)]
_namespace: Callable[[torch.Tensor], dict[str, Any]] = torch.Tensor.__dict__["__dict__"].__get__
_make_wrapper: Any = torch.Tensor._make_wrapper_subclass


class Telling(Protocol):
    """The autograd settings and hooks of one trace: see ``OwnHistories``."""

    @property
    def told(self) -> set[Value]:
        """The values that require gradients because the program set ``requires_grad``."""

    def require(self, tensor: SymbolicTensor, required: bool) -> None:
        """Set whether a symbolic tensor requires gradients."""

    def tell(self, tensor: torch.Tensor, required: bool) -> None:
        """Set whether a real tensor outside the program requires gradients."""

    def hooked(self, tensor: SymbolicTensor, *, retained: bool) -> None:
        """Note that a tensor has a hook, or retains its gradient."""

    def transformed(self) -> bool:
        """Return whether a ``torch.func`` transform is around the call; later calls must give the
        same answer.
        """

    def functions_watched(self) -> AbstractContextManager[object]:
        """Return a context in which calls of ``autograd.Function`` are noted."""

    def hooks_of_real_tensors(self) -> dict[Any, Any]:
        """Return the substitutes for methods that register hooks."""

    def looks(self) -> tuple[int, ...]:
        """Return a count of all autograd calls of the program."""


class KnownLayouts(set[Value]):
    """The values whose strides are known exactly, those of dimensions of size 0 and 1 too.

    Attributes:
        guessed: other values whose contiguity in channels last the trace took for granted; of an
            empty tensor, the sizes do not tell.
    """

    def __init__(self) -> None:
        self.guessed = set[Value]()


class Trace(Protocol):
    """The parts of a trace that its symbolic tensors and the handlers of their calls use: see
    ``TraceState``.
    """

    env: ShapeEnv
    steps: list[Step]
    copies: list[ReshapeCopy]
    arguments: set[Value]
    originals: dict[Value, tuple[int, torch.Tensor]]
    lazy: dict[Value, tuple[bool, bool]]
    laid_out: KnownLayouts
    looked_at: set[Value]
    untracked_views: UntrackedViews
    closed: bool

    @property
    def own(self) -> Telling:
        """The program's own autograd settings and hooks."""

    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Record a call of an op and return its outputs."""

    def read_integer(self, op: OpOverload, tensor: SymbolicTensor, *args: int) -> Any:
        """Return an integer that only the data of the real tensor determine."""

    def ask(self, tensor: SymbolicTensor, what: str, about: Any = None) -> Hashable:
        """Return the answer to a question about the argument that a tensor stands for."""

    def note(self, question: Question, leaf: Any) -> Any:
        """Return the answer to a question about an argument; later calls must give the same
        answer.
        """

    def inferring(self) -> AbstractContextManager[None]:
        """Return a context in which ops are inferred, without being recorded."""


class SymbolicTensor(torch.Tensor):
    """The tensor without data whose sizes may be symbolic."""

    _spec: TensorSpec
    _value: Value
    _tracer: Trace
    _known: torch.Tensor | None  # the data, if the program itself wrote them as a constant
    _kind: type = torch.Tensor  # the class that the program sees

    @staticmethod
    def make(
        spec: TensorSpec, value: Value, tracer: Trace, requires_grad: bool = False
    ) -> SymbolicTensor:
        """Make a symbolic tensor for a graph value."""
        ones = _ONES[len(spec.sizes)]
        made = _make_wrapper(
            SymbolicTensor,
            ones,
            ones,
            dtype=spec.dtype,
            device=spec.device,
            requires_grad=requires_grad,
            dispatch_sizes_strides_policy="sizes",
        )
        # quicker than __setattr__
        _namespace(made).update(_spec=spec, _value=value, _tracer=tracer, _known=None)
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        answer = METADATA.get(func)
        if answer is not None:
            return answer(*args)
        for arg in pytree.tree_leaves((args, kwargs)):
            if type(arg) is SymbolicTensor and not arg._tracer.closed:
                return arg._tracer.dispatch(func, args, kwargs or {})
        raise UnsupportedError(
            f"{func} was called on a symbolic tensor after its trace ended; a traced function must "
            "return its tensors, not store them outside itself",
            reason=Reason.OTHER_TRACE,
        )

    def tolist(self) -> Any:
        """Return nested lists of symbolic scalars; the sizes must be static."""
        if self.dim() == 0:
            return self.item()
        return [part.tolist() for part in self.unbind(0)]

    def numpy(self, *, force: bool = False) -> Any:
        """Raise an error: there is no data while tracing."""
        raise UnsupportedError(
            "Tensor.numpy() needs the tensor's data, which does not exist during a trace; "
            "compute with torch, or call numpy() outside the function",
            reason=Reason.DATA_ON_HOST,
        )

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if wants_value():
            refuse_text()
        return f"SymbolicTensor({self._spec})"

    def __format__(self, spec: str) -> str:
        if spec or wants_value(formats=True):
            refuse_text()
        return f"SymbolicTensor({self._spec})"

    # -- the class and attributes that the program sees
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that tensors do not have, from the argument; later calls must have
        the same value.
        """
        internal = name.startswith(("__", "_dynamo")) or _is_own(name)
        if (
            internal
            or not _is_argument(self)
            or self._tracer.ask(self, "attribute", name) is ABSENT
        ):
            # in a variable, the error would keep this frame alive, and with it the caller's tensors
            raise AttributeError(f"{self._kind.__name__!r} object has no attribute {name!r}")
        value = self._tracer.originals[self._value][1].__dict__[name]
        if type(value) in PLAIN or type(value) is float:
            return value
        raise UnsupportedError(
            f"the function reads the attribute {name} of an argument tensor, a "
            f"{type(value).__name__}, which a "
            "compiled graph would reuse in every call; pass it as a separate argument",
            reason=Reason.TENSOR_ATTRIBUTES,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if not _is_own(name) and not hasattr(type(self), name):
            if _is_argument(self):
                raise UnsupportedError(
                    f"the function sets the attribute {name} of an argument tensor, which a "
                    "compiled graph would not repeat; return the value, or store it in a "
                    "dictionary",
                    reason=Reason.TENSOR_ATTRIBUTES,
                )
            self._tracer.looked_at.add(self._value)  # at other sizes another tensor may be this one
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if _is_argument(self):
            raise UnsupportedError(
                f"the function deletes the attribute {name} of an argument tensor, which a "
                "compiled graph would not repeat; delete it outside the function",
                reason=Reason.TENSOR_ATTRIBUTES,
            )
        super().__delattr__(name)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise UnsupportedError(
            "the function reads all attributes of a tensor at once (__dict__, vars()), which "
            "cannot be traced; read them by name",
            reason=Reason.TENSOR_ATTRIBUTES,
        )

    def __dir__(self) -> list[str]:
        own = (
            self._tracer.ask(self, "attributes")
            if _is_argument(self)
            else tuple(attributes_of(self))
        )
        return sorted({*dir(torch.Tensor), *own})  # type: ignore[misc]

    def __hash__(self) -> int:
        if _is_argument(self):
            raise UnsupportedError(
                "the function uses an argument tensor as a key of a dictionary, a set or a cache; "
                "the identity of that tensor differs from call to call; use a name or a number as "
                "the key",
                reason=Reason.IDENTITY,
            )
        return id(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return _deep_copy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError(
            "the function pickles a tensor, whose data does not exist during a trace; pickle it "
            "outside the function",
            reason=Reason.DATA_ON_HOST,
        )


_OWN = frozenset(("_spec", "_value", "_tracer", "_known", "_kind"))


def _is_own(name: str) -> bool:
    """Return whether an attribute is ours, or one in which C++ caches the sizes that it read (2.11
    to 2.13).
    """
    return name in _OWN or "_capsule" in name


def _is_argument(tensor: SymbolicTensor) -> bool:
    """Return whether a tensor stands for an argument, in a trace that is still running."""
    tracer = _namespace(tensor).get("_tracer")
    return tracer is not None and tensor._value in tracer.originals


def attributes_of(tensor: SymbolicTensor) -> list[str]:
    """Return the names of the attributes that the program set on a tensor."""
    return [name for name in _namespace(tensor) if not _is_own(name)]


def _deep_copy(tensor: SymbolicTensor, memo: dict[int, Any]) -> Any:
    """Return a copy of a tensor as ``copy.deepcopy`` makes it; refuse a tensor whose clone would
    differ from that.
    """
    spec, storage = tensor._spec, tensor._value.storage
    if tensor.requires_grad and not _is_argument(tensor) and not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment"
        )
    strange = {
        "requires gradients": tensor.requires_grad,
        "is a parameter": tensor._kind is not torch.Tensor,
        "is lazily conjugated or negated": tensor._value in tensor._tracer.lazy,
        "shares memory with another one that is copied": id(storage) in memo,
        "is a view of a larger one": bool(spec.storage_offset != 0) or not bool(_dense(tensor)),
        "has attributes of its own": bool(
            tensor._tracer.ask(tensor, "attributes")
            if _is_argument(tensor)
            else attributes_of(tensor)
        ),
    }
    found = [what for what, is_so in strange.items() if is_so]
    if found:
        raise UnsupportedError(
            f"the function makes a deep copy of a tensor that {found[0]}, which a compiled graph "
            "cannot repeat; use tensor.detach().clone()",
            reason=Reason.MEMORY,
        )
    memo[id(storage)] = storage
    return tensor.clone()


def refuse_text() -> None:
    """Refuse the text of a tensor.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        "the text of a tensor (str, repr, an f-string) needs its data, which does not exist during "
        "a trace; make "
        "the text outside the function; print(x) and logger.info('%s', x) show its sizes instead",
        reason=Reason.TENSOR_TEXT,
    )


def outward(size: Any) -> Any:
    """Return a size as torch expects it: an int or a ``torch.SymInt``."""
    return size.symint if type(size) is IntNode else size


def _plain(size: Any) -> int:
    return size.int_() if type(size) is IntNode else size


def _sizes(t: SymbolicTensor) -> Any:
    return tuple([size.symint if type(size) is IntNode else size for size in t._spec.sizes])


def _strides(t: SymbolicTensor) -> Any:
    return tuple([size.symint if type(size) is IntNode else size for size in t._spec.strides])


def _dense(t: SymbolicTensor) -> bool:
    """Return whether the elements fill their memory without gaps: some order of the dimensions is
    contiguous.
    """
    return t._spec.canonical() or dense.is_dense(t._spec.sizes, t._spec.strides)


def _strides_like(t: SymbolicTensor, memory_format: torch.memory_format) -> bool:
    """Return whether the strides suggest a memory format; unlike contiguity, sizes of 1 alone do
    not decide that.
    """
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        wanted = 4 if memory_format is torch.channels_last else 5
        return len(t._spec.sizes) == wanted and layout.is_channels_last_strides(
            t._spec.sizes, t._spec.strides
        )
    return bool(t._spec.is_contiguous(memory_format))


def _contiguous(t: SymbolicTensor, memory_format: torch.memory_format) -> Any:
    """Return whether a tensor is contiguous in a memory format.

    The answer is exact, but for channels last of an empty tensor whose strides are not tracked.
    """
    if memory_format is not torch.contiguous_format and t._value not in t._tracer.laid_out:
        t._tracer.laid_out.guessed.add(t._value)
    return t._spec.is_contiguous(memory_format)


METADATA: dict[Any, Callable[..., Any]] = {
    aten.sym_size.default: _sizes,
    aten.sym_size.int: lambda t, d: outward(t._spec.sizes[d]),
    aten.sym_stride.default: _strides,
    aten.sym_stride.int: lambda t, d: outward(t._spec.strides[d]),
    aten.sym_numel.default: lambda t: outward(t._spec.numel()),
    aten.sym_storage_offset.default: lambda t: outward(t._spec.storage_offset),
    aten.dim.default: lambda t: len(t._spec.sizes),
    aten.size.default: lambda t: tuple(_plain(size) for size in t._spec.sizes),
    aten.stride.default: lambda t: tuple(_plain(size) for size in t._spec.strides),
    aten.numel.default: lambda t: _plain(t._spec.numel()),
    aten.storage_offset.default: lambda t: _plain(t._spec.storage_offset),
    aten.is_contiguous.default: lambda t: t._spec.is_contiguous(),
    aten.is_contiguous.memory_format: _contiguous,
    aten.is_strides_like_format.default: lambda t, f: _strides_like(t, f),
    aten.is_non_overlapping_and_dense.default: _dense,
    torch.ops.prim.layout.default: lambda t: t._spec.layout,
}
if hasattr(aten, "sym_is_contiguous"):
    METADATA[aten.sym_is_contiguous.default] = lambda t, f=torch.contiguous_format: _contiguous(
        t, f
    )
for classes in foreach_classes:  # the tensors that it stands for are among them
    classes.append(SymbolicTensor)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Return the metadata of a tensor, with symbols where it is traced."""
    return tensor._spec if type(tensor) is SymbolicTensor else TensorSpec.of(tensor)


def under_gradients(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the symbolic tensor inside gradient transforms, which has the same sizes; None if
    there is none.

    ``torch.vmap`` hides a dimension, so a tensor that it wraps has other sizes than the one inside.
    """
    wrapped = functorch.is_gradient_wrapper
    if not wrapped(tensor):
        return None
    while wrapped(tensor):
        tensor = functorch.unwrapped(tensor)
    return tensor if type(tensor) is SymbolicTensor else None


# -- Memory that has views unknown to autograd: a trace made them by repeating earlier calls without
# torch's C++.
#
# Such views are made only in functions that are called without gradients. If such a function
# turns gradients on, autograd must notice writes to memory that it has saved, and refuse them.
# It would not notice a write through an unknown view.
class UntrackedViews:
    """The memory in one trace that has views unknown to autograd.

    Attributes:
        gradients: whether an op of the trace ran with gradients.
    """

    def __init__(self, env: ShapeEnv) -> None:
        self.gradients = False
        self._env = env
        self._memory: set[object] = set()

    def add(self, viewed: Value) -> None:
        """Note that a view of this value was made without autograd."""
        self._memory.add(viewed.storage)

    def of(self, value: Value) -> bool:
        """Return whether a value's memory has such views."""
        return value.storage in self._memory

    def check(self, op: object, written: Iterable[Value]) -> None:
        """Check a write of an op to these values.

        Raises:
            UnsupportedError: autograd might have to notice the write.
        """
        if self.gradients and self._memory and any(map(self.of, written)):
            raise UnsupportedError(
                f"{op} writes to memory of a view made without gradients (at "
                f"{self._env.origin()}); the function "
                "is called without gradients and turns them on itself; call the function with "
                "gradients on",
                reason=Reason.MEMORY,
            )
