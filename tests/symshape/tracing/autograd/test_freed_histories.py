"""Results whose history has run backward inside: they require gradients, and to ask for them fails,
as in eager.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import symshape

R = torch.randn


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def _stepping(model: nn.Module, **how: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward(**how)
        return loss  # type: ignore[no-any-return]

    return step


def _outcome(loss: torch.Tensor, model: nn.Module) -> list[Any]:
    seen: list[Any] = [loss.detach(), loss.requires_grad, loss.is_leaf, loss.grad_fn is None]
    try:
        loss.backward()
    except RuntimeError as error:
        seen.append(str(error)[:50])
    return [*seen, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("how", [{}, {"retain_graph": True}])
def test_a_second_backward(how: dict[str, Any]) -> None:
    mine, theirs = _model(), _model()
    compiled, step = (
        symshape.compile(_stepping(mine, **how), fullgraph=True),
        _stepping(theirs, **how),
    )
    for rows in (3, 4, 5):
        x = R(rows, 4)
        assert repr(_outcome(compiled(x), mine)) == repr(_outcome(step(x), theirs))
    assert compiled.stats().traces == 2


def _scaled(model: nn.Module, x: torch.Tensor) -> Any:
    logits = model(x)
    loss = logits.square().mean()
    (loss / 4).backward()
    return logits, loss, loss * 2, loss.detach()


def _only_some(model: Any, x: torch.Tensor) -> Any:
    loss = model(x).square().mean()
    loss.backward(inputs=list(model[2].parameters()))
    return loss, model[0](x).sum()


def _asked_for(model: Any, x: torch.Tensor) -> Any:
    first = model[0](x)
    loss = model[2](first.tanh()).square().mean()
    return torch.autograd.grad(loss, first)[0], loss, first


@pytest.mark.parametrize("program", [_scaled, _only_some, _asked_for])
def test_what_leads_to_what_ran(program: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    mine, theirs = _model(), _model()
    compiled = symshape.compile(lambda x: program(mine, x), fullgraph=True)
    for rows in (3, 4, 5):
        x = R(rows, 4)
        seen = []
        for served, model in ((compiled, mine), (lambda x: program(theirs, x), theirs)):
            model.zero_grad()
            seen.append(
                [_outcome(each.sum() if each.requires_grad else each, model) for each in served(x)]
            )
        assert repr(seen[0]) == repr(seen[1])
    assert compiled.stats().traces == 2


def test_a_history_that_saved_nothing_is_not_spent() -> None:
    weight = nn.Parameter(R(4))

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = weight.sum() + x.sum()
        loss.backward()
        return loss

    compiled = symshape.compile(step, fullgraph=True)
    for rows in (3, 4, 5):
        weight.grad = None
        compiled(R(rows)).backward()
        assert torch.equal(weight.grad, torch.full((4,), 2.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_whatever_the_mode_of_the_call(mode: Any) -> None:
    mine, theirs = _model(), _model()
    compiled = symshape.compile(torch.enable_grad()(_stepping(mine)), fullgraph=True)
    step = torch.enable_grad()(_stepping(theirs))
    for rows in (3, 4):
        x = R(rows, 4)
        with mode():
            losses = compiled(x), step(x)
        assert repr(_outcome(losses[0], mine)) == repr(_outcome(losses[1], theirs))


def test_the_same_twice_and_its_views() -> None:
    model = _model()

    def step(x: torch.Tensor) -> Any:
        loss = model(x).square().sum()
        loss.backward()
        return loss, loss, loss.detach()

    one, two, three = symshape.compile(step, fullgraph=True)(R(3, 4))
    assert one is two
    assert one.data_ptr() == three.data_ptr()
    assert not three.requires_grad


def test_what_forward_computed_goes() -> None:
    """A loss that is kept keeps nothing else: eager's backward gave it back."""

    class Seen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

    compiled = symshape.compile(_stepping(nn.Sequential(_model(), Seen())), fullgraph=True)
    compiled(R(3, 4))
    x = R(3, 4)
    memory = StorageWeakRef(x.untyped_storage())
    loss = compiled(x)
    del x
    compiled(R(3, 4))
    gc.collect()
    assert memory.expired()
    assert loss.requires_grad


# -- gradients that come through what is given
TIED = torch.randn(4, 4, requires_grad=True)
THROUGH: dict[
    str, tuple[Callable[..., Any], Callable[[torch.Tensor], tuple[torch.Tensor, ...]]]
] = {
    "a weight": (
        lambda h: torch.autograd.grad((h @ TIED).sin().sum(), TIED),
        lambda x: (x @ TIED,),
    ),
    "an argument": (
        lambda h, x: torch.autograd.grad((h * x).sin().sum(), x),
        lambda x: ((x := x.requires_grad_()) * 2, x),
    ),
    "both": (
        lambda h, x: torch.autograd.grad(h.sin().sum(), [h, x], allow_unused=True),
        lambda x: ((x := x.requires_grad_()) * 2, x),
    ),
}


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("what", THROUGH)
def test_what_made_an_argument_may_lead_to_what_gradients_are_asked_of(what: str) -> None:
    """A graph has nothing of that: gradients were those of the program alone."""
    fn, given = THROUGH[what]
    compiled, strict = symshape.compile(fn), symshape.compile(fn, fullgraph=True)
    for n in (3, 5):
        leaves = tuple(each.detach().requires_grad_() for each in given(R(n, 4)))
        if what != "both":  # where eager, too, knows of no way to the other one
            for each in (compiled, strict):
                torch.testing.assert_close(each(*leaves), fn(*leaves))
        x = R(n, 4)
        torch.testing.assert_close(compiled(*given(x)), fn(*given(x)))
        with pytest.raises(
            symshape.UnsupportedError,
            match="backward passes through an argument that was itself computed with gradients",
        ):
            strict(*given(x))


def test_gradients_of_what_is_made_inside_and_of_a_made_argument_alone() -> None:
    def penalty(fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        between = fake * 0.3 + real * 0.7
        (found,) = torch.autograd.grad((between @ TIED).sin().sum(), between, create_graph=True)
        return found.norm(dim=1).sub(1).square().mean()

    def score(x: torch.Tensor) -> Any:
        return torch.autograd.grad((x * x).sin().sum(), x, create_graph=True)[0]

    for fn, number in ((penalty, 2), (score, 1)):
        compiled = symshape.compile(fn, fullgraph=True)
        for n in (3, 5, 2):
            given = [(R(n, 4) @ TIED) for _ in range(number)]
            torch.testing.assert_close(compiled(*given), fn(*given))
            mine, theirs = (
                torch.autograd.grad(each(*given).sum(), TIED, retain_graph=True)
                for each in (compiled, fn)
            )
            torch.testing.assert_close(mine, theirs)
        assert compiled.stats().traces == 2
