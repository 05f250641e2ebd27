"""Training with dropout on a device, inside attention and outside: eager's numbers to drop by, and
its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.training import DROPPING, Trained, sizes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DTYPES = {torch.float32: 1e-3, torch.bfloat16: 4e-2}
Train = Callable[[dict[str, torch.Tensor]], torch.Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _built(trained: Trained, dtype: torch.dtype) -> nn.Module:
    return trained.build().cuda().to(dtype)


def _calls(trained: Trained, dtype: torch.dtype) -> list[dict[str, torch.Tensor]]:
    """Sizes that change, and come again often enough to be captured."""
    torch.manual_seed(1)
    different = [
        {
            k: v.cuda().to(dtype if v.is_floating_point() else v.dtype)
            for k, v in trained.call(*each).items()
        }
        for each in sizes(6)
    ]
    return [*different, *different[:3], *different[:3], *different[:3], *different]


def _loss(result: Any) -> torch.Tensor:
    """What differs with each number that is dropped (a mean of squares behind a layer norm is
    1).
    """
    tensors = [result] if isinstance(result, torch.Tensor) else result.to_tuple()
    weights = [torch.linspace(-1, 1, each.shape[-1], device=each.device) for each in tensors]
    return torch.stack(
        [(each * some).mean().exp() for each, some in zip(tensors, weights, strict=True)]
    ).sum()


def _same(
    ours: nn.Module, theirs: nn.Module, mine: torch.Tensor, its: torch.Tensor, precise: float
) -> None:
    torch.testing.assert_close(mine, its, atol=precise, rtol=precise)
    for (name, one), (_, other) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        torch.testing.assert_close(
            one, other, atol=precise, rtol=precise, msg=lambda text, name=name: f"{name}: {text}"
        )  # type: ignore[misc]


def _losses(train: Train, calls: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    found = []
    for number, call in enumerate(calls):
        torch.manual_seed(number)
        found.append(train(call).float())
    return torch.stack(found)


def _trained(model: nn.Module, run: Callable[..., Any]) -> Train:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(call: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        loss = _loss(run(**call))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return train


@pytest.mark.parametrize("runner", ["auto", "padded", "cudagraph"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trained", DROPPING, ids=lambda each: each.name)
def test_through_the_backend(trained: Trained, dtype: torch.dtype, runner: str) -> None:
    theirs, ours = (_built(trained, dtype) for _ in range(2))
    run = torch.compile(
        ours, backend=symshape_backend, options={"runner": runner, "randomness": "eager"}
    )
    calls = _calls(trained, dtype)
    mine, its = _losses(_trained(ours, run), calls), _losses(_trained(theirs, theirs), calls)
    _same(ours, theirs, mine, its, DTYPES[dtype])


@pytest.mark.parametrize("runner", ["auto", "padded", "cudagraph"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trained", DROPPING, ids=lambda each: each.name)
def test_a_whole_step(trained: Trained, dtype: torch.dtype, runner: Any) -> None:
    theirs, ours = (_built(trained, dtype) for _ in range(2))
    step: Any = symshape.compile(
        _trained(ours, ours), runner=runner, options={"randomness": "eager"}
    )
    calls = _calls(trained, dtype)
    mine, its = _losses(step, calls), _losses(_trained(theirs, theirs), calls)
    _same(ours, theirs, mine, its, DTYPES[dtype])
    assert step.stats().fallbacks == 0


@pytest.mark.parametrize(
    ("way", "dtype"),
    [("backend", torch.float32), ("whole step", torch.float32), ("whole step", torch.bfloat16)],
)
@pytest.mark.parametrize("trained", DROPPING, ids=lambda each: each.name)
def test_other_numbers_of_the_same_distribution(
    trained: Trained, way: str, dtype: torch.dtype
) -> None:
    """Random numbers inside padded graphs: mean and spread of the losses over many draws are
    eager's.
    """
    theirs, ours = (_built(trained, dtype) for _ in range(2))
    call = _calls(trained, dtype)[0]
    through = torch.compile(ours, backend=symshape_backend, options={"runner": "padded"})
    run = through if way == "backend" else ours

    def loss(model: nn.Module, run: Callable[..., Any]) -> Train:
        def computed(call: dict[str, torch.Tensor]) -> torch.Tensor:
            model.zero_grad()
            found = _loss(run(**call))
            found.backward()  # type: ignore[no-untyped-call]
            return found.detach()

        return computed

    made = loss(ours, run)
    mine: Any = made if way == "backend" else symshape.compile(made, runner="padded", dynamic=True)
    found, expected = (_losses(each, [call] * 60)[20:] for each in (mine, loss(theirs, theirs)))
    assert abs(found.mean() - expected.mean()) <= 5 * (found.std() + expected.std()) / 40**0.5
    assert expected.std() / 2 <= found.std() <= expected.std() * 2
    if way == "whole step":
        for entry in mine.entries:
            assert isinstance(entry.runner, PaddedRunner), entry.runner.describe()
            assert entry.runner.instead is None, entry.runner.describe()


def _attends(query: torch.Tensor, causal: bool) -> Any:
    """Attention whose values are a unit matrix: its results are the weights that were not
    dropped.
    """
    query = query.detach().requires_grad_()
    value = torch.eye(
        query.shape[2], query.shape[3], device="cuda", dtype=query.dtype, requires_grad=True
    )
    value = value.expand(*query.shape[:2], -1, -1)
    value.retain_grad()
    weights = nn.functional.scaled_dot_product_attention(
        query, query.detach(), value, dropout_p=0.5, is_causal=causal
    )
    weights.sum().backward()  # type: ignore[no-untyped-call]
    assert value.grad is not None
    return weights.detach(), value.grad


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_drops_by_one_mask_in_forward_and_backward(
    dtype: torch.dtype, causal: bool
) -> None:
    """The gradient of a value is the sum of the weights that its key was given."""
    compiled = symshape.compile(
        lambda query: _attends(query, causal), dynamic=True, runner="padded"
    )
    for batch, length in ((2, 5), (3, 9), (2, 12), (1, 7), (3, 16)):
        torch.manual_seed(length)
        weights, gradient = compiled(torch.randn(batch, 4, length, 16, device="cuda", dtype=dtype))
        given = weights[..., :length].sum(2)[..., None].expand_as(gradient)
        torch.testing.assert_close(given, gradient, atol=DTYPES[dtype], rtol=DTYPES[dtype])
        seen = weights[..., :length].tril() != 0 if causal else weights[..., :length] != 0
        whole = torch.ones_like(seen).tril() if causal else torch.ones_like(seen)
        assert 0.25 < seen.sum() / whole.sum() < 0.75
    assert compiled.stats().fallbacks == 0
    for entry in compiled.entries:
        assert isinstance(entry.runner, PaddedRunner), entry.runner.describe()
        assert entry.runner.instead is None, entry.runner.describe()
