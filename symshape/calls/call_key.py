"""The one maker of call keys: the exact key, by which a call is found again, and the structure,
which finds its tree.

- ``FLAT`` makes the quickest look-up: one hashable key of everything about flat arguments, sizes
  included.
- ``read`` splits any call into its structure (nesting, keyword names, dtypes, devices, constants,
  modes) and the integers that the dispatch tree works on.

Both describe a tensor by ``arguments.EQUAL`` and its layout, as ``arguments.TensorKey`` does. Calls
with equal exact keys have equal structures and integers; calls with equal structures have equal
leaf keys. The functions for flat arguments are generated once for each number of arguments, so that
a call runs straight-line code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.calls.arguments import (
    CONTIGUOUS,
    EQUAL,
    NO_VARIABLES,
    TENSOR_TYPES,
    Variables,
    duplicates,
    equal_part,
    flatten_call,
    is_canonical,
    layout_of,
    tensor_integers,
    values_of,
)
from symshape.calls.compiled import READING
from symshape.calls.constant_keys import IdentityKey, Nesting, Nothing, digits
from symshape.calls.constants import constant
from symshape.calls.containers import container_parts
from symshape.calls.floats import FloatLeaf, VaryingFloat
from symshape.calls.modes import IN_LINE, NAMES, modes
from symshape.calls.object_arguments import FlattenedObject, Record, is_class, is_part, overrides_of
from symshape.calls.object_kinds import contents, is_record

_MOST = 1024
"""The largest number of flat arguments of a call that has a quick key."""
_MOST_WRITTEN_OUT = 16
_CONSTANTS = frozenset(
    (
        bool,
        str,
        bytes,
        type(None),
        Nothing,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    )
)
_PLAIN = frozenset((int, Nesting, *_CONSTANTS))
_AS_THEY_ARE = _CONSTANTS - {bool, str, type(None)}
_COMPLEX = frozenset(
    each for each in vars(torch).values() if isinstance(each, torch.dtype) and each.is_complex
)
_TENSORS = frozenset(TENSOR_TYPES)

_VARYING = (FloatLeaf,)
_TAKEN = (FlattenedObject,)
_CONSTANT = "a constant"
_AGAIN = "the first leaves that are the same"
_OVERRIDES = "what the class of an object puts before its attributes"

MakeKey = Callable[[Sequence[Any], Mapping[str, Any]], Hashable | None]
"""``make(leaves, kwargs)``: the key of a call with these leaves, keyword arguments last; None if
there is no key.
"""


class Makers(dict[int, MakeKey]):
    """The functions that make keys, by the number of leaves; a subscript chooses one without a
    Python frame.

    Args:
        make: makes one of them, which is done when it is asked for first.
    """

    def __init__(self, make: Callable[[int], MakeKey]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> MakeKey:
        found = self[number] = self._make(number) if 0 < number <= _MOST else _no_key
        return found


def _no_key(leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    return None


Reading = tuple[Sequence[Any], tuple[Hashable, ...], tuple[int, ...]]
"""The leaves, the structure and the integers of a call."""


@attrs.frozen
class ExactKey:
    """An exact key: it identifies a call, sizes included.

    Attributes:
        makers: ``makers[len(leaves)](leaves, kwargs)`` is the key.
        lasts: whether a call may be remembered by its key.
    """

    makers: Makers
    lasts: Callable[[Sequence[Any]], bool]


class _Unusual(Exception):
    """Something that only ``symshape.calls.arguments`` can judge (and name in a message)."""


# -- the exact key of flat arguments


def _plain(leaf: Any) -> Any:
    """Return the part of the key for a leaf that is no ordinary tensor; None if only the slow path
    can decide.
    """
    kind = type(leaf)
    if kind in _PLAIN:
        return (kind, leaf)
    if kind is float:
        return (kind, digits(leaf))
    if kind is FloatLeaf or kind is VaryingFloat:
        return _VARYING
    # what it is, and what it holds, is said by the nest and the leaves after it
    if kind is FlattenedObject:
        return _TAKEN
    if kind is torch.nn.Parameter:
        return (kind, leaf.shape, *equal_part(leaf), _layout(leaf))
    found = constant(leaf)
    return None if found is None else (_CONSTANT, found)


def _layout(leaf: torch.Tensor) -> Any:
    plain = (
        is_canonical(leaf)
        and 1 not in leaf.shape
        and 0 not in leaf.shape
        and not leaf.storage_offset()
    )
    return (plain and leaf.layout is torch.strided) or _strides(leaf)


def _strides(leaf: torch.Tensor) -> Any:
    """Return the strides and offset of a tensor that is not contiguous from the start of its
    memory.
    """
    # a lazily negated view of an imaginary part has an offset
    if leaf.layout is not torch.strided or leaf.is_neg():
        raise _Unusual
    return (leaf.stride(), leaf.storage_offset())


def _generate(number: int) -> MakeKey:
    if number > _MOST_WRITTEN_OUT:
        return _of_many
    names = [f"a{i}" for i in range(number)]
    lines = [
        "def key(leaves, kwargs):",
        # first: this refuses function modes of the user's, which would see us read the leaves
        *(f"    {line}" for line in IN_LINE),
        f"    {', '.join(names)}{',' if number == 1 else ''} = leaves",
        "    try:",
    ]
    for name in names:
        lines += [
            f"        if type({name}) is Tensor:",
            f"            s{name} = {name}.shape",
            f"            k{name} = (s{name}, {', '.join(f'{name}.{each}' for each in EQUAL)},",
            f"                (1 not in s{name} and 0 not in s{name} and {name}.is_contiguous()"
            f" and not {name}.storage_offset() and {name}.layout is strided) or strides({name}))",
            "        else:",
            f"            k{name} = plain_part({name})",
            f"            if k{name} is None: return None",
        ]
    # sparse, nested …: no sizes, no strides
    lines.append("    except (Unusual, RuntimeError, NotImplementedError): return None")
    key = f"now, {', '.join(f'k{name}' for name in names)}"
    if number > 1:
        ids = ", ".join(f"id({name})" for name in names)
        lines.append("    again = " + ("a0 is a1" if number == 2 else f"len({{{ids}}}) < {number}"))
        lines.append(f"    key = ({key}, *repeats(leaves)) if again else ({key})")
    else:
        lines.append(f"    key = ({key})")
    lines.append("    return (key, *kwargs) if kwargs else key")
    namespace = {
        "Tensor": torch.Tensor,
        "plain_part": _plain,
        "repeats": _repeats,
        "strides": _strides,
    }
    namespace["strided"] = torch.strided  # a tensor of oneDNN's says that it is contiguous, too
    return _function("\n".join(lines), Unusual=_Unusual, **namespace, **NAMES)


def _function(source: str, **names: Any) -> MakeKey:
    """Run generated source, which is made of our own names and numbers only; return its function
    ``key``.
    """
    exec(source, names)
    return names["key"]  # type: ignore[no-any-return]


def _of_many(leaves: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
    """Make the key that the generated functions make, for any number of leaves."""
    parts: list[Any] = [modes()]
    try:
        for leaf in leaves:
            plain = type(leaf) is torch.Tensor
            part = (leaf.shape, *equal_part(leaf), _layout(leaf)) if plain else _plain(leaf)
            if part is None:
                return None
            parts.append(part)
    except (_Unusual, RuntimeError, NotImplementedError):
        return None
    key = (*parts, *_repeats(leaves))
    return (key, *kwargs) if kwargs else key


def _repeats(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the part of the key that says which leaves are the same object; empty if none are."""
    found = duplicates(leaves)
    return ((_AGAIN, found),) if any(first != i for i, first in enumerate(found)) else ()


def _one_twice(leaves: Sequence[Any]) -> bool:
    """Return whether one tensor is passed twice."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return len(set(tensors)) < len(tensors)


def _tells_apart(leaves: Sequence[Any]) -> bool:
    """Return whether a flat key identifies these leaves; not if one is complex, as it may be a lazy
    conjugate.
    """
    for leaf in leaves:  # noqa: SIM110 - a generator is slower
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _COMPLEX:
            return False
    return True


FLAT = ExactKey(Makers(_generate), _tells_apart)
"""The exact key of a call with flat arguments, wherever it comes from; none for nested arguments.
"""


def _quick() -> ExactKey:
    if READING is None:
        return FLAT
    kinds = (
        Nesting,
        FlattenedObject,
        FloatLeaf,
        VaryingFloat,
        torch.nn.Parameter,
        _AS_THEY_ARE,
        constant,
    )
    return ExactKey(Makers(lambda number: READING.Maker(FLAT.makers[number], *kinds)), FLAT.lasts)


QUICK = _quick()
"""The exact keys that calls use: in one pass of C++ where ``compiled_reading.cpp`` was built, else
``FLAT``.

The C++ key is the call as bytes without its integers, then these integers, the nesting (if there is
one), and constants.
"""


_DTYPE = 1 + EQUAL.index("dtype")


def without_integers(key: Any) -> tuple[Hashable, tuple[int, ...]] | None:
    """Split the exact key of a flat call into a key without integers, and the integers.

    None if the integers are not all that is read of the call. Calls whose keys without integers are
    equal have equal structures.

    >>> calls = (
    ...     (torch.ones(2, 3), 4),
    ...     (torch.ones(5, 6), 7),
    ...     (torch.ones(3, 2).T, 4),
    ...     (torch.ones(1, 3), 4),
    ... )
    >>> first, second, transposed, one = [
    ...     without_integers(FLAT.makers[2](call, {})) for call in calls
    ... ]
    >>> first[1], second[1], first[0] == second[0], transposed, one
    ((2, 3, 4), (5, 6, 7), True, None, None)
    """
    if type(key[0]) is bytes:  # made by C++
        return (key[0] if len(key) == 2 else (key[0], *key[2:])), key[1]
    parts = key[0] if type(key[0]) is tuple else key  # the names of keyword arguments come after
    rest: list[Any] = []
    values: list[int] = []
    for part in parts[1:]:
        first = part[0]
        if type(first) is torch.Size:
            if part[-1] is not True or part[_DTYPE].is_complex:
                # strides, or a size of 1 or 0, are not read as sizes alone; a key hides a lazy
                # conjugate
                return None
            values += first
            rest.append((len(first), part[1:]))
        elif first is int:
            values.append(part[1])
            rest.append(int)
        elif first is torch.nn.Parameter:
            return None
        else:
            rest.append(part)
    return (parts[0], tuple(rest), key[1:] if parts is not key else ()), tuple(values)


# -- the structure and the integers of any call


def read(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    variables: Variables = NO_VARIABLES,
) -> Reading:
    """Return a call's leaves in pytree order, its structure, and its integers; those of variables
    come last.

    Two calls with equal structures differ in nothing but their integers (and the data of their
    tensors).

    Raises:
        InputError: an argument cannot be traced.
    """
    found = read_usual(args, kwargs, variables.values)
    if found is not None:
        return found
    call = flatten_call(fn, args, kwargs, variables, paths=False)
    return (
        call.leaves,
        (modes(), call.nesting, call.keys, call.duplicates),
        values_of(call.leaves, call.keys),
    )


def read_usual(
    args: Sequence[Any], kwargs: Mapping[str, Any], variables: Sequence[Any] = ()
) -> Reading | None:
    """Read a call as :func:`read` does, but without objects for messages; None for an unusual
    call.
    """
    leaves: list[Any] = []
    parts: list[Any] = [modes(), len(args), *kwargs]
    values: list[int] = []
    containers: list[int] = []
    try:
        for each in args:
            _read(each, leaves, parts, values, containers)
        for each in kwargs.values():
            _read(each, leaves, parts, values, containers)
        if variables:
            parts.append(len(variables))
            for each in variables:
                _read(each, leaves, parts, values, containers)
    except (_Unusual, RuntimeError, NotImplementedError):
        return None
    if len(containers) > 1 and len(set(containers)) < len(containers):
        return None
    if len(leaves) > 1 and _one_twice(leaves):
        first: dict[int, int] = {}
        parts.append(
            tuple(
                [
                    first.setdefault(id(x), i)
                    for i, x in enumerate(leaves)
                    if isinstance(x, torch.Tensor)
                ]
            )
        )
    return leaves, tuple(parts), tuple(values)


def _read(
    leaf: Any, leaves: list[Any], parts: list[Any], values: list[int], containers: list[int]
) -> None:
    """Read one argument.  Every branch writes a part that no other branch can write."""
    kind = type(leaf)
    if kind in _TENSORS:
        if (
            leaf.layout is not torch.strided
            or leaf.is_quantized
            or (leaf.dtype in _COMPLEX and leaf.is_conj())
        ):
            raise _Unusual
        layout = layout_of(leaf)
        if layout is not CONTIGUOUS and leaf.is_neg():
            raise _Unusual
        values += tensor_integers(leaf, layout)
        parts.append((leaf.dim(), layout, *equal_part(leaf), kind))
        leaves.append(leaf)
    elif kind is int:
        parts.append(int)
        values.append(leaf)
        leaves.append(leaf)
    elif kind in _CONSTANTS:
        parts.append((kind, leaf))
        leaves.append(leaf)
    elif kind is float:
        parts.append((float, digits(leaf)))
        leaves.append(leaf)
    elif kind is tuple or kind is list:
        parts.append((kind, len(leaf)))
        if kind is list:
            containers.append(id(leaf))
        for each in leaf:
            _read(each, leaves, parts, values, containers)
    elif kind is dict and all(type(key) is str for key in leaf):
        parts.append((dict, *leaf))
        containers.append(id(leaf))
        for each in leaf.values():
            _read(each, leaves, parts, values, containers)
    elif is_record(leaf):
        _read_record(leaf, leaves, parts, values, containers)
    else:
        found = container_parts(leaf)
        if found is None:
            raise _Unusual
        part, items = found
        parts.append(part)
        if not isinstance(leaf, tuple):
            containers.append(id(leaf))
        for each in items:
            _read(each, leaves, parts, values, containers)


def _read_record(
    record: Any, leaves: list[Any], parts: list[Any], values: list[int], containers: list[int]
) -> None:
    """Read an object that is flattened, and its attributes."""
    names, held = contents(record)
    parts.append((Record, type(record), *names))
    before = overrides_of(record, names)
    if before:
        parts.append((_OVERRIDES, before))
    containers.append(id(record))
    leaves.append(record)
    for each in held:
        kind = type(each)
        if kind in _TENSORS or kind in _CONSTANTS or kind is int or kind is float:
            _read(each, leaves, parts, values, containers)
        elif is_part(each):
            _read_record(each, leaves, parts, values, containers)
        elif is_class(each):
            parts.append((type, IdentityKey(each)))
            leaves.append(each)
        else:  # tuples, objects
            raise _Unusual
