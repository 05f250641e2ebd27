"""Errors of ops that a program catches: their classes and texts are eager's, and so is the way that
the program goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

SIZES = (5, 4, 1, 0, 3, 2, 8)
THREE = torch.ones(3, 4)
OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "row": lambda x: x[x.size(0) - 3],
    "row of a tuple": lambda x: x[..., x.size(0) - 3, :],
    "written row": lambda x: x.clone().__setitem__(x.size(0) - 3, 1.0),
    "select": lambda x: x.select(1, 5),
    "dimension": lambda x: x.unsqueeze(4),
    "reduced dimension": lambda x: x.sum(2),
    "maximum of nothing": lambda x: x.max(0).values,
    "mask": lambda x: x[torch.ones(3, dtype=torch.bool)],
    "bits of floats": lambda x: x & x,
    "narrow": lambda x: x.narrow(0, 1, 3),
    "view": lambda x: x.view(x.size(0) // 2, 2, -1),
    "reshape": lambda x: x.reshape(x.size(0) // 2, -1, 4),
    "broadcast": lambda x: x + THREE,
    "broadcast shapes": lambda x: torch.broadcast_shapes(x.shape, (3, 4)),
    "loss": lambda x: F.mse_loss(x, THREE),
    "product": lambda x: x @ x,
    "check": lambda x: torch._check(x.size(0) > 3, lambda: f"{x.size(0)} rows"),
    "power": lambda x: (-8) ** (x.size(0) / 2) * "a",  # type: ignore[operator]
}


def _class(x: torch.Tensor, op: Callable[[torch.Tensor], Any]) -> Any:
    try:
        found = op(x)
    except IndexError:
        return x + 1
    except NotImplementedError:
        return x + 2
    except (RuntimeError, TypeError):
        return x + 3
    return found


def _text(x: torch.Tensor, op: Callable[[torch.Tensor], Any]) -> Any:
    try:
        return op(x)
    except Exception as error:
        return type(error).__name__, str(error), error.args


def _suppressed(x: torch.Tensor, op: Callable[[torch.Tensor], Any]) -> Any:
    with suppress(RuntimeError):
        op(x)
        return x + 1
    return x + 2


def _outcome(run: Callable[..., Any], *args: Any) -> Any:
    try:
        return run(*args)
    except (IndexError, TypeError, NotImplementedError) as error:
        return type(error)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("catching", [_class, _text, _suppressed])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_the_program_goes_on_as_in_eager(name: str, catching: Callable[..., Any]) -> None:
    compiled = symshape.compile(lambda x: catching(x, OPS[name]), dynamic=True, runner="eager")
    for n in SIZES * 2:
        x = torch.arange(4.0 * n).reshape(n, 4)
        assert _same(_outcome(compiled, x), _outcome(catching, x, OPS[name])), n


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_only_calls_that_fail_run_eagerly() -> None:
    def third_last(x: torch.Tensor) -> torch.Tensor:
        try:
            return x[x.size(0) - 3] * 2
        except IndexError:
            return x.sum(0)

    compiled = symshape.compile(third_last, dynamic=True, options={"plain_calls": False})
    for n in (5, 1, 7, 9, 1):
        x = torch.ones(n, 2)
        assert torch.equal(compiled(x), third_last(x))
    assert compiled.stats().fallbacks == 2
    assert compiled.stats().hits == 2
