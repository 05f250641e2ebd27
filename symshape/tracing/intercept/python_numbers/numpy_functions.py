"""NumPy functions on sizes: ``np.sqrt(n)``, ``np.ceil(n / 2)``, ``np.prod(x.shape)``,
``np.array(x.shape)``.

NumPy takes a symbolic number for any object and computes with it as Python would.
``np.ceil(n / 2)`` would be an integer, where eager gives a NumPy float. So symbolic numbers
implement NumPy's protocols during a trace. A few functions become formulas (see
``graph/numpy_terms``); the others get plain numbers, which guards fix.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from symshape.graph import numpy_terms
from symshape.tracing.intercept.exchanges import standing_for
from symshape.tracing.intercept.python_numbers.operators import (
    PLAIN,
    as_numpys,
    as_numpys_truth,
    greatest,
    is_float64,
    is_ours,
    least,
    plain,
)
from symshape.tracing.symbolic.nodes.float_node import FloatNode, computed_by_numpy

_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "rint": round,
}
_ARITHMETIC = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "float_truediv",
    "remainder": "mod",
}
_OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "maximum": torch.sym_max,
    "minimum": torch.sym_min,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
_DIVISIONS = ("floor_divide", "remainder")
_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def array(number: Any, dtype: Any = None, copy: Any = None) -> Any:
    """Return ``number.__array__()``: the array that NumPy makes of a number."""
    numpy = sys.modules["numpy"]
    if is_ours(number):
        return numpy.array(plain(number), dtype)
    made = numpy.empty((), object)
    made[()] = number
    return made


def ufunc(number: Any, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Compute ``number.__array_ufunc__``: a NumPy function of numbers, some of them symbolic."""
    if method == "__call__" and not options:
        if function.__name__ in _COMPARISONS and len(inputs) == 2:
            one, other = map(_compared, inputs)
            if _is_number(one) and _is_number(other):
                return as_numpys_truth(_COMPARISONS[function.__name__](one, other))
        found = _formula(function.__name__, inputs)
        if found is not None:
            return torch.SymFloat(found)
        whole = _integer(function.__name__, inputs)
        if whole is not None:
            return whole
    inputs = tuple(plain(each) if not _is_foreign(each) else array(each) for each in inputs)
    if function.__name__ == "power" and method == "__call__" and len(inputs) == 2 and not options:
        return inputs[0] ** inputs[1]  # for single numbers `**` differs from the function
    return getattr(function, method)(
        *inputs, **{name: plain(value) for name, value in options.items()}
    )


class _Power:
    """The replacement for ``np.power`` where a program calls it by name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return sys.modules["numpy"].power(*map(plain, args), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["numpy"].power, name)


def _is_foreign(number: Any) -> bool:
    return type(number) in PLAIN and not is_ours(number)


def _formula(name: str, inputs: tuple[Any, ...]) -> FloatNode | None:
    """Return a function's result as a formula; None where plain numbers are needed."""
    if any(_is_foreign(each) for each in inputs):
        return None
    if len(inputs) == 1 and type(inputs[0]) in _SYMBOLIC:
        number = inputs[0]
        if name in numpy_terms.UNARY:
            return computed_by_numpy(_float_of(number), name)
        if name in _ROUNDINGS and type(number) is torch.SymFloat:  # integers stay integers
            return computed_by_numpy(_float_of(_ROUNDINGS[name](number)), "float")
        return None
    kinds = [type(each) for each in inputs]
    if name not in _ARITHMETIC or len(kinds) != 2 or not all(_is_number(each) for each in inputs):
        return None
    if all(kind in (int, torch.SymInt) for kind in kinds) and name != "divide":
        return None  # an integer of NumPy's
    one, other = (_node_of(each, inputs) for each in inputs)
    found: FloatNode = getattr(computed_by_numpy(one, "float"), _ARITHMETIC[name])(other)
    return found


def _integer(name: str, inputs: tuple[Any, ...]) -> torch.SymInt | None:
    """Return the result of a function of two integers, marked as NumPy's; None where plain numbers
    are needed.
    """
    if (
        name not in _OF_INTEGERS
        or len(inputs) != 2
        or not all(type(each) in (int, torch.SymInt) for each in inputs)
    ):
        return None
    if any(_is_foreign(each) for each in inputs) or (
        name in _DIVISIONS and not (type(inputs[1]) is int and inputs[1])
    ):
        return None
    found = _OF_INTEGERS[name](*inputs)
    return as_numpys(found) if type(found) is torch.SymInt else None


def _compared(number: Any) -> Any:
    """Return a number ready for comparison: NumPy wraps numbers in arrays without dimensions."""
    if type(number).__module__ == "numpy" and getattr(number, "shape", None) == ():
        number = number[()]
    return float(number) if is_float64(number) else number


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, *_SYMBOLIC) or is_float64(value)


def _float_of(number: Any) -> FloatNode:
    node: FloatNode = torch.sym_float(number).node if type(number) in _SYMBOLIC else number
    return node


def _node_of(number: Any, among: tuple[Any, ...]) -> FloatNode:
    """Return a number as a float node, in the environment of the symbolic ones among ``among``."""
    if type(number) in _SYMBOLIC:
        return _float_of(number)
    env = next(each.node.env for each in among if type(each) in _SYMBOLIC)
    return FloatNode(env, float(number))


METHODS: dict[str, Callable[..., Any]] = {"__array__": array, "__array_ufunc__": ufunc}
"""The methods that symbolic numbers have for NumPy during a trace."""


def _of_sizes(function: Callable[..., Any], choose: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return ``np.prod`` or a relative, whose result for a tuple of sizes is a symbolic integer."""

    @functools.wraps(function)
    def compute(*args: Any, **options: Any) -> Any:
        numbers = (
            args[0]
            if len(args) == 1 and not options and type(args[0]) in (tuple, list, torch.Size)
            else ()
        )
        ours = any(type(each) is torch.SymInt and is_ours(each) for each in numbers)
        if not ours or not all(type(each) in (int, torch.SymInt) for each in numbers):
            return function(*args, **options)
        found = choose(numbers)
        return (
            as_numpys(found) if type(found) is torch.SymInt else sys.modules["numpy"].int64(found)
        )

    return compute


@functools.cache
def functions() -> Mapping[int, Any]:
    """Return, by ``id``, the replacements for NumPy functions in traced code. NumPy must be
    imported.
    """
    numpy = sys.modules["numpy"]
    by_name: dict[str, Callable[[Any], Any]] = {
        "prod": math.prod,
        "sum": sum,
        "max": greatest,
        "amax": greatest,
        "min": least,
        "amin": least,
    }
    found: dict[int, Any] = {
        id(function := getattr(numpy, name)): standing_for(function, _of_sizes(function, choose))
        for name, choose in by_name.items()
    }
    found[id(numpy.power)] = _Power()
    found[id(numpy.isscalar)] = standing_for(
        numpy.isscalar, lambda element: type(element) in PLAIN or numpy.isscalar(element)
    )
    return found
