"""Padded programs behind ``torch.compile``: whole models at many sizes, forward and backward, with poisoned padding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import DynamoGraph
from symshape.runtime.runners.padded import PaddedRunner
from tests.meta_fns.padding.poison import poison
from tests.models import MODELS
from tests.training import TRAINED, step

SIZES = ((6, 23), (5, 17), (3, 9), (6, 24), (5, 18), (3, 12), (5, 21), (4, 10), (6, 19), (4, 11))
"""Batch and length, growing and shrinking, so that what a large call left would show in a small one."""


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def runners(part: str) -> dict[DynamoGraph, PaddedRunner]:
    """The padded runners of a part."""
    found = {}
    for graph in dynamo.alive:
        for entry in graph.entries:
            if graph.origin.part == part and isinstance(entry.runner, PaddedRunner):
                found[graph] = entry.runner
    return found


def poisoned(number: int) -> None:
    """Fills every buffer of every padded program with what nobody wants to read."""
    for part in ("inference", "forward", "backward"):
        for runner in runners(part).values():
            for bucket in runner.buckets:
                for buffer in bucket.buffers:
                    poison(buffer, number)


@pytest.mark.parametrize("name", ["bert", "llama", "resnet"])
def test_inference(name: str) -> None:
    (model,) = (each for each in MODELS if each.name == name)
    module = model.build()
    compiled = torch.compile(module, backend=symshape_backend, dynamic=True, options={"runner": "padded"})
    with torch.no_grad():
        for number, (batch, length) in enumerate(SIZES):
            poisoned(number)
            call = model.call(batch, length)
            mine, theirs = compiled(**call), module(**call)
            torch.testing.assert_close(list(mine.to_tuple()), list(theirs.to_tuple()), rtol=1e-4, atol=1e-4)
    found = runners("inference")
    assert sum(graph.stats().traces for graph in dynamo.alive) == len(dynamo.alive)
    for graph, runner in found.items():
        assert not runner.refusals, runner.refusals
        print(graph, runner.served().keys())
    assert sum(graph.calls for graph in found) >= len(SIZES)


@pytest.mark.parametrize("name", ["bert", "llama", "resnet", "gpt2", "encoder"])
def test_training(name: str) -> None:
    (trained,) = (each for each in TRAINED if each.name == name)
    ours, theirs = trained.build(), trained.build()
    compiled = torch.compile(ours, backend=symshape_backend, dynamic=True, options={"runner": "padded"})
    for number, (batch, length) in enumerate(SIZES):
        poisoned(number)
        call = trained.call(batch, length)
        loss = step(compiled, ours, call)
        torch.testing.assert_close(loss, step(theirs, theirs, call), rtol=1e-4, atol=1e-5)
        for mine, eager in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-3, atol=1e-5)
    for part in ("forward", "backward"):
        for graph, runner in runners(part).items():
            print(graph, {name: str(each) for name, each in runner.refusals.items()})
