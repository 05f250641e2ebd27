"""Comparison of an entry's recorded state with this process: each check in turn, without running
any code.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.store.constants import Json, from_json, integer_of, label_of, list_of, to_json
from symshape.store.descriptions import Describer, present
from symshape.store.object_paths import GROUPS, STEPS, Roots
from symshape.store.store_errors import Differs, EntryError, NotStorable
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.record.places import MISSING, PLAIN, Container, Place, items_of


class StateReader:
    """The state that an entry read, found again in this process.

    Args:
        checks: what ``StateWriter`` wrote.
        objects: the descriptions that it wrote.
        fn: the function that is compiled.
        leaves: those of the call.
        documented: whether docstrings count.

    Raises:
        Differs: something is not what it was.
        EntryError: it is no such thing.
    """

    def __init__(
        self,
        checks: Json,
        objects: Json,
        fn: Callable[..., Any],
        leaves: Sequence[Any],
        documented: bool,
    ) -> None:
        self._descriptions = list_of(objects)
        self._describing = Describer(documented)
        self._bound: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._places: list[Place] = []
        self._containers: list[Container] = []
        self._alterable: list[tuple[Any, Any]] = []
        self._groups: list[tuple[Any, Any]] = []
        roots = Roots(fn, leaves)
        for check in list_of(checks):
            if type(check) is not list or len(check) != 5:
                raise EntryError("an unknown kind of check")
            owner, kind, key, expected, name = check
            reached = (
                roots if owner is None else self._bound[integer_of(owner, 0, len(self._bound))]
            )
            if kind in ("items", "hooks"):
                self._items(reached, expected, name, 1 + (kind == "hooks"))
            else:
                self._check(reached, kind, key, expected, name)
        self._descriptions, self._numbers = [], {}

    def state(self) -> State:
        """Return the state for calls of this process."""
        return State(self._places, self._containers)

    def holds(self) -> bool:
        """Return whether the objects still match their descriptions: code, classes and tensors can
        be changed in place.

        (Values read *from* objects are compared by the state.)
        """
        if self._describing.with_documentation:  # texts too can be changed in place
            return False
        # a process can end its groups, and make others
        if any(GROUPS[key][1]() != then for key, then in self._groups):
            return False
        for value, then in self._alterable:
            if isinstance(value, types.FunctionType):
                same = value.__code__ is then
            elif isinstance(value, type):
                same = value.__mro__ is then
            else:
                same = value.layout is torch.strided and present(value) == then
            if not same:
                return False
        return True

    def tensor(self, number: int) -> torch.Tensor:
        """Return the tensor with a number."""
        found = self._bound[number] if number < len(self._bound) else None
        if not isinstance(found, torch.Tensor):
            raise EntryError(f"object {number} is no tensor")
        return found

    def _check(self, owner: Any, kind: Json, key: Json, expected: Json, name: Json) -> None:
        step = STEPS.get(kind) if type(kind) is str else None
        if step is None:
            raise EntryError(f"unknown kind of step: {str(kind)[:80]}")
        take, note = step
        plain = key if key is None or type(key) is str else from_json(key)
        value = take(owner, plain)
        self._compare(value, expected, kind, plain, name)
        if kind == "process group":
            self._groups.append((plain, value))
        if name is not None and note is not None:
            self._places.append(note(owner, plain, value, label_of(name)))

    def _items(self, owner: Any, expected: Json, name: Json, every: int) -> None:
        items = (
            items_of(owner)
            if isinstance(owner, _WITH_ITEMS) or type(owner).__module__ == "numpy"
            else None
        )
        wanted = list_of(expected)
        compared = () if items is None else items[every - 1 :: every]
        if items is None or len(compared) != len(wanted):
            raise Differs(_words("items", None, name))
        for item, each in zip(compared, wanted, strict=True):
            self._compare(item, each, "items", None, name)
        if name is not None:
            self._containers.append(Container(owner, items, label_of(name)))

    def _compare(self, value: Any, expected: Json, kind: str, key: Any, name: Json) -> None:
        if type(expected) is dict and len(expected) == 1:
            ((tag, number),) = expected.items()
            if tag == "object":
                self._compare_object(value, number, kind, key, name)
                return
            if tag == "missing":
                if value is not MISSING:
                    raise Differs(_words(kind, key, name))
                return
        kind_of = type(value)
        # is written as it is
        if kind_of is str or kind_of is bool or kind_of is int or value is None:
            alike = kind_of is type(expected) and value == expected
        else:
            alike = kind_of in PLAIN and _is_written(value, expected)
        if not alike:
            raise Differs(_words(kind, key, name))

    def _compare_object(self, value: Any, number: Json, kind: str, key: Any, name: Json) -> None:
        if value is MISSING or type(value) in PLAIN:
            raise Differs(_words(kind, key, name))
        known = self._numbers.get(id(value))
        if known is None and number == len(self._bound) and type(number) is int:
            try:
                description = self._describing.of(value)
            except NotStorable as error:
                raise Differs(_words(kind, key, name)) from error
            if number >= len(self._descriptions):
                raise EntryError("an object without a description")
            if description != self._descriptions[number]:
                raise Differs(
                    _words(kind, key, name), of_code=description[0] in ("function", "code")
                )
            self._numbers[id(value)] = number
            self._bound.append(value)
            if description[0] in _ALTERABLE:
                attribute = _ALTERABLE[description[0]]
                self._alterable.append(
                    (value, getattr(value, attribute) if attribute else present(value))
                )
        elif known is None or known != number:
            raise Differs(_words(kind, key, name))


def _is_written(value: Any, expected: Json) -> bool:
    written = to_json(value)
    return type(written) is type(expected) and bool(written == expected)


_ALTERABLE = {"function": "__code__", "class": "__mro__", "tensor": ""}
"""The attribute that changes when an object is changed in place, by the first word of its
description.
"""
_WITH_ITEMS = (list, tuple, dict, set, frozenset, bytearray, deque)


def _words(kind: str, key: Any, name: Json) -> str:
    return name if type(name) is str else f"{kind} {key}" if key is not None else f"the {kind}"
