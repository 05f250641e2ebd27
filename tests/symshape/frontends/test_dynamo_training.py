"""Training with batch and length that change: few graphs, one program each, gradients equal to
eager's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from tests.training import TRAINED, Trained, sizes, step

MOST = 3


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def traces(part: str) -> dict[str, int]:
    """By function of the user's (a graph break makes it two): programs made of that part."""
    found: dict[str, int] = {}
    for each in dynamo.alive:
        if each.origin.part == part:
            found[each.origin.function] = found.get(each.origin.function, 0) + each.stats().traces
    return found


def train(trained: Trained, steps: int, compared: int) -> None:
    """Compares the gradients of every so manieth step."""
    ours, theirs = trained.build(), trained.build()
    compiled = torch.compile(ours, backend=symshape_backend, options={"runner": "eager"})
    for number, (batch, length) in enumerate(sizes(steps)):
        torch.manual_seed(number)
        call = trained.call(batch, length)
        loss = step(compiled, ours, call)
        if number % compared == 0 or number < 3:
            torch.testing.assert_close(loss, step(theirs, theirs, call), rtol=1e-4, atol=1e-5)
            for mine, eager in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-3, atol=1e-5)
    assert all(each.stats().fallbacks == 0 for each in dynamo.alive)
    for part in ("forward", "backward"):
        assert all(number <= MOST for number in traces(part).values()), traces(part)
    if trained.name != "lstm":  # Dynamo leaves a module with nn.LSTM to eager
        assert sum(traces("forward").values()) >= 2 <= sum(traces("backward").values())


QUICK = ("encoder", "lstm", "bert")


@pytest.mark.slow
@pytest.mark.parametrize(
    "trained", [each for each in TRAINED if each.name in QUICK], ids=lambda each: each.name
)
def test_sixty_steps(trained: Trained) -> None:
    train(trained, 60, compared=15)


@pytest.mark.nightly
@pytest.mark.parametrize("trained", TRAINED, ids=lambda each: each.name)
def test_five_hundred_steps(trained: Trained) -> None:
    train(trained, 500, compared=50)


def test_what_forward_kept_may_be_kept_on() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.exp()).sum()

    compiled = torch.compile(fn, backend=symshape_backend)
    for rows in (3, 4, 5):
        found = []
        for served in (compiled, fn):
            x = torch.linspace(0, 1, rows, requires_grad=True)
            loss = served(x)
            loss.backward(retain_graph=True)
            loss.backward()
            found.append(x.grad)
        torch.testing.assert_close(found[0], found[1])
