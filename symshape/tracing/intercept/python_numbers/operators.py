"""Operators between symbolic numbers and numbers of any class: enumerations, fractions, conditions
as integers.

torch's numbers know ``int``, ``float`` and ``bool`` alone. Compared with a member of an ``IntEnum``
they give no answer, and Python then says that the two are unequal.
"""

from __future__ import annotations

import functools
import numbers
import operator
import sys
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any

import torch

from symshape.tracing.symbolic.nodes.float_node import is_numpys, numpys_constant
from symshape.tracing.symbolic.nodes.node import Node

Method = Callable[..., Any]

_MARK = "of_numpy"

PLAIN: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""The Python class that each symbolic class stands for."""
_USUAL = frozenset({int, float, bool, str, type(None), torch.Tensor, *PLAIN})
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS = tuple(_MIRRORED)
_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
)
_COMPARED = frozenset(f"__{name}__" for name in _COMPARISONS)
_OF_NUMPY = frozenset(f"__{name}__" for name in ("add", "sub", "mul", "truediv", "mod"))
_OF_BITS = frozenset(f"__{name}__" for name in ("lshift", "rshift", "and", "or", "xor"))
_UNARY = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")


def is_ours(number: Any) -> bool:
    """Return whether a symbolic number belongs to a trace of ours."""
    return isinstance(number.__dict__.get("node"), Node)


def as_integer(condition: Any) -> Any:
    """Return a condition of ours as the integer 1 or 0."""
    node = condition.node
    return torch.SymInt(node.sym_ite(node.wrap_int(1), node.wrap_int(0)))


def plain(number: Any) -> Any:
    """Return the plain number for a symbolic one; a guard fixes it."""
    if type(number) not in PLAIN:
        return number
    if type(number) is torch.SymInt and of_numpy(number):
        return sys.modules["numpy"].int64(int(number))
    return number.node._value() if of_numpy(number) else PLAIN[type(number)](number)


def of_numpy(number: Any) -> bool:
    """Return whether a symbolic number stands for a NumPy number."""
    return (
        type(number) in PLAIN
        and is_ours(number)
        and (_MARK in number.__dict__ or is_numpys(number.node))
    )


def stands_for(number: Any) -> Any:
    """Return some number of the class that a symbolic number stands for."""
    if of_numpy(number):
        numpy = sys.modules["numpy"]
        return numpy.int64(1) if type(number) is torch.SymInt else numpy.float64(1.0)
    return PLAIN[type(number)](1)


def as_numpys(number: torch.SymInt) -> torch.SymInt:
    """Mark an integer as NumPy's ``int64``; it stays symbolic until the program computes with
    it.
    """
    made = torch.SymInt(number.node)
    made.__dict__[_MARK] = True
    return made


def as_numpys_truth(found: Any) -> Any:
    """Return a comparison of NumPy's numbers as ``numpy.bool``, whose ``~`` is not an integer's.

    A guard decides a condition on sizes; one on data stays symbolic.
    """
    if type(found) is bool or (type(found) is torch.SymBool and found.node.has_hint()):
        return sys.modules["numpy"].bool_(bool(found))
    return found


def is_float64(number: Any) -> bool:
    """Return whether a number is a plain ``numpy.float64``."""
    return (
        type(number).__name__ == "float64"
        and isinstance(number, float)
        and type(number).__module__ == "numpy"
    )


def is_plain_numpys(number: Any) -> bool:
    """Return whether a value is an immutable NumPy number or truth."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(number, (numpy.number, numpy.bool_))


def operators(kind: type, given: dict[str, Method]) -> dict[str, Method]:
    """Return the operators of a class of symbolic numbers, for operands of any class.

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
                found[way] = _for_all(
                    before, _both(name), does, None if kind is torch.SymBool else bool
                )
            elif kind is torch.SymBool:
                found[way] = _of_integers(does)
    if kind is torch.SymInt:
        found |= {"__pow__": _power(found["__pow__"]), "__invert__": lambda number: -number - 1}
        found |= {
            way: _alone(kind.__dict__[way], getattr(operator, way))
            for way in ("__neg__", "__abs__", "__pos__")
        }
    if kind is torch.SymBool:
        found |= {f"__{name}__": _of_integer(f"__{name}__") for name in _UNARY}
        found |= {"__xor__": _differ(found["__xor__"]), "__rxor__": _differ(found["__rxor__"])}
        found |= {
            "__index__": lambda number: int(bool(number)),
            "__float__": lambda number: float(bool(number)),
        }
    return found


def _alone(before: Method, operate: Method) -> Method:
    """Return the unary operator ``operate``, for numbers that may be marked as NumPy's."""
    return lambda number: operate(plain(number)) if _MARK in number.__dict__ else before(number)


def _swapped(operate: Method) -> Method:
    return lambda number, other: operate(other, number)


def _both(name: str) -> tuple[str, str]:
    """Return the two methods, direct and reflected, that Python may call for an operator."""
    return f"__{name}__", f"__{_MIRRORED.get(name, 'r' + name)}__"


def _for_all(before: Method, ways: tuple[str, str], operate: Method, truth: type | None) -> Method:
    """Return an operator of torch's numbers that also takes operands of unknown classes.

    An operand of class ``truth`` counts as 1 or 0.
    """
    computes, of_bits = ways[0] not in _COMPARED, ways[0] in _OF_BITS

    def method(number: Any, other: Any) -> Any:
        if of_bits and isinstance(other, (float, torch.SymFloat)):
            return NotImplemented
        if type(other) is truth:
            return before(number, 1 if other else 0)
        if computes and (
            _MARK in number.__dict__ or (type(other) is torch.SymInt and _MARK in other.__dict__)
        ):
            return operate(plain(number), plain(other))
        if not computes and (of_numpy(number) or of_numpy(other)):
            return as_numpys_truth(before(number, other))
        if type(other) in _USUAL or not isinstance(other, numbers.Number) or not is_ours(number):
            return before(number, other)
        known: Any = other
        base = int if isinstance(known, int) else float if isinstance(known, float) else None
        if base is not None and all(
            getattr(type(known), way, None) is getattr(base, way, None) for way in ways
        ):
            return before(number, int.__index__(known) if base is int else float.__float__(known))
        if is_float64(known) and ways[0] in _COMPARED:
            return as_numpys_truth(before(number, float(known)))
        if is_float64(known) and ways[0] in _OF_NUMPY:
            return operate(number, torch.SymFloat(numpys_constant(number.node.env, known)))
        return operate(plain(number), other)

    return method


def _of_integers(operate: Method) -> Method:
    """Return an operator that torch's conditions lack, computed on conditions as integers."""

    def method(number: Any, other: Any) -> Any:
        if not is_ours(number):
            return NotImplemented
        if is_plain_numpys(other):
            return operate(plain(number), other)
        return operate(
            as_integer(number), as_integer(other) if type(other) is torch.SymBool else other
        )

    return method


def _of_integer(name: str) -> Method:
    def method(number: Any, *args: Any) -> Any:
        integer = as_integer(number)
        return (
            -integer - 1
            if name == "__invert__"
            else getattr(integer, name, lambda *_: integer)(*args)
        )

    return method


def _differ(otherwise: Method) -> Method:
    """Return ``^`` of two conditions: whether they differ."""

    def method(number: Any, other: Any) -> Any:
        if type(other) in (bool, torch.SymBool) and is_ours(number):
            return torch.sym_not(number == other)
        return otherwise(number, other)

    return method


def _power(before: Method) -> Method:
    """Return ``pow`` for two or three operands."""

    def method(number: Any, exponent: Any, *modulus: Any) -> Any:
        if not modulus:
            return before(number, exponent)
        (by,) = modulus
        if type(exponent) is int and type(by) is int and exponent >= 0 and by and is_ours(number):
            return before(number, exponent) % by
        return pow(plain(number), plain(exponent), plain(by))

    return method


# -- ``max``, ``min`` and ``sorted`` of sizes as terms in traced code: one program serves whichever
# size is the greatest.
#
# Python would compare the sizes, and each comparison would leave a guard.
_MOST_SORTED = 4  # sizes: with more, the terms become long
_VIEWS: tuple[Any, ...] = ({}.keys(), {}.values(), iter([]), iter(()), iter({}))
_ITERABLES = {
    map,
    filter,
    zip,
    set,
    frozenset,
    enumerate,
    reversed,
    GeneratorType,
    *map(type, _VIEWS),
}
"""Python's own iterables, some of which can be read only once."""


def is_term(numbers: Sequence[Any]) -> bool:
    """Return whether the greatest of these numbers becomes a term, so that no guard says which one
    is the greatest.

    It becomes a term if some integers depend on data, or if two are different sizes. A size and
    constants are compared instead: that costs one guard, and later terms stay simple.
    """
    if len(numbers) < 2 or not all(type(each) in (int, torch.SymInt) for each in numbers):
        return False
    symbolic = [each for each in numbers if type(each) is torch.SymInt]
    if not all(is_ours(each) and not of_numpy(each) for each in symbolic):
        return False
    of_data = any(not each.node.has_hint() for each in symbolic)
    return of_data or len({each.node.term for each in symbolic}) > 1


def listed_once(items: Any) -> Any:
    """Return the items of a Python container or iterator as a list; any other value unchanged."""
    if type(items) in (list, tuple, torch.Size):
        return items
    return list(items) if type(items) in _ITERABLES else items


def greatest(numbers: Sequence[Any]) -> Any:
    """Return ``max(numbers)``: a term for several sizes (see :func:`is_term`)."""
    return functools.reduce(torch.sym_max, numbers) if is_term(numbers) else max(numbers)


def least(numbers: Sequence[Any]) -> Any:
    """Return ``min(numbers)``: a term for several sizes (see :func:`is_term`)."""
    return functools.reduce(torch.sym_min, numbers) if is_term(numbers) else min(numbers)


def plain_sorted(items: Any, /, **options: Any) -> Any:
    """Compute ``sorted``; the order of a few sizes is given by terms: the least of them, the next
    one, and so on.

    >>> plain_sorted([3, 1, 2], reverse=True)
    [3, 2, 1]
    """
    listed = listed_once(items)
    wanted = type(listed) in (list, tuple, torch.Size) and options.keys() <= {"reverse"}
    if not wanted or len(listed) > _MOST_SORTED or not is_term(listed):
        return sorted(listed, **options)
    found = list(listed)
    for end in range(len(found) - 1, 0, -1):
        for i in range(end):
            found[i], found[i + 1] = (
                torch.sym_min(found[i], found[i + 1]),
                torch.sym_max(found[i], found[i + 1]),
            )
    return found[::-1] if options.get("reverse") else found
