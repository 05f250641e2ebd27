"""Container arguments beside tuples, lists and plain dictionaries, as the quick reading of a call
flattens them.

These are named tuples, the dictionaries of ``collections``, deques, and all classes that are
registered with ``torch.utils._pytree``. Each class has one function that flattens an instance,
found once for the class. Its result holds as much as torch's own flattening does, so that calls
with equal parts nest in the same way.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from symshape.calls.constant_keys import PLAIN, IdentityKey, context_key
from symshape.calls.object_kinds import is_cache
from symshape.torch_internals import pytree

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


def _keys(table: dict[Any, Any]) -> tuple[Any, ...] | None:
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
    keys = _keys(value)
    return None if keys is None else ((type(value), "of", *keys), value.values())


def _with_default(value: Any) -> ContainerParts | None:
    keys, default = _keys(value), value.default_factory
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
