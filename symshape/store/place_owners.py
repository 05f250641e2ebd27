"""The owner of each place that a trace recorded, and the step from the owner to the place."""

from __future__ import annotations

import functools
import os
import sys
import types
from contextvars import ContextVar
from typing import Any

from symshape.store.object_paths import GROUPS
from symshape.store.store_errors import NotStorable
from symshape.tracing.state.record import attribute_lookups, dictionary_reads
from symshape.tracing.state.record.loads import decimal_context
from symshape.tracing.state.record.places import Answer, Attribute, Keys, Place, WeakAttribute
from symshape.tracing.state.record.torch_flags import FLAGS

Step = tuple[str, Any]
"""A kind of step, and its key: see :mod:`symshape.store.object_paths`."""


def behind(kind: type) -> Any:
    """Return the real dictionary of a class, behind the view that ``__dict__`` makes anew each
    time.
    """
    return dictionary_reads.dict_behind(kind.__dict__)


def owner_and_step(place: Place) -> tuple[Any, Step, bool]:
    """Return a place's owner (None if it has none), the step to it, and whether the owner is a
    class's dictionary.

    Raises:
        NotStorable: it is an answer that no other process can ask for.
    """
    owner = place.owner
    if isinstance(place, Keys):
        step: Step = ("keys", place.key)
        return (
            (dictionary_reads.dict_behind(owner), step, True)
            if _is_view(owner)
            else (owner, step, False)
        )
    if isinstance(place, Attribute):
        of_a_class = isinstance(owner, type) and place.key != "__class__"
        return owner, ("static" if of_a_class else "slot", place.key), False
    if isinstance(place, Answer):
        return (*_of_answer(place), False)
    if owner is sys.modules:
        return None, ("module", place.key), False
    if isinstance(owner, types.CellType):
        return owner, ("contents", place.key), False
    if _is_view(owner):
        return dictionary_reads.dict_behind(owner), ("entry", place.key), True
    return owner, ("item", place.key), False


def _is_view(owner: Any) -> bool:
    return isinstance(owner, types.MappingProxyType)


def _of_answer(place: Answer) -> tuple[Any, Step]:
    question = place.owner
    if isinstance(question, attribute_lookups.Lookup):
        return question.kind, ("look-up", question.key)
    if isinstance(question, WeakAttribute):
        owner = question.owner()
        if owner is not None:
            return owner, ("weak slot", place.key)
    if isinstance(question, functools.partial):
        if question.func == os.environ.get and len(question.args) == 1:
            return None, ("environment", question.args[0])
        if question.func is getattr and isinstance(question.args[0], types.ModuleType):
            return question.args[0], ("flag of module", place.key)
        bound = getattr(question.func, "__self__", None)
        if isinstance(bound, ContextVar):
            return bound, ("context", None)
    if question is decimal_context:
        return None, ("decimal", None)
    for name, (here, _) in GROUPS.items():
        if question is here:
            return None, ("process group", name)
    if FLAGS.get(place.name) is question:
        return None, ("flag", place.name)
    raise NotStorable(f"{place.name}, whose value has a meaning in this process only")
