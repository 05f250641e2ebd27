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

import abc
import collections
import enum
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
from symshape.calls.compiled import READING, class_version
from symshape.calls.constant_keys import (
    PLAIN,
    IdentityKey,
    Nesting,
    constant_key,
    context_key,
    digits,
    field_names,
    may_have_parts,
    vars_beside,
)
from symshape.calls.floats import FloatLeaf, VaryingFloat
from symshape.calls.modes import IN_LINE, NAMES, modes
from symshape.calls.object_arguments import FlattenedObject, Record, is_class, is_part, overrides_of
from symshape.calls.object_kinds import contents, is_cache, is_record, never_flattened
from symshape.torch_internals import pytree

# -- Constant arguments in exact keys: keyed by their parts, or by identity.
#
# Examples are a configuration, a function, a module, a class, a member of an enumeration. The
# key agrees with the slow reading of a call (``constant_key``), in one step. A leaf that is
# flattened (``object_arguments.py``), that nests, or that has no hash has no key here: only the
# slow reading can judge it.
#
# What a class says about its objects is cached until the class changes (``class_version``).
_ALWAYS_ITSELF = frozenset((types.FunctionType, types.BuiltinFunctionType, type, abc.ABCMeta))
_NO_CONSTANTS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, tuple)
_PLAIN_OR_FLOAT = PLAIN | {float}
_MOST_KEPT = 4096
_FIELDS = "by its fields"

Key = Callable[[Any], Hashable | None]
_keys: dict[int, tuple[Callable[[], type | None], int, Key]] = {}
"""By the ids of classes: the class, its version, and the function that makes keys of its objects at
that version.
"""
_same: dict[int, IdentityKey] = {}
"""The identity keys of objects by their ids. When the first object with an id is gone, its key is
no longer valid.
"""


def constant(leaf: Any) -> Hashable | None:
    """Return a key that two constants share only if no program can distinguish them; None for the
    slow reading.

    >>> constant(print) == constant(print), constant(slice(0, 1)) == constant(slice(0, True))
    (True, False)
    """
    kind = type(leaf)
    if kind in _ALWAYS_ITSELF:
        return _itself(leaf)
    try:
        if kind in pytree.SUPPORTED_NODES:
            return None
        known = _keys.get(id(kind))
        if (
            known is None
            or known[0]() is not kind
            or not known[1]
            or known[1] != class_version(kind)
        ):
            if len(_keys) >= _MOST_KEPT:
                _keys.clear()
            known = _keys[id(kind)] = (weakref.ref(kind), *_version_and_key(kind))
        return known[2](leaf)
    except Exception:  # of a __hash__ of the user's
        return None


def _version_and_key(kind: type) -> tuple[int, Key]:
    if kind is slice:  # before Python 3.12 it has no hash
        return 0, _of_slice
    if issubclass(kind, _NO_CONSTANTS) or getattr(kind, "__hash__", None) is None:
        return class_version(kind), _none
    version, names = class_version(kind), field_names(kind)
    if names is not None:
        return version, lambda leaf: _of_fields(leaf, names)
    if never_flattened(kind) and not may_have_parts(kind):
        return version, _itself if kind.__hash__ is object.__hash__ else _hashed
    return version, _of_any


def _none(leaf: Any) -> None:
    return None


def _of_slice(leaf: slice) -> Hashable:
    hash((leaf.start, leaf.stop, leaf.step))
    return constant_key(leaf)


def _hashed(leaf: Any) -> IdentityKey | None:
    hash(leaf)
    return _itself(leaf)


def _of_any(leaf: Any) -> Hashable | None:
    if is_record(leaf):
        return None
    hash(leaf)
    key = constant_key(leaf)
    return _itself(leaf) if type(key) is IdentityKey else key


def _of_fields(leaf: Any, names: tuple[str, ...]) -> Hashable | None:
    """Return the key of an object that is nothing but these fields; most fields are numbers and
    texts.
    """
    values = [getattr(leaf, name) for name in names]
    kinds = list(map(type, values))
    if not _PLAIN_OR_FLOAT.issuperset(kinds) or vars_beside(leaf, names):
        return _of_any(leaf)
    hash(leaf)
    if float in kinds:
        values = [digits(each) if type(each) is float else each for each in values]
    return (_FIELDS, type(leaf), names, *kinds, *values)


def _itself(leaf: Any) -> IdentityKey | None:
    """Return the identity key of an object; None if the key would keep the object alive."""
    found = _same.get(id(leaf))
    if found is None or found.value is not leaf:
        found = IdentityKey(leaf)
        if not found.is_weak:
            # members live as long as their class
            return found if isinstance(leaf, enum.Enum) else None
        if len(_same) >= _MOST_KEPT:
            _same.clear()
        _same[id(leaf)] = found
    return found


# -- Container arguments beside tuples, lists and plain dictionaries, as the quick reading of a call
# flattens them.
#
# These are named tuples, the dictionaries of ``collections``, deques, and all classes that are
# registered with ``torch.utils._pytree``. Each class has one function that flattens an instance,
# found once for the class. Its result holds as much as torch's own flattening does, so that
# calls with equal parts nest in the same way.
ContainerParts = tuple[tuple[Any, ...], Iterable[Any]]
"""The part that must be equal beside the items, and the items."""
Take = Callable[[Any], ContainerParts | None]

_takes: weakref.WeakKeyDictionary[type, Take] = weakref.WeakKeyDictionary()


def container_parts(value: Any) -> ContainerParts | None:
    """Flatten a container; None for a value that is no container, or that only the slow reading can
    judge.
    """
    kind = type(value)
    take = _takes.get(kind)
    if take is None:
        take = _takes[kind] = _take_of(kind)
    return take(value)


def _take_of(kind: type) -> Take:
    if is_cache(kind):  # whatever else may have registered it
        return _nothing
    if pytree.is_namedtuple_class(kind):  # torch's flattening asks this first, too
        return _named
    return _BY_CLASS.get(kind) or (_registered if kind in pytree.SUPPORTED_NODES else _nothing)


def _nothing(value: Any) -> None:
    """Return None, since the class is no container; forget this once the class is registered."""
    if type(value) in pytree.SUPPORTED_NODES and not is_cache(type(value)):
        del _takes[type(value)]


def _named(value: Any) -> ContainerParts:
    return (type(value), len(value)), value


def _deque(value: Any) -> ContainerParts:
    return (collections.deque, value.maxlen, len(value)), value


def _keys_in(table: dict[Any, Any]) -> tuple[Any, ...] | None:
    """Return the keys of a dictionary, with their classes, which ``==`` ignores; None for keys of
    other classes.
    """
    found: list[Any] = []
    for key in table:
        kind = type(key)
        if kind is not str:
            if kind not in PLAIN:
                return None
            found.append(kind)
        found.append(key)
    return tuple(found)


def _dictionary(value: Any) -> ContainerParts | None:
    keys = _keys_in(value)
    return None if keys is None else ((type(value), "of", *keys), value.values())


def _with_default(value: Any) -> ContainerParts | None:
    keys, default = _keys_in(value), value.default_factory
    if keys is None or not (default is None or isinstance(default, (type, types.FunctionType))):
        return None
    return (type(value), default and IdentityKey(default), *keys), value.values()


def _registered(value: Any) -> ContainerParts | None:
    node = pytree.SUPPORTED_NODES.get(type(value))
    if node is None:  # no longer
        del _takes[type(value)]
        return None
    found, context = node.flatten_fn(value)
    items = list(found)
    return (type(value), len(items), context_key(context)), items


_BY_CLASS: dict[type, Take] = {
    dict: _dictionary,
    collections.OrderedDict: _dictionary,
    collections.defaultdict: _with_default,
    collections.deque: _deque,
}


_MOST = 1024
"""The largest number of flat arguments of a call that has a quick key."""
_MOST_WRITTEN_OUT = 16
_CONSTANTS = PLAIN - {int, types.EllipsisType}
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
