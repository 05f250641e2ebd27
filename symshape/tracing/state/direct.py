"""Answers that stand in dictionaries: read there, where they can be compared in generated code, or watched.

A question that is a function call takes a microsecond each time, and a program asks some of them in every layer (a
variable of the environment, what stands in a class).  What the function would look up is a place of its own.
"""

from __future__ import annotations

import abc
import functools
import gc
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from symshape.tracing.state.lookups import Lookup
from symshape.tracing.state.places import MISSING, PLAIN, Answer, Attribute, Cell, Keys, Place

_environment_get = os.environ.get


def direct(places: Iterable[Place]) -> tuple[list[Cell | Attribute], list[Answer | Keys]]:
    """The places, each once: those that are read without a call, and the others."""
    cells: dict[tuple[int, Any], Cell | Attribute] = {}
    others: list[Answer | Keys] = []
    views: dict[type, Mapping[str, Any]] = {}  # of a class's entries: one for all questions
    for place in places:
        if type(place) is Cell or type(place) is Attribute:  # most of them
            cells.setdefault((id(place.owner), place.key), place)
            continue
        found = _direct(place, views)
        if found is None:
            assert isinstance(place, (Answer, Keys))
            others.append(place)
        else:
            for cell in found:
                cells.setdefault((id(cell.owner), cell.key), cell)
    return list(cells.values()), others


def _direct(place: Place, views: dict[type, Mapping[str, Any]]) -> Iterable[Cell | Attribute] | None:
    """What says as much as a place does, and is read without a call; None if there is nothing."""
    if isinstance(place, (Cell, Attribute)):
        return (place,)
    if isinstance(place, Keys):
        return None
    question = place.owner
    if type(question) is Lookup:
        return _of_classes(place, question, views)
    if type(question) is functools.partial and question.func == _environment_get and len(question.args) == 1:
        return _of_environment(place, question.args[0])
    return None


def _of_classes(place: Answer, question: Lookup, views: dict[type, Mapping[str, Any]]) -> Iterator[Cell | Attribute]:
    """What stands in a class or its bases: the first entry, none before it, and the same bases."""
    kind = question.kind
    yield Attribute(kind, "__mro__", kind.__mro__, place.name)
    for each in kind.__mro__:
        entries = views.setdefault(each, each.__dict__)
        found = entries.get(question.key, MISSING)
        yield Cell(entries, question.key, place.value if found is not MISSING else MISSING, place.name)
        if found is not MISSING:
            return


def _of_environment(place: Answer, name: str) -> Iterable[Cell] | None:
    """A variable as ``os.environ`` keeps it (CPython's private dictionary of it: a write is a write into that)."""
    kept = getattr(os.environ, "_data", None)
    encode, encode_value = getattr(os.environ, "encodekey", None), getattr(os.environ, "encodevalue", None)
    if type(kept) is not dict or encode is None or encode_value is None:
        return None
    key = encode(name)
    value = MISSING if place.value is None else encode_value(place.value)
    now = kept.get(key, MISSING)
    return (Cell(kept, key, now if now == value else value, place.name),)  # the very object: compared at once


# -- what stands in classes


def dicts_of_classes(place: Place) -> tuple[dict[Any, Any], ...]:
    """The dictionaries of the classes in which a place stands: while none is written it holds what it held.

    An attribute of a class also depends on the order of its bases, which is to be compared. Empty where more plays a
    part: a metaclass that answers in its own way, a descriptor that makes what it gives.
    """
    if isinstance(place, Attribute):
        return _dicts_of_attribute(place.owner, place.key, place.value) if isinstance(place.owner, type) else ()
    behind = dict_behind(place.owner) if type(place.owner) is types.MappingProxyType else None
    return () if behind is None else (behind,)


def _dicts_of_attribute(kind: type, key: str, value: Any) -> tuple[dict[Any, Any], ...]:
    metaclass: Any = type(kind)
    if metaclass not in (type, abc.ABCMeta) or any(key in each.__dict__ for each in metaclass.__mro__):
        return ()
    found: list[dict[Any, Any]] = []
    for each in (abc.ABCMeta, *kind.__mro__):  # a metaclass could learn to answer
        behind = dict_behind(each.__dict__)
        if behind is None:
            return ()
        found.append(behind)
        if key in behind:
            return tuple(found) if behind[key] is value and type(value) in _AS_THEY_STAND else ()
    return tuple(found) if value is MISSING else ()


_AS_THEY_STAND = (types.FunctionType, types.BuiltinFunctionType, tuple, list, dict, set, frozenset, *PLAIN)
"""Kinds of what stands in a class that the class answers as they are."""


def dict_behind(view: Any) -> dict[Any, Any] | None:
    """The dictionary of a class that a view is of."""
    found = [each for each in gc.get_referents(view) if type(each) is dict]
    return found[0] if len(found) == 1 else None
