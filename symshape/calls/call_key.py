"""A call's arguments read once, quickly: the exact key of flat arguments, and the structure and integers of any call.

``quick_key`` is the quickest look-up there is: everything about the arguments, sizes included, as one hashable key.
``read`` splits a call into what must be equal (the structure: nesting, dtypes, devices, constants, modes) and the
integers that the dispatch tree works on; unlike ``symshape.calls.arguments`` it makes no objects for people to look
at.  The functions for flat arguments are generated once for each number of them, so that a call runs straight-line
code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from symshape.calls.arguments import TENSOR_TYPES, is_canonical
from symshape.calls.modes import modes

_PLAIN = (int, bool, str, type(None))
_CONSTANTS = frozenset((bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))
_COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))
_TENSORS = frozenset(TENSOR_TYPES)

Tensor = torch.Tensor
Reading = tuple[list[Any], Hashable, tuple[int, ...]]
"""The leaves, the structure, the integers."""


def _plain(leaf: Any) -> Any:
    """A constant argument's part of the key; None where only the slow path can tell."""
    kind = type(leaf)
    if kind in _PLAIN:
        return (kind, leaf)
    if kind is float:
        return (kind, repr(leaf))
    if kind is torch.nn.Parameter:
        return (kind, leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad, _layout(leaf))
    return None


def _layout(leaf: torch.Tensor) -> Any:
    return (is_canonical(leaf) and not leaf.storage_offset()) or _strides(leaf)


def _strides(leaf: torch.Tensor) -> Any:
    """The strides and offset of a tensor that is not contiguous from the start of its memory."""
    if leaf.layout is not torch.strided or leaf.is_neg():  # a lazily negated view of an imaginary part has an offset
        return object()  # equal to nothing
    return (leaf.stride(), leaf.storage_offset())


def _generate(number: int) -> Callable[[tuple[Any, ...]], Hashable]:
    names = [f"a{i}" for i in range(number)]
    lines = ["def key(leaves):", f"    {', '.join(names)}{',' if number == 1 else ''} = leaves", "    try:"]
    for name in names:
        lines += [
            f"        if type({name}) is Tensor:",
            f"            s{name} = {name}.shape",
            f"            k{name} = (s{name}, {name}.dtype, {name}.device, {name}.requires_grad,",
            f"                (1 not in s{name} and 0 not in s{name} and {name}.is_contiguous()"
            f" and not {name}.storage_offset()) or strides({name}))",
            "        else:",
            f"            k{name} = plain({name})",
            f"            if k{name} is None: return None",
        ]
    lines.append(
        "    except (RuntimeError, NotImplementedError): return None"
    )  # sparse, nested …: no sizes, no strides
    if number == 2:
        lines.append("    if a0 is a1 and isinstance(a0, Tensor): return None")
    elif number > 2:
        ids = ", ".join(f"id({name})" for name in names)
        lines.append(f"    if len({{{ids}}}) < {number} and repeats(leaves): return None")
    lines.append(f"    return (modes(), {', '.join(f'k{name}' for name in names)})")
    namespace = {"Tensor": torch.Tensor, "plain": _plain, "modes": modes, "repeats": _repeats, "strides": _strides}
    exec("\n".join(lines), namespace)  # made of our own names only
    return namespace["key"]  # type: ignore[return-value]


def _repeats(leaves: Sequence[Any]) -> bool:
    """Whether one tensor is passed twice."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return len(set(tensors)) < len(tensors)


_generated = [_generate(number) for number in range(1, 17)]


def quick_key(leaves: tuple[Any, ...]) -> Hashable | None:
    """The key of flat arguments, or None where only the slow path can tell (nested arguments, one tensor twice)."""
    number = len(leaves)
    return _generated[number - 1](leaves) if 0 < number <= 16 else None


def lasting_key(leaves: tuple[Any, ...]) -> Hashable | None:
    """``quick_key``, to remember: None where two calls that must be told apart would share it (lazy conjugates)."""
    if any(isinstance(leaf, torch.Tensor) and leaf.dtype in _COMPLEX for leaf in leaves):
        return None
    return quick_key(leaves)


class _Unusual(Exception):
    """Something that only ``symshape.calls.arguments`` can judge (and name in a message)."""


def read(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Reading | None:
    """A call's leaves in pytree order, its structure, and its integers; None for a call that is out of the ordinary.

    Two calls with equal structures differ in nothing but their integers (and the data of their tensors).
    """
    leaves: list[Any] = []
    parts: list[Any] = [modes(), len(args), *kwargs]
    values: list[int] = []
    try:
        for each in args:
            _read(each, leaves, parts, values)
        for each in kwargs.values():
            _read(each, leaves, parts, values)
    except (_Unusual, RuntimeError, NotImplementedError):
        return None
    if len(leaves) > 1 and _repeats(leaves):
        first: dict[int, int] = {}
        parts.append(tuple([first.setdefault(id(x), i) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]))
    return leaves, tuple(parts), tuple(values)


def _read(leaf: Any, leaves: list[Any], parts: list[Any], values: list[int]) -> None:
    """One argument.  Every branch writes a part that no other branch can write."""
    kind = type(leaf)
    if kind in _TENSORS:
        shape, dtype = leaf.shape, leaf.dtype
        if leaf.layout is not torch.strided or leaf.is_quantized or (dtype in _COMPLEX and leaf.is_conj()):
            raise _Unusual
        values += shape
        if is_canonical(leaf):
            offset = leaf.storage_offset()
            layout = 1 if offset else 0
        else:
            values += leaf.stride()
            offset, layout = leaf.storage_offset(), 2
        if layout:
            if leaf.is_neg():
                raise _Unusual
            values.append(offset)
        parts.append((len(shape), dtype, leaf.device, leaf.requires_grad, layout))
        leaves.append(leaf)
    elif kind is int:
        parts.append(int)
        values.append(leaf)
        leaves.append(leaf)
    elif kind in _CONSTANTS:
        parts.append((kind, leaf))
        leaves.append(leaf)
    elif kind is float:
        parts.append((float, repr(leaf)))
        leaves.append(leaf)
    elif kind is tuple or kind is list:
        parts.append((kind, len(leaf)))
        for each in leaf:
            _read(each, leaves, parts, values)
    elif kind is dict and all(type(key) is str for key in leaf):
        parts.append((dict, *leaf))
        for each in leaf.values():
            _read(each, leaves, parts, values)
    else:
        raise _Unusual
