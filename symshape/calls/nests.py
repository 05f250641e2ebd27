"""Nested arguments taken apart by straight-line code, made once for each way in which they nest.

A call with a dictionary, a named tuple or a dataclass of tensors has no quick key by itself.  The code here checks that
the arguments nest exactly as they did in an earlier call and answers their leaves, in the order of torch's flattening,
which have one; a last leaf says in which nest they stood.  Classes that are not written out are compared by
``containers.apart``.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

from torch.utils import _pytree as pytree

from symshape.calls.alike import Nest
from symshape.calls.containers import apart

Flat = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...] | None]
"""The leaves of the arguments of a call and the nest; None where they nest otherwise."""

_MOST = 8  # nests that are known of one function
_MOST_LEAVES = 15  # that a quick key is made of, beside the nest


class Nests:
    """The ways in which the arguments of one function nest."""

    __slots__ = ("_flat", "_tried")

    def __init__(self) -> None:
        self._flat: tuple[Flat, ...] = ()
        self._tried = 0

    def flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The leaves of a call that nests like one before; None for another."""
        for each in self._flat:
            found = each(args, kwargs)
            if found is not None:
                return found
        return None

    def learn(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Notes how the arguments of a call nest; whether later calls like it are quick."""
        if self._tried >= _MOST or not any(map(_is_container, (*args, *kwargs.values()))):
            return False
        self._tried += 1
        made = _Writer().function(args, kwargs)
        if made is None:
            return False
        self._flat = (*self._flat, made)
        return True


def _is_container(value: Any) -> bool:
    return type(value) in (tuple, list, dict) or apart(value) is not None


def _are_others(table: Mapping[Any, Any], keys: tuple[str, ...]) -> bool:
    return tuple(table) != keys or any(type(key) is not str for key in table)


class _Writer:
    """Writes the code for one nest: names and numbers of our own; what is the user's is an object in its namespace."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"apart": apart, "same": is_, "are_others": _are_others, "nest": Nest()}
        self._leaves: list[str] = []
        self._shared: list[str] = []  # containers that could be one
        self._count = 0

    def function(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flat | None:
        named = self._object(tuple(kwargs))
        condition = f"len(args) != {len(args)} or " + (f"tuple(kwargs) != {named}" if kwargs else "kwargs")
        self._lines.append(f"if {condition}: return None")
        for source, values in (("args", args), ("kwargs.values()", tuple(kwargs.values()))):
            self._items(source, values)
        if len(self._leaves) > _MOST_LEAVES:
            return None
        if len(self._shared) > 1:
            ids = ", ".join(f"id({each})" for each in self._shared)
            self._lines.append(f"if len({{{ids}}}) < {len(self._shared)}: return None")
        self._lines.append(f"return ({', '.join([*self._leaves, 'nest'])},)")
        exec("def flat(args, kwargs):\n    " + "\n    ".join(self._lines), self._names)
        return self._names["flat"]  # type: ignore[no-any-return]

    def _object(self, value: Any) -> str:
        name = f"o{len(self._names)}"
        self._names[name] = value
        return name

    def _items(self, source: str, values: Sequence[Any]) -> None:
        """Names for the items of a container, and what is in them."""
        names = [f"v{self._count + i}" for i in range(len(values))]
        self._count += len(values)
        if names:
            self._lines.append(f"{', '.join(names)}, = {source}")
        for name, value in zip(names, values, strict=True):
            self._value(name, value)

    def _value(self, name: str, value: Any) -> None:
        kind: Any = type(value)
        if kind in (tuple, list) or pytree.is_namedtuple_class(kind):
            self._check(f"type({name}) is not {self._object(kind)} or len({name}) != {len(value)}")
            items, source = tuple(value), name
        elif kind in (dict, collections.OrderedDict) and all(type(key) is str for key in value):
            keys = self._object(tuple(value))
            self._check(f"type({name}) is not {self._object(kind)} or len({name}) != {len(value)}")
            self._check(f"not all(map(same, {name}, {keys})) and are_others({name}, {keys})")
            items, source = tuple(value.values()), f"{name}.values()"
        else:
            found = apart(value)
            if found is None:
                self._leaves.append(name)
                return
            part, within = found
            source = f"v{self._count}"
            self._count += 1
            self._lines.append(f"{source} = apart({name}) if type({name}) is {self._object(kind)} else None")
            self._check(f"{source} is None or {source}[0] != {self._object(part)}")
            items, source = tuple(within), f"{source}[1]"
        if not isinstance(value, tuple):
            self._shared.append(name)
        self._items(source, items)

    def _check(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")
