"""What a graph does to tensors: in-place operations, views, aliasing, parameters, randomness, gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree, assert_same, bits

R = torch.randn
OTHER_PAIRS = ((R(4, 3),), (R(1, 3),), (R(2, 5),), (R(1, 1),), (R(0, 3),), (R(3, 0),))


def view_then_write(x: torch.Tensor) -> torch.Tensor:
    view = x.view(-1)
    view.add_(1)
    return x * 2


def write_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x[: x.size(0) // 2] = 0
    x[..., -1:] += 5
    return x, x[1:]


def write_through_two_views(x: torch.Tensor) -> torch.Tensor:
    a, b = x[:1], x[-1:]
    a.mul_(3)
    b.sub_(1)
    return a + b


def write_by_mask(x: torch.Tensor) -> torch.Tensor:
    x[x > 0] = 0
    return x


def swap_dimensions_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.t_()
    y.unsqueeze_(0)
    return y + 1


def write_into_out(x: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    torch.add(x, 1, out=result)
    return result


def write_a_copy(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.clone()
    y.zero_()
    return x, y


def write_a_reshape(x: torch.Tensor) -> torch.Tensor:
    x.t().reshape(-1).zero_()  # a copy, or a view where a size is 1
    return x


def accumulate(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.size(1))
    for row in x.unbind(0):
        total += row
    return total


@pytest.mark.parametrize(
    "fn",
    [
        view_then_write,
        write_rows,
        write_through_two_views,
        write_by_mask,
        swap_dimensions_in_place,
        write_into_out,
        write_a_copy,
        write_a_reshape,
        accumulate,
    ],
)
def test_writes(fn: Any) -> None:
    _, seen = agree(fn, (R(2, 3),), *OTHER_PAIRS)
    if fn is not accumulate:  # its loop fixes the number of rows
        assert seen.count("equal") >= 3


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x,
        lambda x: (x, x),
        lambda x: [x.view(-1), x.view(-1)],
        lambda x: x[:1],
        lambda x: x.t(),
        lambda x: x.reshape(-1),
        lambda x: x.t().reshape(-1),
        lambda x: x.t().contiguous(),
        lambda x: x.contiguous(),
        lambda x: x.expand(3, *x.shape),
        lambda x: x.unbind(1)[0],
        lambda x: x.split(2, 1),
        lambda x: x.detach(),
        lambda x: x.to(torch.float32),
        lambda x: x.float(),
        lambda x: x.squeeze(),
        lambda x: x.squeeze(0),
        lambda x: x.flatten(),
        lambda x: x.flatten(1),
        lambda x: x.expand_as(x),
        lambda x: x.type_as(x),
        lambda x: torch.atleast_1d(x),
        lambda x: {"a": x.mT, "b": (x.unsqueeze(0), [x.diagonal()])},
        lambda x: x.narrow(0, 0, x.size(0) // 2),
        lambda x: torch.broadcast_tensors(x, x[:1])[1],
        lambda x: x.view(torch.int32),
        lambda x: x.as_strided((x.size(1),), (1,)),
        lambda x: x.add_(1),
        lambda x: x.chunk(2)[0].add_(1),
        lambda x: (x.real, x.data),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.movedim(0, 1)[..., None],
    ],
)
def test_results_share_memory_as_in_eager(fn: Any) -> None:
    _, seen = agree(fn, (R(2, 4),), *OTHER_PAIRS, (R(2, 2),), (R(3, 4),))
    assert "equal" in seen[1:]


LAYOUTS = {
    "transposed": lambda a, b: R(b, a).t(),
    "with a step": lambda a, b: R(2 * a, b)[::2],
    "with an offset": lambda a, b: R(a + 1, b)[1:],
    "a part of each row": lambda a, b: R(a, b + 2)[:, 1:-1],
    "expanded": lambda a, b: R(1, b).expand(a, b),
    "of one number": lambda a, b: R(1).expand(a, b),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 1,
        lambda x: x.reshape(-1),
        lambda x: x.clone(),
        lambda x: x.contiguous(),
        lambda x: (x * x.stride(0), x.stride(), x.storage_offset()),
        lambda x: x @ x.t(),
        lambda x: torch.empty_strided(x.shape, x.stride()).fill_(1),
        lambda x: x.is_contiguous(),
        lambda x: torch.cat([x, x]),
    ],
)
def test_arguments_of_any_layout(layout: str, fn: Any) -> None:
    make = LAYOUTS[layout]
    agree(fn, *[(make(a, b),) for a, b in ((3, 4), (5, 2), (2, 2), (1, 3), (3, 1), (1, 1), (0, 2))])


def test_one_layout_is_not_taken_for_another() -> None:
    traced = symshape.trace(lambda x: x + 1, R(3, 4))
    assert traced.check(R(5, 2))
    assert not traced.check(R(2, 5).t())
    assert not traced.check(R(6, 2)[1:])
    assert not traced.check(R(1, 5).t())  # contiguous for torch, but with strides of its own
    assert "strided" in traced.explain(R(2, 5).t())[0]


# -- one tensor, two arguments


def test_one_tensor_passed_twice() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x + y, y

    same = R(3)
    traced, seen = agree(fn, (same, same))
    assert seen == ["equal"]
    assert not traced.check(R(3), R(3))
    assert "different tensors" in traced.explain(R(3), R(3))[0]
    other, _ = agree(fn, (R(3), R(3)), (R(5), R(5)))
    assert not other.check(same, same)


def test_two_views_of_one_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y + 1

    memory = R(4)
    agree(fn, (R(4), R(4)), (memory, memory[...]), (memory, memory.detach()))


# -- modules


class BatchNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.fc = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(x))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_updates_its_statistics(training: bool) -> None:
    module = BatchNorm().train(training)
    other = copy.deepcopy(module)
    traced = symshape.trace(module, R(4, 3))
    for n in (4, 7, 2):
        x = R(n, 3)
        assert torch.equal(traced(x), other(x))
    for (name, ours), theirs in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    assert module.norm.num_batches_tracked == (3 if training else 0)


def test_parameters_are_lifted_not_copied() -> None:
    module = nn.Linear(3, 2)
    traced = symshape.trace(module, R(4, 3))
    assert {each.name: each.tensor for each in traced.graph.lifted} == {"weight": module.weight, "bias": module.bias}
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(7)
    assert torch.equal(traced(R(5, 3)), torch.full((5, 2), 7.0))


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.seen.mul_(0.5).add_(x.sum(0))
        return x * self.count


def test_buffers_are_written_in_place() -> None:
    module = Buffered()
    other = copy.deepcopy(module)
    traced = symshape.trace(module, R(2, 3))
    assert module.count == 0  # tracing computes nothing
    for n in (2, 5, 1):
        x = R(n, 3)
        assert torch.equal(traced(x), other(x))
    assert torch.equal(module.seen, other.seen)
    assert module.count == 3


def test_tied_parameters() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, nn.ReLU(), second)
    traced = symshape.trace(model, R(2, 4))
    assert len(traced.graph.lifted) == 1
    assert_same(model, traced, R(5, 4))


def test_module_called_with_keywords_and_nested_arguments() -> None:
    class Model(nn.Module):
        def forward(self, batch: dict[str, Any], *, scale: float = 1.0, flag: bool = True) -> dict[str, Any]:
            ids, (mask, extra) = batch["ids"], batch["more"]
            return {"out": ids * scale + mask if flag else ids, "extra": [extra, None, "text", 3, 2.5, True]}

    def call(n: int) -> dict[str, Any]:
        return {"ids": R(n, 2), "more": (R(n, 2), None)}

    traced = symshape.trace(Model(), call(3), scale=2.0)
    for n in (3, 5, 1):
        assert_same(Model(), traced, call(n), scale=2.0)
    assert not traced.check(call(3), scale=3.0)
    assert not traced.check(call(3))
    assert not traced.check({"ids": R(3, 2), "more": (R(3, 2), R(1))}, scale=2.0)


# -- randomness


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.dropout(x, 0.5, training=True),
        lambda x: F.dropout(x, 0.0, training=True),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: F.dropout(x, 0.3, training=True, inplace=True),
        lambda x: x + torch.rand(x.size(0), 1),
        lambda x: torch.rand_like(x) + torch.randn(x.shape),
        lambda x: torch.randperm(x.size(0)),
        lambda x: torch.randint(0, 9, (x.size(1),)),
        lambda x: x.sigmoid().bernoulli(),
        lambda x: torch.empty_like(x).normal_(),
        lambda x: torch.empty_like(x).uniform_(0, 2),
        lambda x: F.gumbel_softmax(x, dim=-1),
        lambda x: (torch.rand(3), x)[1],  # nobody reads it, but the generator moves
        lambda x: F.rrelu(x, training=True),
        lambda x: F.feature_dropout(x[:, :, None], 0.5, training=True) if hasattr(F, "feature_dropout") else x,
    ],
)
def test_random_numbers_come_from_the_same_stream(fn: Any) -> None:
    _, seen = agree(fn, (R(4, 3),), (R(2, 5),), (R(1, 1),), (R(7, 2),))
    assert "equal" in seen[1:]


def test_tracing_draws_no_random_numbers() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    symshape.trace(lambda x: F.dropout(x + torch.rand(x.shape)), torch.ones(3))
    assert torch.equal(before, torch.get_rng_state())


# -- gradients


def test_training_an_mlp() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 1))
    theirs = copy.deepcopy(ours)
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (ours, theirs)]
    traced = symshape.trace(ours, R(4, 5))
    for step, n in enumerate((4, 9, 1, 6, 2)):
        x, y = R(n, 5), R(n, 1)
        for served, optimiser in zip((traced, theirs), optimisers, strict=True):
            torch.manual_seed(step)
            optimiser.zero_grad()
            F.mse_loss(served(x), y).backward()
            optimiser.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.pow(2).sum(),
        lambda x: (x.softmax(-1) @ x.t()).logsumexp(0).sum(),
        lambda x: (x[:, : x.size(1) // 2] * 3).sum() + x.max(),
        lambda x: torch.cat([x, x.detach()]).cumsum(0).mean(),
        lambda x: F.layer_norm(x, x.shape[-1:]).abs().sum(),
        lambda x: x.reshape(-1).sort()[0][: x.size(0)].sum(),
    ],
)
def test_gradients_of_arguments(fn: Any) -> None:
    def gradient(served: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        served(x).backward()
        assert x.grad is not None
        return x.grad

    traced = symshape.trace(fn, R(3, 4).requires_grad_())
    for a, b in ((3, 4), (5, 2), (2, 6)):
        x = R(a, b)
        assert bits(gradient(traced, x)) == bits(gradient(fn, x))


def test_gradient_modes_inside() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            a = x * weight
            with torch.enable_grad():
                b = x * weight
        c = a + b
        return a, b, c, (x * weight).detach()

    traced, seen = agree(fn, (R(2, 3),), (R(5, 3),))
    assert seen == ["equal", "equal"]
    assert [each.requires_grad for each in traced(R(2, 3))] == [False, True, True, False]
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not traced.check(R(2, 3))
        assert "no_grad" in traced.explain(R(2, 3))[0]


def test_gradients_computed_inside() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * weight).pow(2).sum(), weight)[0]

    _, seen = agree(fn, (R(2, 3),), (R(5, 3),))
    assert seen == ["equal", "equal"]


def test_backward_inside_is_refused_and_leaves_nothing() -> None:
    weight = nn.Parameter(R(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        loss = (x * weight).sum()
        loss.backward()
        return loss

    with pytest.raises(UnsupportedError, match=r"calls backward\(\)"):
        symshape.trace(fn, R(2, 3))
    assert weight.grad is None


def test_a_custom_gradient_is_not_lost() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * 2

    weight = nn.Parameter(R(3))
    with pytest.raises(UnsupportedError, match="Double"):
        symshape.trace(lambda x: Double.apply(x * weight) + 1, R(3))
    with torch.no_grad():
        agree(lambda x: Double.apply(x * weight) + 1, (R(3),))


# -- autocast


def test_autocast() -> None:
    linear = nn.Linear(4, 4)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low = linear(x)
        with torch.autocast("cpu", enabled=False):
            full = linear(x)
        return low, full, low + full, F.softmax(low, -1)

    with torch.autocast("cpu"):
        traced, seen = agree(fn, (R(3, 4),), (R(6, 4),))
        assert seen == ["equal", "equal"]
        assert type(linear(R(3, 4))) is torch.Tensor  # no symbolic cast of the weight stayed in autocast's cache
        assert traced(R(3, 4))[0].dtype is torch.bfloat16
    assert "autocast" in traced.explain(R(3, 4))[0]
    entered, seen = agree(lambda x: _under_autocast(linear, x), (R(3, 4),), (R(6, 4),))
    assert seen == ["equal", "equal"]
    assert entered(R(2, 4)).dtype is torch.bfloat16


def _under_autocast(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return linear(x)  # type: ignore[no-any-return]


def test_a_cast_made_before_the_trace_is_no_constant() -> None:
    linear = nn.Linear(4, 4)
    with torch.autocast("cpu"):
        linear(R(3, 4))
        traced = symshape.trace(linear, R(3, 4))
        assert [each.tensor for each in traced.graph.lifted] == [linear.weight, linear.bias]
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
    with torch.autocast("cpu"):
        assert not traced(R(3, 4)).any()


# -- constants


def test_constants_start_afresh_in_each_run() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([1.0, 2.0])
        table += x.sum()
        return table

    traced, _ = agree(fn, (R(3),), (R(5),))
    x = torch.ones(2)
    assert torch.equal(traced(x), traced(x))


def test_known_constants_follow_writes() -> None:
    def through_a_view(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(1)
        number.view(1).add_(1)
        return x * number.item()

    def through_out(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(1)
        torch.add(number, 1, out=number)
        return x * number.item()

    for fn in (through_a_view, through_out):
        _, seen = agree(fn, (torch.ones(3),), (torch.ones(5),))
        assert seen == ["equal", "equal"]


def test_known_constants_are_plain_numbers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(2)
        if number.item() > 1 and int(number) == 2:
            return x * float(number)
        return x

    traced, _ = agree(fn, (R(3),), (R(5),))
    assert not traced.guards


def test_dead_code_is_left_out_unless_it_can_refuse() -> None:
    index = torch.tensor([0])
    traced = symshape.trace(lambda x: (x.sin(), x[index], x + 1)[2], R(3))
    assert [str(node.op) for node in traced.graph.nodes] == ["aten.index.Tensor", "aten.add.Tensor"]
    index.fill_(9)
    with pytest.raises(IndexError):
        traced(R(3))
