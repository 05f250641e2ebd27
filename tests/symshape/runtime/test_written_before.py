"""Calls that fail after they have written in place leave what eager leaves, also outside; so do
those that catch it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape

CALLS = ((3, False), (3, False), (4, True), (4, False), (3, True), (5, True), (3, False))
Program = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]


def _counts(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    world.n += 1
    x.add_(1)
    world.kept.append(x.shape[0])
    y = x[index]
    world.n += 10
    return y * 2


def _catches(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    y = x * 2
    x.mul_(3)
    try:
        return x[index] + y.sum()
    except IndexError:
        return y


def _ends(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    world.b.add_(x.sum())
    try:
        return world.b[index]
    finally:
        world.b.mul_(2)


def _half(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    try:
        x.index_add_(0, index, torch.ones(index.shape[0]))
    except IndexError:
        world.n += 1
    return x * 2


def _draws(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    x.add_(torch.rand(1))
    world.n += 1
    return torch.rand(3)[index] + x.sum()


def _normalises(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    world.n += 1
    y = torch.nn.functional.batch_norm(
        x[:, None] * torch.ones(3), world.mean, world.var, training=True
    )
    return torch.nn.functional.nll_loss(y, index.expand(x.shape[0]))


def _in_a_view(x: torch.Tensor, index: torch.Tensor, world: Any) -> torch.Tensor:
    world.n += 1
    x[1:].zero_()
    world.base[::2].add_(x.sum())
    return world.base[index]


PROGRAMS = [_counts, _catches, _ends, _half, _draws, _normalises, _in_a_view]
IN_KERNELS = [(_catches, "inductor")] if torch.__version__ >= "2.13" else []  # see test_failing.py


def _world() -> Any:
    base = torch.arange(6.0)
    return SimpleNamespace(
        n=0, kept=[], b=torch.zeros(3), mean=torch.zeros(3), var=torch.ones(3), base=base[1:4]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "runner"), [*((each, "eager") for each in PROGRAMS), *IN_KERNELS]
)
def test_what_eager_leaves(program: Program, runner: str) -> None:
    ours, eager = _world(), _world()
    compiled = symshape.compile(lambda x, index: program(x, index, ours), runner=runner)  # type: ignore[arg-type]
    for number, (n, bad) in enumerate(CALLS):
        left = []
        for run, world in ((compiled, ours), (lambda x, index: program(x, index, eager), eager)):
            torch.manual_seed(number)
            x, index = torch.arange(float(n)), torch.tensor([7 if bad else 1])
            try:
                outcome = repr(run(x, index).detach())
            except IndexError:
                outcome = "IndexError"
            left.append((outcome, repr(x), repr(vars(world)), torch.rand(1).item()))
        assert left[0] == left[1], number
    assert compiled.stats().fallbacks == 0


def test_nothing_is_copied_where_nobody_could_tell() -> None:
    def fn(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[index]

    compiled = symshape.compile(fn, fullgraph=True)
    compiled(torch.ones(3), torch.tensor([0]))
    (entry,) = compiled.entries
    assert entry.run == entry.runner.run
    with pytest.raises(IndexError):
        compiled(x := torch.ones(3), torch.tensor([5]))
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_what_is_large_is_not_copied() -> None:
    world = SimpleNamespace(n=0)

    def fn(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        world.n += 1
        x.add_(1)
        return x[index]

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 1 << 19):
        compiled(torch.ones(n), torch.tensor([0]))
        with pytest.raises(IndexError):
            compiled(x := torch.ones(n), torch.tensor([n]))
        assert x.sum() == 2 * n
    assert world.n == 3  # of the last call the count is lost
