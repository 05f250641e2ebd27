"""Hooks that a program gives autograd, and those that stand around a compiled call: eager's
gradients, and as often.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks
from torch.nn.modules import module as modules
from torch.utils.checkpoint import checkpoint

import symshape
from symshape import UnsupportedError

R = torch.randn
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    register = torch.autograd.function._HookMixin.__dict__["_register_hook"]
    push = torch._C._autograd._push_saved_tensors_default_hooks
    CALLS.clear()
    yield
    assert torch.autograd.function._HookMixin.__dict__["_register_hook"] is register
    assert torch._C._autograd._push_saved_tensors_default_hooks is push
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def trained(
    made: Callable[[], Any], served: Callable[[Any], Any], sizes: tuple[int, ...] = (3, 4, 5, 3)
) -> list[Any]:
    """What is seen where something made is called and trained: its results, gradients, state and
    the calls of hooks.
    """
    torch.manual_seed(0)
    CALLS.clear()
    model = made()
    run = served(model)
    seen: list[Any] = []
    for rows in sizes:
        model.zero_grad()
        x = R(rows, 4, requires_grad=True)
        y = run(x)
        y.square().sum().backward()
        gradients = [x.grad, *(each.grad for each in model.parameters())]
        state = [each.clone() for each in model.state_dict().values()]
        seen.append((y.detach(), gradients, state, [ord(each[0]) for each in CALLS], torch.rand(1)))
    return seen


def equal(
    made: Callable[[], Any], served: Callable[[Any], Any] = lambda model: model
) -> symshape.CompiledFunction:
    """Holds a compiled model against eager; the compiled one."""
    found: list[Any] = []

    def compiled(model: Any) -> Any:
        found.append(symshape.compile(model))
        return served(found[-1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        torch.testing.assert_close(trained(made, compiled), trained(made, served), rtol=0, atol=0)
    return symshape.compiled_of(found[0])


def _doubled(module: Any, inputs: Any, outputs: Any) -> Any:
    CALLS.append("backward")
    return tuple(None if each is None else each * 2 for each in inputs)


def _with_module_hook() -> nn.Module:
    model = net()
    model[0].register_full_backward_hook(_doubled)
    return model


def _with_pre_hook() -> nn.Module:
    model = net()
    model.register_full_backward_pre_hook(
        lambda module, outputs: tuple(each * 3 for each in outputs)
    )
    return model


class _Own(nn.Module):
    """Does something with its inner result."""

    def __init__(self, what: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.net = net()
        self.what = what

    def forward(self, x: torch.Tensor) -> Any:
        y = self.net(x)
        self.what(y)
        return y.sin()


def _tripled(outputs: Any) -> Any:
    return tuple(each * 3 for each in outputs)


@pytest.mark.parametrize(
    "made",
    [
        _with_module_hook,
        _with_pre_hook,
        lambda: _Own(
            lambda y: y.grad_fn.register_hook(lambda inputs, outputs: CALLS.append("node"))
        ),
        lambda: _Own(lambda y: y.grad_fn.register_prehook(_tripled)),
        lambda: _Own(lambda y: y.grad_fn.next_functions[0][0].register_prehook(_tripled)),
    ],
)
def test_hooks_on_nodes_are_called(made: Callable[[], nn.Module]) -> None:
    equal(made)
    with pytest.raises(UnsupportedError, match="hooks on autograd nodes"):
        symshape.trace(made(), R(3, 4, requires_grad=True))


def test_a_global_hook_of_modules() -> None:
    handle = modules.register_module_full_backward_hook(_doubled)
    try:
        equal(net)
    finally:
        handle.remove()


def test_a_hook_that_is_removed_is_none() -> None:
    compiled = equal(
        lambda: _Own(lambda y: y.grad_fn.register_hook(lambda *_: CALLS.append("node")).remove())
    )
    assert compiled.stats().fallbacks == 0


def test_hooks_of_what_runs_inside() -> None:
    """Backward inside the program calls them while it is traced; there is nothing to refuse."""

    def made() -> Any:
        model = net()
        model[2].register_full_backward_hook(
            lambda module, inputs, outputs: tuple(each * 2 for each in inputs)
        )

        def step(x: torch.Tensor) -> Any:
            model.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss, [each.grad for each in model.parameters()]

        return step

    compiled, step = symshape.compile(made(), fullgraph=True), made()
    for rows in (3, 4, 5):
        x = R(rows, 4)
        torch.testing.assert_close(compiled(x), step(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_trace_leaves_no_hook_on_a_parameter(kind: str) -> None:
    def made() -> nn.Module:
        model = _Own(lambda y: None)
        weight = model.net[0].weight
        model.what = lambda y: getattr(weight, kind)(lambda gradient: CALLS.append(kind))
        return model

    equal(made)


# -- registers saved-tensor hooks


class _Within(nn.Module):
    def __init__(self, around: Callable[[], Any]) -> None:
        super().__init__()
        self.net = net()
        self.around = around

    def forward(self, x: torch.Tensor) -> Any:
        with self.around():
            return self.net(x)


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    CALLS.append("pack")
    return tensor * 2


def _unpacked(tensor: torch.Tensor) -> torch.Tensor:
    CALLS.append("unpack")
    return tensor


def test_hooks_on_what_is_saved_are_called() -> None:
    equal(lambda: _Within(lambda: saved_tensors_hooks(_packed, _unpacked)))
    with pytest.raises(UnsupportedError, match="registers saved-tensor hooks"):
        symshape.trace(
            _Within(lambda: saved_tensors_hooks(lambda t: t * 2, lambda t: t)),
            R(3, 4, requires_grad=True),
        )
    with pytest.raises(UnsupportedError, match="registers saved-tensor hooks"):
        symshape.trace(_Within(allow_mutation_on_saved_tensors), R(3, 4, requires_grad=True))


def test_without_gradients_they_have_nothing_to_do() -> None:
    around = _Within(lambda: saved_tensors_hooks(lambda t: t * 2, lambda t: t))
    with torch.no_grad():
        symshape.trace(around, R(3, 4))
    assert equal(lambda: _Within(save_on_cpu)).stats().fallbacks == 0


@pytest.mark.parametrize("around", [save_on_cpu, lambda: saved_tensors_hooks(_packed, _unpacked)])
def test_hooks_around_a_call_see_what_its_graph_saves(around: Callable[[], Any]) -> None:
    """Those of the call that is traced as those of any other."""

    def served(model: Any) -> Any:
        def run(x: torch.Tensor) -> Any:
            with around():
                return model(x)

        return run

    assert equal(net, served).stats().fallbacks == 0


def test_a_hook_around_a_call_that_fails() -> None:
    def packed(tensor: torch.Tensor) -> Any:
        CALLS.append("pack")
        raise ValueError("full")

    compiled = symshape.compile(net())
    for _ in range(2):
        with pytest.raises(ValueError, match="full"), saved_tensors_hooks(packed, lambda t: t):
            compiled(R(3, 4))
    assert CALLS == ["pack", "pack"]


# -- checkpoints


def _with_dropout() -> nn.Module:
    return nn.Sequential(*net(), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5))


def _with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4))


@pytest.mark.parametrize("made", [net, _with_dropout, _with_batch_norm])
@pytest.mark.parametrize(
    "around",
    [
        lambda model: lambda x: checkpoint(model, x, use_reentrant=False),
        lambda model: lambda x: checkpoint(model, x, use_reentrant=True),
        lambda model: lambda x: checkpoint(model, x, use_reentrant=False, preserve_rng_state=False),
        lambda model: (
            lambda x: checkpoint(lambda each: model(each.exp()).sin(), x, use_reentrant=False)
        ),
        lambda model: (
            lambda x: checkpoint(
                lambda each: checkpoint(model, each.exp(), use_reentrant=False).sin(),
                x,
                use_reentrant=False,
            )
        ),
    ],
)
def test_checkpoints_around_a_compiled_model(made: Any, around: Any) -> None:
    """What is computed again ends with an error of the checkpoint's, which is none of the
    program's.
    """
    assert equal(made, around).stats().fallbacks == 0


class _Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.inner, x.exp(), use_reentrant=False)


def test_a_checkpoint_inside() -> None:
    assert equal(lambda: _Checkpointed(_with_dropout())).stats().fallbacks == 0


class _Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS.append("forward")
        return x.tanh()


@pytest.mark.parametrize("made", [_with_batch_norm, _Counting])
def test_a_checkpoint_inside_that_writes(made: Callable[[], nn.Module]) -> None:
    """Backward writes again."""
    equal(lambda: _Checkpointed(made()))
    with pytest.raises(UnsupportedError, match="writes again"):
        symshape.trace(_Checkpointed(_with_batch_norm()), R(3, 4, requires_grad=True))


def test_a_checkpoint_in_a_step_that_returns_its_loss() -> None:
    model = net()
    optimiser = torch.optim.Adam(model.parameters(), 0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = checkpoint(model, x, use_reentrant=False, preserve_rng_state=False).square().sum()
        loss.backward()
        optimiser.step()
        return loss  # type: ignore[no-any-return]

    compiled = symshape.compile(step, fullgraph=True)
    for rows in (3, 4, 5):
        assert compiled(R(rows, 4)).requires_grad


def _layers() -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    return nn.Linear(4, 8), nn.Linear(8, 1)


def _halved(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    hidden = first(x)
    hidden.register_hook(lambda gradient: gradient * 0.5)
    loss = last(hidden.relu()).square().mean()
    loss.backward()
    return loss.detach()


def _before_and_after_a_write(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    hidden = first(x)
    hidden.register_hook(lambda gradient: gradient * 3)
    hidden.mul_(2)
    hidden.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    hidden.register_hook(lambda gradient: gradient + 5).remove()
    loss = last(hidden.relu()).square().mean()
    loss.backward()
    return loss.detach()


def _retained(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    hidden = first(x)
    hidden.retain_grad()
    last(hidden.relu()).square().mean().backward()
    return (hidden * hidden.grad).detach()


def _of_a_leaf(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    change = torch.zeros_like(x).requires_grad_()
    change.register_hook(lambda gradient: gradient * 3)
    last(first(x + change)).mean().backward()
    return change.grad


def _seen(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    norms: list[torch.Tensor] = []
    hidden = first(x)
    hidden.register_hook(lambda gradient: norms.append(gradient.norm()))
    return torch.autograd.grad(last(hidden).mean(), list(first.parameters())), norms[0]


@pytest.mark.parametrize("fn", [_halved, _before_and_after_a_write, _retained, _of_a_leaf, _seen])
def test_hooks_of_tensors_whose_backward_is_inside(fn: Callable[..., Any]) -> None:
    mine, theirs = _layers(), _layers()
    compiled = symshape.compile(lambda x: fn(*mine, x), fullgraph=True)
    for n in (3, 5, 2, 1, 7):
        x = torch.linspace(-1, 1, 4 * n).view(n, 4)
        torch.testing.assert_close(compiled(x), fn(*theirs, x), rtol=0, atol=0)
        for ours, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(ours.weight.grad, other.weight.grad, rtol=0, atol=0)
    assert compiled.stats().traces <= 3, "the second call finds gradients"


def _left(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    hidden = first(x)
    hidden.register_hook(lambda gradient: gradient * 0.5)
    return last(hidden).mean()


def _left_after_backward(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    loss = _left(first, last, x)
    loss.backward(retain_graph=True)
    return loss


def _retained_and_returned(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    hidden = first(x)
    hidden.retain_grad()
    last(hidden).mean().backward()
    return hidden


def _of_an_argument(first: nn.Linear, last: nn.Linear, x: torch.Tensor) -> Any:
    x.register_hook(lambda gradient: gradient * 3)
    return last(first(x)).mean()


@pytest.mark.parametrize(
    "fn", [_left, _left_after_backward, _retained_and_returned, _of_an_argument]
)
def test_hooks_of_tensors_whose_backward_is_the_callers_are_refused(fn: Callable[..., Any]) -> None:
    layers = _layers()
    compiled = symshape.compile(lambda x: fn(*layers, x), fullgraph=True)
    with pytest.raises(UnsupportedError, match=r"hooks|retains its gradient|register_hook"):
        compiled(torch.ones(3, 4, requires_grad=fn is _of_an_argument))
