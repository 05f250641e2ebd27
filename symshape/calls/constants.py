"""Constant arguments in exact keys: keyed by their parts, or by identity.

Examples are a configuration, a function, a module, a class, a member of an enumeration. The key
agrees with the slow reading of a call (``constant_key``), in one step. A leaf that is flattened
(``object_arguments.py``), that nests, or that has no hash has no key here: only the slow reading
can judge it.

What a class says about its objects is cached until the class changes (``class_version``).
"""

from __future__ import annotations

import abc
import enum
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch

from symshape.calls.compiled import class_version
from symshape.calls.constant_keys import (
    PLAIN,
    IdentityKey,
    constant_key,
    digits,
    field_names,
    may_have_parts,
    vars_beside,
)
from symshape.calls.object_kinds import is_record, never_flattened
from symshape.torch_internals import pytree

_ALWAYS_ITSELF = frozenset((types.FunctionType, types.BuiltinFunctionType, type, abc.ABCMeta))
_NO_CONSTANTS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, tuple)
_PLAIN_OR_FLOAT = PLAIN | {float}
_MOST = 4096
_FIELDS = "by its fields"

Key = Callable[[Any], Hashable | None]
_keys: dict[int, tuple[Callable[[], type | None], int, Key]] = {}
"""By the ids of classes: the class, its version, and the function that makes keys of its objects at
that version.
"""
_same: dict[int, IdentityKey] = {}
"""The identity keys of objects by their ids. When the first object with an id is gone, its key is
no longer valid.
"""


def constant(leaf: Any) -> Hashable | None:
    """Return a key that two constants share only if no program can distinguish them; None for the
    slow reading.

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
        if (
            known is None
            or known[0]() is not kind
            or not known[1]
            or known[1] != class_version(kind)
        ):
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
    if never_flattened(kind) and not may_have_parts(kind):
        return version, _itself if kind.__hash__ is object.__hash__ else _hashed
    return version, _of_any


def _none(leaf: Any) -> None:
    return None


def _of_slice(leaf: slice) -> Hashable:
    hash((leaf.start, leaf.stop, leaf.step))
    return constant_key(leaf)


def _hashed(leaf: Any) -> IdentityKey | None:
    hash(leaf)
    return _itself(leaf)


def _of_any(leaf: Any) -> Hashable | None:
    if is_record(leaf):
        return None
    hash(leaf)
    key = constant_key(leaf)
    return _itself(leaf) if type(key) is IdentityKey else key


def _of_fields(leaf: Any, names: tuple[str, ...]) -> Hashable | None:
    """Return the key of an object that is nothing but these fields; most fields are numbers and
    texts.
    """
    values = [getattr(leaf, name) for name in names]
    kinds = list(map(type, values))
    if not _PLAIN_OR_FLOAT.issuperset(kinds) or vars_beside(leaf, names):
        return _of_any(leaf)
    hash(leaf)
    if float in kinds:
        values = [digits(each) if type(each) is float else each for each in values]
    return (_FIELDS, type(leaf), names, *kinds, *values)


def _itself(leaf: Any) -> IdentityKey | None:
    """Return the identity key of an object; None if the key would keep the object alive."""
    found = _same.get(id(leaf))
    if found is None or found.value is not leaf:
        found = IdentityKey(leaf)
        if not found.is_weak:
            # members live as long as their class
            return found if isinstance(leaf, enum.Enum) else None
        if len(_same) >= _MOST:
            _same.clear()
        _same[id(leaf)] = found
    return found
