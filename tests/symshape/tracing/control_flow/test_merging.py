"""Two functions of which one runs, whose results differ in size: one program, whose sizes the run
tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from symshape import UnsupportedError
from tests.symshape.tracing.flows import Plain, Real, assert_alike, assert_same_run, compiled

SIZES = (3, 5, 9, 2, 0, 40, 1)
LINEAR = torch.nn.Linear(3, 3)


# -- programs: of (operators, x), of (n, 3)
def sizes_of_data(m: Any, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda a: a[a > 0.5] * 2, lambda a: a[a < -0.2] * 3, (x,))


def sizes_of_data_used(m: Any, x: Tensor) -> Any:
    made = m.cond(x.sum() > 0, lambda: x[x[:, 0] > 0] + 1, lambda: x[x[:, 1] < 0].repeat(2, 1))
    return LINEAR(made), made.size(0), made.new_zeros(made.size(0) + 1), made.sum(0)


def of_data_or_not(m: Any, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda: x[x[:, 0] > 0] * 1, lambda: x * 3)


def laid_out_by_columns(m: Any, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda: (x > 0.5).nonzero(), lambda: (x < -0.2).nonzero())


def heads_or_all(m: Any, x: Tensor) -> Any:
    made = m.cond(x.sum() > 0, lambda: x[:2] * 1, lambda: x * 3)
    return made, made.sum(0), made.size(0)


def transposed(m: Any, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda: (x[:2] * 1).t(), lambda: (x * 3).t())


def constants(m: Any, x: Tensor) -> Any:
    made = m.cond(x.sum() > 0, lambda: torch.zeros(4, 2), lambda: torch.ones(4, 7))
    return made, made.size(1)


def integers(m: Any, x: Tensor) -> Any:
    made, k, n, same = m.cond(
        x.sum() > 0, lambda: (x * 2, 3, x.size(0), x.size(1)), lambda: (x + 1, 4, 7, x.size(1))
    )
    return made * k, n, same, torch.zeros(k)


def integers_of_data(m: Any, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda: x[x > 0].size(0), lambda: x.size(0))


def one_in_another(m: Any, x: Tensor) -> Any:
    def inner() -> Any:
        return m.cond(x.max() > 0.5, lambda: x[x > 0.5] * 1, lambda: x.flatten() * 2)

    return m.cond(x.sum() > 0, inner, lambda: x[0] * 3)


def by_a_bool_of_data(m: Any, x: Tensor) -> Any:
    found = bool((x > 0.5).any())
    return m.cond(found, lambda: x[x > 0.5] * 1, lambda: x.flatten() * 2)


def by_a_number_of_rows(m: Any, x: Tensor) -> Any:
    found = x[x[:, 0] > 0]
    return m.cond(found.size(0) > 2, lambda: found[:2] * 1, lambda: found * 2)


PROGRAMS: list[Callable[..., Any]] = [
    *(
        sizes_of_data,
        sizes_of_data_used,
        of_data_or_not,
        laid_out_by_columns,
        heads_or_all,
        transposed,
        constants,
    ),
    *(integers, integers_of_data, one_in_another, by_a_bool_of_data, by_a_number_of_rows),
]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_program(fn: Callable[..., Any]) -> None:
    fast = compiled(fn)
    for n in SIZES:
        if n == 0 and fn in (one_in_another, by_a_bool_of_data):
            continue  # no greatest element, no first row
        for x in (torch.rand(n, 3), -torch.rand(n, 3), torch.randn(n, 3)):
            assert_alike(fn(Plain, x), fast(Real, x))
    assert fast.stats().traces == 1


@pytest.mark.parametrize(
    "fn", [sizes_of_data, sizes_of_data_used, of_data_or_not, heads_or_all, constants]
)
def test_gradients(fn: Callable[..., Any]) -> None:
    fast = compiled(fn)
    for n in SIZES[:4]:
        for x in (torch.rand(n, 3), -torch.rand(n, 3)):
            assert_same_run(fn, fast, (x.requires_grad_(),), [*LINEAR.parameters()])


def test_sizes_lie_between_those_of_both() -> None:
    """Nothing has to be told of a size that is one of two that are known."""

    def fn(x: Tensor) -> Tensor:
        made: Tensor = torch.cond(x.sum() > 0, lambda: x[:, :4] * 1, lambda: x[:, :6] * 1)
        return made[:, 2:3]

    traced = symshape.trace(fn, torch.rand(3, 8), dynamic={"x": {0: "n"}})
    assert [str(each) for each in traced.output_specs.sizes] == ["n", "1"]


def test_no_guard_where_sizes_differ() -> None:
    fast = compiled(lambda x: torch.cond(x.sum() > 0, lambda: x[:2] * 1, lambda: x * 3))
    for n in (5, 2, 3):
        fast(torch.rand(n, 3))
    assert not list(fast.entries[0].guards)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "other dimensions": (
        lambda x: torch.cond(x.sum() > 0, lambda: x * 1, lambda: x.flatten() * 1),
        "returns float32",
    ),
    "other dtypes": (
        lambda x: torch.cond(x.sum() > 0, lambda: x[x > 0].double(), lambda: x[x > 0]),
        "returns float64",
    ),
    "other layouts": (
        lambda x: torch.cond(
            x.sum() > 0, lambda: x[x[:, 0] > 0], lambda: (x[x[:, 0] < 0].t() * 1).contiguous().t()
        ),
        "strides",
    ),
    "views": (lambda x: torch.cond(x.sum() > 0, lambda: x[:2], lambda: x[1:]), "or a view of one"),
    "other bools": (
        lambda x: torch.cond(x.sum() > 0, lambda: (x * 1, True), lambda: (x * 1, False)),
        "returns True",
    ),
    "an integer or none": (
        lambda x: torch.cond(x.sum() > 0, lambda: (x * 1, 1), lambda: (x * 1, None)),
        r"returns 1 where a function .* returns None",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    fn, why = REFUSED[name]
    for x in (torch.rand(3, 3), torch.rand(3, 3, requires_grad=True)):
        with pytest.raises(UnsupportedError, match=why):
            compiled(fn)(x)
