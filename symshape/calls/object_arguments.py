"""Arguments that are objects and that a program may write to: transformers' caches, dataclasses and
the like.

Such an object, a *record*, is nothing but its attributes. It is flattened into them: its tensors
become inputs of a graph, and its numbers become integers of the call. The record itself is the
first of its leaves, so that writes of a program reach the user's own object. Lists and dictionaries
in a record are records too.

(Caches are registered with ``torch.utils._pytree`` only where they are exported, differently from
version to version, and unflatten to other objects. So they are flattened here, and that registry
stays unchanged.)
"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from symshape.calls.object_kinds import contents, is_record, note_argument, overrides, slots_of
from symshape.torch_internals import pytree

# -- how records nest in a call and in a result: what is put in their place


@attrs.frozen(eq=False)
class Record:
    """An object among the arguments. Its leaves are the object itself, then the values of its
    attributes.

    Attributes:
        overrides: what its class puts before these: see ``object_kinds.overrides``.
    """

    kind: type
    names: tuple[Any, ...]
    owner: Any
    values: Sequence[Any]
    overrides: tuple[Any, ...] = ()

    @property
    def context(self) -> tuple[Any, ...]:
        """A key that two records in calls of one structure share."""
        return (
            (self.kind, self.names, self.overrides) if self.overrides else (self.kind, self.names)
        )


@attrs.frozen(eq=False)
class MadeObject:
    """An object in a result or among written values: each call makes a new one."""

    kind: type
    names: tuple[Any, ...]
    number: int
    values: Sequence[Any]


@attrs.frozen
class MadeReference:
    """Another occurrence of the object that was made as that number."""

    number: int


@attrs.frozen
class ArgumentReference:
    """An argument that is returned or stored: the object that is the leaf at that position."""

    position: int


@attrs.frozen(eq=False)
class HeldClass:
    """A class that an object holds."""

    value: Any


@attrs.frozen(eq=False)
class ObjectWrite:
    """The contents of one argument after the call: attributes or items by name, or all items of a
    list.
    """

    position: int
    kind: type
    names: tuple[Any, ...]
    values: Sequence[Any]


@attrs.frozen(eq=False)
class Outcome:
    """The result of a function, and its writes to objects among its arguments."""

    result: Any
    writes: Sequence[ObjectWrite]


@attrs.frozen(eq=False)
class _Owner:
    """A holder that makes an argument one leaf, whatever its class is registered as."""

    value: Any


class FlattenedObject(tuple[Any]):
    """A holder of an argument that was flattened, among the leaves of a quick key; no argument is
    of this class.
    """

    __slots__ = ()


class _Itself:
    """The path from a record to itself: empty."""

    def __str__(self) -> str:
        return ""


def _keys(kind: type, names: Sequence[Any]) -> list[Any]:
    if kind is list:
        return [pytree.SequenceKey(i) for i in range(len(names))]
    return [pytree.MappingKey(name) if kind is dict else pytree.GetAttrKey(name) for name in names]


def _with_keys(record: Record) -> tuple[list[Any], Any]:
    paths = [_Itself(), *_keys(record.kind, record.names)]
    return list(zip(paths, _parts(record), strict=True)), record.context


def _parts(record: Record) -> list[Any]:
    return [_Owner(record.owner), *record.values]


def _register() -> None:
    """Register the classes of this module, and no others, as nodes of torch's pytrees."""
    pytree.register_pytree_node(
        Record,
        lambda each: (_parts(each), each.context),
        lambda parts, context: Record(
            context[0], context[1], (p := list(parts))[0], p[1:], *context[2:]
        ),
        flatten_with_keys_fn=_with_keys,
    )
    nodes: list[tuple[type, Callable[[Any], Any], Callable[[Any, Any], Any]]] = [
        (
            MadeObject,
            lambda e: (list(e.values), (e.kind, e.names, e.number)),
            lambda v, c: MadeObject(c[0], c[1], c[2], list(v)),
        ),
        (
            ObjectWrite,
            lambda e: (list(e.values), (e.position, e.kind, e.names)),
            lambda v, c: ObjectWrite(c[0], c[1], c[2], list(v)),
        ),
        (
            Outcome,
            lambda e: ([e.result, *e.writes], None),
            lambda v, c: Outcome((p := list(v))[0], p[1:]),
        ),
        (MadeReference, lambda e: ([], e.number), lambda v, c: MadeReference(c)),
        (ArgumentReference, lambda e: ([], e.position), lambda v, c: ArgumentReference(c)),
        (HeldClass, lambda e: ([], e.value), lambda v, c: HeldClass(c)),
    ]
    for kind, flatten, unflatten in nodes:

        def with_keys(each: Any, flatten: Callable[[Any], Any] = flatten) -> tuple[list[Any], Any]:
            parts, context = flatten(each)
            names = (
                _keys(each.kind, each.names)
                if isinstance(each, (MadeObject, ObjectWrite))
                else [_Itself()] * len(parts)
            )
            return list(zip(names, parts, strict=True)), context

        pytree.register_pytree_node(kind, flatten, unflatten, flatten_with_keys_fn=with_keys)


_register()
STAND_INS = frozenset(
    {Record, MadeObject, MadeReference, ArgumentReference, HeldClass, ObjectWrite, Outcome}
)
"""The classes that stand for objects in the structure of a call or of a result."""


# -- taking apart


def overrides_of(record: Any, names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the class attributes that take precedence over a record's own; lists and dictionaries
    have none.
    """
    kind = type(record)
    return () if kind is dict or kind is list else overrides(kind, names)


def is_part(value: Any) -> bool:
    """Return whether a value in a record is a record too."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str or type(key) is int for key in value)
    return kind is list or is_record(value)


def flattened(value: Any) -> Any:
    """Return a nested value with a :class:`Record` for each record in it; the value itself if there
    is none.

    An object that holds itself stays unchanged.
    """
    return _taken_apart(value, {}, False)


def _taken_apart(value: Any, done: dict[int, Any], inside: bool) -> Any:
    if id(value) in done:
        return done[id(value)]
    note_argument(value)
    if is_record(value) or (inside and is_part(value)):
        done[id(value)] = value  # for an object that holds itself
        names, values = contents(value)
        parts = [_taken_apart(each, done, True) for each in values]
        done[id(value)] = Record(type(value), names, value, parts, overrides_of(value, names))
        return done[id(value)]
    return rebuilt(value, done, lambda each: _taken_apart(each, done, inside))


def rebuilt(value: Any, done: dict[int, Any], convert: Callable[[Any], Any]) -> Any:
    """Return a container with each item converted; the container itself if nothing changes."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        return value
    children, context = node.flatten_fn(value)
    items = list(children)
    new = [convert(each) for each in items]
    changed = any(one is not other for one, other in zip(items, new, strict=True))
    done[id(value)] = node.unflatten_fn(new, context) if changed else value
    return done[id(value)]


def owner_of(leaf: Any) -> Any:
    """Return the record that a leaf stands for; other leaves are returned unchanged."""
    kind = type(leaf)
    return leaf.value if kind is _Owner else leaf[0] if kind is FlattenedObject else leaf


def is_owner(leaf: Any) -> bool:
    """Return whether a leaf, as pytree gives it, stands for a record."""
    return type(leaf) is _Owner


# -- putting together


def assembled(kind: Any, names: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return a new object, list or dictionary of these parts."""
    if kind is list:
        return list(values)
    if kind is dict:
        return dict(zip(names, values, strict=True))
    made = kind.__new__(kind) if kind is types.SimpleNamespace else object.__new__(kind)
    write(made, names, values)
    return made


def write(record: Any, names: Sequence[Any], values: Sequence[Any]) -> None:
    """Write new attributes or items to a record."""
    kind = type(record)
    if kind is list:
        record[:] = values
    elif kind is dict or not (slots := slots_of(kind)):
        (record if kind is dict else record.__dict__).update(zip(names, values, strict=True))
    else:
        for name, value in zip(names, values, strict=True):
            if name in slots:
                object.__setattr__(record, name, value)
            else:
                record.__dict__[name] = value


def is_class(value: Any) -> bool:
    """Return whether a value is a class, which a record may hold."""
    return type(value) in (type, abc.ABCMeta)
