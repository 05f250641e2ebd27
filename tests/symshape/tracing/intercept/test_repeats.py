"""Calls that are repeated write what they would write if each went its own way; the oracle is the
trace without.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape.errors import UnsupportedError
from symshape.tracing.intercept import repeats
from symshape.tracing.intercept.torch_functions import function_mode


def _both(fn: Callable[..., Any], *args: Any) -> tuple[symshape.Traced, int]:
    """The trace of a function, held against the one in which nothing is repeated; and how many
    calls were.
    """
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(function_mode, "REPEATED", frozenset())
        plain = symshape.trace(fn, *args)
    again = repeats.Repeats._again
    number = 0

    def counted(self: Any, *given: Any) -> Any:
        nonlocal number
        number += 1
        return again(self, *given)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(repeats.Repeats, "_again", counted)
        traced = symshape.trace(fn, *args)
    assert str(traced.graph) == str(plain.graph)
    assert str(traced.guards) == str(plain.guards)
    assert [each.location for each in traced.graph.nodes] == [
        each.location for each in plain.graph.nodes
    ]
    kept = [
        [(str(each), each.reads, each.numbers) for each in one.graph.nodes]
        for one in (traced, plain)
    ]
    assert repr(kept[0]) == repr(kept[1])
    assert str(traced.peak_memory().total) == str(plain.peak_memory().total)
    assert str(traced.peak_memory(schedule="eager").total) == str(
        plain.peak_memory(schedule="eager").total
    )
    return traced, number


def _as_eager(fn: Callable[..., Any], traced: symshape.Traced, *args: Any) -> None:
    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
    with torch.no_grad():
        torch.testing.assert_close(traced(*args), fn(*copies), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(args, tuple(copies), rtol=0, atol=0, equal_nan=True)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = (
            nn.LayerNorm(8),
            nn.Linear(8, 24),
            nn.Linear(8, 8, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.into(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + F.dropout(
            self.out(mixed.transpose(1, 2).reshape(batch, length, 8)), 0.1, training=False
        )
        return torch.cat([x[..., 4:].contiguous().to(torch.float32), -x[..., :4]], dim=-1) * 2.0


def test_layers_like_those_before_are_repeated() -> None:
    model = nn.Sequential(*(_Block() for _ in range(3)))
    traced, number = _both(model, torch.randn(2, 3, 8))
    assert number > 25
    for batch, length in ((5, 7), (3, 2)):
        _as_eager(model, traced, torch.randn(batch, length, 8))


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda x, y: (x * 1, x * 1.0, x * True, x * 1), id="numbers of other types"),
        pytest.param(
            lambda x, y: (x.int() / 0.0, x.int() / -0.0, x.int() / 0.0), id="signs of zero"
        ),
        pytest.param(
            lambda x, y: [(x * k).angle() for k in (complex(-1, 0.0), complex(-1, -0.0))],
            id="complex zeros",
        ),
        pytest.param(lambda x, y: (x + y, x + x, y + x, y + y), id="operands that are one"),
        pytest.param(
            lambda x, y: (x.sum(0), x.sum((0,)), x.t().sum(0), x.sum(0, True), x.sum(0)),
            id="arguments",
        ),
        pytest.param(
            lambda x, y: (x.chunk(2, 1), y.chunk(2, 1), x.split(1, 1)[0]), id="several results"
        ),
        pytest.param(
            lambda x, y: (x.contiguous() is x, x.t().contiguous() is x, y.contiguous()),
            id="themselves",
        ),
        pytest.param(
            lambda x, y: (x[x > 0].sum(), y[y > 0].sum(), y[x > 0].sum()), id="sizes of data"
        ),
        pytest.param(
            lambda x, y: (x[x > 0], x.double()[x > 0], [x.double()[m] for m in (x < 0, x > 0.5)]),
            id="other masks",
        ),
        pytest.param(
            lambda x, y: [(x[m], x.double()[m], x.int()[m]) for m in (x > 0, x < -0.5, x > 0.9)],
            id="masks of layers",
        ),
        pytest.param(
            lambda x, y: [x[torch.tensor(i)] + y[:, torch.tensor([i, 0])].sum() for i in (0, 1, 0)],
            id="data",
        ),
        pytest.param(
            lambda x, y: [x[i].sum() * y[None, ..., i : i + 2] for i in (0, 1, 0)], id="indices"
        ),
        pytest.param(
            lambda x, y: (x.view(-1).add_(1), y.view(-1).mul_(2), x + y), id="writes through views"
        ),
        pytest.param(
            lambda x, y: (x.t().reshape(-1), y.t().reshape(-1).add_(1), x, y),
            id="reshapes that copy",
        ),
    ],
)
def test_what_a_call_depends_on_is_told_apart(fn: Callable[..., Any]) -> None:
    traced, _ = _both(fn, torch.randn(3, 4), torch.randn(3, 4))
    _as_eager(fn, traced, torch.randn(3, 4), torch.randn(3, 4))
    _as_eager(fn, traced, torch.randn(3, 4), torch.randn(3, 4))


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.groups = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.GroupNorm(2, 4),
        )
        self.up = nn.ConvTranspose2d(4, 4, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(self.groups(self.norm(self.conv(x))))
        return x + F.max_pool2d(self.up(F.leaky_relu(y)), 2)


@pytest.mark.parametrize("training", [False, True])
def test_layers_of_convolutional_nets_are_repeated_but_for_norms_that_write(training: bool) -> None:
    model = nn.Sequential(*(_Residual() for _ in range(3))).train(training)
    traced, number = _both(model, torch.randn(2, 4, 8, 6))
    assert number == (12 if training else 14)  # of 24 calls
    again = copy.deepcopy(model)
    for size in ((5, 4, 6, 10), (3, 4, 7, 9)):
        x = torch.randn(size)
        with torch.no_grad():
            torch.testing.assert_close(traced(x), again(x), rtol=0, atol=0)
        torch.testing.assert_close(list(model.buffers()), list(again.buffers()), rtol=0, atol=0)


def test_the_kernels_of_batch_norm_that_are_allowed_count() -> None:
    norm = nn.BatchNorm2d(4).eval()
    repeated = []
    for second in (True, False):

        def fn(x: torch.Tensor, second: bool = second) -> list[torch.Tensor]:
            with torch.backends.cudnn.flags(enabled=True):
                found = [norm(x)]
            with torch.backends.cudnn.flags(enabled=second):
                return [*found, norm(x)]

        repeated.append(_both(fn, torch.randn(2, 4, 8, 6))[1])
    assert repeated == [1, 0]


def test_weights_are_read_in_the_order_of_their_use() -> None:
    weights = [nn.Parameter(torch.randn(4, 4)) for _ in range(3)]
    bias = torch.randn(4)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for each in (*weights, weights[0]):
            x = F.linear(x, each, bias)
        return x

    traced, number = _both(fn, torch.randn(3, 4))
    assert number >= 2
    _as_eager(fn, traced, torch.randn(7, 4))


def test_the_kernels_that_are_allowed_count() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for backend in (
            torch.nn.attention.SDPBackend.MATH,
            torch.nn.attention.SDPBackend.FLASH_ATTENTION,
        ):
            with torch.nn.attention.sdpa_kernel([backend]):
                found += [F.scaled_dot_product_attention(x, x, x) for _ in range(2)]
        return found

    traced, _ = _both(fn, torch.randn(2, 2, 3, 8))
    ops = [str(each.op) for each in traced.graph.nodes]
    assert ops.count("aten._scaled_dot_product_flash_attention_for_cpu.default") == 2


@pytest.mark.parametrize(
    "inside", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_modes_of_the_programs_own_are_kept(inside: Callable[[], Any]) -> None:
    weight = torch.randn(4, 4)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = [x @ weight]
        with inside():
            found.append(x @ weight)
        return [*found, x @ weight]

    traced, _ = _both(fn, torch.randn(3, 4))
    _as_eager(fn, traced, torch.randn(5, 4))


def test_memory_that_autograd_does_not_know_of_is_not_written_to_with_gradients() -> None:
    weight = nn.Parameter(torch.ones(12))

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        kept = y.relu()
        views = x.view(-1), kept.view(-1)  # the second one is repeated
        with torch.enable_grad():
            loss = (kept.view(-1) * weight).sum()
        views[1].mul_(2)
        (gradient,) = torch.autograd.grad(loss, weight)
        return gradient

    args = torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            fn(*args)
        with pytest.raises(
            UnsupportedError, match="writes to memory of a view made without gradients"
        ):
            symshape.trace(fn, *args)


def test_its_version_is_not_told_of_memory_with_such_views() -> None:
    def fn(x: torch.Tensor) -> Any:
        y, z = x + 1, x + 2
        y.view(-1), z.view(-1).mul_(2)
        return z * z._version

    with torch.no_grad(), pytest.raises(UnsupportedError, match=r"reads Tensor\._version"):
        symshape.trace(fn, torch.randn(3, 4))
