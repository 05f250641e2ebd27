"""Writes of a traced function to objects among its arguments, for its graph to repeat.

See ``calls/object_arguments.py``. During the trace the function gets copies of these objects, of
the same classes, whose attributes are symbolic. Attributes that differ afterwards are written to
the caller's own objects at the end of each call.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from symshape.calls.arguments import Call
from symshape.calls.constant_keys import PLAIN
from symshape.calls.object_arguments import (
    ArgumentReference,
    HeldClass,
    MadeObject,
    MadeReference,
    ObjectWrite,
    Outcome,
    flattened,
    is_class,
    is_owner,
    is_part,
    owner_of,
    rebuilt,
)
from symshape.calls.object_kinds import ReadOtherwise, contents, flatten_from_now_on, may_be_record
from symshape.calls.variables import containers_in
from symshape.errors import Problem, Reason, UnsupportedError
from symshape.torch_internals import pytree


@attrs.frozen(eq=False)
class _Held:
    """An object argument of the trace, and its contents before the call."""

    position: int
    record: Any
    kind: type
    names: tuple[Any, ...]
    values: Sequence[Any]


@attrs.frozen(eq=False)
class _Inner:
    """An attribute of an object argument that is a container and no record, and its contents before
    the call.
    """

    value: Any
    leaves: Sequence[Any]
    tree: pytree.TreeSpec


class GivenRecords:
    """The object arguments of a function while it is traced.

    Args:
        call: the call.
        args: its arguments, nested as the function gets them.
    """

    def __init__(self, call: Call, args: Any) -> None:
        self._call = call
        self._held: dict[int, _Held] = {}
        self._made: dict[int, Any] = {}
        self._inner: list[_Inner] = []
        if call.has_records:
            for position, leaf in enumerate(pytree.tree_leaves(flattened(args))):
                record = owner_of(leaf)
                if is_owner(leaf) and id(record) not in self._held:
                    self._held[id(record)] = _Held(
                        position, record, type(record), *contents(record)
                    )
            for held in self._held.values():
                self._inner += [
                    _Inner(each, *self._flat(each))
                    for each in held.values
                    if id(each) not in self._held and _is_node(each)
                ]

    def _flat(self, value: Any) -> tuple[list[Any], pytree.TreeSpec]:
        return pytree.tree_flatten(value, lambda each: id(each) in self._held)

    @property
    def containers(self) -> set[int]:
        """Return the ids of the object arguments and of the objects that were made and returned or
        written.
        """
        return {*self._held, *self._made}

    def outcome(self, result: Any, others: Collection[int] = ()) -> Any:
        """Return the function's result, with its writes to object arguments if there are any.

        Args:
            result: the result of the function.
            others: the ids of other lists and dictionaries among the arguments.

        Raises:
            UnsupportedError: an object lost an attribute or an item, or has another class now; the
                result has one container in two places, and it is neither a list nor a dictionary.
        """
        given = {key: held.position for key, held in self._held.items()}
        values = [each for held in self._held.values() for each in contents(held.record)[1]]
        shared, twice = _shared(result, values, {*others, *given})
        inner = {id(each) for every in self._inner for each in self._containers(every.value)}
        outgoing = _Outgoing(given, shared, others, twice, inner)
        returned = outgoing.convert(result, False)
        if outgoing.new and any(type(each) in outgoing.new for each in self._call.leaves):
            raise ReadOtherwise(
                "the function returns an object of a class that an argument has",
                reason=Reason.OBJECTS,
            )
        self._refuse_inner_writes()
        if self._held:
            writes = [each for held in self._held.values() for each in self._writes(held, outgoing)]
            returned = Outcome(returned, writes)
        self._made = {id(each): each for each in outgoing.kept}
        return returned

    def _containers(self, value: Any) -> Iterator[Any]:
        """Yield the containers in an attribute that are no records themselves."""
        if id(value) in self._held or not _is_node(value):
            return
        if not isinstance(value, tuple):
            yield value
        for each in pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)[0]:
            yield from self._containers(each)

    def _refuse_inner_writes(self) -> None:
        """Refuse changes of containers that an object argument holds and that are no records.

        Raises:
            UnsupportedError: there is a change.
        """
        for each in self._inner:
            leaves, tree = self._flat(each.value)
            same = tree == each.tree and len(leaves) == len(each.leaves)
            if not (same and all(map(operator.is_, leaves, each.leaves))):
                raise UnsupportedError(
                    f"the function changes a {type(each.value).__name__} that an argument holds, "
                    "which a compiled graph would not repeat; hold a list, or a dictionary whose "
                    "keys are strings or integers",
                    reason=Reason.OBJECTS,
                )

    def problems(self, loaded: Iterable[Any]) -> list[Problem]:
        """Return why a program that reaches such objects from elsewhere cannot be traced: one may
        be an argument.

        Args:
            loaded: the objects that the program loaded besides its arguments.
        """
        kinds = {held.kind for held in self._held.values() if may_be_record(held.kind)}
        if kinds or self._made:
            for each in loaded:
                kind = type(each)
                if id(each) in self._made:
                    text = (
                        f"returns a {kind.__name__} that is stored outside the function, or "
                        "writes it to an argument"
                    )
                    return [Problem(text, Reason.OBJECTS)]
                if id(each) not in self._held and kind in kinds:
                    text = (
                        f"reads a {kind.__name__} outside its arguments that may be the same "
                        "object as one of them"
                    )
                    return [Problem(f"{text}; pass it too", Reason.OBJECTS)]
        return []

    def _writes(self, held: _Held, outgoing: _Outgoing) -> list[ObjectWrite]:
        names, values = contents(held.record)
        kind = held.kind
        if type(held.record) is not kind:
            raise UnsupportedError(
                "the function changes the class of the argument "
                f"{self._call.paths[held.position]}, which a "
                "compiled graph would not repeat; return a new object instead",
                reason=Reason.OBJECTS,
            )
        before = dict(zip(held.names, held.values, strict=True))
        changed = [
            i
            for i, name in enumerate(names)
            if name not in before or not _same(before[name], values[i])
        ]
        if kind is list:
            if not changed and len(values) == len(held.values):
                return []
            return [
                ObjectWrite(
                    held.position, kind, names, [outgoing.convert(each, True) for each in values]
                )
            ]
        if not before.keys() <= set(names):
            gone = next(name for name in before if name not in names)
            raise UnsupportedError(
                f"the function deletes the attribute {gone!r} of the argument "
                f"{self._call.paths[held.position]}, "
                "which a compiled graph would not repeat; set it to None instead",
                reason=Reason.OBJECTS,
            )
        if not changed:
            return []
        new = [outgoing.convert(values[i], True) for i in changed]
        return [ObjectWrite(held.position, kind, tuple(names[i] for i in changed), new)]


def _is_node(value: Any) -> bool:
    """Return whether pytree flattens a value."""
    return pytree._get_node_type(value) in pytree.SUPPORTED_NODES


def _same(then: Any, now: Any) -> bool:
    return then is now or (type(then) in PLAIN and type(then) is type(now) and bool(then == now))


def _shared(result: Any, written: Any, others: Collection[int]) -> tuple[set[int], set[int]]:
    """Return the ids of containers that the result and the writes hold in two places.

    Those of lists and dictionaries come first, then those of other classes.
    """
    returned = [each for _, each in containers_in(result) if id(each) not in others]
    found = returned + [each for _, each in containers_in(written) if id(each) not in others]
    if len(found) < 2:
        return set(), set()
    times = Counter(map(id, found))
    for each in returned:
        if times[id(each)] > 1 and type(each) not in (list, dict):
            kind = type(each).__name__
            raise UnsupportedError(
                f"the function returns the same {kind} in two places of its result; return a copy "
                "in one of them",
                reason=Reason.OBJECTS,
            )
    several = [each for each in found if times[id(each)] > 1]
    plain = {id(each) for each in several if type(each) in (list, dict)}
    return plain, {id(each) for each in several} - plain


class _Outgoing:
    """A converter that puts stand-ins in place of objects: of arguments, and of objects that the
    function made.

    Args:
        given: the positions of object arguments, by id.
        shared: the ids of lists and dictionaries in two places, which each call makes once.
        others: the ids of the lists and dictionaries among the arguments that are not object
            arguments.
        twice: the ids of containers of other classes in two places.
        inner: the ids of containers that object arguments hold and that are no records.
    """

    def __init__(
        self,
        given: dict[int, int],
        shared: set[int],
        others: Collection[int],
        twice: Collection[int],
        inner: Collection[int],
    ) -> None:
        self._given, self._shared, self._others = given, shared, others
        self._twice, self._inner = twice, inner
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        self.kept: list[Any] = []  # so that the ids stay valid
        self.new: set[type] = set()  # classes that calls flatten from now on

    def convert(self, value: Any, inside: bool) -> Any:
        """Return a value in the form in which it is returned or written, nested in containers that
        pytree knows.
        """
        position = self._given.get(id(value))
        if position is not None:
            return ArgumentReference(position)
        if id(value) in self._others:
            if self._given:
                raise UnsupportedError(
                    "the function returns a list or dictionary that is an argument, or stores it "
                    "in another argument; use a copy of it",
                    reason=Reason.OBJECTS,
                )
            return value
        if id(value) in self._inner:
            raise UnsupportedError(
                f"the function returns a {type(value).__name__} that an argument holds, or stores "
                "it in an argument; use a copy of it",
                reason=Reason.OBJECTS,
            )
        if id(value) in self._twice:
            raise UnsupportedError(
                f"the function stores the same {type(value).__name__} in two places of an "
                "argument; store a copy in one of them",
                reason=Reason.OBJECTS,
            )
        if inside and is_class(value):
            return HeldClass(value)
        kind = type(value)
        if may_be_record(kind) or id(value) in self._shared or (inside and is_part(value)):
            return self._made(value)
        if not _is_node(value) and flatten_from_now_on(value, result=True):
            self.new.add(kind)
            return self._made(value)
        return rebuilt(value, {}, lambda each: self.convert(each, inside))

    def _made(self, record: Any) -> MadeObject | MadeReference:
        number = self._numbers.get(id(record))
        if number is not None:
            if number in self._open:
                raise UnsupportedError(
                    f"the function creates a {type(record).__name__} that contains itself, "
                    "which cannot be a result; return it without the cycle",
                    reason=Reason.OBJECTS,
                )
            return MadeReference(number)
        number = self._numbers[id(record)] = len(self._numbers)
        self.kept.append(record)
        self._open.add(number)
        names, values = contents(record)
        parts = [self.convert(each, True) for each in values]
        self._open.discard(number)
        return MadeObject(type(record), names, number, parts)
