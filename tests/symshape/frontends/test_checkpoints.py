"""Checkpoints and saved-tensor hooks around what is compiled: backward saves what forward saved,
whatever serves.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import symshape
from symshape.errors import FallbackWarning
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.trials import EVERY
from tests.sampling import sampled

Tensor = torch.Tensor
Model = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield
    torch._dynamo.reset()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4)
    )


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    kept = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def _hooked(model: Model) -> Model:
    def run(x: Tensor) -> Tensor:
        with saved_tensors_hooks(lambda t: (t.shape, t.clone()), lambda packed: packed[1]):
            return model(x)

    return run


def _offloaded(model: Model) -> Model:
    def run(x: Tensor) -> Tensor:
        with save_on_cpu():
            return model(x)

    return run


_selective = functools.partial(create_selective_checkpoint_contexts, _policy)
AROUND: dict[str, Callable[[Model], Model]] = {
    "not reentrant": lambda model: lambda x: checkpoint(model, x, use_reentrant=False),
    "reentrant": lambda model: lambda x: checkpoint(model, x, use_reentrant=True),
    "nested": lambda model: (
        lambda x: checkpoint(
            lambda y: checkpoint(model, y.sin(), use_reentrant=False) * 2, x, use_reentrant=False
        )
    ),
    "layers": lambda model: (
        lambda x: checkpoint(lambda y: model(model(y)).sin(), x, use_reentrant=False)
    ),
    "selective": lambda model: (
        lambda x: checkpoint(model, x, use_reentrant=False, context_fn=_selective)
    ),
    "hooks": _hooked,
    "offloaded": _offloaded,
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "backend": lambda model: torch.compile(model, backend=symshape_backend),
    "backend, programs": lambda model: torch.compile(
        model, backend=symshape_backend, options={"runner": "eager"}
    ),
    "compile": symshape.compile,
}


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo reads it
@pytest.mark.parametrize(("around", "way"), sampled(AROUND, WAYS, every=4))
def test_training_with_accumulated_gradients(way: str, around: str) -> None:
    """Two forwards of sizes that change before their backwards; more calls than any way of serving
    lasts.
    """
    ours = net()
    theirs = copy.deepcopy(ours)
    run, plain = AROUND[around](WAYS[way](ours)), AROUND[around](theirs)
    for number in range(EVERY // 2 + 4):
        sizes = (3 + number % 4, 4 + number % 3)
        for model, called in ((ours, run), (theirs, plain)):
            model.zero_grad()
            torch.manual_seed(number)
            losses = [
                called(torch.randn(rows, 4, requires_grad=True)).square().mean() for rows in sizes
            ]
            for loss in reversed(losses):
                loss.backward()
        if number % 6 == 0:
            for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, its.grad)


def unread(x: Tensor) -> Tensor:
    """Saves a tensor more than its program, which drops what nothing reads."""
    x.exp()
    return x.sin() * x


def _switched(compiled: Any) -> None:
    """From now on the function itself serves, as after a trial that found it faster."""
    compiled._cache.plain, compiled._cache.plain_until = compiled.fn, 1 << 40


def test_the_function_itself_begins_to_serve_between_forward_and_backward() -> None:
    compiled = symshape.compile(unread)
    compiled(torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    loss = checkpoint(compiled, x, use_reentrant=False).sum()
    _switched(compiled)
    loss.backward()
    torch.testing.assert_close(x.grad, torch.ones(3).sin() + torch.ones(3).cos())


def test_a_program_begins_to_serve_between_forward_and_backward() -> None:
    compiled = symshape.compile(unread)
    compiled(torch.ones(3, requires_grad=True))
    _switched(compiled)
    x = torch.ones(3, requires_grad=True)
    loss = checkpoint(compiled, x, use_reentrant=False).sum()
    compiled._cache.plain_until = 0
    loss.backward()
    torch.testing.assert_close(x.grad, torch.ones(3).sin() + torch.ones(3).cos())


def test_another_graph_of_dynamos_serves_when_forward_is_computed_again() -> None:
    """After a call of another size a graph of all sizes serves the first one too."""
    compiled = torch.compile(unread, backend=symshape_backend, options={"runner": "eager"})
    xs = [torch.ones(rows, requires_grad=True) for rows in (3, 4)]
    losses = [checkpoint(compiled, x, use_reentrant=False).sum() for x in xs]
    for loss in losses:
        loss.backward()
    assert xs[0].grad[0] == xs[1].grad[0]


def test_hooks_see_what_eager_saves() -> None:
    counts = []
    for run in (unread, symshape.compile(unread), torch.compile(unread, backend=symshape_backend)):
        seen: list[torch.Size] = []

        def pack(saved: Tensor, seen: list[torch.Size] = seen) -> Tensor:
            seen.append(saved.shape)
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            run(torch.ones(3, requires_grad=True)).sum().backward()
        counts.append(seen)
    assert counts[0] == counts[1] == counts[2]


def test_calls_under_hooks_are_counted() -> None:
    compiled = symshape.compile(unread)
    for _ in range(3):
        checkpoint(
            compiled, torch.ones(3, requires_grad=True), use_reentrant=False
        ).sum().backward()
    stats = compiled.stats()
    assert (stats.plain, stats.hits, stats.traces) == (6, 0, 0)
    assert "6 calls under saved-tensor hooks" in compiled.report()
    with torch.no_grad(), saved_tensors_hooks(lambda t: t, lambda t: t):  # nothing is saved
        compiled(torch.ones(3))
    assert compiled.stats().traces == 1


def test_a_program_that_was_demanded_serves_under_hooks() -> None:
    compiled = symshape.compile(unread, fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    checkpoint(compiled, x, use_reentrant=False).sum().backward()
    assert (compiled.stats().traces, compiled.stats().plain) == (1, 0)
