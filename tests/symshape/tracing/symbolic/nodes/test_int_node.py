"""Sizes as Python numbers: arithmetic, comparisons, torch's functions for symbolic numbers, what
fixes a size.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree

SIZES = [(4, 3), (5, 2), (2, 5), (3, 3), (1, 1), (0, 4), (4, 0), (8, 1), (12, 7), (7, 12)]


def calls(*first: int) -> list[tuple[torch.Tensor]]:
    return [(torch.ones(*sizes),) for sizes in (first or SIZES[0], *SIZES)]


FORMULAS = [
    lambda m, n: m + n,
    lambda m, n: m - n,
    lambda m, n: m * n + 2,
    lambda m, n: 7 - m,
    lambda m, n: -m,
    lambda m, n: +m,
    lambda m, n: abs(m - n),
    lambda m, n: m // 2,
    lambda m, n: -m // 2,
    lambda m, n: -(-m // 4) * 4,
    lambda m, n: m % 3,
    lambda m, n: -m % 3,
    lambda m, n: m // -2,
    lambda m, n: m % -3,
    lambda m, n: 17 // (m + 1),
    lambda m, n: 17 % (n + 1),
    lambda m, n: (m + n) // (n + 1),
    lambda m, n: m**2,
    lambda m, n: (m + 1) ** 3,
    lambda m, n: m**0,
    lambda m, n: int(m / 2),
    lambda m, n: math.floor(m / 3),
    lambda m, n: math.ceil(m / 3),
    lambda m, n: math.trunc(-m / 2),
    lambda m, n: m << 2,
    lambda m, n: m >> 1,
    lambda m, n: torch.sym_max(m, n),
    lambda m, n: torch.sym_min(m, n),
    lambda m, n: torch.sym_max(m, 3),
    lambda m, n: torch.sym_sum([m, n, m, 1]),
    lambda m, n: torch.sym_ite(m > n, m, n),
    lambda m, n: torch.sym_not(m > n),
    lambda m, n: m > n,
    lambda m, n: m == n,
    lambda m, n: (m > 2) & (n > 2),
    lambda m, n: (m > 2) | (n > 2),
    lambda m, n: torch.sym_float(m),
    lambda m, n: torch.sym_int(m / 2),
    lambda m, n: m / 2,
    lambda m, n: m / (n + 1),
    lambda m, n: m * 0.5 + n,
    lambda m, n: (m / 4) ** 2,
    lambda m, n: torch.sym_sqrt(m),
    lambda m, n: 1 / (m + 1),
    lambda m, n: m.__rfloordiv__(9) if m else 0,
    lambda m, n: sum([m, n]),
    lambda m, n: math.prod([m, n]),
    lambda m, n: sum(range(3), m),
    lambda m, n: [m, n][::-1],
    lambda m, n: m.__index__() if m > 3 else n,
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_as_results(formula: Any) -> None:
    _, seen = agree(lambda x: formula(x.size(0), x.size(1)), *calls())
    assert seen.count("equal") >= 3


@pytest.mark.parametrize("formula", FORMULAS[:38])
def test_formulas_as_numbers_in_tensor_operations(formula: Any) -> None:
    agree(lambda x: x * formula(x.size(0), x.size(1)), *calls())


@pytest.mark.parametrize(
    "formula",
    [
        f
        for f in FORMULAS[:30]
        if isinstance(f(4, 3), int) and not isinstance(f(4, 3), bool) and f(4, 3) >= 0
    ],
)
def test_formulas_as_sizes(formula: Any) -> None:
    """A size must not be negative: where it would be, eager refuses and so does the guard or the
    graph.
    """
    agree(lambda x: x.new_zeros(formula(x.size(0), x.size(1)), 2), *calls())


def test_formulas_leave_no_guards() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        m, n = x.shape
        return x.new_zeros(
            m * n, m // 2 + n % 3, torch.sym_max(m, n), m**2, math.floor(m / 2), -(-n // 4) * 4
        )

    traced = symshape.trace(fn, torch.ones(4, 3))
    assert not traced.guards
    sizes = [str(size) for size in traced.output_specs.sizes]
    assert sizes == ["s0*s1", "s0//2 + s1 % 3", "max(s0, s1)", "s0*s0", "s0//2", sizes[-1]]


CONDITIONS = [
    lambda m, n: m > n,
    lambda m, n: m >= 4,
    lambda m, n: m == n,
    lambda m, n: m != 1,
    lambda m, n: m % 2 == 0,
    lambda m, n: m * n > 10,
    lambda m, n: m // 2 == n // 2,
    lambda m, n: 2 < m <= 8,
    lambda m, n: m > 2 and n > 2,
    lambda m, n: m > 2 or n > 2,
    lambda m, n: not m > 2,
    lambda m, n: bool(m),
    lambda m, n: not n,
    lambda m, n: (m > 2) == (n > 2),
    lambda m, n: (m > 2) != (n > 2),
    lambda m, n: m in (3, 4, 5),
    lambda m, n: max(m, n) > 4,
    lambda m, n: min(m, n) == 1,
    lambda m, n: abs(m - n) <= 1,
    lambda m, n: m / 2 > n,
    lambda m, n: m / 3 == 1,
    lambda m, n: m * 0.5 >= 1.5,
    lambda m, n: (m / 2).is_integer() if m else False,
    lambda m, n: m**2 > n + 4,
    lambda m, n: torch.sym_not(m > n),
    lambda m, n: torch.sym_max(m, n) > 4,
    lambda m, n: torch.sym_ite(m > n, m, n) > 4,
    lambda m, n: math.ceil(m / 3) > 1,
    lambda m, n: operator.index(m) > 3,
    lambda m, n: (m, n) == (4, 3),
    lambda m, n: [m] > [n],
    lambda m, n: m.bit_length() > 2 if isinstance(m, int) else m >= 4,
    lambda m, n: isinstance(m, (torch.SymInt, int)),
    lambda m, n: all([m > 1, n > 1]),
    lambda m, n: any([m == 1, n == 1]),
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_branches(condition: Any) -> None:
    """Each branch at each size: one of two traces serves it, and only the right one."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if condition(x.size(0), x.size(1)) else x - 1

    for example in ((4, 3), (1, 6), (9, 9)):
        agree(fn, *calls(*example))


@pytest.mark.parametrize("condition", CONDITIONS[:17])
def test_two_traces_cover_everything(condition: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if condition(x.size(0), x.size(1)) else x - 1

    compiled = symshape.compile(fn, dynamic=True, runner="eager")
    for sizes in itertools.product((0, 1, 2, 3, 4, 5, 8), repeat=2):
        x = torch.ones(sizes)
        assert torch.equal(compiled(x), fn(x))
    assert compiled.stats().traces <= 6


def test_a_question_that_is_settled_leaves_no_guard() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x.size(0)
        assert n >= 0
        assert n + 1 > n
        assert (2 * n) % 2 == 0
        if n > 5:
            assert n > 3
            assert not n < 6
        return x

    assert symshape.trace(fn, torch.ones(8)).guards.text().split("  #")[0] == "s0 >= 6"


# -- what fixes a size


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: sum(x[i] for i in range(x.size(0))),
        lambda x: [x, x + 1, x + 2, x + 3, x + 4][x.size(0)],
        lambda x: x * hash(x.size(0)),
        lambda x: x * len(x.size(0).to_bytes(2, "big")),
        lambda x: x * math.factorial(x.size(0)),
        lambda x: x.unbind(0)[-1],
        lambda x: x * len(list(x)),
        lambda x: x * 2 ** x.size(0),
        lambda x: x * round(math.exp(x.size(0))),
        lambda x: x * (x.size(0) & 3),
        lambda x: torch.stack([x] * x.size(0)),
    ],
)
def test_a_size_used_as_a_plain_number_is_fixed_by_a_guard(fn: Any) -> None:
    traced, seen = agree(fn, *calls())
    assert [guard.term for guard in traced.guards if str(guard.term) == "s0 == 4"]
    assert seen == ["equal" if call[0].size(0) == 4 else "refused" for call in calls()]
    assert all(guard.origin is not None and guard.origin.line for guard in traced.guards)


def test_a_key_is_the_number_which_a_guard_fixes() -> None:
    for fn in (lambda x: {x.size(0): x}[4] * 2, lambda x: x * 2 if x.size(0) in {3, 4} else x):
        traced = symshape.trace(fn, torch.ones(4))
        assert [str(guard.term) for guard in traced.guards] == ["s0 == 4"]
        assert traced(torch.ones(4)).tolist() == [2.0] * 4


def test_division_by_a_size() -> None:
    def fn(x: torch.Tensor) -> int:
        return 12 // x.size(0)

    traced, seen = agree(fn, (torch.ones(4),), (torch.ones(5),), (torch.ones(0),))
    assert [str(guard.term) for guard in traced.guards] == ["s0 != 0"]
    assert seen == ["equal", "equal", "refused"]
    with pytest.raises(ZeroDivisionError):
        symshape.trace(fn, torch.ones(0))


def test_sizes_of_results_of_operations() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x, y])
        half = joined[: joined.size(0) // 2]
        return half.new_full((half.size(0) * 2, joined.numel()), joined.size(0))

    pairs = [(torch.ones(m), torch.ones(n)) for m, n in ((3, 5), (2, 2), (0, 1), (0, 0), (7, 1))]
    traced, seen = agree(fn, *pairs)
    assert set(seen) == {"equal"}
    assert not traced.guards


def test_symbolic_numbers_of_a_trace_that_is_over() -> None:
    kept: list[Any] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.size(0) + 1 > 3)
        return x

    with pytest.raises(UnsupportedError, match="kept"):
        symshape.trace(fn, torch.ones(3))
    assert kept == []


def test_divmod_keeps_sizes_symbolic() -> None:
    traced, seen = agree(
        lambda x: (x * 2, *divmod(x.size(0), 3), divmod(7, x.size(0) + 1), divmod(7, 2)), *calls()
    )
    assert seen == ["equal"] * len(calls())
    assert not traced.guards
