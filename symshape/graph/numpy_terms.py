"""NumPy floats in float formulas: ``numpy.sqrt(n)`` is no ``float``, and rounds as NumPy does.

A formula with such a number is computed with NumPy's own numbers. So its result is a NumPy float
exactly where it is one in eager: ``numpy.float64(a) * b`` is one, ``float(numpy.float64(a))`` is
not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class _Numpy:
    """A proxy of the module ``numpy``, which a program that uses NumPy has imported; nothing here
    imports it.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["numpy"], name)


NUMPY = _Numpy()


def _quiet(name: str) -> Callable[..., Any]:
    """Return a NumPy function without warnings: generated code gives them when the graph runs."""

    def compute(*args: Any) -> Any:
        with NUMPY.errstate(all="ignore"):
            return getattr(NUMPY, name)(*args)

    return compute


def _power(a: Any, b: Any) -> Any:
    with NUMPY.errstate(all="ignore"):
        return a**b


UNARY = ("sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "sin", "cos", "tanh")
"""NumPy's functions of one float."""
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "np_float": (_quiet("float64"), "numpy.float64({0})"),
    "np_pow": (_power, "({0} ** {1})"),
    **{f"np_{name}": (_quiet(name), f"numpy.{name}({{0}})") for name in UNARY},
}
"""The operations on NumPy floats, as in ``float_terms.FUNCTIONS``."""
KEEPING = ("add", "sub", "mul", "truediv", "mod", "neg", "abs", "round", "max", "min")
"""Operations whose result is a NumPy float if an operand is one."""
