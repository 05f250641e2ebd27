"""``torch.arange`` with float bounds and steps: eager's length at every size, in few programs."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
import torch

import symshape

Range = Callable[[int], torch.Tensor]


def compared(program: Range, sizes: range | list[int]) -> int:
    """Compare with eager at each size, errors and the length that the trace foretells too; how many
    programs were made.
    """

    def with_length(n: int) -> torch.Tensor:
        made = program(n)
        return made + made.shape[0]

    compiled = symshape.compile(lambda x: with_length(x.shape[0]), dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for n in sizes:
            try:
                expected = with_length(n)
            except RuntimeError:  # the bounds are the wrong way round
                with pytest.raises((RuntimeError, symshape.SymShapeError)):
                    compiled(torch.empty(n))
                continue
            got = compiled(torch.empty(n))
            assert got.shape == expected.shape, (n, got.shape, expected.shape)
            assert torch.equal(got, expected), n
    return symshape.compiled_of(compiled).stats().traces


@pytest.mark.parametrize("step", [0.1, 0.2, 0.3, 0.6, 1.1, 1.5, 2.5, 0.75])
def test_steps_that_are_no_floats(step: float) -> None:
    """The quotient is rounded as that of the decimal number is, proven for all sizes; or a guard
    says where it is.
    """
    assert compared(lambda n: torch.arange(0, n, step), range(120)) <= 3


def test_a_step_below_its_decimal_number() -> None:
    """``90 / 0.7`` and its like are a rounding away from an integer."""
    compared(lambda n: torch.arange(0, n, 0.7), range(0, 140, 7))
    compared(lambda n: torch.arange(0.0, n, 0.29), range(0, 100, 29))


@pytest.mark.parametrize(
    "program",
    [
        lambda n: torch.arange(-n / 2 + 0.5, n / 2, 1.0),
        lambda n: torch.arange(n / 2 + 0.5, 200),
        lambda n: torch.arange(n, 0, -0.3),
        lambda n: torch.arange(0.5, n + 1),
        lambda n: torch.arange(0, n, 0.4, dtype=torch.float16),
        lambda n: torch.arange(-n, n, 0.6, dtype=torch.float64),
        lambda n: torch.arange(n / 2, n, 0.5),
        lambda n: torch.arange(0.25, n + 1, 0.3),
        lambda n: torch.arange(0, n * 1.5, 0.3),
        lambda n: torch.arange(0, n / 4, 0.3),
        lambda n: torch.arange(n, -0.5, -0.3),
        lambda n: torch.arange(-0.75, n / 8, 0.1),
    ],
)
def test_bounds_that_are_halves(program: Range) -> None:
    assert compared(program, range(1, 60)) <= 3


def test_a_step_that_is_almost_too_large_for_a_float() -> None:
    """It is multiplied by the bounds' denominators only while that is finite."""
    assert compared(lambda n: torch.arange(0.25, n, 1e308, dtype=torch.float64), range(1, 9)) <= 3


def test_bounds_the_wrong_way_round() -> None:
    assert compared(lambda n: torch.arange(n / 2, 10, 0.25), range(15, 26)) <= 3


def test_what_is_rounded_twice_fixes_the_size() -> None:
    assert compared(lambda n: torch.arange(0, n / 3, 0.3), range(1, 20)) <= 19
    assert compared(lambda n: torch.arange(0, 1, 1 / n), [1, 3, 49, 7]) == 4


def test_random_ranges() -> None:
    rng = random.Random(0)
    for _ in range(12):
        start, step = (
            rng.choice([0, 0.5, -1.25, 0.1, 3]),
            rng.choice([0.1, 0.35, 0.9, 1.7, 2.0, 0.125]),
        )
        factor = rng.choice([1, 0.5, 2, 0.3])
        program: Range = lambda n, a=start, f=factor, s=step: torch.arange(a, a + n * f, s)  # type: ignore[misc]  # noqa: E731
        compared(program, [rng.randint(0, 60) for _ in range(8)])
