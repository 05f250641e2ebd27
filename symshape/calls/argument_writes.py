"""Writes to lists and dictionaries among the arguments, and returns of these containers.

A graph computes the tensors and numbers in such a container, never the container. The caller of the
program therefore writes the final items into the user's own container. Items that the program does
not replace stay the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from symshape.calls.constant_keys import NOTHING
from symshape.calls.outputs import Build, builder
from symshape.calls.variables import CONTAINERS, OutputReference, Where, Write, refill

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


def paths_of(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """Return the mutable containers in nested arguments, each with its path."""
    found: list[tuple[Path, Any]] = (
        [(path, value)] if type(value) in CONTAINERS and len(path) > 1 else []
    )
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)) or type(value) in CONTAINERS:
        items = enumerate(value)
    for key, item in items:
        found += paths_of(item, (*path, key))
    return found
