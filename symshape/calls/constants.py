"""Constants among the arguments, as exact keys know them: by their parts, or by which object they are.

A configuration, a function, a module, a class, a member of an enumeration: what a call's slow reading says of it
(``alike``), in one step.  There is no answer for what is taken apart (``records.py``), nests, or has no hash: only the
slow reading can judge that.

What a class says of its objects is asked once, and again when it has changed (``class_version``).
"""

from __future__ import annotations

import abc
import enum
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch

from symshape.calls.alike import PLAIN, Same, alike, digits, field_names, may_have_parts, vars_beside
from symshape.calls.compiled import class_version
from symshape.calls.record_kinds import is_record, never_taken_apart
from symshape.torch_internals import pytree

_ALWAYS_ITSELF = frozenset((types.FunctionType, types.BuiltinFunctionType, type, abc.ABCMeta))
_NO_CONSTANTS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, tuple)
_PLAIN_OR_FLOAT = PLAIN | {float}
_MOST = 4096
_FIELDS = "by its fields"

Key = Callable[[Any], Hashable | None]
_keys: dict[int, tuple[Callable[[], type | None], int, Key]] = {}
"""By the ids of classes: the class, its version, and what makes the keys of its objects for as long as it has that."""
_same: dict[int, Same] = {}
"""The keys of objects by their ids: the first object with an id may be gone, and its key is then another's no more."""


def constant(leaf: Any) -> Hashable | None:
    """What two constants share only if no program can tell them apart; None where only the slow reading can tell.

    >>> constant(print) == constant(print), constant(slice(0, 1)) == constant(slice(0, True))
    (True, False)
    """
    kind = type(leaf)
    if kind in _ALWAYS_ITSELF:
        return _itself(leaf)
    try:
        if kind in pytree.SUPPORTED_NODES:
            return None
        known = _keys.get(id(kind))
        if known is None or known[0]() is not kind or not known[1] or known[1] != class_version(kind):
            if len(_keys) >= _MOST:
                _keys.clear()
            known = _keys[id(kind)] = (weakref.ref(kind), *_version_and_key(kind))
        return known[2](leaf)
    except Exception:  # of a __hash__ of the user's
        return None


def _version_and_key(kind: type) -> tuple[int, Key]:
    if kind is slice:  # before Python 3.12 it has no hash
        return 0, _of_slice
    if issubclass(kind, _NO_CONSTANTS) or getattr(kind, "__hash__", None) is None:
        return class_version(kind), _none
    version, names = class_version(kind), field_names(kind)
    if names is not None:
        return version, lambda leaf: _of_fields(leaf, names)
    if never_taken_apart(kind) and not may_have_parts(kind):
        return version, _itself if kind.__hash__ is object.__hash__ else _hashed
    return version, _of_any


def _none(leaf: Any) -> None:
    return None


def _of_slice(leaf: slice) -> Hashable:
    hash((leaf.start, leaf.stop, leaf.step))
    return alike(leaf)


def _hashed(leaf: Any) -> Same | None:
    hash(leaf)
    return _itself(leaf)


def _of_any(leaf: Any) -> Hashable | None:
    if is_record(leaf):
        return None
    hash(leaf)
    key = alike(leaf)
    return _itself(leaf) if type(key) is Same else key


def _of_fields(leaf: Any, names: tuple[str, ...]) -> Hashable | None:
    """The key of an object that is nothing but these fields; most hold numbers and texts alone, and no tensor then."""
    values = [getattr(leaf, name) for name in names]
    kinds = list(map(type, values))
    if not _PLAIN_OR_FLOAT.issuperset(kinds) or vars_beside(leaf, names):
        return _of_any(leaf)
    hash(leaf)
    if float in kinds:
        values = [digits(each) if type(each) is float else each for each in values]
    return (_FIELDS, type(leaf), names, *kinds, *values)


def _itself(leaf: Any) -> Same | None:
    """The key of this very object; None where it would keep the object alive."""
    found = _same.get(id(leaf))
    if found is None or found.value is not leaf:
        found = Same(leaf)
        if not found.is_weak:
            return found if isinstance(leaf, enum.Enum) else None  # members live as long as their class
        if len(_same) >= _MOST:
            _same.clear()
        _same[id(leaf)] = found
    return found
