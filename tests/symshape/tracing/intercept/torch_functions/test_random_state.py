"""Random numbers inside a traced function: draws are repeated, everything else is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from random import randint
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree, assert_same

GENERATOR = torch.Generator()


@pytest.fixture(autouse=True)
def _states_stay() -> Iterator[None]:
    """Whatever happens, generators are as they were."""
    GENERATOR.manual_seed(7)
    before, python = torch.get_rng_state(), random.getstate()
    own = GENERATOR.get_state()
    inner = torch.random.default_generator
    yield
    assert torch.random.default_generator is inner
    torch.set_rng_state(before)
    random.setstate(python)
    GENERATOR.set_state(own)


def _forked(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        return x + torch.rand(x.shape)


def _restored(x: torch.Tensor) -> torch.Tensor:
    state = torch.get_rng_state()
    y = x + torch.rand(x.shape)
    torch.set_rng_state(state)
    return y


def _own(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return x + torch.rand(x.shape, generator=generator)


def _seeds(seed: Callable[[], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def f(x: torch.Tensor) -> torch.Tensor:
        seed()
        return x + torch.rand(x.shape)

    return f


@pytest.mark.parametrize(
    "fn",
    [
        _seeds(lambda: torch.manual_seed(0)),
        _seeds(lambda: torch.random.manual_seed(3)),
        _seeds(lambda: torch.seed()),
        _seeds(lambda: torch.default_generator.manual_seed(0)),
        _seeds(lambda: GENERATOR.manual_seed(7)),  # to the very state that it is in
        lambda x: x * torch.initial_seed(),
        _forked,
        _restored,
        _own,
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [lambda fn: lambda x: symshape.trace(fn, x), lambda fn: symshape.compile(fn, fullgraph=True)],
)
def test_seeding_is_refused(fn: Any, wrap: Any) -> None:
    before = torch.get_rng_state(), GENERATOR.get_state()
    with pytest.raises(UnsupportedError, match=r"generator|Generator"):
        wrap(fn)(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(GENERATOR.get_state(), before[1])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * random.random(),
        lambda x: x * random.choice([1.0, 2.0]),
        lambda x: x * randint(2, 3),
        lambda x: x if random.random() > 2 else x + 1,
    ],
)
def test_numbers_of_pythons_own_are_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedError, match="Python's random module"):
        symshape.trace(fn, torch.ones(3))


def test_numbers_of_numpys_own_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(UnsupportedError, match=r"numpy\.random"):
        symshape.trace(lambda x: x * numpy.random.rand(), torch.ones(3))


def test_draws_are_repeated_with_the_generator_they_came_from() -> None:
    _traced, seen = agree(
        lambda x: x + torch.rand(x.shape) * torch.randn_like(x), (torch.ones(3),), (torch.ones(5),)
    )
    assert seen == ["equal", "equal"]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape, generator=GENERATOR)

    compiled = symshape.compile(f)
    for n in (3, 5, 3, 4):
        state = GENERATOR.get_state()
        expected = f(torch.ones(n))
        GENERATOR.set_state(state)
        assert torch.equal(compiled(torch.ones(n)), expected)


def test_a_generator_may_be_an_argument() -> None:
    traced = symshape.trace(
        lambda x, g: x + torch.rand(x.shape, generator=g), torch.ones(3), GENERATOR
    )
    state = GENERATOR.get_state()
    first, second = (traced(torch.ones(4), GENERATOR) for _ in range(2))
    assert not torch.equal(first, second)
    GENERATOR.set_state(state)
    assert torch.equal(traced(torch.ones(4), GENERATOR), first)


def test_checkpointing_still_works() -> None:
    layer = nn.Linear(3, 3)
    assert_same(
        lambda x: checkpoint(layer, x, use_reentrant=False),
        symshape.compile(lambda x: checkpoint(layer, x, use_reentrant=False)),
        torch.ones(2, 3),
    )


def test_tracing_leaves_the_state_alone() -> None:
    before = torch.get_rng_state()
    symshape.trace(lambda x: x + torch.rand(x.shape), torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before)
