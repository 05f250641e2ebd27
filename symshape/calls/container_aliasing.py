"""Aliasing of containers: lists and dictionaries that are distinct in one call may be one object in
another.

A trace treats two containers as one only if they were one in the traced call, and never treats a
dictionary as the attributes of an object. A program therefore knows the ids of the containers that
it reads or writes outside its arguments. A call whose arguments include such a container, or have
it as their ``__dict__``, runs eagerly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from symshape.calls.argument_writes import paths_of
from symshape.calls.arguments import Call
from symshape.calls.constant_keys import PLAIN
from symshape.calls.object_arguments import FlattenedObject, owner_of
from symshape.calls.variables import (
    CONTAINERS,
    Contents,
    DictionaryItem,
    FloatPlace,
    InnerContainer,
    Write,
)

ONE_ANOTHER = 0
"""An entry among the ids (no object has this id): a dictionary argument may be the attributes of
another argument.
"""


_NO_OWNERS = frozenset((*PLAIN, float, torch.Tensor, torch.nn.Parameter))


def forbidden_containers(
    call: Call, containers: Sequence[Any], writes: Sequence[Write], records: bool, own: bool
) -> frozenset[int]:
    """Return the ids of the lists and dictionaries outside that may not be among the arguments.

    Args:
        call: the call that was traced; others that the program serves have the same keys and
            attributes.
        containers: what the program reads outside.
        writes: what it writes outside.
        records: whether it writes to objects among its arguments.
        own: whether it writes to lists and dictionaries among them.
    """
    found = _attributes_apart(call, containers, writes, records or own)
    if call.has_records:
        matters = bool(writes) or records
    else:
        matters = any(isinstance(each.variable, (Contents, InnerContainer)) for each in writes)
    if matters:  # calls of one structure hold such things in the same places
        held = any(isinstance(each, CONTAINERS) for each in call.leaves)  # by objects
        matters = held or bool(paths_of(call.nest(call.leaves)[:2]))
    return frozenset(found.union(map(id, containers)) if matters else found)


def _attributes_apart(
    call: Call, containers: Iterable[Any], writes: Sequence[Write], own: bool
) -> set[int]:
    """Return the ids of dictionaries that may not be the attributes of an argument."""
    given = [each for _, each in paths_of(call.nest(call.leaves)[:2])] + [
        owner_of(each) for each in call.leaves
    ]
    keys = [set(each) for each in given if isinstance(each, dict)]
    names = [set(each) for each in _attributes(call.leaves)] if call.has_records else []
    variables = [
        each.variable.variable if isinstance(each.variable, FloatPlace) else each.variable
        for each in writes
    ]
    entries = [each for each in variables if isinstance(each, DictionaryItem)]
    found = {id(each.owner) for each in entries if any(each.key in every for every in keys)}
    if names and (writes or own):
        found |= {id(each) for each in containers if type(each) is dict and set(each) in names}
        if any(each in names for each in keys):
            found.add(ONE_ANOTHER)
    return found


def any_forbidden(
    apart: Collection[int], leaves: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a container with one of these ids is an argument of the call, or the
    attributes of one.
    """
    given, attributes = set[int](), set[int]()
    _add_containers(args, given)
    if kwargs:
        _add_containers(kwargs.values(), given)
    for leaf in leaves:
        if type(leaf) not in _NO_OWNERS:
            owner = leaf[0] if type(leaf) is FlattenedObject else owner_of(leaf)
            given.add(id(owner))
            held = None if type(owner) in (list, dict) else getattr(owner, "__dict__", None)
            if type(held) is dict and held:
                attributes.add(id(held))
    if ONE_ANOTHER in apart and not given.isdisjoint(attributes):
        return True
    return not (given.isdisjoint(apart) and attributes.isdisjoint(apart))


def _add_containers(values: Iterable[Any], found: set[int]) -> None:
    """Add the ids of the containers that ``paths_of`` returns."""
    for value in values:
        kind = type(value)
        if kind in _NO_OWNERS:
            continue
        if kind in CONTAINERS:
            found.add(id(value))
        if isinstance(value, Mapping):
            _add_containers(value.values(), found)
        elif isinstance(value, (list, tuple)) or kind in CONTAINERS:
            _add_containers(value, found)


def _attributes(leaves: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the attributes of the objects among the leaves of a call."""
    owners = [owner_of(each) for each in leaves if not isinstance(each, torch.Tensor)]
    held = (getattr(each, "__dict__", None) for each in owners)
    return [each for each in held if type(each) is dict and each]
