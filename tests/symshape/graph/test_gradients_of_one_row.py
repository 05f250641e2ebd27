"""Gradients at a batch of 1: eager does not sum over it, so its results may share memory with the
gradient that comes in; one program serves other batches and this one, where nobody can tell.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.verify import copy_call
from symshape.torch_internals import questions
from tests.symshape.eager import call_seen, differences

Program = Callable[..., Any]
ORDERS = ((3, 5, 1, 2, 1), (3, 1, 2, 5, 1, 4), (1, 3, 1, 2))


def broadcast(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The gradients of a row and of a batch, which are one tensor at a batch of 1."""
    row = w[None, :].detach().requires_grad_()
    rows = x.detach().requires_grad_()
    return torch.autograd.grad((rows + row).square().sum(), (row, rows))


def both_returned(x: torch.Tensor, w: torch.Tensor) -> Any:
    return broadcast(x, w)


def one_returned(x: torch.Tensor, w: torch.Tensor) -> Any:
    return broadcast(x, w)[0]


def one_scaled_in_place(x: torch.Tensor, w: torch.Tensor) -> Any:
    row, rows = broadcast(x, w)
    row.mul_(2)
    return rows + 1


def the_other_scaled_in_place(x: torch.Tensor, w: torch.Tensor) -> Any:
    row, rows = broadcast(x, w)
    rows.mul_(2)
    return row + 1


def clone_of_ones_own(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Not by ``reshape``: the tensor is dense, and eager always copies."""
    copied = x.clone(memory_format=torch.contiguous_format)
    turned = torch.ops.aten._unsafe_view.default(copied, [len(x) * 4])
    x.add_(1)
    turned.mul_(2)
    return turned


def neither_seen(x: torch.Tensor, w: torch.Tensor) -> Any:
    row, rows = broadcast(x, w)
    return row.sum() + rows.exp().sum(1)


def hooked(x: torch.Tensor, w: torch.Tensor) -> Any:
    row = w[None, :].detach().requires_grad_()
    row.register_hook(lambda grad: grad.mul_(2))
    rows = x.detach().requires_grad_()
    return [each + 1 for each in torch.autograd.grad((rows + row).exp().sum(), (row, rows))]


def of_a_column(x: torch.Tensor, w: torch.Tensor) -> Any:
    column = w[:1, None].expand(1, 1).detach().requires_grad_()
    rows = x.detach().requires_grad_()
    found = torch.autograd.grad((rows * column).sum(), (column, rows))
    found[0].add_(found[1].sum())
    return found


def transposed(x: torch.Tensor, w: torch.Tensor) -> Any:
    """The layout of the gradient, which a sum changes."""
    rows = x.detach().requires_grad_()
    row = w[:, None].detach().requires_grad_()
    return torch.autograd.grad((rows.t() + row).tanh().sum(), (row, rows))


def told_to_require_gradients(x: torch.Tensor, w: torch.Tensor) -> Any:
    """One tensor at a batch of 1, so both require gradients."""
    row, rows = broadcast(x, w)
    row.requires_grad_()
    return rows + 1, rows.requires_grad, [] if rows.grad_fn is None else [1]


def compared(x: torch.Tensor, w: torch.Tensor) -> Any:
    row, rows = broadcast(x, w)
    labels = (x > 0).long()[:, 1:]
    return (rows + 1) * (2 if row is rows else 3) + (labels.contiguous() is labels)


def named(x: torch.Tensor, w: torch.Tensor) -> Any:
    labels = (x > 0).long()[:, 1:]
    labels.contiguous().weight = 3  # type: ignore[attr-defined]
    return labels * getattr(labels, "weight", 2) + 1


def hooked_copy(x: torch.Tensor, w: torch.Tensor) -> Any:
    """At a batch of 1 the hook is the cut tensor's own."""
    rows = x.detach().requires_grad_()
    cut = rows.exp()[:, 1:]
    copied = cut.contiguous()
    copied.register_hook(lambda grad: grad * 10)
    return torch.autograd.grad((copied * 2 + cut * 3).sum(), rows)[0] + 1


def kept_gradient(x: torch.Tensor, w: torch.Tensor) -> Any:
    rows = x.detach().requires_grad_()
    cut = rows.exp()[:, 1:]
    copied = cut.contiguous()
    return torch.autograd.grad((copied * 2 + cut * 3).sum(), copied)[0] + 1


def through_views(x: torch.Tensor, w: torch.Tensor) -> Any:
    rows = x.detach().requires_grad_()
    y = rows.view(len(rows), 2, 2).transpose(1, 2).reshape(len(rows), 4)
    y = y[:, 1:] * (x > 0).long()[:, 1:].contiguous()
    return torch.autograd.grad(y.tanh().sum(), rows)[0].exp().sum(1)


def attention(x: torch.Tensor, w: torch.Tensor) -> Any:
    rows = x.detach().requires_grad_()
    q = (rows[:, None, :] * w[:, None]).view(len(rows), 4, 2, 2).transpose(1, 2)
    y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    y = y.transpose(1, 2).reshape(len(rows), 4, 4)
    labels = (y.detach() > 0)[:, 1:].contiguous()
    loss = (y[:, 1:] * labels).square().sum() + y.sum()
    return torch.autograd.grad(loss, rows)[0].exp().sum(1)


SAME_PROGRAM = (neither_seen, through_views, attention)
PROGRAMS: Sequence[Program] = (
    *(both_returned, one_returned, one_scaled_in_place, the_other_scaled_in_place),
    *(hooked, of_a_column, transposed, told_to_require_gradients, compared, named),
    *(hooked_copy, kept_gradient, clone_of_ones_own, *SAME_PROGRAM),
)


def _calls(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(batch)
    return torch.randn(batch, 4), torch.randn(4)


@pytest.mark.parametrize("runner", ["auto", "padded"])
@pytest.mark.parametrize("batches", ORDERS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_values_strides_and_shared_memory_are_those_of_eager(
    fn: Program, batches: Sequence[int], runner: str
) -> None:
    compiled = symshape.compile(fn, fullgraph=True, runner=runner)
    for batch in batches:
        theirs, mine = (copy_call(_calls(batch), {})[0] for _ in range(2))
        found = differences(call_seen(fn, theirs, {}), call_seen(compiled, mine, {}))
        assert not found, (batch, found)


@pytest.mark.skipif(not questions.READ, reason="torch's questions were not read in this version")
@pytest.mark.parametrize("fn", SAME_PROGRAM, ids=lambda fn: fn.__name__)
def test_one_program_serves_a_batch_of_1_where_nobody_can_tell(fn: Program) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for batch in (3, 5, 1, 2, 1):
        compiled(*_calls(batch))
    assert compiled.stats().traces == 2  # the first is static


@pytest.mark.parametrize("batches", [(3, 5, 1, 2), (1, 3, 5, 1), (5, 1, 3, 1)])
def test_a_training_step_at_a_batch_of_1(batches: tuple[int, ...]) -> None:
    """Parameters, their gradients and the state of the optimizer, of a row that is broadcast."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.position = torch.nn.Parameter(torch.randn(1, 3, 4))
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x[:, None] + self.position).transpose(1, 2).reshape(len(x), -1)
            return y[:, 1:].contiguous().view(-1).square().mean()

    def step_of(model: Model) -> Program:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            return loss.detach()

        return step

    ours = Model()
    theirs = copy.deepcopy(ours)
    compiled, eager = symshape.compile(step_of(ours)), step_of(theirs)
    for batch in batches:
        x = _calls(batch)[0]
        torch.testing.assert_close(compiled(x), eager(x))
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other)
            assert mine.grad is not None
            assert other.grad is not None
            assert mine.grad.stride() == other.grad.stride()
            torch.testing.assert_close(mine.grad, other.grad)


def broadcast_attention(q: torch.Tensor, k: torch.Tensor) -> Any:
    q, k = (each.detach().requires_grad_() for each in (q, k))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = torch.nn.functional.scaled_dot_product_attention(q, k, k)
    return (y.detach(), *torch.autograd.grad(y.square().sum(), (q, k)))


def broadcast_products(q: torch.Tensor, k: torch.Tensor) -> Any:
    q, k = (each.detach().requires_grad_() for each in (q, k))
    y = torch.einsum("bhij,bhkj->bhik", q, k) + q @ k.mT
    return (y.detach(), *torch.autograd.grad(y.square().sum(), (q, k)))


def broadcast_sums(q: torch.Tensor, k: torch.Tensor) -> Any:
    q, k = (each.detach().requires_grad_() for each in (q, k))
    grads = torch.autograd.grad((q.exp() + k * q).sum(), (q, k))
    grads[1].add_(1)
    return grads


PAIRS = ((3, 3), (5, 5), (1, 1), (1, 4), (4, 1), (2, 2), (1, 1), (3, 1))


@pytest.mark.parametrize("runner", ["auto", "padded"])
@pytest.mark.parametrize("first", [(3, 3), (1, 1), (1, 4)])
@pytest.mark.parametrize("fn", [broadcast_attention, broadcast_products, broadcast_sums])
def test_two_batches_of_which_either_may_be_1(
    fn: Program, first: tuple[int, int], runner: str
) -> None:
    """What serves two equal batches does not serve a batch of 1 with another one."""
    compiled = symshape.compile(fn, dynamic=True, fullgraph=True, runner=runner)
    for batches in (first, *PAIRS):
        torch.manual_seed(0)
        call = tuple(torch.randn(batch, 2, 3, 3) for batch in batches)
        theirs, mine = (copy_call(call, {})[0] for _ in range(2))
        found = differences(call_seen(fn, theirs, {}), call_seen(compiled, mine, {}))
        assert not found, (batches, found)


@pytest.mark.parametrize("first", [(3, 3), (4, 1), (1, 4)])
def test_shapes_to_which_others_broadcast(first: tuple[int, int]) -> None:
    """Such as those of attention masks."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        shape = torch.broadcast_shapes((1, 1), a.shape, b.shape)
        return torch.ones(shape) * shape[0] + a + b

    if questions.READ:
        x = torch.randn(1, 4)
        compiled = symshape.compile(fn, dynamic={"a": {0: symshape.Dim("n")}}, fullgraph=True)
        for batch in (3, 5, 1, 2):
            assert torch.equal(compiled(torch.ones(batch, 4), x), fn(torch.ones(batch, 4), x))
        assert compiled.stats().traces == 1
    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    for one, other in (first, *PAIRS):
        a, b = torch.ones(one, 4), torch.ones(other, 4)
        assert torch.equal(compiled(a, b), fn(a, b)), (one, other)
