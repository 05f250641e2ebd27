"""Requirements: what passes, what raises which error with which words, and what is asked of
symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from meta_fns import DtypeError, ShapeError, TensorSpec
from meta_fns.core import checks
from symshape.errors import SymShapeError
from tests.meta_fns.symbolic import guards_at, symbols

SPEC = TensorSpec.contiguous((2, 3))
OTHER = TensorSpec.contiguous((3, 2))
LONGS = TensorSpec.contiguous((2, 3), torch.int64)
ELSEWHERE = TensorSpec.contiguous((2, 3), device=torch.device("meta"))

Row = tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...], type[Exception], str]
ROWS: list[Row] = [
    (
        checks.need_rank,
        ("x", SPEC, 1, 2),
        ("x", SPEC, 1, 3),
        ShapeError,
        "x must have 1 or 3 dimensions, got (2, 3)",
    ),
    (checks.need_equal, (2, 2, "rows"), (2, 3, "rows"), ShapeError, "rows: 2 and 3 differ"),
    (
        checks.need_sizes,
        ("x", SPEC, [2, 3]),
        ("x", SPEC, (2, 4)),
        ShapeError,
        "x must be of sizes (2, 4), got (2, 3)",
    ),
    (
        checks.need_sizes,
        ("x", SPEC, SPEC.sizes),
        ("x", SPEC, (2,)),
        ShapeError,
        "x must be of sizes (2,), got (2, 3)",
    ),
    (
        checks.need_same_sizes,
        ("x", SPEC, "y", LONGS),
        ("x", SPEC, "y", OTHER),
        ShapeError,
        "x must be of sizes (3, 2), got (2, 3), the sizes of y",
    ),
    (
        checks.fit_into,
        ("x", (1, 3), (2, 3)),
        ("x", (2, 2), (2, 3)),
        ShapeError,
        "x of sizes (2, 2) does not broadcast",
    ),
    (
        checks.fit_into,
        ("x", (3,), (2, 3)),
        ("x", (2, 3), (3,)),
        ShapeError,
        "does not broadcast to (3,)",
    ),
    (
        checks.need_contiguous,
        ("x", SPEC),
        ("x", SPEC.with_(strides=(1, 2))),
        ShapeError,
        "x must be contiguous, got",
    ),
    (
        checks.need_dtype,
        ("x", SPEC, checks.FLOATS),
        ("x", LONGS, checks.FLOATS),
        DtypeError,
        "not implemented for x of torch.int64",
    ),
    (
        checks.need_same,
        ("x", SPEC, "y", OTHER),
        ("x", SPEC, "y", LONGS),
        DtypeError,
        "x is of torch.float32, y of torch.int64",
    ),
    (
        checks.need_same,
        ("x", SPEC, "y", SPEC),
        ("x", SPEC, "y", ELSEWHERE),
        DtypeError,
        "x is on cpu, y on meta",
    ),
    (checks.refuse_unless_empty, ("no", (2, 0)), ("no", (2, 3)), DtypeError, "no"),
    (
        checks.need_nonempty,
        ("x", TensorSpec.contiguous((0, 3)), [1]),
        ("x", TensorSpec.contiguous((0, 3)), [0, 1]),
        ShapeError,
        "x must not be empty in dimension 0, got (0, 3)",
    ),
    (
        checks.need_numel,
        ("x", SPEC, (6, 1)),
        ("x", SPEC, (5,)),
        ShapeError,
        "x (2, 3) must have as many elements as (5,)",
    ),
    (
        checks.need_positive,
        ("steps", [1, 2]),
        ("steps", [1, 0]),
        ShapeError,
        "steps must be positive, got (1, 0)",
    ),
    (
        checks.need_numbers,
        (LONGS,),
        (TensorSpec.contiguous((2,), torch.bool),),
        DtypeError,
        "not implemented for bool",
    ),
]


@pytest.mark.parametrize(("need", "fine", "wrong", "error", "words"), ROWS)
def test_on_ints(
    need: Callable[..., None],
    fine: tuple[Any, ...],
    wrong: tuple[Any, ...],
    error: type[Exception],
    words: str,
) -> None:
    need(*fine)
    with pytest.raises(error) as raised:
        need(*wrong)
    assert type(raised.value) is error
    assert words in str(raised.value)


def test_every_requirement_has_a_row() -> None:
    needs = {name for name in checks.__all__ if name.startswith(("need_", "fit_", "refuse_"))}
    assert needs == {need.__name__ for need, *_ in ROWS}


def spec_of(size: Any) -> TensorSpec:
    return TensorSpec.contiguous((size, 3))


@pytest.mark.parametrize(
    ("need", "holds"),
    [
        (lambda n: checks.need_equal(n, 4, "rows"), [4]),
        (lambda n: checks.need_sizes("x", spec_of(n), (4, 3)), [4]),
        (lambda n: checks.need_same_sizes("x", spec_of(n), "y", spec_of(4)), [4]),
        (lambda n: checks.fit_into("x", (4, 3), (n, 3)), [4]),
        (lambda n: checks.need_nonempty("x", spec_of(n), [0]), [1, 2, 4, 9]),
        (lambda n: checks.need_numel("x", spec_of(n), (12,)), [4]),
        (lambda n: checks.need_positive("steps", (n, 2)), [1, 2, 4, 9]),
    ],
)
def test_on_symbols(need: Callable[[Any], None], holds: list[int]) -> None:
    """At the example 4 each passes, and its guard is that of its meaning; at the example 0 each
    refuses.
    """
    env, (n,) = symbols(4)
    need(n)
    assert [value for value in (0, 1, 2, 4, 9) if guards_at(env, value)] == holds
    _, (n,) = symbols(0)
    with pytest.raises((ShapeError, SymShapeError)):
        need(n)


def test_provable_requirements_ask_nothing() -> None:
    env, (n, m) = symbols(4, 5)
    spec = TensorSpec.contiguous((n, m))
    checks.need_equal(n + m, m + n, "sums")
    checks.need_sizes("x", spec, (n, m))
    checks.need_same_sizes("x", spec, "y", TensorSpec.contiguous((n, m)))
    checks.fit_into("x", (1, m), (n, m))
    checks.need_contiguous("x", spec)
    checks.need_nonempty("x", TensorSpec.contiguous((n + 1, m)), [0])
    checks.need_numel("x", spec, (m, n))
    checks.need_positive("steps", (n + 1, 2))
    assert not env.guards


def test_refuse_unless_empty_of_symbols() -> None:
    env, (n, m) = symbols(0, 3)
    checks.refuse_unless_empty("no kernel", (n, m, 2))
    assert [guards_at(env, *values) for values in ((0, 3), (3, 0), (2, 3))] == [True, True, False]
    _, (n,) = symbols(2)
    with pytest.raises((ShapeError, SymShapeError), match="no kernel"):
        checks.refuse_unless_empty("no kernel", (n, 2))


def test_has_zero_never_asks() -> None:
    env, (n,) = symbols(0)
    assert checks.has_zero((2, 0))
    assert not checks.has_zero((2, n))
    assert checks.has_zero((2, n - n))
    assert not checks.has_zero(())
    assert not env.guards


def test_groups_of_dtypes() -> None:
    assert checks.DOUBLES | checks.HALVES == checks.FLOATS
    assert not checks.FLOATS & checks.INTS
    assert checks.FLOATS | checks.INTS == checks.REALS
    assert all(dtype.is_complex for dtype in checks.COMPLEX)
    assert checks.INDICES <= checks.INTS
