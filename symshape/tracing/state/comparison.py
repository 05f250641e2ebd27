"""Whether places still hold what they held, exactly: one generated expression, and a slow second look.

The expression compares by identity.  Where it fails, each place is read once more: an equal plain value in place of
another is no change, and is remembered, so that the expression holds again.
"""

from __future__ import annotations

import collections
import itertools
import keyword
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import attrs

from symshape.tracing.state.places import MISSING, Attribute, Cell, Container, items_of, same

UNREADABLE = (LookupError, ValueError, RuntimeError, AttributeError)
"""What reading a place may raise that is gone (a key, a variable), or that another thread is writing."""


_PLAIN_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


class Place(Protocol):
    """Any other place that can say for itself whether it holds what it held."""

    def holds(self) -> bool:
        """Whether it does; it may raise one of ``UNREADABLE``, which is a no."""


@attrs.frozen(eq=False)
class Table:
    """A mapping in which new keys count: those among ``names``, or every one if ``names`` is None."""

    owner: Mapping[Any, Any]
    known: frozenset[Any]
    names: frozenset[Any] | None = None


@attrs.frozen(eq=False)
class Hooks:
    """A dictionary of hooks: the very same functions in the same order, or none."""

    owner: Mapping[Any, Any]
    functions: tuple[Any, ...] = ()


@attrs.frozen(eq=False)
class Places:
    """The places that one program read, by kind.

    Attributes:
        cells: one value each: the item ``key`` of a mapping, the contents of a closure cell, or an attribute that
            stands in no dictionary; ``MISSING`` where there was none.
        containers: lists, sets and dictionaries with all their items, in order.
        tables: mappings in which new keys count.
        hooks: dictionaries of hooks.
        others: whatever else can say for itself.
    """

    cells: Sequence[Cell | Attribute] = ()
    containers: Sequence[Container] = ()
    tables: Sequence[Table] = ()
    hooks: Sequence[Hooks] = ()
    others: Sequence[Place] = ()

    def with_owners(self, chosen: Callable[[Any], bool]) -> Places:
        """Only those of the places with an owner that are chosen, and all of the others."""
        cells, containers = list(filter(chosen, self.cells)), list(filter(chosen, self.containers))
        return Places(
            cells, containers, list(filter(chosen, self.tables)), list(filter(chosen, self.hooks)), self.others
        )


class Comparison:
    """Compares places with what they held.

    Attributes:
        quick: the generated expression, as a function: whether nothing changed; no, or one of ``UNREADABLE`` raised,
            asks for ``holds``.
    """

    __slots__ = ("_by_keys", "_names", "_places", "quick")

    def __init__(self, places: Places, first: tuple[Callable[[Any], bool], Any] | None = None) -> None:
        """``first`` is a check, with its argument, that the quick expression begins with."""
        self._places = places
        self._by_keys: list[Table] = []
        self._names: dict[str, Any] = {
            "all": all, "any": any, "getattr": getattr, "len": len, "list": list, "map": map, "tuple": tuple,
            "dict_get": dict.get, "chain": itertools.chain.from_iterable, "identical": _identical, "items": items_of,
            "missing": MISSING, "same": is_,
        }  # fmt: skip
        lines = []
        if first is not None:
            self._names["check"], self._names["checked"] = first
            lines.append("check(checked)")
        lines += [*self._cells(), *self._containers(), *self._tables(), *self._rest()] or ["True"]
        source = "def quick():\n    return (\n        " + "\n        and ".join(lines) + "\n    )\n"
        exec(source, self._names)  # made of our own names, and of attributes' names as literals
        self.quick: Callable[[], bool] = self._names["quick"]

    # -- the expression
    def _cells(self) -> Iterable[str]:
        owners: dict[int, str] = {}
        for i, cell in enumerate(self._places.cells):
            owner = owners.setdefault(id(cell.owner), f"o{len(owners)}")
            self._names[owner], self._names[f"v{i}"] = cell.owner, cell.value
            key = repr(cell.key) if type(cell.key) is str else f"k{i}"
            if key == f"k{i}":
                self._names[key] = cell.key
            if isinstance(cell, Attribute):
                spelt = cell.key.isidentifier() and not keyword.iskeyword(cell.key) and cell.value is not MISSING
                yield f"{owner}.{cell.key} is v{i}" if spelt else f"getattr({owner}, {key}, missing) is v{i}"
            elif isinstance(cell.owner, types.CellType):
                if cell.value is MISSING:
                    self._names[f"r{i}"] = lambda cell=cell: _read(cell) is MISSING
                    yield f"r{i}()"
                else:
                    yield f"{owner}.cell_contents is v{i}"
            elif isinstance(cell.owner, dict) and type(cell.owner) is not dict:  # past its class's own look-up
                yield f"dict_get({owner}, {key}, missing) is v{i}"
            elif cell.value is MISSING:
                yield f"{key} not in {owner}"
            elif type(cell.owner) is dict or isinstance(cell.owner, types.MappingProxyType):
                yield f"{owner}[{key}] is v{i}"
            else:  # its own way of reading may add what is missing
                yield f"{owner}.get({key}, missing) is v{i}"

    def _containers(self) -> Iterable[str]:
        """Plain sequences and sets all at once; what may iterate in its own way one by one."""
        flat = [each for each in self._places.containers if type(each.owner) in _PLAIN_CONTAINERS]
        if flat:
            self._names["flat"] = [each.owner for each in flat]
            self._names["flat_lengths"] = [len(each.items) for each in flat]
            self._names["flat_items"] = [item for each in flat for item in each.items]
            yield "list(map(len, flat)) == flat_lengths and all(map(same, chain(flat), flat_items))"
        for i, container in enumerate(self._places.containers):
            if type(container.owner) not in _PLAIN_CONTAINERS:
                self._names[f"c{i}"], self._names[f"i{i}"] = container.owner, container.items
                yield f"identical(items(c{i}), i{i})"

    def _tables(self) -> Iterable[str]:
        """A table of compared keys has a new one if it grew; of another the keys are compared, as the second look
        found them.
        """
        compared: dict[int, set[Any]] = {}
        for cell in self._places.cells:
            if cell.value is not MISSING:
                compared.setdefault(id(cell.owner), set()).add(cell.key)
        empty = [each.owner for each in self._places.hooks if not each.functions]
        by_length: list[Table] = []
        for each in self._places.tables:
            if each.names is not None or not each.known <= compared.get(id(each.owner), set()):
                self._by_keys.append(each)
            elif each.known:
                by_length.append(each)
            else:
                empty.append(each.owner)
        self._names["lengths"] = [len(each.known) for each in by_length]
        self._names["keys"] = [None] * len(self._by_keys)
        for name, tables, check in (
            ("empty", empty, "not any(empty)"),
            ("by_length", [each.owner for each in by_length], "list(map(len, by_length)) == lengths"),
            ("by_keys", [each.owner for each in self._by_keys], "list(map(list, by_keys)) == keys"),
        ):
            if tables:
                self._names[name] = tables
                yield check

    def _rest(self) -> Iterable[str]:
        for i, each in enumerate(self._places.hooks):
            if each.functions:
                self._names[f"h{i}"], self._names[f"f{i}"] = each.owner, each.functions
                yield f"identical(tuple(h{i}.values()), f{i})"
        for i, place in enumerate(self._places.others):
            self._names[f"p{i}"] = place.holds
            yield f"p{i}()"

    # -- the second look
    def holds(self) -> bool:
        """Whether every place holds what it held; what is equal but another object is quick from now on."""
        try:
            fresh = self._fresh()
        except UNREADABLE:
            return False
        if fresh is not None:
            self._names.update(fresh)
        return fresh is not None

    def _fresh(self) -> dict[str, Any] | None:
        """Names of the expression with their values now; None if something changed."""
        fresh: dict[str, Any] = {}
        for i, cell in enumerate(self._places.cells):
            fresh[f"v{i}"] = now = _read(cell)
            if not same(now, cell.value):
                return None
        flat: list[Any] = []
        for i, container in enumerate(self._places.containers):
            items = items_of(container.owner)
            if len(items) != len(container.items) or not all(map(same, items, container.items)):
                return None
            if type(container.owner) in _PLAIN_CONTAINERS:
                flat += items
            else:
                fresh[f"i{i}"] = items
        keys = {}
        for table in self._places.tables:
            keys[id(table)] = now = list(table.owner)
            new = set(now) - table.known
            if new and (table.names is None or new & table.names):
                return None
        fresh["flat_items"], fresh["keys"] = flat, [keys[id(each)] for each in self._by_keys]
        return fresh if self._rest_holds() else None

    def _rest_holds(self) -> bool:
        for each in self._places.hooks:
            if not _identical(tuple(each.owner.values()), each.functions):
                return False
        return all(place.holds() for place in self._places.others)


def _read(cell: Cell | Attribute) -> Any:
    if isinstance(cell, Attribute):
        return cell.read()
    if isinstance(cell.owner, types.CellType):
        try:
            return cell.owner.cell_contents
        except ValueError:
            return MISSING
    return cell.read()


def _identical(now: tuple[Any, ...], then: tuple[Any, ...]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))
