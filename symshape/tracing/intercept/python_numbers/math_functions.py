"""Functions of ``math`` that give formulas of symbolic numbers where they can, and ``json.dumps``,
which fixes the numbers that it writes.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from symshape.graph.float_terms import OF_ONE, OF_TWO
from symshape.tracing.intercept.python_numbers.operators import (
    is_ours,
    of_numpy,
    plain,
)
from symshape.tracing.symbolic.nodes.float_node import computed, of_python

_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


def _is_symbolic(number: Any) -> bool:
    return type(number) is torch.SymInt and is_ours(number) and not of_numpy(number)


def isqrt(number: Any) -> int:
    """Compute ``math.isqrt``; the guard is on the root, not on the number.

    >>> isqrt(17)
    4
    """
    if not _is_symbolic(number) or not number.node.has_hint() or number.node.hint < 0:
        return math.isqrt(number)
    root = math.isqrt(number.node.hint)
    as_large = bool(number >= root * root) and bool(number < (root + 1) ** 2)
    assert as_large, "a number lies between the squares around it"
    return root


def perm(*numbers: Any) -> Any:
    """Compute ``math.perm``; for a size and a small plain number, a product.

    >>> perm(5, 2)
    20
    """
    if len(numbers) != 2 or not _is_product(*numbers):
        return math.perm(*numbers)
    return math.prod(numbers[0] - i for i in range(numbers[1]))


def comb(*numbers: Any) -> Any:
    """Compute ``math.comb``; for a size and a small plain number, a product over another.

    >>> comb(5, 2)
    10
    """
    if len(numbers) != 2 or not _is_product(*numbers):
        return math.comb(*numbers)
    return perm(*numbers) // math.factorial(numbers[1])


def _is_product(number: Any, few: Any) -> bool:
    return _is_symbolic(number) and type(few) is int and 0 < few <= 4 and bool(number >= 0)


def lcm(*integers: Any) -> Any:
    """Compute ``math.lcm``; for a size and a plain number, from their greatest common divisor."""
    if len(integers) != 2 or not any(map(_is_symbolic, integers)):
        return math.lcm(*integers)
    one, other = integers if _is_symbolic(integers[0]) else integers[::-1]
    if type(other) is not int or other <= 0 or one < 0:
        return math.lcm(*integers)
    return one * (other // int(plain_gcd(one, other)))


def fsum(numbers: Any) -> Any:
    """Compute ``math.fsum``; integers need no extra precision."""
    numbers = list(numbers)
    if not any(map(_is_symbolic, numbers)) or not all(
        type(each) is int or _is_symbolic(each) for each in numbers
    ):
        return math.fsum(numbers)
    return sum(numbers) * 1.0


def dumps(*args: Any, **kwargs: Any) -> str:
    """Compute ``json.dumps``, which fixes the sizes that it writes.

    >>> dumps({"n": (1, 2)})
    '{"n": [1, 2]}'
    """
    plain_args = [_with_plain_numbers(each) for each in args]
    return json.dumps(
        *plain_args, **{name: _with_plain_numbers(value) for name, value in kwargs.items()}
    )


def _with_plain_numbers(value: Any) -> Any:
    if type(value) in (list, tuple, torch.Size):
        return [_with_plain_numbers(each) for each in value]
    if type(value) is dict:
        return {plain(key): _with_plain_numbers(each) for key, each in value.items()}
    return plain(value)


def _of_symbols(function: Callable[..., float]) -> Callable[..., Any]:
    name = "float_pow" if function is math.pow else f"sym_{function.__name__}"
    most = 2 if function is math.pow or function.__name__ in OF_TWO else 1
    is_node_method = function.__name__ not in (*OF_ONE, *OF_TWO)

    def compute(*args: Any) -> Any:
        numbers = [
            each for each in args if type(each) in (torch.SymInt, torch.SymFloat) and is_ours(each)
        ]
        if not numbers or len(args) != most or not all(isinstance(each, _NUMBERS) for each in args):
            return function(*args)
        wrap = numbers[0].node.wrap_float
        nodes = [
            of_python(torch.sym_float(each).node)
            if any(each is one for one in numbers)
            else wrap(float(each))
            for each in args
        ]
        if not is_node_method:
            return torch.SymFloat(computed(function.__name__, *nodes))
        return torch.SymFloat(getattr(nodes[0], name)(*nodes[1:]))

    return compute


def _log(number: Any, *base: Any) -> Any:
    """Compute ``math.log`` with an optional base: the natural logarithm divided by that of the
    base.
    """
    if (
        len(base) == 1
        and type(base[0]) in (int, float)
        and type(number) in (torch.SymInt, torch.SymFloat)
    ):
        return _natural_log(number) / math.log(base[0])
    return _natural_log(number, *base)


def _of_class(function: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return ``math.isnan`` or a relative, whose answer is the same for every integer."""
    return lambda number: function(
        0 if type(number) is torch.SymInt and is_ours(number) else number
    )


def plain_gcd(*integers: Any) -> Any:
    """Compute ``math.gcd``. For a size and a plain number the guard is on the remainder of the size
    by that number.

    >>> plain_gcd(12, 8)
    4
    """
    sizes = [each for each in integers if type(each) is torch.SymInt]
    common = math.gcd(*(each for each in integers if type(each) is not torch.SymInt))
    return math.gcd(common, *(each % common if common else each for each in sizes))


def plain_index(value: Any) -> Any:
    """Compute ``operator.index``; a symbolic integer stays symbolic.

    >>> plain_index(3)
    3
    """
    return value if type(value) is torch.SymInt else operator.index(value)


_FORMULAS = (
    *(math.sqrt, math.sin, math.cos, math.tanh, math.atan, math.fabs, math.pow),
    *(math.exp, math.expm1, math.log2, math.log10, math.log1p),
    *(getattr(math, each) for each in (*OF_ONE, *OF_TWO)),
)
_natural_log = _of_symbols(math.log)
MATH: dict[int, Any] = {
    **{id(each): _of_symbols(each) for each in _FORMULAS},
    **{id(each): _of_class(each) for each in (math.isnan, math.isinf, math.isfinite)},
    id(math.log): _log,
    id(math.gcd): plain_gcd,
    id(math.isqrt): isqrt,
    id(math.comb): comb,
    id(math.perm): perm,
    id(math.lcm): lcm,
    id(math.fsum): fsum,
    id(operator.index): plain_index,
    id(json.dumps): dumps,
}
"""Replacements, by ``id``, for functions that C computes with plain numbers only; symbolic numbers
give formulas.
"""
