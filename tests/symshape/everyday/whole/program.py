"""What a whole program of every day is, and how it runs: at six shapes, its gradients and effects
held to eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import nn
from torch.utils import _pytree as pytree

SHAPES = ((3, 5), (4, 7), (2, 6), (5, 3), (6, 9), (4, 5))
"""Of batch and length, one after the other."""

Made = tuple[Callable[..., Any], Callable[[int, int], tuple[Any, ...]]]
PROGRAMS: dict[str, Callable[[], Made]] = {}
"""By name, what builds a fresh function, and what makes its arguments of a batch and a length."""


def whole(build: Callable[[], Made]) -> Callable[[], Made]:
    """Registers a program."""
    assert build.__name__ not in PROGRAMS, f"two programs are called {build.__name__}"
    PROGRAMS[build.__name__] = build
    return build


def img(b: int, n: int) -> tuple[torch.Tensor]:
    """Images."""
    return (torch.randn(b, 3, n + 20, n + 22),)


def data(b: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and targets."""
    return torch.randn(b, 8), torch.randn(b, 1)


def mlp() -> nn.Module:
    """Two layers for :func:`data`."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


@attrs.frozen
class Run:
    """What a program left to be seen at each shape, and what ran it."""

    seen: list[list[Any]]
    compiled: Any


def run(name: str, compile_: Callable[[Any], Any]) -> Run:
    """Builds a program and calls it at all shapes; where results record gradients, backward runs
    too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        fn, make = PROGRAMS[name]()
        compiled = compile_(fn)
        return Run([_called(compiled, make, fn, *shape) for shape in SHAPES], compiled)


def _called(
    compiled: Any, make: Callable[[int, int], tuple[Any, ...]], fn: Any, b: int, n: int
) -> list[Any]:
    torch.manual_seed(10 * b + n)
    args = make(b, n)
    torch.manual_seed(b + 10 * n)
    out = compiled(*args)
    drawn = torch.rand(2)
    parameters = _parameters(fn)
    tensors = [each for each in pytree.tree_leaves(out) if isinstance(each, torch.Tensor)]
    tracked = [each for each in tensors if each.requires_grad]
    gradients: list[Any] = []
    if tracked:
        for each in parameters:
            each.grad = None
        sum((each.real if each.is_complex() else each).float().sum() for each in tracked).backward()
        leaves = [each for each in pytree.tree_leaves(args) if isinstance(each, torch.Tensor)]
        gradients = [
            each.grad for each in (*parameters, *leaves) if each.is_leaf and each.requires_grad
        ]
    buffers = list(fn.buffers()) if isinstance(fn, nn.Module) else []
    return list(_flat([out, gradients, args, buffers, drawn]))


def _parameters(fn: Any) -> list[torch.Tensor]:
    """Those of a module, or of the modules around a function."""
    if isinstance(fn, nn.Module):
        return list(fn.parameters())
    around = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    modules = [each for value in around for each in (value if isinstance(value, list) else [value])]
    return [
        each for module in modules if isinstance(module, nn.Module) for each in module.parameters()
    ]


def _flat(value: Any) -> Iterator[Any]:
    """Copies of the tensors in a value, and what else is in it, classes of objects too."""
    if isinstance(value, torch.Tensor):
        yield value.detach().to_dense().clone()
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from _flat(each)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield type(value).__name__
        yield from _flat(vars(value))
    elif hasattr(type(value), "__slots__"):
        yield type(value).__name__
        yield from _flat(
            [getattr(value, each) for each in type(value).__slots__ if each != "__weakref__"]
        )
    else:
        yield value


def difference(found: Run, expected: Run) -> str:
    """The first difference of two runs, in words; nothing where there is none."""
    for shape, mine, theirs in zip(SHAPES, found.seen, expected.seen, strict=True):
        if len(mine) != len(theirs):
            return f"at {shape}: {len(mine)} parts, not {len(theirs)}"
        for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if isinstance(other, torch.Tensor):
                try:
                    torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-4, atol=1e-5)
                except AssertionError as error:
                    return f"at {shape}, part {number}: {error}"
            elif type(one) is not type(other) or one != other:
                return f"at {shape}, part {number}: {one!r}, not {other!r}"
    return ""
