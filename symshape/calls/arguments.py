"""A call's arguments as flat leaves with the paths a user would write, and the integers that are
read from them.

A tensor contributes its sizes; one that is not contiguous also its strides and storage offset, a
contiguous one with an offset its offset.  Everything else about the arguments (dtype, device,
constants …) is the call's *structure*: it must be equal.  Whatever makes a key of a tensor, quickly
or slowly, makes it of ``EQUAL`` and of the layout.
"""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs
import torch

from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
from symshape.calls.constant_keys import (
    PLAIN,
    IdentityKey,
    constant_key,
    digits,
    nesting_key,
    shared_containers,
)
from symshape.calls.floats import FloatLeaf
from symshape.calls.naming import Naming, brief, distinct, tensor_names
from symshape.calls.object_arguments import flattened, is_owner, owner_of
from symshape.calls.outputs import unflatten
from symshape.errors import InputError
from symshape.torch_internals import pytree

TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FloatLeaf)

_CALLS = ("__torch_function__", "__torch_dispatch__")
_OF_PARAMETERS = tuple(getattr(torch.nn.Parameter, each) for each in _CALLS)

CONTIGUOUS, OFFSET, STRIDED = "contiguous", "contiguous with an offset", "strided"
"""The layouts of a tensor argument. They say which integers are read beside the sizes."""

EQUAL = ("dtype", "device", "requires_grad")
"""The attributes that two tensors must share to run the same graph, sizes and layout aside."""

equal_part: Callable[[torch.Tensor], tuple[Any, ...]] = attrgetter(*EQUAL)
"""The values of ``EQUAL`` for a tensor."""


@attrs.frozen
class TensorKey:
    """The structure of a tensor argument, its sizes aside: equal keys may run the same graph.
    ``EQUAL`` comes first.
    """

    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    ndim: int
    layout: str
    kind: type = torch.Tensor

    def __str__(self) -> str:
        if self.kind is FloatLeaf:
            return "float"
        grad = ", requires_grad" if self.requires_grad else ""
        dtype = str(self.dtype).removeprefix("torch.")
        kind = "tensor" if self.kind is torch.Tensor else self.kind.__name__
        return f"{self.layout} {dtype} {kind} of {self.ndim} dim(s) on {self.device}{grad}"


@attrs.frozen
class ConstantKey:
    """The key of a constant argument, by ``constant_keys``, so that 0.0 is not -0.0; ``value`` is
    for messages.
    """

    kind: type
    value: Any = attrs.field(eq=False)
    constant_key: Any

    def __str__(self) -> str:
        return f"the {self.kind.__name__} {brief(self.value)}" if self.value is not None else "None"


class _IntKey:
    def __repr__(self) -> str:
        return "an int"


class _RecordKey:
    def __repr__(self) -> str:
        return "an object that is flattened into its attributes"


INT_KEY = _IntKey()
RECORD_KEY = _RecordKey()
"""The key of an object whose attributes are the leaves after it: see ``calls/object_arguments.py``.
"""
LeafKey = TensorKey | ConstantKey | _IntKey | _RecordKey


@attrs.frozen(eq=False)
class Variables:
    """The values outside the arguments that are read at each call: see ``calls/variables.py``.

    Attributes:
        names: of the places.
        values: what they hold.
    """

    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()


NO_VARIABLES = Variables()


@attrs.frozen(eq=False)
class Call:
    """One call, flattened.

    Attributes:
        leaves: the arguments' leaves, in pytree order, and after them those of variables.
        tree: how they nest in ``(args, kwargs)``, or in ``(args, kwargs, values)`` where there are
            variables.
        paths: each leaf in the caller's words.
        keys: each leaf's structure.
        duplicates: for each leaf, the position of the first leaf that is the same tensor (or other
            object).
        shared: which containers are the same object: see ``shared_containers``.
    """

    leaves: tuple[Any, ...]
    tree: pytree.TreeSpec
    paths: tuple[str, ...]
    keys: tuple[LeafKey, ...]
    duplicates: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def nesting(self) -> Hashable:
        """A key that two calls share only if their arguments nest in the same way, with the same
        containers shared.
        """
        return nesting_key(self.tree), self.shared

    @property
    def has_records(self) -> bool:
        """True if some arguments are objects that are flattened into attributes, and may be written
        to.
        """
        return RECORD_KEY in self.keys

    @property
    def has_floats(self) -> bool:
        """True if some leaves are floats that vary."""
        return any(isinstance(key, TensorKey) and key.kind is FloatLeaf for key in self.keys)

    @property
    def constants(self) -> list[Any]:
        """The leaves that a program is given unchanged, and the functions that its dictionaries
        call.
        """
        pairs = zip(self.leaves, self.keys, strict=True)
        leaves = [
            leaf
            for leaf, key in pairs
            if key is not RECORD_KEY and not isinstance(leaf, torch.Tensor)
        ]
        return [*leaves, *_default_factories(self.tree)]

    @property
    def classes(self) -> set[type]:
        """The classes of the arguments that are flattened into attributes."""
        pairs = zip(self.leaves, self.keys, strict=True)
        return {type(leaf) for leaf, key in pairs if key is RECORD_KEY} - {list, dict}

    def nest(self, leaves: Sequence[Any]) -> Any:
        """Return ``(args, kwargs, values of variables)`` of a call with the same nesting and these
        leaves.

        A container that occurs in two places is one object again.
        """
        args, kwargs, *values = unflatten(leaves, self.tree, self.shared)
        return args, kwargs, values[0] if values else ()


def _default_factories(tree: pytree.TreeSpec) -> Iterator[Any]:
    """Yield the ``default_factory`` of each ``defaultdict``; a missing key calls it."""
    if tree.type is collections.defaultdict:
        yield tree.context[0]
    for each in tree.children():
        yield from _default_factories(each)


def flatten_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    variables: Variables = NO_VARIABLES,
    *,
    paths: bool = True,
) -> Call:
    """Flatten the call ``fn(*args, **kwargs)`` into leaves, keys and paths; without ``paths`` this
    is much faster.

    Raises:
        InputError: an argument cannot be traced (a sparse tensor, a tensor subclass, an unhashable
            object).
    """
    whole: tuple[Any, ...] = (tuple(args), kwargs if type(kwargs) is dict else dict(kwargs))
    if variables.values:
        whole = (*whole, variables.values)
    try:
        whole = flattened(whole)
        shared = shared_containers(whole)
    except RecursionError:
        raise InputError(
            "an argument contains itself, or is nested too deeply to be traced"
        ) from None
    if not paths:
        quick, tree = pytree.tree_flatten(whole)
        leaves = tuple(map(owner_of, quick))
        try:
            return Call(
                leaves,
                tree,
                (),
                tuple(leaf_key(leaf, "") for leaf in quick),
                duplicates(leaves),
                shared,
            )
        except InputError:
            # for the argument's name in the message
            return flatten_call(fn, args, kwargs, variables)
    flat, tree = list(with_paths(whole, ())), pytree.tree_structure(whole)
    names = parameter_names(fn, args)
    naming = Naming(lambda: tensor_names(fn, {**dict(zip(names, args, strict=True)), **kwargs}))
    texts = distinct([_path_text(path, names, variables.names, naming) for path, _ in flat])
    leaves = tuple(owner_of(leaf) for _, leaf in flat)
    keys = tuple(leaf_key(leaf, path) for (_, leaf), path in zip(flat, texts, strict=True))
    return Call(leaves, tree, texts, keys, duplicates(leaves), shared)


def flat_with_paths(value: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], pytree.TreeSpec]:
    """Flatten as ``pytree.tree_flatten_with_path`` does, also classes that were registered without
    keys.
    """
    return list(with_paths(value, ())), pytree.tree_structure(value)


def with_paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves of a nested value with their paths; torch's own function refuses classes
    without keys.
    """
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        yield path, value
    elif node.flatten_with_keys_fn is not None:
        for key, each in node.flatten_with_keys_fn(value)[0]:
            yield from with_paths(each, (*path, key))
    else:
        for i, each in enumerate(node.flatten_fn(value)[0]):
            yield from with_paths(each, (*path, pytree.SequenceKey(i)))


def identity_of(key: LeafKey) -> IdentityKey | None:
    """Return the identity key that a leaf key stands for; None for any other leaf key."""
    return key.value if type(key) is ConstantKey and type(key.value) is IdentityKey else None


def skeleton(call: Call) -> Call:
    """Return the call without its tensors and objects, so that a stored call does not keep them
    alive.
    """
    pairs = zip(call.leaves, call.keys, strict=True)
    leaves = [
        None
        if isinstance(leaf, torch.Tensor) or key is RECORD_KEY or identity_of(key) is not None
        else leaf
        for leaf, key in pairs
    ]
    return attrs.evolve(call, leaves=tuple(leaves))


def duplicates(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return for each leaf the position of the first leaf that is the same object (its own for
    numbers, strings …).
    """
    first: dict[int, int] = {}
    return tuple(
        position
        if type(leaf) in PLAIN or type(leaf) is float
        else first.setdefault(id(leaf), position)
        for position, leaf in enumerate(leaves)
    )


def parameter_names(fn: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """Return a name for each positional argument."""
    if not args:  # to look at a signature takes longer than all else here
        return []
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(len(args) - len(names))]
    return (names + [f"args[{i}]" for i in range(len(names), len(args))])[: len(args)]


def _path_text(
    path: Sequence[Any], names: Sequence[str], variables: Sequence[str], naming: Naming
) -> str:
    where, first, *rest = path
    if isinstance(where, pytree.SequenceKey) and where.idx == 2:
        start = variables[first.idx]
    elif isinstance(where, pytree.SequenceKey) and where.idx == 0:
        start = names[first.idx]
    else:
        start = str(first.key)
    return naming.path(str(start), rest)


def computes_as_torch_tensor(kind: type) -> bool:
    """Return whether torch's functions treat a tensor of this class as one of torch's own.

    They do so for a user's subclass of ``Parameter`` that keeps torch's protocols.
    """
    if kind in TENSOR_TYPES:
        return True
    return (
        issubclass(kind, torch.nn.Parameter)
        and tuple(getattr(kind, each) for each in _CALLS) == _OF_PARAMETERS
    )


def leaf_key(leaf: Any, path: str) -> LeafKey:
    """Return the structure of one argument leaf.

    Raises:
        InputError: it cannot be traced; the message names ``path``.
    """
    if isinstance(leaf, torch.Tensor):
        return _tensor_key(leaf, path)
    if type(leaf) is int:
        return INT_KEY
    if is_owner(leaf):
        return RECORD_KEY
    if type(leaf) is float:
        return ConstantKey(float, leaf, digits(leaf))
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise InputError(
            f"argument {path} is a {type(leaf).__name__} of another tracer; pass a plain number"
        )
    try:  # a slice of plain numbers is its parts (before Python 3.12 it has no hash)
        hash((leaf.start, leaf.stop, leaf.step) if type(leaf) is slice else leaf)
    except Exception as error:  # also of a __hash__ of the user's
        raise InputError(
            f"argument {path} is an unhashable {type(leaf).__name__}, so it can be neither traced "
            "nor guarded; pass tensors, numbers, strings, hashable constants, or containers of "
            "them (register others with torch.utils._pytree)"
        ) from error
    key = constant_key(leaf)
    return ConstantKey(type(leaf), key if type(key) is IdentityKey else leaf, key)


def _tensor_key(tensor: torch.Tensor, path: str) -> TensorKey:
    refused = refused_tensor(tensor, path)
    if refused:
        raise InputError(refused)
    same: tuple[Any, ...] = (*equal_part(tensor), tensor.dim(), layout_of(tensor), type(tensor))
    return TensorKey(*same)


def refused_tensor(tensor: torch.Tensor, path: str, kinds: Sequence[type] = TENSOR_TYPES) -> str:
    """Return why a tensor cannot be an argument of a program; empty if it can.

    Args:
        tensor: the argument, or Dynamo's fake tensor for it.
        path: its name, for people.
        kinds: the classes that are allowed.
    """
    if type(tensor) not in kinds:
        return f"argument {path} is a {type(tensor).__name__}; only plain tensors can be traced"
    if tensor.layout is not torch.strided:
        return f"argument {path} has layout {tensor.layout}; only strided tensors can be traced"
    if tensor.is_nested:
        return f"argument {path} is a nested tensor; only plain tensors can be traced"
    if tensor.is_quantized:
        return f"argument {path} is quantized; only plain tensors can be traced"
    if tensor.is_conj() or tensor.is_neg():
        lazy, resolve = (
            ("conjugated", "resolve_conj") if tensor.is_conj() else ("negated", "resolve_neg")
        )
        return f"argument {path} is lazily {lazy}, which cannot be traced; pass {path}.{resolve}()"
    return ""


def is_canonical(tensor: torch.Tensor) -> bool:
    """Return whether the strides are those of a fresh tensor, also where the size is 0 or 1:
    programs can read them.
    """
    if not tensor.is_contiguous():
        return False
    shape = tensor.shape
    if 1 not in shape and 0 not in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(tensor.stride()), strict=True):
        if stride != expected:
            return False
        expected *= size or 1
    return True


def layout_of(tensor: torch.Tensor) -> str:
    """Return the layout of a tensor."""
    if not is_canonical(tensor):
        return STRIDED
    return OFFSET if tensor.storage_offset() else CONTIGUOUS


def tensor_integers(tensor: torch.Tensor, layout: str) -> tuple[int, ...]:
    """Return the integers that are read of a tensor of this layout: sizes, strides, offset."""
    if layout is CONTIGUOUS:
        return tensor.shape
    if layout is OFFSET:
        return (*tensor.shape, tensor.storage_offset())
    return (*tensor.shape, *tensor.stride(), tensor.storage_offset())


def _tensor_sources(path: str, key: TensorKey) -> list[Source]:
    """Return the source of each of :func:`tensor_integers`."""
    found: list[Source] = [Size(path, d) for d in range(key.ndim)]
    if key.layout is STRIDED:
        found += [Stride(path, d) for d in range(key.ndim)]
    if key.layout is not CONTIGUOUS:
        found.append(StorageOffset(path))
    return found


def sources_of(call: Call) -> list[Source]:
    """Return the source of each integer of the call, in the order of :func:`values_of`."""
    found: list[Source] = []
    for path, key in zip(call.paths, call.keys, strict=True):
        if key is INT_KEY:
            found.append(IntArg(path))
        elif isinstance(key, TensorKey):
            found += _tensor_sources(path, key)
    return found


def values_of(leaves: Sequence[Any], keys: Sequence[LeafKey]) -> tuple[int, ...]:
    """Return the integers of a call with these keys."""
    found: list[int] = []
    for leaf, key in zip(leaves, keys, strict=True):
        if type(key) is TensorKey:
            found += tensor_integers(leaf, key.layout)
        elif key is INT_KEY:
            found.append(leaf)
    return tuple(found)
