"""Methods of Python's numbers that ``torch.SymInt`` and its like lack, or have otherwise: while a function is traced.

``k.bit_count()``, ``k.to_bytes(2, "big")``, ``f"{k:05d}"`` and ``pickle.dumps(k)`` need the number: a guard fixes it.
``round(k, -1)`` is no integer's own value, as torch has it.  Symbolic numbers of other tracers keep torch's methods.
(Checked on torch 2.11 to 2.13.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from symshape.graph.float_terms import FloatTerm
from symshape.tracing.symbolic.nodes.node import Node
from symshape.tracing.symbolic.nodes.texts import formatted, wants_value

_PLAIN: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_MISSING = object()
_plain_hash: Callable[[Any], int] = torch.SymInt.__hash__

_plain_pow: Callable[[Any, Any], Any] = torch.SymFloat.__pow__


def is_ours(number: Any) -> bool:
    """Whether a symbolic number belongs to a trace of ours."""
    return isinstance(number.__dict__.get("node"), Node)


def _attribute(number: Any, name: str) -> Any:
    """An attribute that torch's class lacks: that of the number, which a guard fixes."""
    kind = _PLAIN[type(number)]
    if not is_ours(number) or not hasattr(kind, name):
        raise AttributeError(f"{type(number).__name__!r} object has no attribute {name!r}")
    if name in ("real", "numerator") and kind is int:
        return number
    if name in ("imag", "denominator") and kind is int:
        return 0 if name == "imag" else 1
    return getattr(kind(number), name)


def _reduce(number: Any, protocol: Any) -> Any:
    kind = _PLAIN[type(number)]
    return (kind, (kind(number),)) if is_ours(number) else object.__reduce_ex__(number, protocol)


def _round(number: Any, ndigits: Any = None) -> Any:
    if not is_ours(number) or ndigits is None or ndigits >= 0:
        return number
    return round(int(number), int(ndigits))


def _format(number: Any, spec: str) -> str:
    if not is_ours(number):
        return object.__format__(number, spec)
    return formatted(number, spec, _PLAIN[type(number)])


def _hash(number: Any) -> int:
    """The hash of the number, which a guard fixes, for the program: a key of a dictionary, an item of a set."""
    return hash(int(number)) if is_ours(number) and wants_value() else _plain_hash(number)


def _pow(number: Any, other: Any) -> Any:
    """A power of a number that is known at run time only: that its base is not negative is seen there."""
    if is_ours(number) and isinstance(number.node.term, FloatTerm) and number.node.term.unbacked():
        exponents = (int, float, torch.SymInt, torch.SymFloat)
        return number.__float_pow__(other) if isinstance(other, exponents) else NotImplemented
    return _plain_pow(number, other)


def _itself(number: Any, memo: Any = None) -> Any:
    return number


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {
        "__getattr__": _attribute,
        "__reduce_ex__": _reduce,
        "__format__": _format,
        "__copy__": _itself,
        "__deepcopy__": _itself,
    }
    if kind is torch.SymFloat:
        found["__pow__"] = _pow
    return {**found, "__round__": _round, "__hash__": _hash} if kind is torch.SymInt else found


@contextmanager
def number_methods() -> Iterator[None]:
    """Inside, symbolic numbers of ours have the methods of the numbers that they stand for."""
    before = [
        (kind, name, kind.__dict__.get(name, _MISSING), ours)
        for kind in _PLAIN
        for name, ours in _methods(kind).items()
    ]
    for kind, name, _, ours in before:
        setattr(kind, name, ours)
    try:
        yield
    finally:
        for kind, name, found, _ in before:
            if found is _MISSING:
                delattr(kind, name)
            else:
                setattr(kind, name, found)
