"""Check that the places a program read still hold their values, in a time that hardly grows with
their number.

Most places are items of dictionaries that are never written: attributes, parameters, submodules,
globals, members of classes.  Those dictionaries are watched as wholes (``compiled.VERSIONS``).
The other places are compared one by one (``Comparison``): places in dictionaries that are
written (a counter, the globals of a script), and the bases of the classes.

When a watch reports a write, everything is compared for some checks, which show the dictionaries
that are written often.  The quiet dictionaries are watched again afterwards.  The number of those
checks grows each time, so that watching never costs more than it saves.  A write is seen whatever
code made it.  A write that restores the old value is seen as well, so a reported write only asks
for an exact comparison.  Where our own C++ is not built, everything is compared each time.
"""

from __future__ import annotations

import collections
import itertools
import keyword
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import contains, getitem, is_
from typing import Any, Protocol, TypeGuard

import attrs

from symshape.tracing.state import compiled
from symshape.tracing.state.record.dictionary_reads import dicts_of_classes
from symshape.tracing.state.record.places import (
    MISSING,
    Answer,
    Attribute,
    Cell,
    Container,
    Keys,
    items_of,
    same,
    same_items,
    special_names,
)

# -- Compare places with the values that they held: one generated expression, then a slower exact
# comparison.
#
# The expression compares by identity. If it fails, each place is read once more. An equal plain
# value in place of another is no change; the new value is remembered, so that the expression
# holds again.
#
# Python's compiler takes ten times as long to compile an expression as the expression takes to
# read its places. If there are many places, the first checks therefore read them column by
# column (``_Columns``). The expression is compiled once there were enough checks.
UNREADABLE = (LookupError, ValueError, RuntimeError, AttributeError)
"""The errors of reading a place that no longer exists (a key, a variable) or that another thread is
writing.
"""


_MANY = 100  # places; from this number on, compiling the expression is delayed
# checks by columns, which take as long as compiling the expression and these checks by it
_FIRST_CHECKS = 200
_PLAIN_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


class Place(Protocol):
    """The interface of any other place that can compare itself with its old value."""

    def holds(self) -> bool:
        """Return whether the place holds its old value; one of ``UNREADABLE`` raised means no."""


@attrs.frozen(eq=False)
class Table:
    """A mapping in which new keys count: those among ``names``, or every one if ``names`` is
    None.
    """

    owner: Mapping[Any, Any]
    known: frozenset[Any]
    names: frozenset[Any] | None = None


@attrs.define(eq=False)  # never changed; frozen ones take twice as long to make
class Hooks:
    """A dictionary of hooks, which must hold the very same functions in the same order."""

    owner: Mapping[Any, Any]
    functions: tuple[Any, ...] = ()


@attrs.frozen(eq=False)
class Places:
    """The places that one program read, by kind.

    Attributes:
        cells: single values: the item ``key`` of a mapping, the contents of a closure cell, or
            an attribute that is stored in no dictionary; ``MISSING`` if there was no value.
        containers: lists, sets and dictionaries with all their items, in order.
        tables: mappings in which new keys count.
        hooks: dictionaries of hooks.
        others: places that compare themselves.
    """

    cells: Sequence[Cell | Attribute] = ()
    containers: Sequence[Container] = ()
    tables: Sequence[Table] = ()
    hooks: Sequence[Hooks] = ()
    others: Sequence[Place] = ()

    def with_owners(self, chosen: Callable[[Any], bool]) -> Places:
        """Return the places with an owner for which ``chosen`` is true, and all of ``others``."""
        cells, containers = list(filter(chosen, self.cells)), list(filter(chosen, self.containers))
        return Places(
            cells,
            containers,
            list(filter(chosen, self.tables)),
            list(filter(chosen, self.hooks)),
            self.others,
        )


class Comparison:
    """The comparison of places with the values that they held.

    Attributes:
        quick: the generated expression, as a function: True if nothing changed.  If it returns
            False or raises one of ``UNREADABLE``, call ``holds``.
    """

    __slots__ = (
        "_by_keys",
        "_columns",
        "_differed",
        "_left",
        "_names",
        "_others",
        "_places",
        "_pointers",
        "quick",
    )

    def __init__(
        self,
        places: Places,
        first: Callable[[None], bool] | None = None,
        *,
        lasting: bool = True,
    ) -> None:
        """Prepare the comparison of ``places``.

        Args:
            places: the places.
            first: a check that the quick expression begins with; it is called with None.
            lasting: whether ``quick`` stays the same function; otherwise it may be replaced by a
                quicker one after some checks, and callers must look up ``quick`` each time.
        """
        self._places = places
        self._differed: Cell | Attribute | Container | Place | None = None
        self._by_keys: list[Table] = []
        self._pointers: list[int] = []  # cells that C++ compares, by number
        self._names: dict[str, Any] = {
            "all": all,
            "any": any,
            "getattr": getattr,
            "len": len,
            "list": list,
            "map": map,
            "tuple": tuple,
            "dict_get": dict.get,
            "chain": itertools.chain.from_iterable,
            "identical": _identical,
            "items": items_of,
            "missing": MISSING,
            "same": is_,
        }
        begin = []
        if first is not None:
            self._names["check"] = first
            begin.append("check(None)")
        self._others = [*self._containers(), *self._tables(), *self._rest()]
        self._columns: _Columns | None = None
        self._left = _FIRST_CHECKS
        if lasting or len(places.cells) < _MANY:
            self.quick = self._expression([*begin, *self._cells()])
        else:
            self._columns = _Columns(places.cells, [each.value for each in places.cells])
            self._names["columns"] = self._by_columns
            self.quick = self._expression([*begin, "columns()"])

    def _expression(self, lines: Sequence[str]) -> Callable[[], bool]:
        source = "\n        and ".join([*lines, *self._others] or ["True"])
        source = f"def quick():\n    return (\n        {source}\n    )\n"
        exec(source, self._names)  # identifiers are literals in it, other keys variables
        made: Callable[[], bool] = self._names["quick"]
        return made

    def _by_columns(self) -> bool:
        """Return whether the cells hold their old values, in the first checks; the last one
        compiles the expression.
        """
        columns = self._columns
        assert columns is not None
        self._left -= 1
        if not self._left:
            self.quick = self._expression(list(self._cells()))
        return columns.hold()

    # -- the expression
    def _cells(self) -> Iterable[str]:
        owners: dict[int, str] = {}
        self._pointers = [i for i, cell in enumerate(self._places.cells) if is_pointer(cell)]
        if self._pointers:
            self._names["pointers"] = self._same_pointers({})
            yield "pointers()"
        in_one = set(self._pointers)
        for i, cell in enumerate(self._places.cells):
            if i in in_one:
                continue
            owner = owners.setdefault(id(cell.owner), f"o{len(owners)}")
            self._names[owner] = cell.owner
            # or the value that the exact comparison found
            self._names.setdefault(f"v{i}", cell.value)
            key = repr(cell.key) if type(cell.key) is str and cell.key.isidentifier() else f"k{i}"
            if key == f"k{i}":
                self._names[key] = cell.key
            if isinstance(cell, Attribute):
                spelt = (
                    cell.key.isidentifier()
                    and not keyword.iskeyword(cell.key)
                    and cell.value is not MISSING
                )
                yield (
                    f"{owner}.{cell.key} is v{i}"
                    if spelt
                    else f"getattr({owner}, {key}, missing) is v{i}"
                )
            elif isinstance(cell.owner, types.CellType):
                if cell.value is MISSING:
                    self._names[f"r{i}"] = lambda cell=cell: _read(cell) is MISSING
                    yield f"r{i}()"
                else:
                    yield f"{owner}.cell_contents is v{i}"
            # bypasses look-ups of the subclass
            elif isinstance(cell.owner, dict) and type(cell.owner) is not dict:
                yield f"dict_get({owner}, {key}, missing) is v{i}"
            elif cell.value is MISSING:
                yield f"{key} not in {owner}"
            elif type(cell.owner) is dict or isinstance(cell.owner, types.MappingProxyType):
                yield f"{owner}[{key}] is v{i}"
            else:  # a subclass's own way of reading may add what is missing
                yield f"{owner}.get({key}, missing) is v{i}"

    def _same_pointers(self, fresh: Mapping[str, Any]) -> Callable[[], bool]:
        """Return a function that compares the cells that are single pointers, with the values in
        ``fresh`` if given.
        """
        values = {number: fresh[f"v{i}"] for number, i in enumerate(self._pointers) if fresh}
        return same_pointers([self._places.cells[i] for i in self._pointers], values)

    def _containers(self) -> Iterable[str]:
        """Yield the checks of containers: one check for all plain sequences and sets, one for each
        other container.
        """
        flat = [
            each
            for each in self._places.containers
            if type(each.owner) in _PLAIN_CONTAINERS and each.items
        ]
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
        """Yield the checks for new keys in tables.

        A table whose known keys are all compared anyway has a new key if it grew.  Of any other
        table, all keys are compared with those that the exact comparison found.
        """
        compared: dict[int, set[Any]] = {}
        for cell in self._places.cells:
            if cell.value is not MISSING:
                compared.setdefault(id(cell.owner), set()).add(cell.key)
        empty = [each.owner for each in self._places.hooks if not each.functions]
        containers = [
            each for each in self._places.containers if type(each.owner) in _PLAIN_CONTAINERS
        ]
        empty += [each.owner for each in containers if not each.items]
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
            (
                "by_length",
                [each.owner for each in by_length],
                "list(map(len, by_length)) == lengths",
            ),
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
            if _is_of_names(place):  # all names, as the exact comparison found them
                self._names[f"n{i}"], self._names[f"s{i}"] = place.owner.keys(), _names_in(place)
                yield f"n{i} == s{i}"
            # a flag: no frame of ours
            elif isinstance(place, Answer) and type(place.value) in (bool, types.NoneType):
                self._names[f"p{i}"], self._names[f"w{i}"] = place.owner, place.value
                yield f"p{i}() is w{i}"
            else:
                self._names[f"p{i}"] = place.holds
                yield f"p{i}()"

    # -- the exact comparison
    def still_differs(self) -> bool:
        """Return whether the place that differed last still differs: a quick no, without reading
        the other places.
        """
        last = self._differed
        if last is None:
            return False
        try:
            if isinstance(last, (Cell, Attribute)):
                return not same(_read(last), last.value)
            if isinstance(last, Container):
                return not same_items(items_of(last.owner), last.items)
            return not last.holds()
        except UNREADABLE:
            return True

    def holds(self) -> bool:
        """Return whether every place holds its old value; equal objects found now are used by
        ``quick`` from now on.
        """
        try:
            fresh = self._fresh()
        except UNREADABLE:
            return False
        if fresh is None:
            return False
        self._names.update(fresh)
        if self._pointers:
            self._names["pointers"] = self._same_pointers(fresh)
        if self._columns is not None:
            cells = self._places.cells
            self._columns = _Columns(cells, [fresh[f"v{i}"] for i in range(len(cells))])
        return True

    def _fresh(self) -> dict[str, Any] | None:
        """Return the expression's names with their values now; None if something changed."""
        fresh: dict[str, Any] = {}
        for i, cell in enumerate(self._places.cells):
            fresh[f"v{i}"] = now = _read(cell)
            if not same(now, cell.value):
                self._differed = cell
                return None
        flat: list[Any] = []
        for i, container in enumerate(self._places.containers):
            items = items_of(container.owner)
            if not same_items(items, container.items):
                self._differed = container
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
        for i, place in enumerate(self._places.others):
            if _is_of_names(place):
                fresh[f"s{i}"] = _names_in(place)
        fresh["flat_items"], fresh["keys"] = flat, [keys[id(each)] for each in self._by_keys]
        return fresh if self._rest_holds() else None

    def _rest_holds(self) -> bool:
        for each in self._places.hooks:
            if not _identical(tuple(each.owner.values()), each.functions):
                return False
        for place in self._places.others:
            if not place.holds():
                self._differed = place
                return False
        return True


def _is_of_names(place: Place) -> TypeGuard[Keys]:
    """Return whether a place consists of the names in a class that Python looks up implicitly."""
    return isinstance(place, Keys) and place.special


def _names_in(place: Keys) -> frozenset[str] | None:
    """Return the names in that class now; None if the names that count have changed."""
    names = frozenset(place.owner)
    return names if frozenset(special_names(names)) == frozenset(place.value) else None


class _Columns:
    """Cells and the values that they held, grouped by the way they are read; each group is compared
    by one C loop.
    """

    __slots__ = ("_absent", "_attributes", "_items", "_others")

    def __init__(self, cells: Sequence[Cell | Attribute], values: Sequence[Any]) -> None:
        self._items: _Column = ([], [], [])
        self._absent: _Column = ([], [], [])
        self._attributes: _Column = ([], [], [])
        self._others: list[tuple[Cell | Attribute, Any]] = []
        for cell, value in zip(cells, values, strict=True):
            owner = cell.owner
            kind = type(owner)
            if type(cell) is Attribute:
                owners, keys, wanted = self._attributes
            elif kind is dict or kind is types.MappingProxyType:
                owners, keys, wanted = self._items if value is not MISSING else self._absent
            else:
                self._others.append((cell, value))
                continue
            owners.append(owner)
            keys.append(cell.key)
            wanted.append(value)

    def hold(self) -> bool:
        """Return whether all cells hold these very values; one of ``UNREADABLE`` raised means
        no.
        """
        owners, keys, values = self._items
        if not all(map(is_, map(getitem, owners, keys), values)):
            return False
        owners, keys, values = self._attributes
        if not all(map(is_, map(getattr, owners, keys, itertools.repeat(MISSING)), values)):
            return False
        owners, keys, _ = self._absent
        return not any(map(contains, owners, keys)) and all(
            _read(cell) is value for cell, value in self._others
        )


_Column = tuple[list[Any], list[Any], list[Any]]
"""The owners, keys and values of one group of cells."""


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


# -- Comparison of places that are one pointer in C: C++ compares all of them at once.
#
# Such places are the code and defaults of functions, the bases of classes, the class and the
# dictionary of an object, the parts of an object of C (``func`` of a ``partial``), and the
# variables of closures.
#
# Reading an attribute of a function through Python takes 300 ns from Python 3.12 on.
_OF_CLASSES = ("__mro__", "__class__")


def is_pointer(cell: Cell | Attribute) -> bool:
    """Return whether C++ can compare a place: the value that C++ reads there now is the one that
    Python reads.
    """
    owner = cell.owner
    if compiled.POINTERS is None or not (
        type(cell) is Attribute or isinstance(owner, types.CellType)
    ):
        return False
    # an attribute of a class: most of the places
    if isinstance(owner, type) and cell.key not in _OF_CLASSES:
        return False
    now = cell.read()
    try:
        return now is not MISSING and bool(
            compiled.POINTERS(((owner, _name_of(cell), now),)).same()
        )
    except TypeError:  # another attribute
        return False


def same_pointers(
    cells: Sequence[Cell | Attribute], values: Mapping[int, Any]
) -> Callable[[], bool]:
    """Return a function that checks that these places hold their old objects, or ``values`` where
    given by number.
    """
    places = [
        (each.owner, _name_of(each), values.get(i, each.value)) for i, each in enumerate(cells)
    ]
    same: Callable[[], bool] = compiled.POINTERS(tuple(places)).same
    return same


def _name_of(cell: Cell | Attribute) -> str:
    """Return the name of a place in C++: empty for a closure variable."""
    return cell.key if type(cell) is Attribute else ""


_WORTH = 40  # places in dictionaries; with fewer, comparing is as quick as watching
# checks in a row that hold, before the first watch: it costs as much as some hundred comparisons
_FIRST_WAIT = 8
_LONGER = 4  # factor: the next wait after a watch was dropped
_LONGEST_WAIT = 4096  # checks


@attrs.frozen(eq=False)
class _Watched:
    """The watch over the quiet dictionaries, and the comparison of the other places, which asks the
    watch first.
    """

    watch: Any  # of ``compiled.VERSIONS``
    others: Comparison


class Checker:
    """The check that all places hold their old values; any number of threads may call it.

    The answer is exact: False if any place differs, True if none does, whatever happened in
    between.

    Attributes:
        quick: a quick check whose True is exact; if it returns False or raises one of
            ``UNREADABLE``, call the checker.
    """

    __slots__ = (
        "_dicts",
        "_left",
        "_lock",
        "_noted",
        "_places",
        "_wait",
        "_watched",
        "_whole",
        "quick",
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self._dicts = _dicts(places)
        self._whole = Comparison(places, lasting=not self._dicts)
        self._watched: _Watched | None = None
        # returns which dictionaries were written since halfway through the wait
        self._noted: Callable[[], list[bool]] | None = None
        self._wait = self._left = _FIRST_WAIT
        self._lock = threading.Lock()
        # bool() is a no
        self.quick: Callable[[], bool] = bool if self._dicts else self._whole.quick

    def __call__(self) -> bool:
        """Return whether all places hold their old values."""
        if self._whole.still_differs():
            if self._dicts and self._lock.acquire(blocking=False):
                self._left, self._noted = self._wait, None
                self._lock.release()
            return False
        try:
            if self.quick():
                return True
        except UNREADABLE:
            pass
        if not self._dicts or not self._lock.acquire(blocking=False):
            return self._compare()
        try:
            return self._look()
        finally:
            self._lock.release()

    def _compare(self) -> bool:
        try:
            if self._whole.quick():
                return True
        except UNREADABLE:
            pass
        return self._whole.holds()

    def _look(self) -> bool:
        """Return the exact answer after the quick check said no; only one thread at a time may call
        this.
        """
        watched = self._watched
        if watched is not None:
            if watched.watch.unchanged(None):
                return watched.others.holds()
            self._drop()
        if not self._compare():
            self._left, self._noted = self._wait, None
            return False
        self._left -= 1
        if self._left == self._wait // 2:
            if compiled.VERSIONS is not None:
                self._noted = compiled.VERSIONS(tuple(self._dicts)).written
            else:
                self._left = self._wait
        return self._watch(self._noted) if self._noted is not None and self._left <= 0 else True

    def _drop(self) -> None:
        self._watched = self._noted = None
        self.quick = bool
        self._wait = self._left = min(self._wait * _LONGER, _LONGEST_WAIT)

    def _watch(self, written: Callable[[], list[bool]]) -> bool:
        """Watch the dictionaries that were not written lately; return whether all places hold under
        the new watch.
        """
        quiet = [
            each
            for each, was_written in zip(self._dicts, written(), strict=True)
            if not was_written
        ]
        if 2 * len(quiet) < len(self._dicts):
            self._drop()
            return True
        watch = compiled.VERSIONS(tuple(quiet))
        chosen = set(map(id, quiet))
        rest = self._places.with_owners(lambda place: not _says_all(_watchable(place), chosen))
        rest = attrs.evolve(rest, cells=[*rest.cells, *_bases_of(self._places, rest)])
        others = Comparison(rest, watch.unchanged)
        # what holds now was so when the watch began, or was written since and the watch saw it
        if not self._compare():
            self._left, self._noted = self._wait, None
            return False
        self._watched, self.quick = _Watched(watch, others), others.quick
        return True


def _watchable(place: Any) -> tuple[dict[Any, Any], ...]:
    """Return the dictionaries whose versions say everything about a place; none if a version does
    not say enough.

    The order of an OrderedDict can change without a new version.  Other subclasses may have
    look-ups of their own.
    """
    owner = place.owner
    if type(owner) is dict:
        return (owner,)
    if type(owner) is OrderedDict:
        ordered = len(place.functions) > 1 if type(place) is Hooks else hasattr(place, "items")
        if not ordered:
            return (owner,)
    return dicts_of_classes(place)


def _says_all(dicts: tuple[dict[Any, Any], ...], watched: set[int]) -> bool:
    return bool(dicts) and all(id(each) in watched for each in dicts)


def _bases_of(places: Places, rest: Places) -> list[Attribute]:
    """Return the bases of the classes whose attributes are watched: bases can change without a
    dictionary write.
    """
    left = set(map(id, rest.cells))
    watched = [
        each for each in places.cells if isinstance(each, Attribute) and id(each) not in left
    ]
    known = {id(each.owner) for each in rest.cells if each.key == "__mro__"}
    found = {id(each.owner): each for each in watched if id(each.owner) not in known}
    return [
        Attribute(each.owner, "__mro__", each.owner.__mro__, each.name) for each in found.values()
    ]


def _dicts(places: Places) -> list[dict[Any, Any]]:
    """Return the dictionaries to watch; none if there are too few places in them to be worth a
    watch.
    """
    owned = itertools.chain(places.cells, places.containers, places.tables, places.hooks)
    found: dict[int, dict[Any, Any]] = {}
    number = 0
    for place in owned:
        owner = place.owner
        if type(owner) is dict:
            found[id(owner)] = owner
            number += 1
            continue
        for each in _watchable(place):
            found[id(each)] = each
            number += 1
    return list(found.values()) if number >= _WORTH else []
