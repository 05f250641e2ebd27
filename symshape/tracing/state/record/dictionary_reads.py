"""Answers that are stored in dictionaries: read from there, so that generated code can compare or
watch them.

A question that is a function call takes a microsecond each time, and a program asks some of them in
every layer: a variable of the environment, an attribute of a class.  The dictionary entry that the
function would read is compared instead.
"""

from __future__ import annotations

import abc
import functools
import gc
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from symshape.tracing.state.record.class_lookups import Lookup
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Answer,
    Attribute,
    Cell,
    Keys,
    Place,
)

_environment_get = os.environ.get


def direct(places: Iterable[Place]) -> tuple[list[Cell | Attribute], list[Answer | Keys]]:
    """Return the places, each once: first those that are read without a call, then the others."""
    cells: dict[tuple[int, Any], Cell | Attribute] = {}
    others: list[Answer | Keys] = []
    views: dict[type, Mapping[str, Any]] = {}  # of a class's entries; shared by all questions
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


def _direct(
    place: Place, views: dict[type, Mapping[str, Any]]
) -> Iterable[Cell | Attribute] | None:
    """Return places that say as much as ``place`` and are read without a call; None if there are
    none.
    """
    if isinstance(place, (Cell, Attribute)):
        return (place,)
    if isinstance(place, Keys):
        return None
    question = place.owner
    if type(question) is Lookup:
        return _of_classes(place, question, views)
    if (
        type(question) is functools.partial
        and question.func == _environment_get
        and len(question.args) == 1
    ):
        return _of_environment(place, question.args[0])
    return None


def _of_classes(
    place: Answer, question: Lookup, views: dict[type, Mapping[str, Any]]
) -> Iterator[Cell | Attribute]:
    """Yield the places that decide a class look-up: the bases, no earlier entry, and the first
    entry.
    """
    kind = question.kind
    yield Attribute(kind, "__mro__", kind.__mro__, place.name)
    for each in kind.__mro__:
        entries = views.setdefault(each, each.__dict__)
        found = entries.get(question.key, MISSING)
        yield Cell(
            entries, question.key, place.value if found is not MISSING else MISSING, place.name
        )
        if found is not MISSING:
            return


def _of_environment(place: Answer, name: str) -> Iterable[Cell] | None:
    """Return the entry of a variable in the dictionary inside ``os.environ`` (CPython's private
    ``_data``).
    """
    kept = getattr(os.environ, "_data", None)
    encode, encode_value = (
        getattr(os.environ, "encodekey", None),
        getattr(os.environ, "encodevalue", None),
    )
    if type(kept) is not dict or encode is None or encode_value is None:
        return None
    key = encode(name)
    value = MISSING if place.value is None else encode_value(place.value)
    now = kept.get(key, MISSING)
    # the same object: the quick comparison holds
    return (Cell(kept, key, now if now == value else value, place.name),)


# -- attributes of classes


def dicts_of_classes(place: Place) -> tuple[dict[Any, Any], ...]:
    """Return the dictionaries of the classes that decide a place: while none is written, the place
    holds its value.

    An attribute of a class also depends on the order of the bases, which must be compared
    separately.  The answer is empty if anything else has a say: a metaclass with look-ups of its
    own, or a descriptor that computes its value.
    """
    if isinstance(place, Attribute):
        return (
            _dicts_of_attribute(place.owner, place.key, place.value)
            if isinstance(place.owner, type)
            else ()
        )
    behind = dict_behind(place.owner) if type(place.owner) is types.MappingProxyType else None
    return () if behind is None else (behind,)


def _dicts_of_attribute(kind: type, key: str, value: Any) -> tuple[dict[Any, Any], ...]:
    metaclass: Any = type(kind)
    if metaclass not in (type, abc.ABCMeta) or any(
        key in each.__dict__ for each in metaclass.__mro__
    ):
        return ()
    found: list[dict[Any, Any]] = []
    for each in (abc.ABCMeta, *kind.__mro__):  # an attribute may be added to the metaclass
        behind = dict_behind(each.__dict__)
        if behind is None:
            return ()
        found.append(behind)
        if key in behind:
            return tuple(found) if behind[key] is value and type(value) in _AS_THEY_STAND else ()
    return tuple(found) if value is MISSING else ()


_AS_THEY_STAND = (
    types.FunctionType,
    types.BuiltinFunctionType,
    tuple,
    list,
    dict,
    set,
    frozenset,
    *PLAIN,
)
"""The types of class attributes that a look-up returns unchanged."""


def dict_behind(view: Any) -> dict[Any, Any] | None:
    """Return the dictionary of a class behind a mapping proxy of it; None if there is not exactly
    one.
    """
    found = [each for each in gc.get_referents(view) if type(each) is dict]
    return found[0] if len(found) == 1 else None
