"""The writes of a traced program that its calls repeat: the places, and their values at the end of
the trace.
"""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.calls import variables
from symshape.calls.constant_keys import NOTHING
from symshape.calls.naming import item_name
from symshape.calls.variables import (
    CONTAINERS,
    FloatPlace,
    Variable,
    Where,
    containers_in,
    is_number,
)
from symshape.errors import Problem, Reason
from symshape.forks import cached_property
from symshape.torch_internals import pytree
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.record.lru_caches import Missing
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Attribute,
    Cell,
    Container,
    Keys,
    Place,
    same_items,
)
from symshape.tracing.state.record.reads import SYMBOLIC
from symshape.tracing.state.record.recorder import Recorder

_MOST_ITEMS = 4096  # items of a container that is read at each call


@attrs.frozen(eq=False)
class Change:
    """One write of a program to one place.

    Attributes:
        variable: the place.
        leaves: the pytree leaves of the value.
        tree: the pytree structure of the value.
        containers: the ids of the lists and dictionaries in the value that the program made.
        text: the problem to report if the write cannot be repeated.
        value: the value, or a copy of the items of a container that is filled; None if the value
            must not be read.
    """

    variable: Variable
    leaves: list[Any]
    tree: pytree.TreeSpec
    containers: tuple[int, ...]
    text: str
    value: Any = None


class Changes:
    """The writes of a trace to Python objects, all of them undone.

    Args:
        recorder: the recording of what the program read and wrote.

    Attributes:
        problems: the writes that cannot be repeated.
        changes: the writes that can perhaps be repeated.
        missing: the results that functions with an ``lru_cache`` computed.
        unmade: problems with objects in ``missing``; no problems if those are made outside of the
            trace.
        given: the ids of lists and dictionaries among the arguments.
        returned_arguments: by number of a leaf of the result, the argument container that the leaf
            stands for.
        to_objects: a flag: the program wrote to an object among the arguments.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stand_ins = recorder.stand_ins
        self.problems: list[Problem] = []
        self.changes: list[Change] = []
        self.missing: list[Missing] = []
        self.unmade: list[Problem] = []
        self.given: set[int] = set()
        self.returned_arguments: dict[int, tuple[Any, ...]] = {}
        self.to_objects = False

    @cached_property
    def _objects(self) -> dict[int, Any]:
        return _objects_outside(self._recorder)

    def is_kept(self, value: Any) -> bool:
        """Return whether an object existed before the trace, so that every later call uses the very
        same object.
        """
        return (
            id(value) in self._objects
            and id(value) not in self._stand_ins
            and not holds_symbolic(value)
        )

    def returned(self, result: Any) -> list[Problem]:
        """Return the problem, if a result holds a list or dictionary that is stored outside the
        function.
        """
        outside = [
            each
            for _, each in containers_in(result)
            if id(each) in self._stand_ins or self.is_kept(each)
        ]
        text = (
            "returns a list or dictionary that is also stored outside the function; return a "
            "copy of it"
        )
        return [Problem(text, Reason.OBJECTS)] if outside else []

    def to(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the leaves of a call if a graph serves calls and the program wrote to an object
        among them, or ().
        """
        return leaves if self.to_objects and self._recorder.serves else ()

    def _are_keys_plain(self, value: Any) -> bool:
        """Return whether the keys of every dictionary in a value are the same in each call."""
        tables = (
            each
            for _, each in containers_in(value)
            if isinstance(each, dict) and not self.is_kept(each)
        )
        return all(
            _is_plain(key) or self.is_kept(key)
            for each in (value, *tables)
            if isinstance(each, dict)
            for key in each
        )

    def add(self, variable: Variable | None, now: Any, text: str) -> None:
        """Add the write to a place that holds another value at the end of the trace.

        Args:
            variable: the place; None if no call can write there.
            now: the value at the end of the trace.
            text: the problem to report if the write cannot be repeated.
        """
        if variable is None or _holds_itself(now):
            self.problems.append(Problem(text, Reason.STATE))
            return
        value = NOTHING if now is MISSING else now
        filled = isinstance(variable, (variables.Contents, variables.InnerContainer))
        leaves, tree = pytree.flatten_until(
            value, lambda each: (each is not value or not filled) and self.is_kept(each)
        )
        inside = [
            id(each)
            for path, each in containers_in(value)
            if (path or not filled) and not self.is_kept(each)
        ]
        outside = self._stand_ins | self._objects.keys()  # copies of these would be made by a call
        if not outside.isdisjoint(inside) or not self._are_keys_plain(value):
            self.problems.append(Problem(text, Reason.STATE))
            return
        self.changes.append(
            Change(
                variable, leaves, tree, tuple(inside), text, copy.copy(value) if filled else value
            )
        )


def _objects_outside(recorder: Recorder) -> dict[int, Any]:
    """Return, by id, the objects outside the program that it came upon; every call compares each of
    them.
    """
    places = (each.value for each in recorder.places if isinstance(each, (Cell, Attribute)))
    items = (item for each in recorder.containers for item in each.items)
    owners = (each.owner for each in recorder.containers)
    return {
        id(each): each
        for group in (places, items, owners)
        for each in group
        if type(each) not in PLAIN
    }


def of_container(recorder: Recorder, container: Container) -> Variable | None:
    """Return the variable that writes the contents of a container; None if nothing can write
    them.
    """
    owner = container.owner
    if (
        type(owner) not in CONTAINERS
        or len(owner) > _MOST_ITEMS
        or owner is vars(os.environ)["_data"]
    ):
        return None
    return recorder.stand_ins.get(id(owner)) or variables.Contents(owner, container.name)


def variables_read(recorder: Recorder, wanted: Collection[Where]) -> list[Variable]:
    """Return the places in ``wanted`` that the program read and each call can read; gradients are
    always included.
    """
    found: list[Variable] = []
    for place in recorder.places:
        if _is_gradient(place.owner, place.key) or (wanted and where_of(place) in wanted):
            variable = _variable(recorder, place)
            if variable is not None and _is_small(place.value):
                found.append(variable)
    for each in recorder.containers if wanted else ():
        if (
            (id(each.owner), "") in wanted
            and type(each.owner) in CONTAINERS
            and _is_small(each.items)
        ):
            found.append(variables.Contents(each.owner, each.name))
        elif isinstance(each.owner, dict):
            keys = [key for key in each.items[::2] if (id(each.owner), key) in wanted]
            found += [
                variables.DictionaryItem(each.owner, key, recorder.item(each.name, key))
                for key in keys
            ]
    return [FloatPlace(each) if is_number(each.read()) else each for each in found]


def items_but(container: Container, known: Collection[Where]) -> list[Place]:
    """Return the places of a dictionary's keys and items, without the items whose places are in
    ``known``.
    """
    owner, items = container.owner, container.items
    if not isinstance(owner, dict):
        return []
    pairs = list(zip(items[::2], items[1::2], strict=True))
    found: list[Place] = [
        Keys(owner, tuple(key for key, _ in pairs), f"the keys of {container.name}")
    ]
    names = (
        (key, value, item_name(container.name, key))
        for key, value in pairs
        if (id(owner), key) not in known
    )
    return found + [Cell(owner, key, value, name) for key, value, name in names]


def changing_floats(now: State, then: State) -> list[FloatPlace]:
    """Return the places that two states compare and that hold different floats in them."""
    before = {(id(each.owner), each.key): each for each in then.places if isinstance(each, Cell)}
    pairs = [
        (before.get((id(each.owner), each.key)), each)
        for each in now.places
        if isinstance(each, Cell)
    ]
    cells = [each for old, each in pairs if old is not None and _differ(old.value, each.value)]
    found: list[Variable] = []
    for each in cells:
        if isinstance(each.owner, types.CellType):
            found.append(variables.ClosureVariable(each.owner, each.name))
        elif isinstance(each.owner, dict):
            found.append(variables.DictionaryItem(each.owner, each.key, each.name))
    tables = {
        id(each.owner): each.items for each in then.containers if isinstance(each.owner, dict)
    }
    for table in now.containers:
        items = tables.get(id(table.owner))
        if items is None or not same_items(table.items[::2], items[::2]):
            continue
        for key, one, other in zip(items[::2], table.items[1::2], items[1::2], strict=True):
            if _differ(one, other):
                found.append(variables.DictionaryItem(table.owner, key, item_name(table.name, key)))
    return [FloatPlace(each) for each in found]


def changed_floats(then: State) -> list[FloatPlace]:
    """Return the places that a state compares and that hold another float now."""
    found: list[Variable] = []
    for each in then.places:
        if isinstance(each, Cell) and is_number(each.value) and _differ(each.value, each.read()):
            if isinstance(each.owner, types.CellType):
                found.append(variables.ClosureVariable(each.owner, each.name))
            elif isinstance(each.owner, dict):
                found.append(variables.DictionaryItem(each.owner, each.key, each.name))
    for table in then.containers:
        if isinstance(table.owner, dict):
            for key, value in zip(table.items[::2], table.items[1::2], strict=True):
                if is_number(value) and _differ(value, dict.get(table.owner, key)):
                    found.append(
                        variables.DictionaryItem(table.owner, key, item_name(table.name, key))
                    )
    return [FloatPlace(each) for each in found]


def _differ(one: Any, other: Any) -> bool:
    return (
        is_number(one)
        and is_number(other)
        and type(one) is type(other)
        and repr(one) != repr(other)
    )


def _variable(recorder: Recorder, place: Any) -> Variable | None:
    owner = place.owner
    if isinstance(place, Attribute):
        if isinstance(owner, type):
            return variables.ClassAttribute(owner, place.key, place.name)
        is_slot = (id(owner), place.key) in recorder.slots and id(owner) not in recorder.given
        return of_slot(place) if is_slot else None
    if not isinstance(place, Cell):
        return None
    if isinstance(owner, types.CellType):
        return variables.ClosureVariable(owner, place.name)
    namespace = recorder.namespaces.get(id(owner))
    if namespace is None or namespace.given or not isinstance(owner, dict):
        return None
    return variables.DictionaryItem(owner, place.key, place.name)


def of_slot(slot: Attribute) -> Variable:
    """Return the variable that writes an attribute that is stored in no dictionary."""
    kind = variables.Gradient.of if _is_gradient(slot.owner, slot.key) else variables.SlotAttribute
    return kind(slot.owner, slot.key, slot.name)


def _is_gradient(owner: Any, key: Any) -> bool:
    return key == "grad" and isinstance(owner, torch.Tensor)


def where_of(place: Any) -> Where:
    """Return the key of a place: the owner's id and the name, in the form in which a variable has
    it.
    """
    return id(place.owner), "" if isinstance(place.owner, types.CellType) else place.key


def _is_plain(value: Any) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def may_grow(variable: Variable) -> bool:
    """Return whether a place may become a variable, read at each call, once another place of the
    program is one.
    """
    return isinstance(
        variable, (variables.DictionaryItem, variables.SlotAttribute, variables.ClosureVariable)
    )


def _is_small(value: Any) -> bool:
    return len(pytree.tree_leaves(value)) <= _MOST_ITEMS


def same_order(before: Iterable[Any], now: Iterable[Any]) -> bool:
    """Return whether the keys in both sequences keep their order, and all new keys come after
    them.
    """
    old = list(before)
    kept = set(old)
    new = list(now)
    there = set(new)
    staying = [each for each in old if each in there]
    return new[: len(staying)] == staying and not any(each in kept for each in new[len(staying) :])


def holds_symbolic(value: Any, seen: set[int] | None = None) -> bool:
    """Return whether a value holds a symbolic tensor or size, however nested; ``seen`` are
    containers looked into.
    """
    if isinstance(value, SYMBOLIC):
        return True
    if not isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return False
    seen = set() if seen is None else seen
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(
        holds_symbolic(item, seen)
        for item in (value.values() if isinstance(value, Mapping) else value)
    )


def _holds_itself(value: Any, around: tuple[int, ...] = ()) -> bool:
    """Return whether a list or dictionary contains itself."""
    if not isinstance(value, (*CONTAINERS, tuple)):
        return False
    if id(value) in around:
        return True
    around = (*around, id(value))
    return any(
        _holds_itself(item, around)
        for item in (value.values() if isinstance(value, dict) else value)
    )
