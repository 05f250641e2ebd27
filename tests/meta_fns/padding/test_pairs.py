"""Elementwise kernels that stop the process, or run for hours, for a pair of operands: padding must
not make such a pair with a valid element, nor with other padding.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from tests.meta_fns.padding.poison import Arg, ints, poisoned

aten = torch.ops.aten
LEAST = torch.iinfo(torch.int64).min
MINUS_ONE = torch.tensor([-1])
SMALL = ints(3, 5, low=-9, high=9)
NARROW = ints(3, 5, low=-9, high=9, dtype=torch.int32)


def _trunc(x: Any, y: Any) -> Any:
    return torch.div(x, y, rounding_mode="trunc")


def _in_place(x: torch.Tensor, y: Any) -> torch.Tensor:
    return x.clone().div_(y, rounding_mode="trunc")


CASES: dict[str, tuple[Callable[..., Any], tuple[Arg, ...]]] = {
    "a divisor of -1 that is broadcast": (lambda x: _trunc(x, MINUS_ONE), (SMALL,)),
    "a divisor of -1 without dimensions": (lambda x: _trunc(x, MINUS_ONE.sum()), (SMALL,)),
    "a number as the divisor": (lambda x: _trunc(x, -1), (SMALL,)),
    "32 bits": (lambda x: _trunc(x, -1), (NARROW,)),
    "in place": (lambda x: _in_place(x, -1), (SMALL,)),
    "a divisor for each column": (_trunc, (SMALL, ints(5, low=-1, high=0))),
    "a divisor for each row": (_trunc, (SMALL, ints(3, 1, low=-1, high=0))),
    "a divisor for each element": (_trunc, (SMALL, ints(3, 5, low=-1, high=0))),
    "a dividend that is broadcast": (_trunc, (ints(5, low=-9), ints(3, 5, low=-1, high=0))),
    "a dividend sorted down": (lambda x: _trunc(x.sort(1, descending=True)[0], -1), (SMALL,)),
    "a dividend of the least integers": (
        lambda x: _trunc(x.new_full(x.shape, LEAST), MINUS_ONE * 3),
        (SMALL,),
    ),
    "rounded down": (lambda x: torch.div(x, MINUS_ONE, rounding_mode="floor"), (SMALL,)),
    "other quotients": (lambda x: (x // -1, x % -1, torch.fmod(x, MINUS_ONE)), (SMALL,)),
    "lcm": (torch.lcm, (SMALL, SMALL)),
    "lcm with a column": (torch.lcm, (SMALL, ints(3, 1, low=7, high=8))),
    "lcm of 32 bits": (
        lambda x: torch.lcm(x, torch.tensor([2**31 - 1, 7], dtype=torch.int32)[:1]),
        (NARROW,),
    ),
    "gcd": (torch.gcd, (SMALL, ints(5, low=-7))),
    "powers": (torch.pow, (SMALL, ints(5, low=-7))),
    "shifts": (lambda x, y: (x << y, x >> y), (SMALL, ints(5))),
    "Laguerre polynomials": (
        lambda n: torch.special.laguerre_polynomial_l(torch.tensor(0.3), n),
        (NARROW,),
    ),
    "Legendre polynomials": (
        lambda n: torch.special.legendre_polynomial_p(0.3, n.sort(1).values),
        (NARROW,),
    ),
    "zeta": (
        lambda y: torch.special.zeta(2.0, torch.where(y.isnan(), -1e14 - 0.5, y.abs() + 1)),
        (Arg((3, 5), torch.float64),),
    ),
}


def _run(name: str) -> None:
    fn, arguments = CASES[name]
    outcome = poisoned(fn, *arguments, tolerance=1e-4)
    assert not outcome.plan.refusals, outcome.plan.refusals
    assert outcome.compared >= 4, "eager refused nearly all sizes: the case says too little"


def test_no_pair_ends_the_process() -> None:
    """In a process of its own, which the faults end."""
    script = (
        "from tests.meta_fns.padding import test_pairs\n"
        "for name in test_pairs.CASES:\n"
        "    print(name, flush=True)\n"
        "    test_pairs._run(name)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, (ran.returncode, ran.stdout.splitlines()[-1:], ran.stderr[-2000:])
    assert ran.stdout.splitlines() == list(CASES)


def test_a_dividend_padded_like_its_divisor_costs_nothing() -> None:
    """Where both have padding the divisor is 1."""
    outcome = poisoned(_trunc, SMALL, ints(3, 5, low=1))
    assert outcome.plan.padded is not None
    assert {each.what for each in outcome.plan.padded.repairs} == {"mask: 1 beyond s2, s3"}


@pytest.mark.parametrize("op", ["floor_divide", "remainder", "fmod"])
def test_a_division_by_0_of_what_may_be_nothing(op: str) -> None:
    """It raises where there is an element, and nowhere else."""
    compiled = symshape.compile(
        lambda x: getattr(torch, op)(x[3:], 0), dynamic={"x": {0: "n"}}, runner="padded"
    )
    for n in (3, 5, 3, 7):
        if n == 3:
            assert compiled(torch.arange(n)).tolist() == []
        else:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(torch.arange(n))
