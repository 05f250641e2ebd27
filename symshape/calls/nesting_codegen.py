"""Generated code that flattens nested arguments, written once for each nesting.

A call with a dictionary, a named tuple or a dataclass of tensors has no quick key by itself. The
generated code checks that the arguments nest exactly as in an earlier call, and returns their
leaves in the order of torch's flattening; these have a quick key. A last leaf identifies the
nesting. Other containers are compared by ``containers.container_parts``.

Objects that are flattened (``calls/object_arguments.py``) are checked for their class and for the
attributes that they have; the attribute values are leaves. The object itself is a leaf too, in a
``FlattenedObject``, so that no key confuses an object in the place of a tensor or number with one
that was flattened.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

import attrs
import torch

from symshape.calls.call_key import container_parts
from symshape.calls.compiled import class_version
from symshape.calls.constant_keys import PLAIN, Nesting
from symshape.calls.object_arguments import FlattenedObject
from symshape.calls.object_kinds import (
    BETWEEN,
    METHODS,
    dictionary_of,
    is_always_record,
    is_cache,
    is_filled,
    is_record,
    slots_of,
)
from symshape.torch_internals import pytree

Flat = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], tuple[Any, ...] | None]
"""The leaves of a call's arguments and variables, then the nest; None if they nest in another way.

The values of variables are among the leaves once more, unflattened, in a ``FlattenedObject``, if
there are any.
"""

_MOST = 8  # nests that are known of one function
_MOST_LEAVES = 1000  # that a quick key is made of, beside the nest
_MOST_IN_TUPLE = 64  # of which each is looked at for a tensor: see ``object_kinds.is_record``
_DEEPEST_TENSOR = 3


class KnownNestings:
    """The known nestings of the arguments of one function."""

    __slots__ = ("_flat", "_tried")

    def __init__(self) -> None:
        self._flat: tuple[Flat, ...] = ()
        self._tried = 0

    def flat(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], values: Sequence[Any] = ()
    ) -> tuple[Any, ...] | None:
        """Return the leaves of a call that nests like an earlier one, with these variables; None
        for another.
        """
        for each in self._flat:
            found = each(args, kwargs, values)
            if found is not None:
                return found
        return None

    def known(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], values: Sequence[Any] = ()
    ) -> tuple[Any, ...] | None:
        """Return the leaves of :meth:`flat`; None if a container stands where the earlier call had
        a leaf.
        """
        found = self.flat(args, kwargs, values)
        return None if found is None or any(map(_is_container, found)) else found

    def learn(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], values: Sequence[Any] = ()
    ) -> bool:
        """Learn how the arguments of a call nest; return whether later calls that nest so are
        quick.
        """
        if self._tried >= _MOST or not any(map(_is_container, (*args, *kwargs.values(), *values))):
            return False
        if self.known(args, kwargs, values) is not None:  # only its sizes are new
            return False
        self._tried += 1
        try:
            made = _Writer().function(args, kwargs, values)
        except _NotQuick:
            return False
        # before one that has a leaf where this one has a container
        self._flat = (made, *self._flat)
        return True


def _is_container(value: Any) -> bool:
    kind = type(value)
    return kind in (tuple, list, *_DICTIONARIES) or (
        kind is not FlattenedObject and (container_parts(value) is not None or is_record(value))
    )


def _are_others(table: Mapping[Any, Any], keys: tuple[str, ...]) -> bool:
    return tuple(table) != keys or any(type(key) is not str for key in table)


class _NotQuick(Exception):
    """Only the slow reading can tell how the arguments nest."""


@attrs.frozen(eq=False)
class _Inside:
    """The surroundings of a value: it is in an object that is flattened, or in a list, dictionary
    or tuple of one.

    Attributes:
        depth: of these around it.
    """

    depth: int


class _Writer:
    """The writer of the code for one nesting. Names are our own; objects of the user's are in the
    code's namespace.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "container_parts": container_parts,
            "same": is_,
            "are_others": _are_others,
            "version": class_version,
            "FlattenedObject": FlattenedObject,
            "Tensor": torch.Tensor,
            "registered": pytree.SUPPORTED_NODES,
        }
        self._leaves: list[str] = []
        self._tensors: list[tuple[str, int]] = []  # those in objects, and how deep
        self._shared: list[str] = []  # containers that could be one
        self._open: set[int] = set()
        self._classes: dict[type, set[str]] = {}  # attributes that classes were asked for
        self._count = 0

    def function(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], variables: Sequence[Any]
    ) -> Flat:
        """Write and run the code.

        Raises:
            _NotQuick: there is none.
        """
        named = self._object(tuple(kwargs))
        condition = f"len(args) != {len(args)} or " + (
            f"tuple(kwargs) != {named}" if kwargs else "kwargs"
        )
        self._check(f"{condition} or len(values) != {len(variables)}")
        given = (("args", args), ("kwargs.values()", tuple(kwargs.values())), ("values", variables))
        for source, values in given:
            self._items(source, values, None)
        if variables:
            self._leaves.append("FlattenedObject((values,))")
        self._names["nest"] = Nesting(len(variables))
        if len(self._shared) > 1:
            ids = ", ".join(f"id({each})" for each in self._shared)
            self._check(f"len({{{ids}}}) < {len(self._shared)}")
        self._lines.append(f"return ({', '.join([*self._leaves, 'nest'])},)")
        body = "\n        ".join(self._lines)
        # another thread may change an object, a list or a class between two lines; a slot may be
        # empty by now
        end = "    except (AttributeError, KeyError, ValueError): return None"
        exec(f"def flat(args, kwargs, values):\n    try:\n        {body}\n{end}", self._names)
        return self._names["flat"]  # type: ignore[no-any-return]

    def _object(self, value: Any) -> str:
        name = f"o{len(self._names)}"
        self._names[name] = value
        return name

    def _new(self, number: int) -> list[str]:
        self._count += number
        return [f"v{i}" for i in range(self._count - number, self._count)]

    def _items(self, source: str, values: Sequence[Any], inside: _Inside | None) -> None:
        """Unpack the items of a container into new names, and write code for them."""
        names = self._new(len(values))
        if names:
            self._lines.append(f"{', '.join(names)}, = {source}")
        self._values(names, values, inside)

    def _values(self, names: Sequence[str], values: Sequence[Any], inside: _Inside | None) -> None:
        for name, value in zip(names, values, strict=True):
            if id(value) in self._open:
                raise _NotQuick  # it holds itself
            self._open.add(id(value))
            self._value(name, value, inside)
            self._open.discard(id(value))

    def _leaf(self, name: str) -> None:
        self._leaves.append(name)
        if len(self._leaves) > _MOST_LEAVES:
            raise _NotQuick

    def _value(self, name: str, value: Any, inside: _Inside | None) -> None:
        kind: Any = type(value)
        if is_record(value):
            self._record(name, value, inside)
        elif kind in (tuple, list) or pytree.is_namedtuple_class(kind):
            self._check(f"type({name}) is not {self._object(kind)} or len({name}) != {len(value)}")
            self._container(name, name, value, tuple(value), inside)
        elif (kind is dict or (kind is collections.OrderedDict and inside is None)) and _has_names(
            value
        ):
            self._check(f"type({name}) is not {self._object(kind)}")
            self._keys(name, tuple(value))
            self._container(name, f"{name}.values()", value, tuple(value.values()), inside)
        elif inside is None and kind in _DICTIONARIES and all(map(_may_be_key, value)):
            self._table(name, value)
        elif (found := container_parts(value)) is not None:
            if inside is not None:
                raise _NotQuick
            part, within = found
            (source,) = self._new(1)
            self._lines.append(
                f"{source} = container_parts({name}) if type({name}) is {self._object(kind)} else "
                "None"
            )
            self._check(f"{source} is None or {source}[0] != {self._object(part)}")
            self._container(name, f"{source}[1]", value, tuple(within), None)
        else:
            if inside is not None and isinstance(value, torch.Tensor):
                self._tensors.append((name, inside.depth))
            self._leaf(name)

    def _container(
        self, name: str, source: str, value: Any, items: tuple[Any, ...], inside: _Inside | None
    ) -> None:
        """Write code for a container that was checked.

        Within objects, lists and dictionaries are leaves too, as objects are.
        """
        if not isinstance(value, tuple):
            self._shared.append(name)
        if inside is not None:
            if len(items) > _MOST_IN_TUPLE:
                raise _NotQuick
            if not isinstance(value, tuple):
                self._leaf(f"FlattenedObject(({name},))")
            unseen = isinstance(value, tuple) and type(value) is not tuple  # by ``is_record``
            inside = _Inside(inside.depth + (_DEEPEST_TENSOR if unseen else 1))
        self._items(source, items, inside)

    def _record(self, name: str, value: Any, inside: _Inside | None) -> None:
        """Write code for an object: first the questions of ``is_record``, then ``contents`` in its
        order.
        """
        kind = type(value)
        held, slots = dictionary_of(value), slots_of(kind)
        if any(type(getattr(kind, each, None)) is not types.MemberDescriptorType for each in slots):
            raise _NotQuick
        if slots and hasattr(kind, "__getattr__"):  # which answers for a slot that is empty
            raise _NotQuick
        if not all(is_filled(value, each) for each in slots) or (
            held is not None and not _has_names(held)
        ):
            raise _NotQuick
        its_class = self._object(kind)
        self._check(
            f"type({name}) is not {its_class}"
            + ("" if is_cache(kind) else f" or {its_class} in registered")
        )
        names = self._new(len(slots))
        self._lines += [f"{each} = {name}.{slot}" for each, slot in zip(names, slots, strict=True)]
        self._class_of(its_class, kind, (*slots, *(held or ())))
        self._shared.append(name)
        self._leaf(f"FlattenedObject(({name},))")
        depth, first = 1 if inside is None else inside.depth + 1, len(self._tensors)
        self._values(names, [getattr(value, each) for each in slots], _Inside(depth))
        if held is not None:
            (source,) = self._new(1)
            self._lines.append(f"{source} = {name}.__dict__")
            self._keys(source, tuple(held))
            self._items(f"{source}.values()", tuple(held.values()), _Inside(depth))
        if is_always_record(kind):
            return
        if getattr(kind, "__hash__", None) is None:
            self._check(f"{its_class}.__hash__ is not None")
            return
        near = [each for each, deep in self._tensors[first:] if deep - depth < _DEEPEST_TENSOR]
        if not near:
            raise _NotQuick
        self._check(f"not isinstance({near[0]}, Tensor)")

    def _class_of(self, name: str, kind: type, attributes: tuple[str, ...]) -> None:
        """Check that a class still has the same attributes of these names: see
        ``object_kinds.overrides``.

        The code looks into a view of the class dictionary, which takes no call.
        """
        known = self._classes.setdefault(kind, set())
        version, new = class_version(kind), [each for each in attributes if each not in known]
        changed = [f"{name}.__mro__ is not {self._object(kind.__mro__)}"]
        for each in kind.__mro__[:-1]:
            held = self._object(each.__dict__)
            for attribute in new if known else (*new, *BETWEEN, *METHODS):
                there = f"{self._object(attribute)} in {held}"
                if attribute in each.__dict__:
                    said = self._object(each.__dict__[attribute])
                    there = f"not {there} or {held}[{self._object(attribute)}] is not {said}"
                changed.append(there)
        if new or not known:
            known.update(new, BETWEEN)
            any_changed = " or ".join(changed)
            self._check(
                f"version({name}) != {version} and ({any_changed})" if version else any_changed
            )

    def _table(self, name: str, value: Any) -> None:
        """Write code for a dictionary with keys of any class.

        Keys that are tensors must be the same objects; they are held weakly.
        """
        self._check(f"type({name}) is not {self._object(type(value))}")
        if type(value) is collections.defaultdict:
            default = value.default_factory
            if default is None:
                self._check(f"{name}.default_factory is not None")
            elif isinstance(default, (type, types.FunctionType)):
                self._check(self._is_not(f"{name}.default_factory", default))
            else:
                raise _NotQuick
        names = self._new(len(value))
        if names:
            self._lines.append(f"{', '.join(names)}, = {name}")
        else:
            self._check(f"{name}")
        for its, key in zip(names, value, strict=True):
            if isinstance(key, torch.Tensor):
                self._check(self._is_not(its, key))
            else:
                self._check(
                    f"type({its}) is not {self._object(type(key))} or {its} != {self._object(key)}"
                )
        self._container(name, f"{name}.values()", value, tuple(value.values()), None)

    def _is_not(self, name: str, value: Any) -> str:
        """Return a condition: ``name`` is not this object, which is held weakly."""
        return f"{name} is None or {name} is not {self._object(weakref.ref(value))}()"

    def _keys(self, name: str, keys: tuple[Any, ...]) -> None:
        its = self._object(keys)
        self._check(
            f"len({name}) != {len(keys)} or not all(map(same, {name}, {its})) and "
            f"are_others({name}, {its})"
        )

    def _check(self, condition: str) -> None:
        self._lines.append(f"if {condition}: return None")


_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)


def _may_be_key(key: Any) -> bool:
    return type(key) in PLAIN or isinstance(key, torch.Tensor)


def _has_names(table: Mapping[Any, Any]) -> bool:
    return all(type(key) is str for key in table)
