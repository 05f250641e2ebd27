"""Policies for the integers of a call, from ``dynamic=...`` and ``mark_dynamic``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from guards.sets.sources import IntArg, Size, Source
from symshape.calls.arguments import (
    INT_KEY,
    RECORD_KEY,
    Call,
    TensorKey,
    parameter_names,
    sources_of,
)
from symshape.dims import Dim, Policy, normalize, per_dimension
from symshape.errors import DimError
from symshape.torch_internals import pytree

Dynamic = bool | None | Mapping[str, Any] | Sequence[Any]
"""``None``, ``True``, ``False``, or a description of arguments: by name, or a sequence by position
(torch.export).
"""


def policies(
    fn: Callable[..., Any], call: Call, dynamic: Dynamic, default: Policy
) -> dict[Source, Dim | Policy]:
    """Return the policy for each integer of the call: what tracing may do with it.

    ``dynamic=True`` makes every size and integer a symbol that the program may specialise,
    ``False`` none; a description makes what it names dynamic and leaves the rest static; ``None``
    gives tensors' sizes the policy ``default``.  Marks of ``torch._dynamo`` on the tensors
    themselves come last and win.

    Raises:
        DimError: the description names an argument or a dimension that does not exist, or says
            nothing sensible.
    """
    found: dict[Source, Dim | Policy] = {}
    if dynamic is True:
        found = dict.fromkeys(sources_of(call), Policy.AUTO)
    elif dynamic is None:
        if default is not Policy.STATIC:
            found = {
                source: default for source in sources_of(call) if not isinstance(source, IntArg)
            }
    elif dynamic is not False:
        found = _described(fn, call, dynamic)
    taken = {dim.name for dim in found.values() if isinstance(dim, Dim)}
    for leaf, key, path in zip(call.leaves, call.keys, call.paths, strict=True):
        if isinstance(key, TensorKey):
            found.update(_marks(leaf, path, key.ndim, taken))
    return found


def changing_with_records(call: Call) -> list[Source]:
    """Return the integers that change at the next call of a program with a growing cache.

    These are all integers of tensors, and the integers in objects.
    """
    records = (path for path, key in zip(call.paths, call.keys, strict=True) if key is RECORD_KEY)
    inside = tuple(start for path in records for start in (f"{path}.", f"{path}["))
    return [
        each
        for each in sources_of(call)
        if not isinstance(each, IntArg) or each.text().startswith(inside)
    ]


def _described(fn: Callable[..., Any], call: Call, dynamic: Any) -> dict[Source, Dim | Policy]:
    args, kwargs, *_ = pytree.tree_unflatten(list(range(len(call.leaves))), call.tree)
    names = parameter_names(fn, args)
    if isinstance(dynamic, Mapping):
        described = dict(dynamic)
    elif isinstance(dynamic, Sequence) and not isinstance(dynamic, str):
        if len(dynamic) > len(names):
            raise DimError(
                f"dynamic describes {len(dynamic)} arguments, but the call has {len(names)} "
                "positional ones"
            )
        described = dict(zip(names, dynamic, strict=False))
    else:
        raise DimError(f"dynamic must be None, a bool, a mapping or a sequence, not {dynamic!r}")
    arguments: dict[str, Any] = dict(zip(names, args, strict=True)) | kwargs
    variadic = {name.split("[")[0] for name in names if "[" in name}
    found: dict[Source, Dim | Policy] = {}
    for name, description in described.items():
        if name in arguments:
            _describe(call, arguments[name], description, found)
        elif name in variadic:  # torch.export: {"args": (…, …)}
            parts = [arguments[each] for each in names if each.startswith(f"{name}[")]
            _describe(call, parts, description, found)
        elif name == "kwargs" and isinstance(description, Mapping):
            for key, inner in description.items():
                if key not in arguments:
                    raise _unknown(key, arguments)
                _describe(call, arguments[key], inner, found)
        else:
            raise _unknown(name, arguments)
    return found


def _unknown(name: object, arguments: Mapping[str, Any]) -> DimError:
    return DimError(
        f"dynamic names the argument {name!r}, but the call has "
        f"{', '.join(map(str, arguments)) or 'none'}"
    )


def _describe(
    call: Call, argument: Any, description: Any, found: dict[Source, Dim | Policy]
) -> None:
    """Apply a description to one argument, whose leaves are replaced by their positions."""
    if isinstance(argument, int):
        key, path = call.keys[argument], call.paths[argument]
        if isinstance(key, TensorKey):
            for d, policy in per_dimension(description, call.leaves[argument].shape, path).items():
                found[Size(path, d)] = policy
        elif key is INT_KEY:
            found[IntArg(path)] = normalize(description, path, call.leaves[argument])
        elif description is not None:
            raise DimError(f"argument {path} is {key}, which has no size; describe it with None")
        return
    if description is None:
        return
    if isinstance(argument, Mapping) and isinstance(description, Mapping):
        for key, inner in description.items():
            if key not in argument:
                raise _unknown(key, argument)
            _describe(call, argument[key], inner, found)
    elif isinstance(argument, (list, tuple)) and isinstance(description, (list, tuple)):
        if len(argument) != len(description):
            raise DimError(
                f"dynamic describes {len(description)} items where the call has {len(argument)}"
            )
        for item, inner in zip(argument, description, strict=True):
            _describe(call, item, inner, found)
    else:  # one policy for everything inside
        for position in pytree.tree_leaves(argument):
            _describe(call, position, description, found)


def _fresh_name(text: str, taken: set[str]) -> str:
    """Return an identifier like ``text`` that is not taken yet."""
    name = re.sub(r"\W+", "_", text).strip("_") or "size"
    name = name if name[0].isalpha() else f"d{name}"
    while name in taken:
        name += "x"
    taken.add(name)
    return name


def _marks(
    tensor: torch.Tensor, path: str, ndim: int, taken: set[str]
) -> dict[Source, Dim | Policy]:
    """Read the marks of ``torch._dynamo``:

    ``mark_dynamic``, ``mark_unbacked``, ``maybe_mark_dynamic``, ``mark_static``.

    Source: torch/_dynamo/decorators.py (attributes checked on torch 2.11 to 2.13).
    """
    found: dict[Source, Dim | Policy] = {}
    marks = tensor.__dict__
    if not marks:
        return found
    limits = {mark.dim: mark for mark in marks.get("_dynamo_dynamic_range", ())}
    for d in marks.get("_dynamo_weak_dynamic_indices", ()):
        found[Size(path, d % ndim)] = Policy.AUTO
    for d in marks.get("_dynamo_dynamic_indices", ()):
        limit = limits.get(d)
        if limit is None or (limit.min is None and limit.max is None):
            found[Size(path, d % ndim)] = Policy.DYNAMIC
        else:
            name = _fresh_name(f"{path}_{d}", taken)
            found[Size(path, d % ndim)] = Dim(name, min=limit.min or 0, max=limit.max)
    for d in marks.get("_dynamo_unbacked_indices", ()):
        found[Size(path, d % ndim)] = Policy.UNBACKED
    for d in marks.get("_dynamo_static_indices", ()):
        found[Size(path, d % ndim)] = Policy.STATIC
    return found
