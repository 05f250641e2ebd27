"""Methods of Python's numbers that ``torch.SymInt`` and its relatives lack or define differently,
added during a trace.

``k.bit_count()``, ``k.to_bytes(2, "big")``, ``f"{k:05d}"`` and ``pickle.dumps(k)`` need the number:
a guard fixes it. ``round(k, -1)`` rounds to tens as Python does, where torch returns ``k``.
Symbolic numbers of other tracers keep torch's methods. (Checked on torch 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from guards.terms import boolean
from symshape.graph.float_terms import FloatTerm
from symshape.tracing.intercept.exchanges import exchanged
from symshape.tracing.intercept.python_numbers import numpy_functions
from symshape.tracing.intercept.python_numbers.operators import (
    PLAIN,
    is_ours,
    of_numpy,
    operators,
    plain,
)
from symshape.tracing.symbolic.nodes.float_node import of_python
from symshape.tracing.symbolic.nodes.texts import formatted, wants_value
from symshape.user_code import is_optimisers

_plain_hash: Callable[[Any], int] = torch.SymInt.__hash__

_plain_pow: Callable[[Any, Any], Any] = torch.SymFloat.__pow__
_plain_floordiv: Callable[[Any, Any], Any] = torch.SymFloat.__floordiv__
_int_floordiv: Callable[[Any, Any], Any] = torch.SymInt.__floordiv__
_int_rfloordiv: Callable[[Any, Any], Any] = torch.SymInt.__rfloordiv__
_plain_rfloordiv: Callable[[Any, Any], Any] = torch.SymFloat.__rfloordiv__


def is_of_data(number: Any) -> bool:
    """Return whether a symbolic float belongs to a trace of ours and is known only when the program
    runs.
    """
    return (
        is_ours(number)
        and isinstance(number.node.term, FloatTerm)
        and bool(number.node.term.unbacked())
    )


def _attribute(number: Any, name: str) -> Any:
    """Return an attribute that torch's class lacks, from the plain number, which a guard fixes."""
    if name == "__torch_function__":  # C++ asks each number that is passed to an op for this
        raise AttributeError("a symbolic number has no __torch_function__")
    if of_numpy(number):
        return getattr(plain(number), name)
    kind = PLAIN[type(number)]
    if not hasattr(kind, name) or not is_ours(number):
        raise AttributeError(f"{type(number).__name__!r} object has no attribute {name!r}")
    if name in ("real", "numerator") and kind is int:
        return number
    if name in ("imag", "denominator") and kind is int:
        return 0 if name == "imag" else 1
    return getattr(kind(number), name)


def _bit_length(number: Any) -> int:
    """Return a number's bit length; the guard fixes the length, not the number."""
    if not is_ours(number) or not number.node.has_hint() or of_numpy(number):
        return int(number).bit_length()
    length = int(number.node.hint).bit_length()
    distance = number if number >= 0 else -number
    as_long = bool(distance < 1 << length) and (not length or bool(distance >= 1 << (length - 1)))
    assert as_long, "a number has as many bits as its hint"
    return length


def _reduce(number: Any, protocol: Any) -> Any:
    kind = PLAIN[type(number)]
    return (kind, (kind(number),)) if is_ours(number) else object.__reduce_ex__(number, protocol)


def _round(number: Any, ndigits: Any = None) -> Any:
    if not is_ours(number) or ndigits is None or ndigits >= 0:
        return number
    return round(int(number), int(ndigits))


def _format(number: Any, spec: str) -> str:
    if not is_ours(number):
        return object.__format__(number, spec)
    return formatted(number, spec, PLAIN[type(number)])


def _hash(number: Any) -> int:
    """Return the hash of the number, fixed by a guard, where the program hashes: a dictionary key,
    an item of a set.

    Other code gets a hash only of a number that is already fixed: an ordered dictionary cannot be
    searched without.
    """
    if not is_ours(number):
        return _plain_hash(number)
    if wants_value() or is_optimisers(sys._getframe(1).f_code.co_filename) or _is_fixed(number):
        return hash(int(number))
    return _plain_hash(number)


def _is_fixed(number: Any) -> bool:
    env, term = number.node.env, number.node.term
    value = env.hint(term)
    return value is not None and env.known(boolean.eq(term, value))


def _pow(number: Any, other: Any) -> Any:
    """Compute a power of a number known only at run time; a base that must not be negative is
    checked there.
    """
    if is_ours(number) and (
        is_of_data(number) or number.node.env.data.is_argument(number.node.term)
    ):
        exponents = (int, float, torch.SymInt, torch.SymFloat)
        env = number.node.env
        safe = type(other) in (int, float) and other >= 0 and other % 1 == 0
        if (
            not safe
            and env.data.is_argument(number.node.term)
            and not env.data.decide("gt", number.node.term, 0.0)
        ):
            return float(number) ** other  # a complex number, or an error
        return number.__float_pow__(other) if isinstance(other, exponents) else NotImplemented
    if is_ours(number) and of_numpy(number) and type(other) in (int, float):
        # torch's method checks this, but takes no truth of NumPy's
        torch._check(torch.SymFloat(of_python(number.node)) >= 0)
        return number.__float_pow__(other)
    return _plain_pow(number, other)


def _floor_divided(number: Any, other: Any) -> Any:
    """Compute float ``//``, which is not the floor of a rounded quotient: ``1.0 // 0.1`` is 9."""
    if not is_ours(number) or (
        number.node.ratio() is not None and type(other) in (int, torch.SymInt)
    ):
        return _plain_floordiv(number, other)
    return (
        float(number) // plain(other) if isinstance(other, (int, float, *PLAIN)) else NotImplemented
    )


def _int_floor_divided(number: Any, other: Any) -> Any:
    if type(other) not in (float, torch.SymFloat) or not is_ours(number) or _is_whole(other):
        return _int_floordiv(number, other)
    return int(number) // float(other)


def _int_floor_dividing(number: Any, other: Any) -> Any:
    if type(other) not in (float, torch.SymFloat) or not is_ours(number) or _is_whole(other):
        return _int_rfloordiv(number, other)
    return float(other) // int(number)


def _is_whole(number: Any) -> bool:
    """Return whether a divisor is a nonzero float with an integer value, for which the quotient's
    floor is exact.
    """
    return type(number) is float and number.is_integer() and number != 0


def _floor_dividing(number: Any, other: Any) -> Any:
    if not is_ours(number):
        return _plain_rfloordiv(number, other)
    return (
        plain(other) // float(number) if isinstance(other, (int, float, *PLAIN)) else NotImplemented
    )


def _unequal(number: Any, other: Any) -> Any:
    """Compute ``flag != 1`` as the negation of ``==``; torch's class lacks the method."""
    equal = number == other
    return torch.sym_not(equal) if type(equal) is torch.SymBool else not equal


def _itself(number: Any, memo: Any = None) -> Any:
    return number


@functools.cache
def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {
        "__getattr__": _attribute,
        "__reduce_ex__": _reduce,
        "__format__": _format,
        "__copy__": _itself,
        "__deepcopy__": _itself,
        **numpy_functions.METHODS,
    }
    if kind is torch.SymFloat:
        found |= {"__pow__": _pow, "__floordiv__": _floor_divided, "__rfloordiv__": _floor_dividing}
    if kind is torch.SymBool:
        found |= {"__ne__": _unequal}
    if kind is torch.SymInt:
        found |= {"__round__": _round, "__hash__": _hash, "bit_length": _bit_length}
        found |= {"__floordiv__": _int_floor_divided, "__rfloordiv__": _int_floor_dividing}
    return found | operators(kind, found)


METHODS = tuple((kind, name) for kind in PLAIN for name in _methods(kind))
"""The classes and method names that ``number_methods`` replaces."""


def number_methods() -> AbstractContextManager[None]:
    """Return a context in which symbolic numbers of ours have the methods of plain numbers."""
    return exchanged(
        *((kind, name, ours) for kind in PLAIN for name, ours in _methods(kind).items())
    )
