"""Operators between symbolic numbers and numbers of any class: enumerations, fractions, conditions as integers.

torch's numbers know ``int``, ``float`` and ``bool`` alone.  Of a member of an ``IntEnum`` they have nothing to say, and
then Python answers that the two are not equal.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.symbolic.nodes.node import Node

Method = Callable[..., Any]

PLAIN: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Which kind of number each symbolic one stands for."""
_USUAL = frozenset({int, float, bool, str, type(None), torch.Tensor, *PLAIN})
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS = tuple(_MIRRORED)
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor")
_UNARY = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")


def is_ours(number: Any) -> bool:
    """Whether a symbolic number belongs to a trace of ours."""
    return isinstance(number.__dict__.get("node"), Node)


def as_integer(condition: Any) -> Any:
    """A condition of ours as 1 or 0."""
    node = condition.node
    return torch.SymInt(node.sym_ite(node.wrap_int(1), node.wrap_int(0)))


def plain(number: Any) -> Any:
    """The plain number for a symbolic one; a guard fixes it."""
    return PLAIN[type(number)](number) if type(number) in PLAIN else number


def operators(kind: type, given: dict[str, Method]) -> dict[str, Method]:
    """The operators of a class of symbolic numbers, for numbers of any class.

    Args:
        kind: the class, torch's.
        given: methods that it has in place of torch's.
    """
    found: dict[str, Method] = {}
    for name in (*_COMPARISONS, *_ARITHMETIC):
        operate = getattr(operator, f"{name}_" if name in ("and", "or") else name)
        ways = ((f"__{name}__", operate), (f"__r{name}__", _swapped(operate)))
        for way, does in ways[: 1 if name in _COMPARISONS else 2]:
            before = given.get(way) or kind.__dict__.get(way)
            if before is not None:
                found[way] = _for_all(before, _both(name), does, None if kind is torch.SymBool else bool)
            elif kind is torch.SymBool:
                found[way] = _of_integers(does)
    if kind is torch.SymInt:
        found |= {"__pow__": _power(found["__pow__"]), "__invert__": lambda number: -number - 1}
    if kind is torch.SymBool:
        found |= {f"__{name}__": _of_integer(f"__{name}__") for name in _UNARY}
        found |= {"__xor__": _differ(found["__xor__"]), "__rxor__": _differ(found["__rxor__"])}
        found |= {"__index__": lambda number: int(bool(number)), "__float__": lambda number: float(bool(number))}
    return found


def _swapped(operate: Method) -> Method:
    return lambda number, other: operate(other, number)


def _both(name: str) -> tuple[str, str]:
    """The methods that Python may call for an operator."""
    return f"__{name}__", f"__{_MIRRORED.get(name, 'r' + name)}__"


def _for_all(before: Method, ways: tuple[str, str], operate: Method, truth: type | None) -> Method:
    """An operator of torch's numbers, for numbers of classes that it does not know; ``truth`` is an integer for it."""

    def method(number: Any, other: Any) -> Any:
        if type(other) is truth:
            return before(number, 1 if other else 0)
        if type(other) in _USUAL or not isinstance(other, numbers.Number) or not is_ours(number):
            return before(number, other)
        known: Any = other
        base = int if isinstance(known, int) else float if isinstance(known, float) else None
        if base is not None and all(getattr(type(known), way, None) is getattr(base, way, None) for way in ways):
            return before(number, int.__index__(known) if base is int else float.__float__(known))
        if base is float and type(known).__module__ == "numpy":  # torch knows its float64
            return before(number, other)
        return operate(plain(number), other)

    return method


def _of_integers(operate: Method) -> Method:
    """An operator that torch's conditions do not have."""

    def method(number: Any, other: Any) -> Any:
        if not is_ours(number):
            return NotImplemented
        return operate(as_integer(number), as_integer(other) if type(other) is torch.SymBool else other)

    return method


def _of_integer(name: str) -> Method:
    def method(number: Any, *args: Any) -> Any:
        integer = as_integer(number)
        return -integer - 1 if name == "__invert__" else getattr(integer, name, lambda *_: integer)(*args)

    return method


def _differ(otherwise: Method) -> Method:
    """``^`` of two conditions."""

    def method(number: Any, other: Any) -> Any:
        if type(other) in (bool, torch.SymBool) and is_ours(number):
            return torch.sym_not(number == other)
        return otherwise(number, other)

    return method


def _power(before: Method) -> Method:
    """``pow`` of two numbers, or of three."""

    def method(number: Any, exponent: Any, *modulus: Any) -> Any:
        if not modulus:
            return before(number, exponent)
        (by,) = modulus
        if type(exponent) is int and type(by) is int and exponent >= 0 and by and is_ours(number):
            return before(number, exponent) % by
        return pow(plain(number), plain(exponent), plain(by))

    return method
