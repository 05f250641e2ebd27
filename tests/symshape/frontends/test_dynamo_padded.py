"""Padded programs behind ``torch.compile``: whole models at many sizes, forward and backward, with
poisoned padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import assert_same, poison
from tests.models import MODELS
from tests.symshape.runtime.runners.padded.test_runner import Decoder, Encoder
from tests.training import TRAINED, loss_of

SIZES = ((6, 23), (5, 17), (3, 9), (6, 24), (5, 18), (3, 12), (5, 21), (3, 10), (6, 19), (3, 11))
"""Batch and length, growing and shrinking, so that what a large call left would show in a small
one.
"""
PARTS = ("inference", "forward", "backward")
GRAPHS = {"resnet": 1 if torch.torch_version.TorchVersion(torch.__version__) >= "2.13" else 2}
"""How many graphs Dynamo itself makes: before torch 2.13 it asks whether a size that is pooled is
odd.
"""


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def runners(*parts: str) -> list[PaddedRunner]:
    """The padded runners of these parts, or of all; of what runs in pieces those of the pieces."""
    graphs = sorted(dynamo.alive, key=lambda each: each.number)
    entries = [
        entry
        for graph in graphs
        if graph.origin.part in (parts or PARTS)
        for entry in graph.entries
    ]
    return [runner for entry in entries for _, runner in padded_parts(entry.runner, entry.program)]


def poisoned(number: int) -> None:
    """Fills every buffer of every padded program with what nobody wants to read."""
    for runner in runners():
        for bucket in runner.buckets:
            for buffer in bucket.buffers:
                poison(buffer, number)


def compiled(model: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(
        model, backend=symshape_backend, dynamic=True, options={"runner": "padded", **options}
    )


def tensors(result: Any) -> list[torch.Tensor]:
    return [
        each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)
    ]


class Residual(nn.Module):
    """A stem, two blocks and a head, as in a small ResNet; images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.first, self.second = (
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Conv2d(8, 12, 3, stride=2, padding=1),
        )
        self.head = nn.Linear(12, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.stem(image))), 3, 2, 1)
        x = torch.relu(self.second(x + torch.relu(self.first(x))))
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 50, (batch, length)),)


def _image(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, length, length + 3),)


def _shallow(model: Encoder | Decoder) -> nn.Module:
    """One layer of it."""
    model.layers = model.layers[:1]
    return model


SMALL: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[torch.Tensor, ...]]]] = {
    "bert": (lambda: _shallow(Encoder()), _tokens),
    "llama": (lambda: _shallow(Decoder()), _tokens),
    "resnet": (Residual, _image),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    make, call = SMALL[name]
    model = make().eval()
    run = compiled(model)
    with torch.no_grad():
        for number, (batch, length) in enumerate(SIZES):
            poisoned(number)
            arguments = call(batch, length)
            for mine, theirs in zip(
                tensors(run(*arguments)), tensors(model(*arguments)), strict=True
            ):
                assert_same(mine, theirs, f"call {number}", tolerance=1e-4)
    found, number = runners("inference"), GRAPHS.get(name, 1)
    assert (len(found), len(dynamo.alive)) == (number, number)
    assert not any(runner.refusals for runner in found), [runner.padding() for runner in found]
    assert sum(len(runner.served()) for runner in found) == len(SIZES), (
        "every call went to a bucket"
    )
    buckets = [bucket for runner in found for bucket in runner.buckets]
    assert len(buckets) <= 5 + 2 * (number - 1)
    assert sum(graph.calls for graph in dynamo.alive) == len(SIZES)
    assert all((graph.stats().traces, graph.stats().fallbacks) == (1, 0) for graph in dynamo.alive)
    parameters = {parameter.shape for parameter in model.parameters()}
    copied = {buffer.shape for bucket in buckets for buffer in bucket.buffers}
    assert not copied & parameters, "parameters are read where they are"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["bert", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("llama", "resnet"))],
)
def test_training(name: str) -> None:
    torch.manual_seed(0)
    make, call = SMALL[name]
    model = make()
    twin = make()
    twin.load_state_dict(model.state_dict())
    for each in (model, twin):
        each.apply(lambda m: m.eval() if isinstance(m, nn.BatchNorm2d) else None)
    run = compiled(model)
    for number, (batch, length) in enumerate(SIZES):
        poisoned(number)
        arguments = call(batch, length)
        for each, forward in ((model, run), (twin, twin)):
            each.zero_grad()
            torch.stack(
                [part.pow(2).mean() for part in tensors(forward(*arguments))]
            ).sum().backward()  # type: ignore[no-untyped-call]
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5)
    for part in ("forward", "backward"):
        assert [len(runner.served()) for runner in runners(part)] == [len(SIZES)]
    assert not any(runner.refusals for runner in runners()), symshape.backend_report()


def test_why_a_backward_is_not_padded() -> None:
    def mirrored(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (2, 1), mode="reflect").pow(2).sum()

    run = compiled(mirrored)
    for n in (5, 6, 9):
        x = torch.rand(n, 6, 4, requires_grad=True)
        torch._dynamo.mark_static(x, 1)
        torch._dynamo.mark_static(x, 2)
        run(x).backward()
        y = x.detach().clone().requires_grad_()
        mirrored(y).backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(x.grad, y.grad)
    text = str(symshape.backend_report())
    assert "(backward): s" in text, text
    assert (
        "is not padded: aten.reflection_pad1d_backward.default: it has no padding rule" in text
    ), text


def test_what_cannot_be_padded_says_so() -> None:
    run = compiled(lambda x: torch.bernoulli(x) + 1, randomness="eager")
    run(torch.rand(5))
    assert "eager, not padded: it draws random numbers" in str(symshape.backend_report())


def test_what_a_backward_needs_is_never_lent() -> None:
    run = compiled(lambda x, w: (x * w).sin().sum(), outputs="borrow", check_borrowed=True)
    w = torch.randn(3, requires_grad=True)
    inputs = [torch.randn(n, 3) for n in (5, 6)]
    losses = [run(x, w) for x in inputs]  # both kept before either is walked back
    for x, loss in zip(inputs, losses, strict=True):
        (mine,) = torch.autograd.grad(loss, w)
        (theirs,) = torch.autograd.grad((x * w).sin().sum(), w)
        torch.testing.assert_close(mine, theirs)


def test_capacities_satisfy_dynamos_guards() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return (
            x.view(-1, 4).cumsum(0) if x.size(0) % 4 == 0 and x.size(0) < 40 else x.view(-1, 1) * 2
        )

    run = compiled(rows)
    with torch.no_grad():
        for number, n in enumerate((12, 20, 36, 24, 7, 9, 48, 41, 28)):
            poisoned(number)
            x = torch.randn(n)
            assert_same(run(x), rows(x), f"{n} rows", tolerance=1e-4)
    for runner in runners():
        for bucket in runner.buckets:
            for term in bucket.made.padded.region.given:  # type: ignore[union-attr]
                assert bucket.made.padded.region.known(term)  # type: ignore[union-attr]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bert", "llama", "resnet"])
def test_real_architectures(name: str) -> None:
    (model,) = (each for each in MODELS if each.name == name)
    module = model.build()
    run = compiled(module)
    with torch.no_grad():
        for number, (batch, length) in enumerate(SIZES):
            poisoned(number)
            call = model.call(batch, length)
            torch.testing.assert_close(
                tensors(run(**call)), tensors(module(**call)), rtol=1e-4, atol=1e-4
            )
    assert not any(runner.refusals for runner in runners()), symshape.backend_report()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bert", "llama", "resnet", "gpt2", "encoder"])
def test_real_architectures_in_training(name: str) -> None:
    (trained,) = (each for each in TRAINED if each.name == name)
    ours, theirs = trained.build(), trained.build()
    run = compiled(ours)
    for number, (batch, length) in enumerate(SIZES):
        poisoned(number)
        call = trained.call(batch, length)
        for model, forward in ((ours, run), (theirs, theirs)):
            model.zero_grad()
            loss_of(forward(**call)).backward()  # type: ignore[no-untyped-call]
        for mine, eager in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-3, atol=1e-5)


class BothWays(nn.Module):
    """Rows of sequences within batches, then of batches within sequences, as attention with batches
    second has them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = torch.tanh(self.second(torch.tanh(self.first(x)).transpose(0, 1)))
        back: torch.Tensor = self.third(turned.transpose(0, 1))
        return back


def test_a_backward_tells_in_which_order_rows_were_merged() -> None:
    torch.manual_seed(0)
    ours = BothWays()
    run = compiled(ours)
    for number, (batch, length) in enumerate(SIZES):
        poisoned(number)
        x = torch.randn(batch, length, 8, requires_grad=True)
        leaves = [x, *ours.parameters()]
        found = [torch.autograd.grad(each(x).sin().sum(), leaves) for each in (run, ours)]
        for mine, theirs in zip(*found, strict=True):
            assert_same(mine, theirs, f"call {number}", tolerance=1e-4)
    for graph in dynamo.alive:
        (entry,) = graph.entries
        assert isinstance(entry.runner, PaddedRunner)
        assert entry.runner.instead is None, symshape.backend_report()
        assert not entry.runner.refusals, symshape.backend_report()


@pytest.mark.parametrize("bag", [False, True])
def test_sparse_gradients(bag: bool) -> None:
    """A padded backward cannot make them: that part of it runs op by op."""
    words: Any = (nn.EmbeddingBag if bag else nn.Embedding)(10, 3, sparse=True)
    head = nn.Linear(3, 2)

    def fn(tokens: torch.Tensor) -> torch.Tensor:
        return head(words(tokens).tanh()).square().sum()  # type: ignore[no-any-return]

    mine = torch.compile(fn, backend=symshape_backend, dynamic=True, options={"runner": "padded"})
    for size in (4, 7, 1, 5):
        tokens, found = torch.randint(0, 10, (size, 2)), []
        for each in (fn, mine):
            loss = each(tokens)
            words.zero_grad(), head.zero_grad()
            loss.backward()
            assert words.weight.grad.is_sparse
            found.append((loss, words.weight.grad.to_dense(), head.weight.grad))
        torch.testing.assert_close(*found)
