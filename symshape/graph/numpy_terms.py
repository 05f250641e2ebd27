"""Floats of NumPy's among the formulas of floats: ``numpy.sqrt(n)`` is no ``float``, and rounds as NumPy does.

A formula with such a number in it is computed with NumPy's own numbers, so that what comes of it is of NumPy's class
wherever it is in eager: ``numpy.float64(a) * b`` is, ``float(numpy.float64(a))`` is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class _Numpy:
    """The module, which is there where a program has used it; nothing here needs it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["numpy"], name)


NUMPY = _Numpy()


def _quiet(name: str) -> Callable[..., Any]:
    """A function of NumPy's, without its warnings: those come when the graph runs."""

    def compute(*args: Any) -> Any:
        with NUMPY.errstate(all="ignore"):
            return getattr(NUMPY, name)(*args)

    return compute


def _power(a: Any, b: Any) -> Any:
    with NUMPY.errstate(all="ignore"):
        return a**b


ALIKE = ("sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "sin", "cos", "tanh")
"""What NumPy computes of one float."""
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "np_float": (_quiet("float64"), "numpy.float64({0})"),
    "np_pow": (_power, "({0} ** {1})"),
    **{f"np_{name}": (_quiet(name), f"numpy.{name}({{0}})") for name in ALIKE},
}
"""As those of ``float_terms``."""
KEEPING = ("add", "sub", "mul", "truediv", "mod", "neg", "abs", "round", "max", "min")
"""Operations of which the result is NumPy's if an operand is."""
