"""Lists and dictionaries among the arguments: writes to them, and their aliasing.

Two containers that are distinct in one call may be one object in another. A trace treats two as one
only if they were one in the traced call, and never treats a dictionary as the attributes of an
object. A program therefore knows the ids of the containers that it reads or writes outside its
arguments. A call whose arguments include such a container, or have it as their ``__dict__``, runs
eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.calls.arguments import Call
from symshape.calls.constant_keys import NOTHING, PLAIN
from symshape.calls.object_arguments import FlattenedObject, owner_of
from symshape.calls.outputs import Build, builder
from symshape.calls.variables import (
    CONTAINERS,
    Contents,
    DictionaryItem,
    FloatPlace,
    InnerContainer,
    OutputReference,
    Where,
    Write,
    containers_in,
    refill,
)

# -- Writes to lists and dictionaries among the arguments, and returns of these containers.
#
# A graph computes the tensors and numbers in such a container, never the container. The caller
# of the program therefore writes the final items into the user's own container. Items that the
# program does not replace stay the same objects.
Path = tuple[Any, ...]
"""The path to a container: 0 or 1, for the positional and the keyword arguments; then positions and
keys.
"""


@attrs.frozen
class Held:
    """The item that the container held before the call, under a key or at a position."""

    key: Any


@attrs.frozen
class At:
    """The container at this path among the arguments."""

    path: Path


@attrs.frozen(eq=False)
class ArgumentContents:
    """The contents of a container among the arguments, as the variable of a :class:`Write`.

    Attributes:
        path: where it is.
        keys: of a dictionary, in order; None for a list.
        name: for people.
    """

    path: Path
    keys: tuple[Any, ...] | None
    name: str

    @property
    def where(self) -> Where:
        """The path; it is no place outside the arguments."""
        return 0, self.path

    def read(self) -> Any:
        """Return ``NOTHING``: the container is a part of the call."""
        return NOTHING

    def write(self, value: Any) -> None:
        """Do nothing: :class:`ArgumentWrites` writes."""


@attrs.frozen(eq=False)
class ArgumentWrites:
    """The writes of a program to the containers among its arguments.

    Attributes:
        writes: to containers.
        returned: which of the flat outputs stand for which of them.
        outside: the ids of containers that the program reads elsewhere, of which none may be an
            argument.
    """

    writes: Sequence[Write] = ()
    returned: Mapping[int, Path] = attrs.field(factory=dict)
    outside: Collection[int] = frozenset()
    _builds: Sequence[Build] = attrs.field(init=False)

    @_builds.default
    def _made_builds(self) -> Sequence[Build]:
        return tuple(builder(each.tree) for each in self.writes)

    def fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether no written container is one that the program reads elsewhere."""
        paths = [
            each.variable.path
            for each in self.writes
            if isinstance(each.variable, ArgumentContents)
        ]
        return all(id(at(args, kwargs, path)) not in self.outside for path in paths)

    def finish(
        self,
        flat: list[Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        build: Callable[[list[Any]], Any],
    ) -> Any:
        """Write to the containers, and return the result of a call with these flat outputs."""
        pairs = zip(self.writes, self._builds, strict=True)
        values = [_new_items(each, nest, flat, args, kwargs) for each, nest in pairs]
        if self.returned:
            flat = list(flat)
            for position, path in self.returned.items():
                flat[position] = at(args, kwargs, path)
        built = build(flat)
        for container, items in values:
            refill(container, items)
        return built


def at(args: Sequence[Any], kwargs: Mapping[str, Any], path: Path) -> Any:
    """Return the value at a path in a call's arguments."""
    found: Any = kwargs if path[0] else args
    for key in path[1:]:
        found = found[key]
    return found


def _new_items(
    each: Write, nest: Build, flat: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the user's container, and a plain container with its new items."""
    contents: Any = each.variable
    container = at(args, kwargs, contents.path)
    leaves: list[Any] = []
    for leaf in each.leaves:
        kind = type(leaf)
        if kind is OutputReference:
            leaves.append(flat[leaf.position])
        elif kind is Held:
            leaves.append(container[leaf.key])
        else:
            leaves.append(at(args, kwargs, leaf.path) if kind is At else leaf)
    items = nest(leaves)
    return container, items if contents.keys is None else dict(
        zip(contents.keys, items, strict=True)
    )


def paths_of(nested: Any) -> list[tuple[Path, Any]]:
    """Return the mutable containers in the arguments of a call, ``(args, kwargs)``, each with its
    path.
    """
    return [(path, each) for path, each in containers_in(nested) if len(path) > 1]


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
