"""Integer functions of ``math`` that keep sizes symbolic where they can, and ``json.dumps``, which
fixes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.intercept.python_numbers.operators import is_ours, of_numpy, plain


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


def lcm(gcd: Callable[..., Any], *integers: Any) -> Any:
    """Compute ``math.lcm``; for a size and a plain number, from their greatest common divisor."""
    if len(integers) != 2 or not any(map(_is_symbolic, integers)):
        return math.lcm(*integers)
    one, other = integers if _is_symbolic(integers[0]) else integers[::-1]
    if type(other) is not int or other <= 0 or one < 0:
        return math.lcm(*integers)
    return one * (other // int(gcd(one, other)))


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
