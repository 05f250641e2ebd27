"""Floats among a function's arguments and variables that change from call to call: read when a
program runs.

The first float in a place is a constant, as a first size is. When another float arrives in that
place, the place is remembered. From then on each call's float there is given as a
:class:`FloatLeaf`, so that one program serves every value.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from operator import is_
from typing import Any

import attrs
import torch

from symshape.calls.constant_keys import Nesting, digits
from symshape.calls.object_arguments import Record, flattened
from symshape.torch_internals import dispatch, pytree

Place = tuple[Any, ...]
"""The path to a float: the position or keyword of an argument (or a variable's number), then keys.
"""


_DICTIONARIES = (dict, OrderedDict, defaultdict)
_CONTAINERS = (tuple, list, *_DICTIONARIES)


class FloatLeaf(torch.Tensor):
    """A float as a tensor of one element (float64, on the CPU); no argument of a user's is one."""

    __torch_function__ = dispatch.disabled_torch_function


class VaryingFloat(float):
    """A float in place of its ``FloatLeaf``, much quicker to make: for quick keys and programs that
    only read it.
    """

    __slots__ = ()


def leaf_of(value: float) -> FloatLeaf:
    """Return a float as the tensor that programs are given."""
    return torch.tensor(value, dtype=torch.float64, device="cpu").as_subclass(FloatLeaf)


def with_leaves(flat: Sequence[Any]) -> Sequence[Any]:
    """Replace each ``VaryingFloat`` among flat arguments by its ``FloatLeaf``.

    >>> with_leaves((1, VaryingFloat(0.5)))
    (1, FloatLeaf(0.5000, dtype=torch.float64))
    """
    if VaryingFloat not in map(type, flat):
        return flat
    return tuple([leaf_of(each) if type(each) is VaryingFloat else each for each in flat])


def given_leaves(
    run: Callable[[Sequence[Any], Sequence[int]], list[Any]],
) -> Callable[..., list[Any]]:
    """Return ``run(leaves, values)`` for a ``run`` that accepts tensors only."""
    return lambda leaves, values: run(with_leaves(leaves), values)


def number_in(leaf: torch.Tensor | VaryingFloat) -> Any:
    """Return the number that a tensor of one element, or a ``VaryingFloat``, holds."""
    return float(leaf) if type(leaf) is VaryingFloat else _number_in(leaf)


_number_in: Any = torch.Tensor.item  # quicker than the overload that it calls


class ChangingFloats:
    """The places of changing floats in the arguments and variables of one function.

    Args:
        most: the values in one place that are constants.

    Attributes:
        places: they.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.places: frozenset[Place] = frozenset()
        self._positions: tuple[int, ...] = ()
        self._keywords: frozenset[str] = frozenset()
        self._in_objects = False
        self._in_nests: dict[Nesting, frozenset[int]] = {}
        self._seen: dict[Place, set[Hashable]] = {}

    def learn(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], variables: Sequence[Any] = ()
    ) -> bool:
        """Record the floats of a call; return whether there are new places."""
        arguments = [
            *enumerate(args),
            *kwargs.items(),
            *((_name(i), each) for i, each in enumerate(variables)),
        ]
        new = set()
        for place, key in (
            pair for name, value in arguments for pair in _floats_in(value, (name,))
        ):
            seen = self._seen.setdefault(place, set())
            seen.add(key)
            if len(seen) > self.most:
                new.add(place)
                del self._seen[place]
        self._add(new)
        return bool(new)

    def vary(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], numbers: Collection[int]
    ) -> bool:
        """Mark floats as varying that are known to vary from elsewhere; return whether there are
        new places.

        Args:
            args: positional arguments, with the number of each leaf in its stead.
            kwargs: by name, so too.
            numbers: those of the floats.
        """
        arguments = [*enumerate(args), *kwargs.items()]
        found = {
            place
            for name, value in arguments
            for place, leaf in _leaves_in(value, (name,))
            if leaf in numbers
        }
        new = found - self.places
        self._add(new)
        return bool(new)

    def _add(self, new: Set[Place]) -> None:
        self.places |= new
        self._positions = tuple(
            place[0] for place in self.places if len(place) == 1 and type(place[0]) is int
        )
        self._keywords = frozenset(
            place[0] for place in self.places if len(place) == 1 and type(place[0]) is str
        )
        self._in_nests = {}
        self._in_objects = any(type(each) is _Attribute for place in self.places for each in place)

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in order, with a ``VaryingFloat`` for each float in one of these
        places.
        """
        found = [*args, *kwargs.values()] if kwargs else list(args)
        for position in self._positions:
            if position < len(args) and type(found[position]) is float:
                found[position] = VaryingFloat(found[position])
        if kwargs and self._keywords:
            for position, name in enumerate(kwargs, len(args)):
                if name in self._keywords and type(found[position]) is float:
                    found[position] = VaryingFloat(found[position])
        return found

    def varied(self, nested: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return nested leaves, the ``Nesting`` last, with a ``VaryingFloat`` for each float in
        these places.

        None if the positions for this nest are not known yet: see :meth:`learn_nest`.
        """
        positions = self._in_nests.get(nested[-1])
        if not positions:
            return nested if positions is not None else None
        found = list(nested)
        for position in positions:
            if type(found[position]) is float:
                found[position] = VaryingFloat(found[position])
        return tuple(found)

    def learn_nest(
        self,
        nested: tuple[Any, ...],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        values: Sequence[Any] = (),
    ) -> bool:
        """Record the positions of varying leaves in a nest; return whether one is new.

        Args:
            nested: the leaves of a call, the nest last.
            args: positional ones, as :meth:`given` answered them.
            kwargs: by name, so too.
            values: of variables, so too.
        """
        leaves = pytree.tree_leaves(flattened((tuple(args), dict(kwargs), tuple(values))))
        found = frozenset(i for i, each in enumerate(leaves) if type(each) is FloatLeaf)
        known = self._in_nests.get(nested[-1])
        self._in_nests[nested[-1]] = found | (known or frozenset())
        return known is None or not found <= known

    def given(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with leaves for the floats in these places; objects with such floats
        are flattened.
        """
        if self._in_objects:
            # at once: one object in two places is one
            args, kwargs = flattened((tuple(args), dict(kwargs)))
        done: dict[int, Any] = {}
        return (
            tuple([self._replaced(each, (i,), done) for i, each in enumerate(args)]),
            {name: self._replaced(each, (name,), done) for name, each in kwargs.items()},
        )

    def given_in(self, variables: Sequence[Any]) -> list[Any]:
        """Return the values of variables with leaves for the floats in these places."""
        done: dict[int, Any] = {}
        return [self._replaced(each, (_name(i),), done) for i, each in enumerate(variables)]

    def _replaced(self, value: Any, place: Place, done: dict[int, Any]) -> Any:
        kind = type(value)
        if kind is float:
            return leaf_of(value) if place in self.places else value
        if kind is not Record and not _is_container(value):
            return value
        if id(value) not in done:  # one container in two places is one still
            items = [self._replaced(each, (*place, key), done) for key, each in _items(value)]
            same = all(map(is_, items, (each for _, each in _items(value))))
            done[id(value)] = value if same else _filled(value, items)
        return done[id(value)]


def _name(variable: int) -> Any:
    """Return a name for a variable that no argument has."""
    return "variable", variable


@attrs.frozen
class _Attribute:
    """A step of a path: an attribute of an object, or an item of a list or dictionary in one."""

    name: Any


def _is_container(value: Any) -> bool:
    return type(value) in _CONTAINERS or (
        isinstance(value, tuple)
        and hasattr(type(value), "_fields")
        and hasattr(type(value), "_make")
    )


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    kind = type(container)
    if kind is Record:
        return zip(map(_Attribute, container.names), container.values, strict=True)
    return iter(container.items()) if kind in _DICTIONARIES else enumerate(container)


def _filled(container: Any, items: Sequence[Any]) -> Any:
    """Return a container of the same kind and keys with other items."""
    kind = type(container)
    if kind is Record:
        return Record(container.kind, container.names, container.owner, items)
    if kind not in _DICTIONARIES:
        return kind(items) if kind in _CONTAINERS else kind._make(items)
    made = container.copy()  # with its order, and what a defaultdict makes
    made.update(zip(container, items, strict=True))
    return made


def _floats_in(value: Any, place: Place) -> Iterator[tuple[Place, Hashable]]:
    """Yield the floats in an argument, as distinguishing texts, with their places."""
    return (
        (where, digits(leaf)) for where, leaf in _leaves_in(value, place) if type(leaf) is float
    )


def _leaves_in(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield the leaves of an argument with their places."""
    # no variable is
    apart = flattened(value) if len(place) == 1 and type(place[0]) is not tuple else value
    if type(apart) is Record or _is_container(apart):
        for key, each in _items(apart):
            yield from _leaves_in(each, (*place, key))
    else:
        yield place, apart
