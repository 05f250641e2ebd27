"""A stored program serves only calls with the constants that it was traced with."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.symshape.store.storing import compiled, counts


class Way(enum.Enum):
    UP = 1
    DOWN = 2


def scaled(x: torch.Tensor, by: Any) -> torch.Tensor:
    """Compute something else for each of the constants."""
    return (
        x * {"a": 2.0, "b": 3.0, True: 4.0, None: 5.0}.get(by, 0.0)
        if not isinstance(by, float)
        else x * by
    )


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


def chosen(x: torch.Tensor, by: tuple[str, ...]) -> torch.Tensor:
    return x + len(by[0])


def turned(x: torch.Tensor, way: Way) -> torch.Tensor:
    return x if way is Way.UP else -x


@pytest.mark.parametrize(
    ("fn", "one", "other"),
    [
        (scaled, "a", "b"),
        (scaled, True, None),
        (scaled, 0.5, 0.25),
        (scaled, 0.0, -0.0),
        (cast, torch.float64, torch.int64),
        (chosen, ("a",), ("bcd",)),
        (turned, Way.UP, Way.DOWN),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_another_constant_is_another_program(fn: Any, one: Any, other: Any, tmp_path: Path) -> None:
    x = torch.arange(1.0, 4.0)
    torch.testing.assert_close(compiled(fn, tmp_path)(x, one), fn(x, one))
    second = compiled(fn, tmp_path)
    result, expected = second(x, other), fn(x, other)
    torch.testing.assert_close(result, expected)
    assert torch.equal(torch.signbit(result), torch.signbit(expected))
    assert counts(second) == (1, 0)
