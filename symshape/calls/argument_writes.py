"""What a program writes to lists and dictionaries among its arguments, and which of them it gives back.

A graph sees the tensors and numbers in such a container, never the container; so what it holds at the end is written
into the caller's own by who makes the call.  What was there before stays the very same object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from symshape.calls.alike import NOTHING
from symshape.calls.outputs import Build, builder
from symshape.calls.variables import CONTAINERS, Output, Where, Write, refill

Path = tuple[Any, ...]
"""0 or 1, for the positional and the keyword arguments; then positions and keys."""


@attrs.frozen
class Held:
    """What the container held before the call, under a key or at a position."""

    key: Any


@attrs.frozen
class At:
    """The container among the arguments that is there."""

    path: Path


@attrs.frozen(eq=False)
class ArgumentContents:
    """What a container among the arguments holds, as the variable of a :class:`Write`.

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
        """Of no place outside."""
        return 0, self.path

    def read(self) -> Any:
        """Nothing: it is a part of a call."""
        return NOTHING

    def write(self, value: Any) -> None:
        """Nothing: see :class:`ArgumentWrites`."""


@attrs.frozen(eq=False)
class ArgumentWrites:
    """What the calls of a program do to the containers among their arguments.

    Attributes:
        writes: to containers.
        returned: which of the flat outputs stand for which of them.
        outside: the ids of containers that the program reads elsewhere, of which none may be an argument.
    """

    writes: Sequence[Write] = ()
    returned: Mapping[int, Path] = attrs.field(factory=dict)
    outside: Collection[int] = frozenset()
    _builds: Sequence[Build] = attrs.field(init=False)

    @_builds.default
    def _made_builds(self) -> Sequence[Build]:
        return tuple(builder(each.tree) for each in self.writes)

    def fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether no container that is written is one that the program reads elsewhere."""
        paths = [each.variable.path for each in self.writes if isinstance(each.variable, ArgumentContents)]
        return all(id(at(args, kwargs, path)) not in self.outside for path in paths)

    def finish(
        self, flat: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any], build: Callable[[list[Any]], Any]
    ) -> Any:
        """The result of a call with these flat outputs, having written."""
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
    """What stands in a place of a call's arguments."""
    found: Any = kwargs if path[0] else args
    for key in path[1:]:
        found = found[key]
    return found


def _new_items(
    each: Write, nest: Build, flat: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """The caller's container, and a plain one with what it is to hold."""
    contents: Any = each.variable
    container = at(args, kwargs, contents.path)
    leaves: list[Any] = []
    for leaf in each.leaves:
        kind = type(leaf)
        if kind is Output:
            leaves.append(flat[leaf.position])
        elif kind is Held:
            leaves.append(container[leaf.key])
        else:
            leaves.append(at(args, kwargs, leaf.path) if kind is At else leaf)
    items = nest(leaves)
    return container, items if contents.keys is None else dict(zip(contents.keys, items, strict=True))


def paths_of(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """The containers that can be written to in nested arguments, each with the way to it."""
    found: list[tuple[Path, Any]] = [(path, value)] if type(value) in CONTAINERS and len(path) > 1 else []
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)) or type(value) in CONTAINERS:
        items = enumerate(value)
    for key, item in items:
        found += paths_of(item, (*path, key))
    return found
