"""A compiled function whose caller runs the backward: results and gradients are eager's."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from guards.sets.codegen import compile_check
from symshape.errors import RunnerError
from symshape.runtime.runners.gradients.runner import GradientsRunner
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.protocol import Unfit

Tensors = tuple[torch.Tensor, ...]


class Encoder(nn.Module):
    """Attention, layer norm and a linear layer over (batch, length, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.attention = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.words(tokens)
        query, key, value = self.attention(hidden).view(*tokens.shape, 3, 2, 4).unbind(2)
        mixed = F.scaled_dot_product_attention(*(e.transpose(1, 2) for e in (query, key, value)))
        hidden = hidden + mixed.transpose(1, 2).reshape(hidden.shape)
        scores: torch.Tensor = self.head(F.gelu(self.norm(hidden)))
        return scores


def compiled(fn: Any, **options: Any) -> Any:
    return symshape.compile(fn, runner="padded", **options)


def runners(fn: Any) -> list[GradientsRunner]:
    entries = (symshape.compiled_of(fn) if isinstance(fn, nn.Module) else fn).entries
    return [each.runner for each in entries if isinstance(each.runner, GradientsRunner)]


def divided(fn: Any) -> GradientsRunner:
    """Return the last runner, which has forward and backward, both padded."""
    last = runners(fn)[-1]
    assert len(last.halves) >= 2, last.describe()
    assert {each.describe().split(",")[0] for _, each in last.halves} == {"padded"}
    return last


def close(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def same_gradients(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None and theirs.grad is not None:
            close(mine.grad, theirs.grad)
            assert mine.grad.stride() == theirs.grad.stride()


def tokens(*sizes: int) -> torch.Tensor:
    return torch.randint(0, 11, sizes)


RUNNER = GradientsRunner.__module__
SIZES = [(3, 5), (4, 6), (5, 7), (2, 9), (1, 8), (6, 4), (3, 1), (3, 5)]


def test_results_and_gradients_are_eagers_at_any_size() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for sizes in SIZES:
        given = tokens(*sizes)
        for each in (eager, mine):
            each.zero_grad()
        found, wanted = mine(given), eager(given)
        assert found.stride() == wanted.stride()
        close(found, wanted)
        for each in (found, wanted):
            F.cross_entropy(each.flatten(0, 1), given.flatten() % 5).backward()
        same_gradients(mine, eager)
    divided(mine)


def test_training_ends_with_eagers_parameters() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (eager, mine)]
    for step in range(12):
        given = tokens(2 + step % 4, 3 + step % 5)
        for each, optimizer in zip((eager, mine), optimizers, strict=True):
            optimizer.zero_grad()
            each(given).square().mean().backward()
            optimizer.step()
    divided(mine)
    for one, other in zip(mine.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_gradients_of_arguments() -> None:
    """Leaves, and tensors in the middle of a network whose weights lie before the function."""
    before, weight = nn.Linear(3, 3), nn.Parameter(torch.randn(3, 4))

    def middle(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight) * y

    mine = compiled(middle)
    for batch in (2, 3, 4, 5, 1):
        x, y = torch.randn(batch, 3), torch.randn(batch, 4)
        found = []
        for fn in (middle, mine):
            leaf = y.clone().requires_grad_()
            inner = before(x)
            result = fn(inner, leaf)
            found.append(
                torch.autograd.grad(result.sum(), (weight, leaf, inner, *before.parameters()))
            )
        close(*found)
    divided(mine)


def _heads(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> Tensors:
    one, two, three = weights
    first, second = torch.tanh(x @ one), torch.tanh(y @ two)
    shifted = three + 1.0  # nothing is saved for its backward
    return first, second, second.sin() * 2.0, (x @ three).exp(), shifted.sin(), shifted.cos()


def _gradients(fn: Any, *groups: Sequence[int], write: int | None = None) -> list[Any]:
    """Return the errors of a backward for each group of results, and the gradients after them."""
    torch.manual_seed(5)
    weights = [nn.Parameter(torch.randn(3, 4)) for _ in range(3)]
    for batch in (2, 3, 4):
        fn(torch.ones(batch, 3), torch.ones(batch, 3), *weights)[0].sum().backward()
    weights = [nn.Parameter(torch.randn(3, 4)) for _ in range(3)]
    results = fn(torch.randn(5, 3), torch.randn(5, 3), *weights)
    errors = ""
    for group in groups:
        try:
            sum(results[place].sum() for place in group).backward()  # type: ignore[union-attr]
        except RuntimeError as error:
            errors += f"{group}: {str(error)[:30]}; "
        if write is not None:
            with torch.no_grad():
                weights[write].mul_(2.0)
    return [errors, [each.grad for each in weights]]


@pytest.mark.parametrize(
    "groups",
    [
        ((0,), (1,)),
        ((1,), (0,), (3,)),
        ((0,), (1, 3)),
        ((0, 3), (2,)),
        ((0,), (1,), (2,)),  # the last two share what forward made
        ((0,), (0,)),
        ((0, 1, 2, 3), (0,)),
        ((1,), (2,), (0,), (3,), (3,)),
        ((4,), (5,), (3,)),
        ((3, 5), (4,), (4,)),
    ],
)
def test_results_that_share_nothing_have_a_backward_each(groups: Any) -> None:
    mine = compiled(_heads)
    (errors, found), (wanted_errors, wanted) = (
        _gradients(mine, *groups),
        _gradients(_heads, *groups),
    )
    assert errors == wanted_errors
    close(found, wanted)
    assert len(runners(mine)[-1].halves) > 2


@pytest.mark.parametrize("write", [0, 1, 2])
def test_between_the_backwards_of_two_results_something_is_written(write: int) -> None:
    """Eager has not saved the weights of the others, only their results."""
    mine, groups = compiled(_heads), ((0,), (1,), (3,))
    found, wanted = (_gradients(fn, *groups, write=write) for fn in (mine, _heads))
    assert found[0] == wanted[0] == ""
    close(found[1], wanted[1])


def test_between_the_backwards_of_two_results_what_one_needs_is_written() -> None:
    mine = compiled(_heads)
    _gradients(mine, (0,))
    for fn in (_heads, mine):
        x, y = torch.randn(5, 3), torch.randn(5, 3)
        first, second, *_ = fn(x, y, *(nn.Parameter(torch.randn(3, 4)) for _ in range(3)))
        first.sum().backward()
        y.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            second.sum().backward()


def _hooked(fn: Any, how: str, tensor: str) -> list[Any]:
    """Return the gradients where a hook on an argument or a parameter changes them."""
    for size in (2, 3, 4):
        fn(torch.ones(size, 4, requires_grad=True))[1].sum().backward()
    fn.weight.grad = None
    leaf = torch.linspace(0.1, 1.0, 20).view(5, 4).requires_grad_()
    x = leaf * 2 if tensor == "inner" else leaf
    if tensor == "kept":
        x = leaf * 2
        x.retain_grad()
    if tensor != "weight":
        x.register_hook(lambda grad: grad * 10)
    results = fn(x)
    if tensor == "weight":  # before the call it would be seen
        fn.weight.register_hook(lambda grad: grad * 10)
    if how == "graph":
        made = torch.autograd.grad(results[0].sum(), (leaf, fn.weight), create_graph=True)
        (sum(each.square().sum() for each in made) + results[1].sum()).backward()  # type: ignore[union-attr]
    else:
        if tensor in ("leaf", "weight"):  # else the first one frees what made ``x``
            results[0].sum().backward()
        results[1].sum().backward()
    return [leaf.grad, x.grad if tensor == "kept" else None, fn.weight.grad]


@pytest.mark.parametrize("how", ["graph", "apart", "unfit"])
@pytest.mark.parametrize("tensor", ["leaf", "inner", "kept", "weight"])
def test_hooks_run_once(how: str, tensor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), 0.5))

        def forward(self, x: torch.Tensor) -> Tensors:
            return (x * self.weight).exp(), (x + self.weight).sin()

    eager = Two()
    mine = compiled(copy.deepcopy(eager))
    if how == "unfit":

        def none(*given: Any) -> Any:
            raise Unfit("no backward of one result")

        monkeypatch.setattr(f"{RUNNER}.backward_of", none)
    close(_hooked(mine, how, tensor), _hooked(eager, how, tensor))
    divided(mine)


def test_a_result_without_backward_holds_nothing() -> None:
    """No cycle: memory of a device is freed at once, without the garbage collector."""
    mine = compiled(lambda x: (x.softmax(-1), x.sin()))
    seen = []
    gc.disable()
    try:
        for batch in (2, 3, 4, 5, 6):
            results = mine(torch.randn(batch, 3, requires_grad=True))
            results[1].sum().backward()
            called = getattr(results[0].grad_fn, "called", None)
            seen += [] if called is None else [weakref.ref(called)]
            del results, called
        assert len(seen) > 2
        assert all(each() is None for each in seen)
    finally:
        gc.enable()


def test_nothing_is_kept_for_a_result_that_shares_its_backward() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Tensors:
        scores = torch.tanh(x @ w)
        return scores.square().mean(), scores

    mine, w = compiled(program), nn.Parameter(torch.randn(3, 4))
    for batch in (2, 3, 4, 5):
        loss, scores = mine(torch.randn(batch, 3), w)
        loss.backward()
    assert not scores.grad_fn.called.saved.results
    assert not scores.grad_fn.called.leaves
    with pytest.raises(RuntimeError, match="a second time"):
        scores.sum().backward()


def test_a_sparse_gradient_of_a_result() -> None:
    mine = compiled(lambda x: x * 2.0)
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 3, requires_grad=True)
        F.embedding(torch.tensor([1, 0, 1]), mine(x), sparse=True).sum().backward()
        assert x.grad is not None
        close(
            x.grad.to_dense(),
            torch.tensor([2.0, 4.0] + [0.0] * (batch - 2))[:, None].expand(batch, 3),
        )


class Shifted(nn.Module):
    """Adds a tensor that eager does not read in backward."""

    shift: torch.Tensor

    def __init__(self, *, learned: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        if learned:
            self.shift = nn.Parameter(torch.ones(4))
        else:
            self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        shifted = torch.cat((hidden + self.shift, hidden * 2.0), 1)
        return shifted.square().sum(1) + hidden.sin().sum(1)


def _halved(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.mul_(0.5)


def _halved_unseen(tensor: torch.Tensor) -> None:
    tensor.data.mul_(0.5)


def _replaced(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(4)


@pytest.mark.parametrize("write", [_halved, _halved_unseen, _replaced])
@pytest.mark.parametrize("learned", [False, True])
def test_what_eager_does_not_need_in_backward_may_be_written_to(learned: bool, write: Any) -> None:
    eager = Shifted(learned=learned)
    mine = compiled(copy.deepcopy(eager))
    for batch in (2, 3, 4, 5):
        for each in (eager, mine):
            each.zero_grad()
            found = each(torch.full((batch, 4), 0.5))
            if batch == 5:
                write(each.state_dict(keep_vars=True)["shift"])
            found.sum().backward()
        same_gradients(mine, eager)
    divided(mine)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("seen", [False, True])
def test_what_one_result_reads_in_backward_is_not_read_for_another(
    between: bool, seen: bool
) -> None:
    def program(x: torch.Tensor, scale: torch.Tensor) -> Tensors:
        return (x * scale.exp()).sum(), (scale * scale).sin().sum()

    mine = compiled(program)
    for batch in (2, 3, 4, 5):
        found = []
        for fn in (program, mine):
            x = torch.linspace(0.0, 1.0, batch * 4).view(batch, 4).requires_grad_()
            scale = torch.full((4,), 0.5).requires_grad_()
            first, second = fn(x, scale)
            if between:
                second.backward()
            if seen:
                with torch.no_grad():
                    scale.add_(1.0)
            else:
                scale.data.add_(1.0)
            first.backward()
            found.append((x.grad, scale.grad))
        close(*found)
    assert runners(mine)[-1].halves


@pytest.mark.parametrize("seen", [False, True])
def test_a_result_is_written_to_before_the_backward_of_another(seen: bool) -> None:
    def program(x: torch.Tensor) -> Tensors:
        made = x.exp()
        return made, (made.detach() + 1) * x

    mine = compiled(program)
    for batch in (2, 3, 4, 5):
        found = []
        for fn in (program, mine):
            x = torch.linspace(0.1, 1.0, batch * 3).view(batch, 3).requires_grad_()
            first, second = fn(x)
            if seen:
                with torch.no_grad():
                    first.mul_(3.0)
            else:
                first.data.mul_(3.0)
            second.sum().backward()
            found.append(x.grad)
        close(*found)
    assert runners(mine)[-1].halves


@pytest.mark.parametrize("first", [False, True])
def test_a_step_of_one_model_before_the_backward_of_another(first: bool) -> None:
    """As an actor and a critic in one function: eager's backward of one reads nothing of both."""
    models = nn.Linear(4, 3), nn.Linear(4, 3)
    eager = nn.ModuleList(models)
    twin = copy.deepcopy(eager)

    def both(modules: nn.ModuleList) -> Any:
        actor, critic = modules
        return lambda x: (actor(x).sin().sum(), critic(x).exp().sum())

    mine, theirs = compiled(both(twin)), both(eager)
    for batch in (2, 3, 4, 5):
        found = []
        for fn, modules in ((theirs, eager), (mine, twin)):
            x = torch.full((batch, 4), 0.1).requires_grad_()
            one, other = fn(x)
            if first:
                one.backward(retain_graph=True)
            with torch.no_grad():
                modules[0].weight.mul_(0.9)
            other.backward()
            found.append([x.grad, *(each.grad for each in modules.parameters())])
            modules.zero_grad()
        close(*found)
    assert runners(mine)[-1].halves


def _rows_of_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As models of transformers read a mask: its length is known by comparisons of the code."""
    rows = mask.view(x.shape[0], -1)
    if rows.shape[1] > x.shape[1]:
        raise ValueError("the mask is too long")
    if x.shape[1] - rows.shape[1] > 0:
        raise ValueError("the mask is too short")
    return x.masked_fill(rows[:, :, None] == 0, 0.0)


def _half_of_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mask is at least twice as long."""
    if mask.shape[1] // 2 < x.shape[1]:
        raise ValueError("the mask is too short")
    return x * mask[:, : x.shape[1], None]


def _short(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The length is bounded by a number."""
    positions = torch.arange(min(x.shape[1], 64))
    if x.shape[1] > 64:
        raise ValueError("too long")
    return x[:, positions] * mask[:, : x.shape[1], None]


@pytest.mark.parametrize("masked", [_rows_of_mask, _half_of_mask, _short])
def test_what_the_code_compares_is_known_in_forward_and_backward(masked: Any) -> None:
    weight = nn.Parameter(torch.randn(4, 4))

    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.tanh(masked(x @ weight, mask)).sum(1)

    mine = compiled(program)
    for batch, length in ((3, 5), (4, 6), (5, 9), (2, 3), (7, 4), (1, 8)):
        x = torch.randn(batch, length, 4)
        mask = torch.randint(0, 2, (batch, length * (2 if masked is _half_of_mask else 1)))
        found = []
        for fn in (program, mine):
            (gradient,) = torch.autograd.grad(fn(x, mask).square().sum(), (weight,))
            found.append(gradient)
        close(*found)
    for _, runner in divided(mine).halves:
        assert isinstance(runner, PaddedRunner)
        assert runner.buckets
        assert not runner.refusals


def test_a_gradient_that_nobody_asked_for_is_not_made() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Tensors:
            hidden = torch.relu(self.trunk(x))
            return self.left(hidden), self.right(hidden), hidden.detach() * 2, hidden.argmax(1)

    eager = Two()
    mine = compiled(copy.deepcopy(eager))
    for batch, used in ((2, (0, 1)), (3, (0, 1)), (4, (0,)), (5, (1,)), (6, (0, 1))):
        x = torch.randn(batch, 3)
        for each in (eager, mine):
            each.zero_grad()
            results = each(x)
            assert [e.requires_grad for e in results] == [True, True, False, False]
            sum(results[place].sin().sum() for place in used).backward()
        same_gradients(mine, eager)
    assert len(divided(mine).halves) == 4  # forward, and three times backward


def test_what_is_infinite_on_the_way_to_an_unused_result() -> None:
    """Zeros for its gradient would become NaN."""
    weight = nn.Parameter(torch.ones(4))

    def fn(x: torch.Tensor) -> Tensors:
        hidden = x * weight
        return hidden * 3, (1 / hidden).log().sqrt()

    mine = compiled(fn)
    for batch, used in ((3, 0), (4, 0), (5, 0), (2, 1), (6, 0), (7, 1)):
        x = torch.zeros(batch, 4) if used == 0 else torch.rand(batch, 4) / 2
        found = []
        for each in (fn, mine):
            leaf = x.clone().requires_grad_()
            found.append(torch.autograd.grad(each(leaf)[used].sum(), (leaf, weight)))
            assert all(e.isfinite().all() for e in found[-1])
        close(*found)
    assert len(divided(mine).halves) == 4


def test_what_depends_on_a_filled_gradient_alone_is_absent() -> None:
    """Zeros are made where a split needs them; its other users still have no gradient."""
    weight, scale = nn.Parameter(torch.randn(3, 6)), nn.Parameter(torch.randn(3))

    def fn(x: torch.Tensor, z: torch.Tensor) -> Tensors:
        scaled = z * scale  # before the split: backward comes to it later
        left, right = (x @ weight).split(3, 1)
        return left.sin(), right + scaled

    mine = compiled(fn)
    for batch in (2, 3, 4, 5):
        x, z = torch.randn(batch, 3), torch.full((batch, 3), torch.inf)
        found = [
            torch.autograd.grad(each(x, z)[0].sum(), (weight, scale), allow_unused=True)
            for each in (fn, mine)
        ]
        close(found[1][0], found[0][0])
        assert found[0][1] is None
        assert found[1][1] is None
    divided(mine)


def test_an_unused_part_of_a_split() -> None:
    """The gradient of what was split is made of zeros for it."""
    weight = nn.Parameter(torch.randn(3, 6))

    def fn(x: torch.Tensor) -> Tensors:
        left, right = (x @ weight).split(3, 1)
        return left.sin(), right.cos()

    mine = compiled(fn)
    for batch, used in ((3, 0), (4, 0), (5, 1), (2, 1), (6, 0), (1, 1)):
        x = torch.randn(batch, 3)
        found = [torch.autograd.grad(each(x)[used].sum(), weight) for each in (fn, mine)]
        close(*found)
    assert len(divided(mine).halves) == 4


def test_calls_before_their_backward_keep_their_own_tensors() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for each in (eager, mine):
        torch.manual_seed(0)
        for _ in range(3):
            each.zero_grad()
            losses = [each(tokens(b, t)).square().sum() for b, t in ((3, 4), (5, 6), (3, 4))]
            (losses[0] * 2 + losses[1] + losses[2] * 3).backward()
    divided(mine)
    same_gradients(mine, eager)


def test_a_backward_again() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for size in (2, 3, 4):
        given = tokens(size, 5)
        for each in (eager, mine):
            each.zero_grad()
            loss = each(given).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        same_gradients(mine, eager)
    divided(mine)


def test_a_backward_again_where_nothing_is_saved() -> None:
    mine = compiled(lambda x: x.cumsum(0))
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 2, requires_grad=True)
        result = mine(x)
        seed = torch.randn_like(result)
        once = torch.autograd.grad(result, x, seed)
        close(torch.autograd.grad(result, x, seed), once)
        close(torch.autograd.grad(result, x, seed, create_graph=True), once)
    divided(mine)


def test_a_late_backward_of_a_program_that_was_released() -> None:
    weight = nn.Parameter(torch.randn(3, 4))

    def fn(x: torch.Tensor) -> Tensors:
        hidden = torch.tanh(x @ weight)
        return hidden.sin(), hidden.cos()

    mine = compiled(fn)
    for batch in (2, 3, 4):
        (mine(torch.randn(batch, 3))[0] + 1).sum().backward()
    x = torch.randn(5, 3)
    last, results = divided(mine), mine(x)
    last.release()
    for place in (0, 1):
        (found,) = torch.autograd.grad(results[place].sum(), weight, retain_graph=True)
        close(found, torch.autograd.grad(fn(x)[place].sum(), weight)[0])
    assert len(last.halves) == 3


def test_gradients_of_gradients() -> None:
    weight = nn.Parameter(torch.randn(3, 4))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight)

    mine = compiled(fn)
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 3)
        found = []
        for each in (fn, mine):
            leaf = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(each(leaf).sum(), leaf, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), (leaf, weight)))
        close(*found)
    divided(mine)


def test_gradients_of_gradients_of_other_numbers_are_refused() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    mine = compiled(
        lambda x: F.dropout(x @ weight, 0.5), options=symshape.Options(randomness="any")
    )
    for batch in (2, 3, 4):
        loss = mine(torch.randn(batch, 3)).square().sum()
        loss.backward()
    divided(mine)
    loss = mine(torch.randn(5, 3)).square().sum()
    with pytest.raises(RunnerError, match="random numbers"):
        torch.autograd.grad(loss, weight, create_graph=True)


def test_forward_and_backward_drop_the_same_elements() -> None:
    weight = nn.Parameter(torch.ones(4))
    mine = compiled(
        lambda x: F.dropout(x * weight, 0.5), options=symshape.Options(randomness="any")
    )
    for batch in (20, 30, 40, 50):
        x = torch.ones(batch, 4, requires_grad=True)
        found = mine(x)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert torch.equal(found.detach(), gradient)
        assert 0.2 < (gradient == 0).float().mean().item() < 0.8
    divided(mine)


def test_one_of_two_results_with_random_numbers() -> None:
    weight = nn.Parameter(torch.ones(4))

    def fn(x: torch.Tensor) -> Tensors:
        kept = F.dropout(x * weight, 0.5)
        return kept * 2, kept + weight

    mine = compiled(fn)
    for batch, used in ((20, 0), (30, 0), (40, 1), (50, 0)):
        x = torch.ones(batch, 4, requires_grad=True)
        found = mine(x)
        (gradient,) = torch.autograd.grad(found[used].sum(), x)
        drawn = found[0] / 2 if used == 0 else found[1] - 1
        torch.testing.assert_close(gradient, drawn.detach() * (2 if used == 0 else 1))
    assert len(divided(mine).halves) == 4


@pytest.mark.parametrize(
    "seed",
    [
        lambda y: torch.ones(()).expand(y.shape),
        lambda y: torch.randn(*reversed(y.shape)).t(),
        lambda y: torch.randn(y.shape[0], 2 * y.shape[1])[:, ::2],
        lambda y: torch.randn(*y.shape, dtype=torch.complex64).imag,
    ],
    ids=["expanded", "transposed", "every second", "imaginary"],
)
def test_gradients_of_results_of_any_layout(seed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    eager = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    mine = compiled(copy.deepcopy(eager))
    for batch in (2, 3, 4, 1):
        x = torch.randn(batch, 3)
        for each in (eager, mine):
            torch.manual_seed(batch)
            each.zero_grad()
            result = each(x)
            result.backward(seed(result))
        same_gradients(mine, eager)
    divided(mine)


def test_a_result_may_be_written_to() -> None:
    eager = nn.Linear(3, 4)
    mine = compiled(copy.deepcopy(eager))
    for batch in (2, 3, 4, 5):
        x = torch.randn(2, batch, 3)  # in eager the result is a view of a matrix product
        for each in (eager, mine):
            each.zero_grad()
            result = each(x)
            result += 1
            result.square_().sum().backward()
        same_gradients(mine, eager)
    divided(mine)


@pytest.mark.parametrize("what", ["argument", "parameter", "result"])
def test_a_write_before_backward_raises_as_in_eager(what: str) -> None:
    for fn in (compiled, lambda module: module):
        module = fn(nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.Sigmoid()))
        for batch in (2, 3, 4):
            module(torch.randn(batch, 3, requires_grad=True)).sum().backward()
        x = torch.randn(5, 3)
        result = module(x)
        with torch.no_grad():
            written = {"argument": x, "parameter": list(module.parameters())[2], "result": result}
            written[what].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_write_before_a_backward_that_is_differentiated_raises() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    mine = compiled(lambda x: x @ weight)
    for batch in (2, 3, 4):
        mine(torch.randn(batch, 3)).sum().backward()
    divided(mine)
    x = torch.randn(5, 3)
    result = mine(x)
    with torch.no_grad():
        weight.add_(1)  # which backward does not read
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result.sum(), weight, create_graph=True)


def test_saved_tensor_hooks_see_each_tensor() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for size in (2, 3, 4):
        mine(tokens(size, 5)).sum().backward()
    divided(mine)
    mine.zero_grad()
    counts = []
    for each in (eager, mine):
        packed = []

        def pack(tensor: torch.Tensor, packed: list[Any] = packed) -> torch.Tensor:
            packed.append(tensor.shape)
            return tensor

        torch.manual_seed(0)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            each(tokens(5, 5)).sum().backward()
        counts.append(len(packed))
    assert counts[1] > 5
    same_gradients(mine, eager)


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_a_checkpoint(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    eager = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    mine = compiled(copy.deepcopy(eager))
    for batch in (2, 3, 4, 5, 6):
        x = torch.randn(batch, 3)
        for each in (eager, mine):
            each.zero_grad()
            leaf = x.clone().requires_grad_()
            checkpoint(each, leaf, use_reentrant=reentrant).square().sum().backward()
        same_gradients(mine, eager)


def test_under_autocast() -> None:
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for size in (2, 3, 4, 5):
        given = tokens(size, 6)
        for each in (eager, mine):
            each.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                result = each(given)
            assert result.dtype == torch.bfloat16
            result.float().square().mean().backward()
        for one, other in zip(mine.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=0.1, atol=0.02)
    divided(mine)


def test_hooks_of_arguments_run_once() -> None:
    mine = compiled(lambda x: torch.tanh(x) * 3)
    seen: list[int] = []
    for batch in (2, 3, 4, 5):
        x = torch.ones(batch, requires_grad=True)
        x.register_hook(lambda gradient: seen.append(len(gradient)))
        mine(x).sum().backward()
    assert seen == [2, 3, 4, 5]
    divided(mine)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_under_torch_func_and_anomaly_mode() -> None:
    eager = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    mine = compiled(copy.deepcopy(eager))
    for batch in (2, 3, 4):
        mine(torch.randn(batch, 3)).sum().backward()
    divided(mine)
    x = torch.randn(5, 3)
    with torch.autograd.detect_anomaly(check_nan=False):
        close(
            *(torch.autograd.grad(e(x).sum(), list(e.parameters())) for e in (mine, eager)),
        )
    close(*(torch.func.grad(lambda x, e=e: e(x).sum())(x) for e in (mine, eager)))


@pytest.mark.parametrize("before", [False, True], ids=["later", "before the trace"])
def test_hooks_of_parameters_and_results_run_once(before: bool) -> None:
    seen: dict[str, list[str]] = {"eager": [], "mine": []}
    eager = nn.Linear(3, 4)
    mine = compiled(copy.deepcopy(eager))
    for name, each in (("eager", eager), ("mine", mine)):
        for batch in () if before else (2, 3, 4):
            each(torch.ones(batch, 3)).sum().backward()
        for key, parameter in each.named_parameters():
            key = key.rpartition(".")[2]

            def doubled(gradient: torch.Tensor, n: str = name, k: str = key) -> torch.Tensor:
                seen[n].append(k)
                return gradient * 2

            parameter.register_hook(doubled)
            parameter.register_post_accumulate_grad_hook(
                lambda p, n=name, k=key: seen[n].append(f"{k} done")
            )
        for batch in (2, 3, 4, 5):
            each.zero_grad()
            result = each(torch.ones(batch, 3))
            result.register_hook(lambda g, n=name: seen[n].append(str(tuple(g.shape))))
            result.sum().backward()
    assert sorted(seen["mine"]) == sorted(seen["eager"])
    same_gradients(mine, eager)
    assert "has hooks" in runners(mine)[-1].describe()  # the trace would run them too


def test_a_parameter_that_is_frozen_later() -> None:
    eager = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    mine = compiled(copy.deepcopy(eager))
    for batch in range(2, 9):
        if batch == 5:
            for each in (eager, mine):
                next(iter(each.parameters())).requires_grad_(False)
        x = torch.randn(batch, 3)
        for each in (eager, mine):
            each.zero_grad()
            each(x).square().sum().backward()
        same_gradients(mine, eager)
    assert len(runners(mine)) > 2


def test_programs_from_a_store(tmp_path: Path) -> None:
    """What is stored is the program; forward and backward are traced anew."""
    eager = Encoder()
    for _ in range(2):
        mine = compiled(copy.deepcopy(eager), options=symshape.Options(store=str(tmp_path)))
        for size in (2, 3, 4, 5):
            given = tokens(size, 6)
            for each in (eager, mine):
                each.zero_grad()
                each(given).square().mean().backward()
            same_gradients(mine, eager)
        divided(mine)
    assert symshape.compiled_of(mine).stats().loaded


def _patient(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Linear, Any, GradientsRunner]:
    """Return a layer, its compiled twin, and a runner that gives up after 6 calls."""
    linear = nn.Linear(3, 4)
    mine = compiled(linear)
    for batch in (2, 3, 4):
        mine(torch.randn(batch, 3)).sum().backward()
    last = divided(mine)
    monkeypatch.setattr(last, "_patient", True)
    monkeypatch.setattr(f"{RUNNER}._PATIENCE", 6)
    return linear, mine, last


def test_without_a_bucket_the_program_runs_op_by_op_again(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, mine, last = _patient(monkeypatch)
    monkeypatch.setattr(PaddedRunner, "buckets", ())
    for batch in range(2, 12):
        x = torch.randn(batch, 3)
        close(*(torch.autograd.grad(e(x).sin().sum(), linear.weight) for e in (mine, linear)))
    assert not last.halves
    assert "worth its price" in last.describe()


def test_what_loses_its_buckets_is_given_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, mine, last = _patient(monkeypatch)
    for batch in range(2, 20):
        mine(torch.randn(batch, 3)).sum().backward()
    assert last.halves
    for _, runner in last.halves:
        assert isinstance(runner, PaddedRunner)
        runner.release()
    for batch in range(2, 12):
        x = torch.randn(batch, 3)
        close(*(torch.autograd.grad(e(x).sin().sum(), linear.weight) for e in (mine, linear)))
    assert not last.halves


def test_pieces_with_buckets_are_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))

    def program(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x @ weights[0])
        return torch.tanh(torch.linalg.det(torch.tanh(hidden @ hidden.t())) + x @ weights[1])

    mine = compiled(program)
    for batch in (2, 3, 4):
        mine(torch.randn(batch, 4)).sum().backward()
    last = runners(mine)[-1]
    assert "pieces" in last.describe()
    monkeypatch.setattr(last, "_patient", True)
    monkeypatch.setattr(f"{RUNNER}._PATIENCE", 6)
    for batch in [*range(2, 9)] * 3:
        mine(torch.randn(batch, 4)).sum().backward()
    assert last.halves
    assert mine.stats().cuda_graphs
    last.release()
    assert not mine.stats().cuda_graphs


def _pin(monkeypatch: pytest.MonkeyPatch, batches: Sequence[int]) -> None:
    """Let each trace with backward hold for one batch alone, the next of these."""
    left, make = iter(batches), compile_check

    def pinned(guards: Any, names: Any) -> Any:
        check, batch = make(guards, names).check, next(left)
        return SimpleNamespace(check=lambda values: values[0] == batch and check(values))

    monkeypatch.setattr(f"{RUNNER}.compile_check", pinned)


def test_only_what_has_no_bucket_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _pin(monkeypatch, (3, 4))
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for sizes in ((2, 5), (3, 6), (4, 7)):
        mine(tokens(*sizes)).sum().backward()
    (one,) = [each for each in runners(mine) if each.halves]
    (first, second), kept = (one.halves[:2], one.halves[2:]), PaddedRunner.buckets
    assert len(second) == 2
    without = [runner for _, runner in second]
    buckets = property(lambda self: () if self in without else kept.__get__(self))
    monkeypatch.setattr(PaddedRunner, "buckets", buckets)
    monkeypatch.setattr(one, "_patient", True)
    monkeypatch.setattr(f"{RUNNER}._PATIENCE", 5)
    for length in range(3, 12):
        for batch in (3, 4, 5):
            given = tokens(batch, length)
            for each in (eager, mine):
                each.zero_grad()
                each(given).square().mean().backward()
            same_gradients(mine, eager)
    assert one.halves == first
    assert one.describe().count("forward (padded") == 1


def test_calls_for_which_the_first_trace_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace with backward may hold for one batch alone, where the program holds for all."""
    _pin(monkeypatch, (3, 4, 5))
    torch.manual_seed(0)
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))
    for sizes in ((2, 5), (3, 6), (4, 7), (3, 8), (5, 4), (6, 5), (4, 9), (3, 6)):
        given = tokens(*sizes)
        for each in (eager, mine):
            each.zero_grad()
            each(given).square().mean().backward()
        same_gradients(mine, eager)
    (one,) = [each for each in runners(mine) if each.halves]
    assert [program.name for program, _ in one.halves] == [
        program.name for program, _ in one.halves[:2]
    ] * 3
    assert one.describe().count("forward (padded") == 3
    assert all(isinstance(each, PaddedRunner) and each.buckets for _, each in one.halves)


def test_a_further_trace_takes_the_place_of_the_one_with_the_fewest_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _pin(monkeypatch, (3, 4, 5, 6, 7))
    torch.manual_seed(0)
    eager = Encoder()
    mine = compiled(copy.deepcopy(eager))

    def step(batch: int, length: int) -> None:
        given = tokens(batch, length)
        for each in (eager, mine):
            each.zero_grad()
            each(given).square().mean().backward()
        same_gradients(mine, eager)

    for batch, length in ((2, 5), (3, 6), (4, 7), (4, 6), (5, 8), (5, 9), (5, 4), (4, 9)):
        step(batch, length)
    (one,) = [each for each in runners(mine) if each.halves]
    first, rest = one.halves[:2], one.halves[2:]
    assert len(rest) == 4
    late = tokens(3, 5)
    losses = [each(late).square().mean() for each in (eager, mine)]  # the fewest calls
    for number in range(400):
        step(6, 3 + number % 7)
        if one.halves[:2] != first:
            break
    assert one.halves[:4] == rest
    assert len(one.halves) == 6
    step(6, 11)
    assert all(isinstance(each, PaddedRunner) and each.buckets for _, each in one.halves[4:])
    assert not any(each.buckets for _, each in first if isinstance(each, PaddedRunner))
    for each, loss in zip((eager, mine), losses, strict=True):
        each.zero_grad()
        loss.backward()
    same_gradients(mine, eager)
    before = one._offer
    assert before is not None
    for number in range(1600):
        step(7, 3 + number % 7)
        if one._offer is not before:
            break
    assert one._offer is not None
    assert one._offer.price == 2 * before.price > 0


def _two_results(x: torch.Tensor, buffer: torch.Tensor) -> Tensors:
    return (x * buffer).sin(), x.std(0)  # whose backward writes in place


@pytest.mark.parametrize("how", ["gradients of gradients", "op by op"])
@pytest.mark.parametrize("what", ["buffer", "frozen weight"])
def test_a_buffer_is_written_to_before_a_backward_that_runs_forward_again(
    how: str, what: str
) -> None:
    buffer = torch.ones(4)
    if what == "frozen weight":
        buffer = nn.Parameter(buffer, requires_grad=False)
    mine = compiled(lambda x: _two_results(x, buffer))
    for rows in (2, 3, 5):
        mine(torch.randn(rows, 4, requires_grad=True))[0].sum().backward()
    x = torch.randn(6, 4, requires_grad=True)
    for written in (False, True):
        first, _ = mine(x)
        if written:
            buffer.mul_(2)
            with pytest.raises(RuntimeError, match=r"a buffer of .*<lambda> was written to"):
                torch.autograd.grad(first.sum(), x, create_graph=how != "op by op")
        else:
            (found,) = torch.autograd.grad(first.sum(), x, create_graph=how != "op by op")
            close(found, torch.autograd.grad(_two_results(x, buffer)[0].sum(), x)[0])


def test_a_weight_is_given_other_memory_before_backward() -> None:
    """Eager has saved the old memory; a gradient with the new one would be wrong."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    mine = compiled(lambda x: model(x))
    for rows in (2, 3, 5):
        mine(torch.randn(rows, 4, requires_grad=True)).sum().backward()
    old, last = model[2].weight.data, model[2]
    loss = mine(torch.randn(7, 4, requires_grad=True)).sum()
    last.weight.data = torch.zeros(3, 6)
    with pytest.raises(RuntimeError, match="was given other memory"):
        loss.backward(retain_graph=True)
    last.weight.data = old
    loss.backward()


def test_a_second_backward_of_a_result_for_which_nothing_is_saved() -> None:
    def program(x: torch.Tensor) -> Tensors:
        return x + 1, x.sin()

    mine = compiled(program)
    for rows in (2, 3, 5):
        mine(torch.randn(rows, 4, requires_grad=True))[0].sum().backward()
    for fn in (program, mine):
        x = torch.ones(6, 4, requires_grad=True)
        first, second = fn(x)
        for _ in range(3):
            first.sum().backward()
        second.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            second.sum().backward()
        close(x.grad, 3 + torch.ones(6, 4).cos())


def test_a_weight_is_frozen_before_gradients_of_gradients() -> None:
    eager = nn.Linear(4, 3)
    mine = compiled(lambda x: eager(x).sin())
    for rows in (2, 3, 5):
        mine(torch.randn(rows, 4, requires_grad=True)).sum().backward()
    found = []
    for fn in (lambda x: eager(x).sin(), mine):
        x = torch.ones(6, 4, requires_grad=True)
        made = fn(x).sum()
        eager.weight.requires_grad_(False)
        (slope,) = torch.autograd.grad(made, x, create_graph=True)
        eager.weight.requires_grad_(True)
        found.append((slope, torch.autograd.grad(slope.square().sum(), x)[0]))
    close(*found)


def test_nothing_is_recorded_without_gradients() -> None:
    mine = compiled(Encoder())
    for size in (2, 3, 4, 5):
        with torch.no_grad():
            assert not mine(tokens(size, 5)).requires_grad
    assert not runners(mine)


def test_memory_is_freed_by_backward() -> None:
    linear = compiled(nn.Linear(3, 3))
    for size in (2, 3, 4):
        linear(torch.randn(size, 3)).sum().backward()
    given = torch.randn(3, 3)
    loss = linear(given).sum()
    alive = weakref.ref(given)
    del given
    gc.collect()
    assert alive() is not None  # backward needs it
    loss.backward()
    gc.collect()
    assert alive() is None  # though the loss is still there
    assert loss.requires_grad


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a view of an argument": (lambda x, w: (x @ w, x.t()), "shares memory"),
    "two views": (lambda x, w: (x @ w).split(1, 1), "shares memory"),
    "a size": (lambda x, w: (x @ w, x.shape[0]), "returns a number"),
    "a write": (lambda x, w: (x.mul_(2) @ w,), "writes to an argument"),
    "data": (lambda x, w: (x @ w)[x[:, 0] > 0], "reads data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_two_programs_runs_op_by_op(name: str) -> None:
    fn, reason = REFUSED[name]
    weight = nn.Parameter(torch.randn(3, 4))

    def both(x: torch.Tensor) -> Any:
        return fn(x, weight)

    mine = compiled(both)
    for batch in (2, 3, 4, 5):
        x = torch.randn(batch, 3)
        found = []
        for each in (both, mine):
            made = each(x.clone())
            made = made if isinstance(made, Sequence) else (made,)
            loss = sum(e.square().sum() for e in made if isinstance(e, torch.Tensor))
            found.append(torch.autograd.grad(loss, weight))
        close(*found)
    assert reason in mine.entries[-1].runner.describe()
