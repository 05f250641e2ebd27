"""Programs that compute gradients of recurrent layers: those of eager, at every length, with
nothing computed twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import symshape
from symshape.tracing.intercept.torch_functions import recurrent_ops

SHAPES = ((3, 5), (2, 9), (4, 2), (1, 7), (5, 5), (2, 1))
LAYERS: dict[str, dict[str, Any]] = {
    "LSTM": {},
    "GRU": {"num_layers": 2},
    "RNN": {"nonlinearity": "relu", "bias": False},
    "LSTM, both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "LSTM, projected": {"proj_size": 3, "batch_first": True},
    "GRU, both ways": {"bidirectional": True, "batch_first": True},
    "LSTM, dropout in eval": {"num_layers": 2, "dropout": 0.5},
}
Used = Callable[[torch.Tensor, Any], torch.Tensor]
USED: dict[str, Used] = {
    "all": lambda out, state: out.sin().sum() + sum(each.pow(2).sum() for each in _listed(state)),
    "the output": lambda out, _: out.cos().sum(),
    "the last state": lambda _, state: _listed(state)[0].pow(2).sum(),
    "the last cells": lambda _, state: _listed(state)[-1].pow(3).sum(),
}


def _listed(state: Any) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def _net(name: str) -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = getattr(nn, name.split(",")[0])(4, 6, **LAYERS[name])
    return net.eval() if "eval" in name else net


def _gradients(net: nn.Module, used: Used, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The loss, and the gradients of the input and of all parameters."""
    given = (x * 1).requires_grad_()
    loss = used(*net(given.tanh()))
    names = [name for name, _ in net.named_parameters()]
    found = torch.autograd.grad(loss, [given, *net.parameters()], allow_unused=True)
    named = dict(zip(["input", *names], found, strict=True))
    return {
        "loss": loss.detach(),
        **{name: grad for name, grad in named.items() if grad is not None},
    }


@pytest.fixture
def not_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers are not computed again for their gradients."""

    def again(*_: Any) -> Any:
        raise AssertionError("computed twice")

    monkeypatch.setattr(recurrent_ops, "layers", again)


def _check(mine: Callable[..., Any], net: nn.Module, used: Used) -> None:
    for batch, length in SHAPES:
        first = getattr(net, "batch_first", False)
        x = torch.randn(*((batch, length) if first else (length, batch)), 4)
        torch.testing.assert_close(mine(x), _gradients(net, used, x), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.usefixtures("not_twice")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("used", USED)
def test_gradients_are_those_of_eager(name: str, used: str) -> None:
    net = _net(name)
    mine: Any = symshape.compile(
        lambda x: _gradients(net, USED[used], x), dynamic=True, fullgraph=True
    )
    _check(mine, net, USED[used])
    assert mine.stats().traces <= 3  # autograd asks for sizes of one


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("runner", ["padded", "auto"])
def test_other_runners(name: str, runner: Any) -> None:
    net = _net(name)
    mine: Any = symshape.compile(
        lambda x: _gradients(net, USED["all"], x), dynamic=True, runner=runner
    )
    _check(mine, net, USED["all"])
    assert mine.stats().fallbacks == 0


@pytest.mark.usefixtures("not_twice")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind: str) -> None:
    torch.manual_seed(0)
    net = getattr(nn, kind)(4, 6, batch_first=True)

    def gradients(x: torch.Tensor, lengths: torch.Tensor) -> list[torch.Tensor]:
        out, state = net(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        loss = out.data.sin().sum() + _listed(state)[0].sum()
        return list(torch.autograd.grad(loss, list(net.parameters())))

    _check_packed(gradients)


@pytest.mark.usefixtures("not_twice")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("total", [None, 20])
def test_unpacked_sequences(kind: str, batch_first: bool, total: int | None) -> None:
    torch.manual_seed(0)
    net = getattr(nn, kind)(4, 6, batch_first=True)

    def gradients(x: torch.Tensor, lengths: torch.Tensor) -> list[torch.Tensor]:
        given = (x * 1).requires_grad_()
        out, _ = net(
            pack_padded_sequence(given.tanh(), lengths, batch_first=True, enforce_sorted=False)
        )
        padded, again = pad_packed_sequence(out, batch_first, padding_value=0.5, total_length=total)
        loss = (padded.sin() * torch.arange(padded.size(1) * 1.0)[:, None]).sum() + again.sum()
        return list(torch.autograd.grad(loss, [given, *net.parameters()]))

    _check_packed(gradients)


def _check_packed(gradients: Callable[..., list[torch.Tensor]]) -> None:
    mine: Any = symshape.compile(gradients, dynamic=True, fullgraph=True)
    for batch, length in ((3, 5), (2, 9), (4, 6), (3, 7)):
        x, lengths = torch.randn(batch, length, 4), torch.randint(1, length + 1, (batch,))
        lengths[-1] = length
        torch.testing.assert_close(mine(x, lengths), gradients(x, lengths), atol=1e-5, rtol=1e-5)
    assert mine.stats().traces <= 3


@pytest.mark.usefixtures("not_twice")
def test_steps_of_training_keep_their_length() -> None:
    def build() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net, head = nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 2)
        return net, head, torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-2)

    def step(
        x: torch.Tensor, net: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        optimizer.zero_grad()
        loss = head(net(x)[0]).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    ours, theirs, rng = build(), build(), random.Random(0)
    mine: Any = symshape.compile(lambda x: step(x, *ours), fullgraph=True)
    for _ in range(30):
        x = torch.randn(rng.randint(1, 6), rng.randint(1, 12), 4)
        torch.testing.assert_close(mine(x), step(x, *theirs), atol=1e-5, rtol=1e-4)
    assert mine.stats().traces <= 5  # the first without state, sizes of one
    for one, other in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_gradients_twice() -> None:
    net = _net("GRU")

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out, state = net(x)
        first = torch.autograd.grad(out.sum(), list(net.parameters()), retain_graph=True)
        return [*first, *torch.autograd.grad(state.sum(), list(net.parameters()))]

    mine: Any = symshape.compile(fn, dynamic=True, fullgraph=True)
    for length, batch in SHAPES:
        x = torch.randn(length, batch, 4)
        torch.testing.assert_close(mine(x), fn(x), atol=1e-5, rtol=1e-5)


def _again_with_its_state(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    out, state = net(x)
    return net(out, state)[0].sin().sum()  # type: ignore[no-any-return]


def _state_of_a_weight(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net(x, (x[0] * net.bias_hh_l0[:6])[None])[0].sin().sum()  # type: ignore[no-any-return]


def _state_of_the_input(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x, x.mean(0, keepdim=True).tanh())[0].cos().sum()  # type: ignore[no-any-return]


def _both_states_in_one(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    state = x[:1].sin()
    return net(x, (state, state))[0].cos().sum()  # type: ignore[no-any-return]


def _behind_a_long_history(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    for _ in range(600):
        x = x * 1.001
    return net(x)[0].sin().sum()  # type: ignore[no-any-return]


def _two_states_of_one_op(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    first, second = torch.cat((x[:1], x[:1] * 2), 2).chunk(2, 2)
    return net(x, (first.contiguous(), second.contiguous()))[0].cos().sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("GRU", _again_with_its_state),
        ("LSTM", _again_with_its_state),
        ("GRU", _state_of_a_weight),
        ("GRU", _state_of_the_input),
        ("LSTM", _both_states_in_one),
        ("LSTM", _two_states_of_one_op),
        ("LSTM", _behind_a_long_history),
    ],
)
def test_tensors_that_lead_to_each_other(
    kind: str, loss: Callable[[nn.Module, torch.Tensor], torch.Tensor]
) -> None:
    """A layer's own part of a gradient, not what autograd finds behind the tensors that it was
    given.
    """
    torch.manual_seed(0)
    net = getattr(nn, kind)(6, 6)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        given = (x * 1).requires_grad_()
        return list(torch.autograd.grad(loss(net, given * 2), [given, *net.parameters()]))

    mine: Any = symshape.compile(fn, dynamic=True, fullgraph=True)
    for length, batch in ((5, 3), (4, 2), (7, 3)):
        x = torch.randn(length, batch, 6)
        torch.testing.assert_close(mine(x), fn(x), atol=1e-4, rtol=1e-4)


def _all_in_place(out: torch.Tensor, state: torch.Tensor) -> None:
    out.mul_(2)


def _a_step_in_place(out: torch.Tensor, state: torch.Tensor) -> None:
    out[0].sin_()


def _the_state_in_place(out: torch.Tensor, state: torch.Tensor) -> None:
    state.mul_(out[0] * 3)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("write", [_all_in_place, _a_step_in_place, _the_state_in_place])
def test_results_that_are_written_to(
    kind: str, write: Callable[[torch.Tensor, torch.Tensor], None]
) -> None:
    """Their history is what wrote, too, of which the gradient is another step of the program."""
    torch.manual_seed(0)
    net = getattr(nn, kind)(6, 6)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out, state = net(x)
        write(out, _listed(state)[0])
        return list(
            torch.autograd.grad(out.cos().sum() + _listed(state)[0].sum(), list(net.parameters()))
        )

    def said(run: Callable[..., Any], x: torch.Tensor) -> Any:
        try:
            return run(x)
        except (RuntimeError, symshape.SymShapeError) as error:
            return "modified by an inplace operation" in str(error)

    mine = symshape.compile(fn, dynamic=True, fullgraph=True)
    for length, batch in ((5, 3), (4, 2), (7, 3)):
        x = torch.randn(length, batch, 6)
        torch.testing.assert_close(said(mine, x), said(fn, x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("where", ["a weight", "the output", "the input"])
def test_hooks_are_called_once(where: str) -> None:
    def build() -> nn.GRU:
        torch.manual_seed(0)
        net = nn.GRU(6, 6)
        if where == "a weight":
            net.weight_hh_l0.register_hook(lambda grad: grad * 5)
        return net

    def step(net: nn.GRU, x: torch.Tensor) -> torch.Tensor:
        net.zero_grad()
        given = x * net.bias_hh_l0[:6]
        out, _ = net(given)
        if where != "a weight":
            (out if where == "the output" else given).register_hook(lambda grad: grad * 3)
        loss = out.sin().sum()
        loss.backward()
        return loss.detach()

    ours, theirs = build(), build()
    mine: Any = symshape.compile(lambda x: step(ours, x))
    for length in (5, 3, 7, 4):
        x = torch.randn(length, 2, 6)
        torch.testing.assert_close(mine(x), step(theirs, x))
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


def test_arguments_that_lead_to_each_other_outside() -> None:
    """What the caller knows of their histories is no part of the layer's gradient in a trace, nor
    in a call.
    """
    net = _net("GRU")
    x = torch.randn(5, 3, 4).requires_grad_()
    state = (x[:1, :, :1] * torch.ones(6)).tanh()
    tensors = [x, torch.cat([state, state]), *net.parameters()]
    out = torch.ops.aten.gru.input(
        tensors[0], tensors[1], tensors[2:], True, 2, 0.0, True, False, False
    )
    copies = [each.detach().requires_grad_() for each in tensors]
    again = torch.ops.aten.gru.input(
        copies[0], copies[1], copies[2:], True, 2, 0.0, True, False, False
    )
    expected = torch.autograd.grad(again[0].sum(), copies)
    upstream, needed = [torch.ones_like(out[0]), None], [True] * len(tensors)
    flags = (True, 2, True, False, False)
    with torch.no_grad():
        found = torch.ops.symshape.recurrent_gradients(
            "gru.input", list(out), tensors, upstream, needed, *flags
        )
    torch.testing.assert_close(found, list(expected))


def test_without_a_history_they_are_computed_again() -> None:
    """As where another runner computed the layers; also where the history leads elsewhere."""
    net = _net("LSTM")
    x, h, c = torch.randn(5, 3, 4), torch.zeros(1, 3, 6), torch.zeros(1, 3, 6)
    weights = [each.detach() for each in net.parameters()]
    tensors = [x, h, c, *weights]
    flags = (True, 1, True, False, False)
    with torch.no_grad():
        plain = torch.ops.aten.lstm.input(x, [h, c], weights, True, 1, 0.0, True, False, False)
    elsewhere = [each * torch.ones((), requires_grad=True) for each in plain]
    leaves = [each.clone().requires_grad_() for each in tensors]
    out = torch.ops.aten.lstm.input(
        leaves[0], leaves[1:3], leaves[3:], True, 1, 0.0, True, False, False
    )
    expected = torch.autograd.grad(out[0].sum(), leaves)
    upstream, needed = [torch.ones_like(plain[0]), None, None], [True] * len(tensors)
    for outputs, given in (
        (plain, tensors),
        (elsewhere, [each.clone().requires_grad_() for each in tensors]),
    ):
        with torch.no_grad():
            found = torch.ops.symshape.recurrent_gradients(
                "lstm.input", outputs, given, upstream, needed, *flags
            )
        torch.testing.assert_close(found, list(expected))
        assert not any(each.requires_grad for each in found)


def test_gradients_of_gradients_are_refused() -> None:
    net = _net("GRU")

    def fn(x: torch.Tensor) -> torch.Tensor:
        (first,) = torch.autograd.grad(net(x)[0].sum(), [net.weight_ih_l0], create_graph=True)
        return first.pow(2).sum()

    with pytest.raises(symshape.UnsupportedError, match="gradients of gradients"):
        symshape.trace(fn, torch.randn(5, 3, 4))
