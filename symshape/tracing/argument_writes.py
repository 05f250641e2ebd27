"""Writes of a traced function to its arguments, for its graph to repeat: to lists and dictionaries
among them (``Given``), and to objects (``GivenRecords``).
"""

from __future__ import annotations

import copy
import operator
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.calls import variables
from symshape.calls.arguments import Call
from symshape.calls.constant_keys import PLAIN
from symshape.calls.container_arguments import ArgumentContents, At, Held, Path, paths_of
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
from symshape.calls.object_kinds import (
    ReadOtherwise,
    contents,
    flatten_from_now_on,
    is_record,
    may_be_record,
)
from symshape.calls.variables import containers_in
from symshape.errors import Problem, Reason, UnsupportedError
from symshape.torch_internals import pytree
from symshape.tracing.state.undo.writes import Change
from symshape.tracing.symbolic.keys import plain_key, with_plain_keys

# -- The lists and dictionaries among a function's arguments: the function's changes to them, and
# returns of them.
#
# A graph is called with the tensors and numbers inside the containers, and never sees the
# containers themselves. If the graph serves calls instead of the function, those calls write to
# the containers (``calls/container_arguments.py``).
_ADVICE = "which a compiled graph would not repeat; return the new values instead"


class Given:
    """The positional and keyword arguments with which a function is called while it is traced.

    Writes to objects among them are handled by :class:`GivenRecords`.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        containers: the ids of the lists, dictionaries and deques among them.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._leaves, self._tree = self._flattened()
        found = paths_of((tuple(args), dict(kwargs)))
        self._paths = {id(each): path for path, each in reversed(found)}
        self._before = [
            (path, each, copy.copy(each)) for path, each in found if self._paths[id(each)] == path
        ]
        self.containers = {id(each) for each in _containers((*args, *kwargs.values()))}

    def _flattened(self) -> tuple[list[Any], pytree.TreeSpec]:
        return pytree.tree_flatten((tuple(self._args), dict(self._kwargs)), is_record)

    def writes(self, is_kept: Callable[[Any], bool]) -> list[Change]:
        """Return the changed contents of lists and dictionaries, and restore the old ones for the
        checks that follow.

        Args:
            is_kept: returns whether an object existed before the trace, so that every later call
                has the very same one.
        """
        changed = [
            (path, each, before)
            for path, each, before in self._before
            if not _same_items(each, before)
        ]
        found = [self._change(path, each, before, is_kept) for path, each, before in changed]
        for _, each, before in changed:
            variables.refill(each, before)
        return found

    def _change(
        self, path: Path, container: Any, before: Any, is_kept: Callable[[Any], bool]
    ) -> Change:
        pairs = list(before.items() if isinstance(before, dict) else enumerate(before))
        held = {id(item): key for key, item in reversed(pairs) if type(item) not in PLAIN}
        keys = tuple(map(plain_key, container)) if isinstance(container, dict) else None
        items = list(container if keys is None else container.values())
        new = [Held(held[id(each)]) if id(each) in held else each for each in items]
        paths = self._paths
        leaves, tree = pytree.flatten_until(
            new, lambda each: each is not new and (id(each) in paths or is_kept(each))
        )
        leaves = [At(paths[id(each)]) if id(each) in paths else each for each in leaves]
        made = [
            id(each)
            for way, each in containers_in(new)
            if way and id(each) not in paths and not is_kept(each)
        ]
        tree = with_plain_keys(tree)
        contents = ArgumentContents(path, keys, f"a {type(container).__name__} among its arguments")
        return Change(contents, leaves, tree, tuple(made), f"changes {contents.name}")

    def returned(self, result: Any) -> tuple[Any, dict[int, Path]]:
        """Return the result with None for each argument container in it, and their paths by number
        of the leaf.
        """
        paths = self._paths
        leaves, tree = pytree.tree_flatten(result, lambda each: id(each) in paths)
        found = {
            position: paths[id(each)] for position, each in enumerate(leaves) if id(each) in paths
        }
        if not found:
            return result, {}
        return pytree.tree_unflatten(
            [None if i in found else each for i, each in enumerate(leaves)], tree
        ), found

    def changes(self, result: Any) -> list[Problem]:
        """Return the problems with the arguments after the trace, or with the result."""
        leaves, tree = self._flattened()
        same = len(leaves) == len(self._leaves) and all(map(operator.is_, leaves, self._leaves))
        if tree != self._tree or not same:
            return [
                Problem(
                    f"changes a list or dictionary among its arguments, {_ADVICE}", Reason.STATE
                )
            ]
        if any(id(each) in self.containers for each in _containers((result,))):
            return [
                Problem(
                    "returns a list or dictionary that is an argument; return a copy of it",
                    Reason.OBJECTS,
                )
            ]
        return []


def _same_items(now: Any, before: Any) -> bool:
    # for dictionaries, ``map`` compares the keys
    if len(now) != len(before) or not all(map(operator.is_, now, before)):
        return False
    return not isinstance(now, dict) or all(map(operator.is_, now.values(), before.values()))


def _containers(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, (list, dict, deque)):
            yield value
        if isinstance(value, dict):
            yield from _containers(value.values())
        elif isinstance(value, (list, tuple, deque)):
            yield from _containers(value)


# -- Objects among the arguments (see ``calls/object_arguments.py``)
#
# During the trace the function gets copies of these objects, of the same classes, whose attributes
# are symbolic. Attributes that differ afterwards are written to the caller's own objects at the end
# of each call.
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
