"""Attention with dropout whose caller runs the backward: backward drops what forward dropped.

The result is linear in the values: with ``loss = (attention(q, k, v) * t).sum()``, ``(v *
v.grad).sum()`` is the loss again, but only if backward drops the same elements.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.runners.gradients.runner import GradientsRunner
from tests.gpu.test_gradients_of_the_caller import Model, _tokens
from tests.symshape.runtime.runners.gradients.test_attention_dropout import (
    MODELS,
    arguments,
    loss_of,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = torch.device("cuda")
SIZES = [(2, 17), (3, 30), (4, 45), (2, 64), (1, 33), (8, 9), (5, 64), (2, 17), (7, 21), (1, 100)]
WAYS = {
    "plain": {},
    "causal": {"is_causal": True},
    "masked": {"masked": True},
}


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    **how: Any,
) -> torch.Tensor:
    found: torch.Tensor = F.scaled_dot_product_attention(
        query * 2, key, value, mask, dropout_p=0.4, **how
    )
    return found


def _inputs(
    sizes: tuple[int, int], dtype: torch.dtype, masked: bool
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    batch, length = sizes
    shape = batch, 4, length, 32
    given = [torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_() for _ in range(3)]
    if not masked:
        return given, None
    seen = torch.arange(length, device=DEVICE) < torch.randint(
        1, length + 1, (batch, 1), device=DEVICE
    )
    return given, seen[:, None, None].expand(batch, 1, length, length)


def _check(fn: Any, given: tuple[list[torch.Tensor], torch.Tensor | None]) -> None:
    """Check one call and its backward."""
    (query, key, value), mask = given
    made = fn(query, key, value, mask)
    weights = torch.randn_like(made)
    loss = (made.detach().double() * weights).sum()
    made.backward(weights)
    assert value.grad is not None
    again = (value.detach().double() * value.grad).sum()
    share = 1e-4 if value.dtype is torch.float32 else 0.03
    norm = made.detach().double().norm() * weights.double().norm() / 8
    assert abs(float(loss - again)) <= share * float(norm)
    for each in (query, key):
        assert each.grad is not None
        assert each.grad.isfinite().all()


def _divided(compiled: Any) -> list[Any]:
    runners = [each.runner for each in compiled.entries]
    return [each for each in runners if isinstance(each, GradientsRunner) and each.halves]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("runner", ["padded", "auto"])
def test_backward_drops_what_forward_dropped(way: str, dtype: torch.dtype, runner: Any) -> None:
    how = {**WAYS[way]}
    masked = how.pop("masked", False)
    compiled = symshape.compile(lambda *given: _attention(*given, **how), runner=runner)
    for _ in range(2 if runner == "padded" else 12):
        for sizes in SIZES:
            given = _inputs(sizes, dtype, masked)
            _check(compiled, given)
            if sizes == SIZES[0]:
                same = [compiled(*given[0], given[1]).detach() for _ in range(2)]
                assert not torch.equal(*same)
    (last,) = _divided(compiled)[-1:] or (None,)
    if runner == "padded":
        assert last is not None
        assert [each.describe().split(",")[0] for _, each in last.halves] == ["padded"] * 2
        forward, backward = (each.buckets for _, each in last.halves)
        assert [e.made.caps for e in forward] == [e.made.caps for e in backward]
        assert len(forward) >= 2


def test_several_calls_before_their_backward() -> None:
    compiled = symshape.compile(lambda *given: _attention(*given, is_causal=True), runner="padded")
    for dtype in (torch.float32, torch.bfloat16):
        for _ in range(3):
            calls = []
            for sizes in SIZES[:5]:
                (query, key, value), _ = _inputs(sizes, dtype, masked=False)
                calls.append((value, compiled(query, key, value, None)))
            for value, made in reversed(calls):
                made.backward(torch.ones_like(made))
                found = made.detach().double()
                again = (value.detach().double() * value.grad).sum()
                assert abs(float(found.sum() - again)) <= 0.03 * float(found.norm()) * 4


@pytest.mark.parametrize("name", MODELS)
def test_models_with_a_mask(name: str) -> None:
    """Along the gradient a loss changes by the gradient's square, if the same is dropped."""
    torch.manual_seed(0)
    model = MODELS[name]("sdpa").train().to(DEVICE)
    compiled = symshape.compile(loss_of(model), runner="padded")
    parameters = list(model.parameters())
    for number in range(14):
        sizes = 1 + number * 3 % 8, 5 + number * 7 % 57
        given = tuple(each.to(DEVICE) for each in arguments(sizes))
        compiled(*given).backward()  # a bucket's first call draws more
        torch.manual_seed(number)
        found = torch.autograd.grad(compiled(*given), parameters)
        square = float(sum(each.square().sum() for each in found))
        step, losses = 0.005 / square, list[float]()
        for sign in (1, -2):
            with torch.no_grad():
                for each, change in zip(parameters, found, strict=True):
                    each.add_(change, alpha=sign * step)
            torch.manual_seed(number)
            losses.append(float(compiled(*given).detach()))
        assert losses[0] - losses[1] == pytest.approx(2 * step * square, rel=0.02)
    (last,) = _divided(compiled)[-1:]
    assert all(len(each.buckets) > 1 for _, each in last.halves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_trains(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    eager = Model(dropout=0.2).to(DEVICE)
    mine = symshape.compile(copy.deepcopy(eager))
    losses: list[list[float]] = [[], []]
    for which, model in enumerate((eager, mine)):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        for step in range(200):
            tokens = _tokens((2 + step % 5, 8 + step * 7 % 40)) % 7
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
                loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            losses[which].append(float(loss.detach()))
    ends = [sum(each[-50:]) / 50 for each in losses]  # one step may have a bad draw, in eager too
    assert ends[1] < 0.05
    assert ends[1] == pytest.approx(ends[0], abs=0.05)
    runners = [each.runner for each in symshape.compiled_of(mine).entries]
    assert any(isinstance(each, GradientsRunner) and each.halves for each in runners)
    assert symshape.compiled_of(mine).stats().cuda_graphs
