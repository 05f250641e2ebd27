"""Random numbers in padded programs: others of the same distribution, or eager's where those were
asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape import Options
from symshape.runtime.runners.padded.runner import PaddedRunner


def _padded(fn: Callable[..., Any]) -> Any:
    return symshape.compile(
        fn, dynamic=True, runner="padded", fullgraph=True, options=Options(randomness="any")
    )


def _dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.exp(), 0.25)


def test_they_are_eagers_where_that_was_asked_for() -> None:
    options = Options(randomness="eager")
    compiled = symshape.compile(_dropout, dynamic=True, runner="padded", options=options)
    for n in (50, 60, 50):
        x = torch.randn(n)
        torch.manual_seed(n)
        mine = compiled(x)
        torch.manual_seed(n)
        assert torch.equal(mine, _dropout(x))
    assert compiled.entries[0].runner_name == "eager"


def test_by_default_others_do() -> None:
    compiled = symshape.compile(_dropout, dynamic=True, runner="padded")
    for n in (50, 60, 500):
        assert 0.4 < (compiled(torch.randn(n)) != 0).float().mean() < 0.95
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.buckets


def test_on_the_cpu_they_are_eagers_unless_padding_was_asked_for() -> None:
    compiled = symshape.compile(_dropout, dynamic=True)
    for n in (50, 60, 50):
        x = torch.randn(n)
        torch.manual_seed(n)
        mine = compiled(x)
        torch.manual_seed(n)
        assert torch.equal(mine, _dropout(x))


def test_they_follow_the_seed_and_differ_from_call_to_call() -> None:
    compiled = _padded(_dropout)
    x = torch.zeros(100)
    compiled(x)
    torch.manual_seed(7)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(7)
    assert torch.equal(compiled(x), first)
    assert not torch.equal(first, second)
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert len(entry.runner.buckets) == 1


def _uniform(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


def _uniform_in_place(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x).uniform_()


def _normal(x: torch.Tensor) -> torch.Tensor:
    return (torch.randn(x.shape[0], x.shape[1]) + 3) / 6


def _integers(x: torch.Tensor) -> torch.Tensor:
    return torch.randint(0, 2, x.shape).float()


def _by_its_own(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(x.softmax(0) * 0 + 0.5)


def _by_mask(x: torch.Tensor) -> torch.Tensor:
    return torch.native_dropout(x * 0 + 1, 0.5, True)[1].float()


def _kept(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.ones_like(x), 0.5) / 2


@pytest.mark.parametrize(
    "fn", [_uniform, _uniform_in_place, _normal, _integers, _by_its_own, _by_mask, _kept]
)
def test_valid_elements_have_the_distribution(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Over many draws each position has mean 1/2, its deviation is eager's, and no two positions go
    together.
    """
    torch.manual_seed(0)
    compiled = _padded(fn)
    compiled(torch.zeros(6, 5))
    x = torch.zeros(5, 3)
    drawn = torch.stack([compiled(x).reshape(-1) for _ in range(1500)])
    expected = torch.stack([fn(x).reshape(-1) for _ in range(1500)])
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.buckets, entry.runner.padding()
    deviation = expected.std()
    error = 5 * float(deviation) / 1500**0.5
    assert (drawn.mean(0) - 0.5).abs().max() < error
    assert (drawn.std(0) - deviation).abs().max() < 0.12 * deviation
    assert (torch.corrcoef(drawn.t()) - torch.eye(15)).abs().max() < 0.15


def test_two_draws_of_one_program_are_two() -> None:
    compiled = _padded(lambda x: (torch.rand_like(x), torch.rand_like(x)))
    first, second = compiled(torch.zeros(50))
    assert not torch.equal(first, second)


def test_draws_that_depend_on_each_other_are_refused() -> None:
    compiled = _padded(lambda x: x[torch.randperm(x.shape[0])])
    for n in (6, 7):
        x = torch.arange(float(n))
        assert compiled(x).sort()[0].tolist() == x.tolist()
    assert "depends on the others" in compiled.report()
