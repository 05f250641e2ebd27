"""Objects that took the place of the traced program's objects, if no program can tell the
difference.

Examples are ``module.weight = nn.Parameter(...)``, ``load_state_dict(assign=True)``, another
adapter, or averaged weights for an evaluation: the program is the same, on other tensors.  A
``Replacement`` says which object took the place of which.  There is one only if *everything* that
the program read is unchanged with the new objects in place of the old.  Each new object must be
everywhere the old one was found, and nowhere else, so that tied weights are tied and no others.  It
must have the same metadata, the same attributes as far as they were read, and share memory in the
same way.

An object that cannot be followed in this way has no replacement.  Such an object was reached in a
way that is not compared (an item of a tuple, an argument of a ``partial``, a weak reference, a
result of an ``lru_cache``), or is a dictionary key.  There is no replacement either if code asks
for an ``id``, a hash or the order of a set.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import torch

from symshape.calls.arguments import layout_of
from symshape.torch_internals import dispatch, functorch
from symshape.tracing.state.compare.checker import UNREADABLE
from symshape.tracing.state.compare.state import State, of_tensor
from symshape.tracing.state.instrument.trusted_code import is_trusted
from symshape.tracing.state.record.class_lookups import Lookup
from symshape.tracing.state.record.places import (
    Answer,
    Cell,
    Container,
    Keys,
    Place,
    WeakAttribute,
    items_of,
    same,
    same_item,
)
from symshape.tracing.state.record.reads import FOLLOWED
from symshape.user_code import is_library

_TABLES = (dict, OrderedDict)
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_NUMBERS_OF_OBJECTS = frozenset({"id", "hash"})
_SETS = frozenset({"set", "frozenset"})
_MAKES_SETS = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
_UNKNOWN = object()
# owners are noted before their places, so the second or third round nearly always finds nothing new
_ROUNDS = 8


class Replacement:
    """The mapping from old objects to the objects that took their place; any other object has
    stayed.
    """

    def __init__(self, state: State) -> None:
        self._pinned: frozenset[int] = state.pinned or frozenset()
        self._containers = {id(each.owner) for each in state.containers}
        self._new: dict[int, Any] = {}
        self._old: dict[int, Any] = {}  # by id of the new object
        self.changed: dict[int, Any] = {}

    @property
    def tensors(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the tensors that were replaced: pairs of old and new."""
        return [
            (each, self._new[i])
            for i, each in self.changed.items()
            if isinstance(each, torch.Tensor)
        ]

    def again(self) -> None:
        """Forget which objects have stayed: a place of an object that turned out to be replaced may
        have said so.
        """
        self._new = {key: self._new[key] for key in self.changed}
        self._old = {id(self._new[key]): old for key, old in self.changed.items()}

    def of(self, value: Any) -> Any:
        """Return the object that is in the place of an object now."""
        return self._new.get(id(value), value)

    def touches(self, values: Iterable[Any]) -> bool:
        """Return whether one of these objects was replaced."""
        return any(id(each) in self.changed for each in values)

    def add(self, old: Any, new: Any) -> bool:
        """Note that ``new`` is in the place of ``old``; return False if that contradicts what is
        known.
        """
        known = self._new.get(id(old), _UNKNOWN)
        if known is not _UNKNOWN:
            return bool(known is new)
        if self._old.get(id(new), old) is not old:  # it took the place of another object already
            return False
        if old is not new and (
            id(old) in self._pinned or id(new) in self._pinned or not self._alike(old, new)
        ):
            return False
        return self._note(old, new)

    def _alike(self, old: Any, new: Any) -> bool:
        if type(old) is not type(new):
            return False
        if isinstance(old, torch.Tensor):
            return are_alike(old, new)
        if isinstance(old, torch.nn.Module):
            return not isinstance(old, torch.jit.ScriptModule)
        return type(old) in (list, *_TABLES) and id(old) in self._containers

    def _note(self, old: Any, new: Any) -> bool:
        self._new[id(old)], self._old[id(new)] = new, old
        if old is new:
            return True
        self.changed[id(old)] = old
        if not isinstance(old, (torch.Tensor, torch.nn.Module)):
            return True
        mine, its = old.__dict__, new.__dict__
        derived = [(mine, its)]
        if isinstance(old, torch.nn.Module):
            tables = ((key, each) for key, each in mine.items() if type(each) in _TABLES)
            derived += [
                (each, its[key]) for key, each in tables if type(its.get(key)) is type(each)
            ]
        return all(each is other or self._noted(each, other) for each, other in derived)

    def _noted(self, old: Any, new: Any) -> bool:
        """Note a dictionary of an object that was replaced; the entries that were read are compared
        one by one.

        A place of the old object may have said before that the dictionary has stayed.  The next
        round checks again.
        """
        known = self._new.get(id(old), old)
        return bool(known is new) or (known is old and self._note(old, new))


def are_alike(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Return whether a program can distinguish two tensors only by their values, identity and
    attributes.
    """
    if type(old) is not type(new) or type(old) not in _TENSORS or new.layout is not torch.strided:
        return False
    if functorch.is_wrapped(new):  # by a transform around the call
        return False
    return _properties(old) == _properties(new)


def _properties(tensor: torch.Tensor) -> tuple[Any, ...]:
    with dispatch.DisableTorchFunction():
        hooks = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
        return (
            of_tensor(tensor),
            *(tensor.storage_offset(), layout_of(tensor), tensor.untyped_storage().nbytes()),
            *(
                tensor.is_leaf,
                tensor.grad_fn is None,
                tensor.retains_grad,
                tensor._is_view(),
                tensor.is_inference(),
            ),
            *(
                tensor.is_conj(),
                tensor.is_neg(),
                tensor.is_quantized,
                getattr(tensor, "names", None),
            ),
            *map(bool, hooks),
        )


def replacement(state: State) -> Replacement | None:
    """Return the replacements since a state was noted; None if it differs in another way, or if
    that is unknown.
    """
    if state.pinned is None:
        return None
    found = Replacement(state)
    try:
        for _ in range(_ROUNDS):
            known = len(found.changed)
            if not _places_agree(state.places, found):
                return None
            if not all(_same_items(each, found) for each in state.containers):
                return None
            if len(found.changed) == known:
                break
            found.again()
        else:
            return None
    except (*UNREADABLE, TypeError, NotImplementedError):
        return None
    if not found.changed or not state.metadata_holds(found.of) or _asks_for_identity(state):
        return None
    return found


def replaced(state: State, found: Replacement) -> State:
    """Return the state with the new objects in place of the old."""
    changed = found.changed
    places = [
        each
        if id(each.owner) not in changed and id(each.value) not in changed
        else _place(each, found)
        for each in state.places
    ]
    containers = [
        each
        if id(each.owner) not in changed
        and (not each.items or changed.keys().isdisjoint(map(id, each.items)))
        else Container(found.of(each.owner), tuple(map(found.of, each.items)), each.name)
        for each in state.containers
    ]
    return state.like(places, containers, found.of)


# -- places and containers
def _place(place: Place, found: Replacement) -> Place:
    """Return the same place with the new objects."""
    owner, value = found.of(place.owner), found.of(place.value)
    if type(place) is Cell:  # most of them: ``evolve`` takes five times as long
        return Cell(owner, place.key, value, place.name)
    return attrs.evolve(place, owner=owner, value=value)


def _places_agree(places: Iterable[Place], found: Replacement) -> bool:
    changed = found.changed
    for place in places:
        if type(place) is Cell and id(place.owner) not in changed:
            value = place.value
            if (
                place.read() is value
                and not _is_followed(type(value))
                and not _is_followed(type(place.key))
            ):
                continue
        if not _agrees(place, found):
            return False
    return True


_is_followed: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(
    lambda kind: issubclass(kind, FOLLOWED)
)


def _agrees(place: Place, found: Replacement) -> bool:
    """Return whether a place holds its old value, or the object that took that value's place."""
    if isinstance(place, Keys):
        return attrs.evolve(place, owner=found.of(place.owner)).holds()
    if isinstance(place, Answer):
        return not found.touches(_behind(place.owner)) and _stands_for(
            place.value, place.owner(), found
        )
    if (
        isinstance(place, Cell)
        and _is_followed(type(place.key))
        and not found.add(place.key, place.key)
    ):
        return False
    owner = found.of(place.owner)
    now = place.read() if owner is place.owner else attrs.evolve(place, owner=owner).read()
    return _stands_for(place.value, now, found)


def _stands_for(then: Any, now: Any, found: Replacement) -> bool:
    if _is_followed(type(then)):
        return found.add(then, now)
    return same(now, then)


def _same_items(container: Container, found: Replacement) -> bool:
    owner = found.of(container.owner)
    then = container.items
    if not then and isinstance(owner, dict):
        return not owner
    now = items_of(owner)
    if len(now) != len(then):
        return False
    if isinstance(owner, dict) and any(map(_is_another_key, then[::2], now[::2])):
        return False
    return all(map(functools.partial(_is_item, found), then, now))


def _is_another_key(then: Any, now: Any) -> bool:
    return _is_followed(type(then)) and now is not then


def _is_item(found: Replacement, then: Any, now: Any) -> bool:
    return found.add(then, now) if _is_followed(type(then)) else same_item(now, then)


def _behind(question: Callable[..., Any]) -> Iterator[Any]:
    """Yield the objects that a question is about, as far as they can be replaced."""
    if type(question) is WeakAttribute:
        yield question.owner()
    elif type(question) is functools.partial:
        yield from (*_behind(question.func), *question.args, *question.keywords.values())
    elif type(question) is not Lookup:
        yield getattr(question, "__self__", None)


# -- code
def _asks_for_identity(state: State) -> bool:
    """Return whether the program's own code may depend on the identity of objects."""
    begun = (each.__code__ for reference in state.begun if (each := reference()) is not None)
    return any(map(_hangs_on_identity, begun))


@functools.lru_cache(maxsize=4096)
def _hangs_on_identity(code: types.CodeType) -> bool:
    if is_trusted(code.co_filename):
        return False
    if any(_hangs_on_identity(each) for each in code.co_consts if isinstance(each, types.CodeType)):
        return True
    if not _NUMBERS_OF_OBJECTS.isdisjoint(code.co_names):
        return True
    # a library's results are assumed not to depend on the order of its sets
    if is_library(code.co_filename):
        return False
    return not _SETS.isdisjoint(code.co_names) or any(
        each.opname in _MAKES_SETS for each in dis.get_instructions(code)
    )
