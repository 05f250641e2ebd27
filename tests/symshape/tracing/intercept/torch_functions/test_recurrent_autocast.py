"""Recurrent layers under autocast on the CPU: one op, eager's in values, dtypes and gradients at
every length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import symshape
from tests.kernels import eager_has_kernels, skip_without_kernels

SHAPES = ((3, 5), (2, 9), (4, 2), (1, 7), (5, 5), (2, 1), (3, 5))
LAYERS: dict[str, dict[str, Any]] = {
    "LSTM": {},
    "LSTM, both ways": {"num_layers": 2, "bidirectional": True},
    "LSTM, projected": {"proj_size": 3, "num_layers": 2},
    "LSTM, without bias": {"bias": False},
    "GRU": {"num_layers": 2},
    "GRU, both ways": {"bidirectional": True},
    "RNN": {},
    "RNN, relu": {"nonlinearity": "relu", "num_layers": 2, "bias": False},
    "LSTM, dropout": {"num_layers": 3, "dropout": 0.5},
}


def _net(name: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    return getattr(nn, name.split(",")[0])(4, 6, batch_first=True, **LAYERS[name]).to(dtype)


def _cast(fn: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    return torch.autocast("cpu", **({"dtype": torch.bfloat16} | how))(fn)


def _states(state: Any) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def _held(
    fn: Callable[..., Any], traces: int, *, make: Callable[[int, int], tuple[Any, ...]], **how: Any
) -> None:
    """Compare with eager at several sizes, bit for bit; where eager has no kernel, ours raises
    eager's error.
    """
    mine: Any = symshape.compile(fn, dynamic=True, fullgraph=True, **how)
    args = make(*SHAPES[0])
    if not eager_has_kernels(fn, *args):
        with pytest.raises(RuntimeError, match="could not create a primitive descriptor"):
            mine(*args)
        pytest.skip(
            "eager torch has no kernel for this layer in bfloat16 on this processor, and ours says "
            "so"
        )
    for number, sizes in enumerate(SHAPES):
        seen = []
        for run in (mine, fn):
            torch.manual_seed(number)
            args = make(*sizes)
            found = run(*args)
            seen.append((found, torch.get_rng_state()))
        torch.testing.assert_close(*seen, rtol=0, atol=0)
    assert mine.stats().traces <= traces
    assert mine.stats().fallbacks == 0


def _rows(batch: int, length: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, length, 4),)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_results(name: str, kind: torch.dtype) -> None:
    net = _net(name)
    with torch.no_grad():
        _held(_cast(lambda x: net(x.to(kind))), 3, make=_rows)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_of_another_dtype(name: str, dtype: torch.dtype) -> None:
    net = _net(name, dtype)
    with torch.no_grad():
        _held(_cast(lambda x: net(x.to(dtype))), 3, make=_rows)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_inside(name: str) -> None:
    if "dropout" in name:
        pytest.skip("refused, as without autocast")
    net = _net(name)

    def fn(x: torch.Tensor) -> Any:
        given = (x * 1).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out, state = net(given)
            loss = out.float().sin().sum() + sum(
                each.float().pow(2).sum() for each in _states(state)
            )
        return loss.detach(), *torch.autograd.grad(loss, [given, *net.parameters()])

    _held(fn, 4, make=_rows)


@pytest.mark.parametrize("name", LAYERS)
def test_backward_outside(name: str) -> None:
    net = _net(name)
    skip_without_kernels(_cast(net), torch.randn(2, 3, 4))
    mine: Any = symshape.compile(_cast(net), dynamic=True, fullgraph=True)
    for number, sizes in enumerate(SHAPES):
        x, seen = torch.randn(*sizes, 4), []
        for run in (mine, _cast(net)):
            torch.manual_seed(number)
            given = x.clone().requires_grad_()
            net.zero_grad()
            out, state = run(given)
            (
                out.float().sin().sum() + sum(each.float().pow(2).sum() for each in _states(state))
            ).backward()
            seen.append([out, state, given.grad, *(each.grad for each in net.parameters())])
        torch.testing.assert_close(*seen, rtol=0, atol=0)
    assert mine.stats().traces <= 4


@pytest.mark.parametrize("name", ["RNN", "GRU, both ways", "LSTM, projected"])
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(name: str, ordered: bool) -> None:
    net = _net(name)

    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            out, state = net(
                pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=ordered)
            )
            padded, again = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
        loss = padded.float().sin().sum() + _states(state)[0].float().sum()
        return padded.detach(), again, *torch.autograd.grad(loss, list(net.parameters()))

    def make(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = torch.randint(1, length + 1, (batch,)).sort(descending=True).values
        lengths[0] = length
        return torch.randn(batch, length, 4), lengths if ordered else lengths.flip(0)

    _held(fn, 4, make=make)


def test_the_dtype_of_a_packed_lstm_depends_on_the_lengths() -> None:
    """The kernel of oneDNN runs sequences of one length, in the dtype of autocast: a trace cannot
    know the dtype.
    """
    net = _net("LSTM")

    @torch.no_grad()
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return net(pack_padded_sequence(x, lengths, batch_first=True))[0].data

    skip_without_kernels(_cast(net), torch.randn(2, 3, 4))
    calls = [(torch.randn(2, 3, 4), torch.tensor(lengths)) for lengths in ([3, 3], [3, 1])]
    assert [_cast(fn)(*args).dtype for args in calls] == [torch.bfloat16, torch.float32]
    with pytest.raises(symshape.SymShapeError):
        symshape.compile(_cast(fn), fullgraph=True)(*calls[0])


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_states_that_are_given(name: str, kind: torch.dtype) -> None:
    net = _net("LSTM" if name == "LSTM" else "GRU, both ways")

    def fn(x: torch.Tensor, state: torch.Tensor) -> Any:
        return net(x, (state, state * 2) if name == "LSTM" else state)

    deep = 1 if name == "LSTM" else 2
    with torch.no_grad():
        _held(
            _cast(fn), 3, make=lambda b, n: (torch.randn(b, n, 4), torch.randn(deep, b, 6).to(kind))
        )


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("around", [True, False])
def test_backward_under_autocast(name: str, around: bool) -> None:
    """The backward pass casts its products where autocast is on around it, with or without autocast
    in the forward.
    """
    net = _net(name)

    def fn(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            loss = net(x)[0].float().sin().sum()
        with torch.autocast("cpu", torch.bfloat16):
            return torch.autograd.grad(loss, list(net.parameters()))

    _held(fn, 4, make=_rows)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize("around", ["the call", "the layers"])
def test_steps_of_training(name: str, around: str) -> None:
    def build() -> tuple[Any, Any, torch.optim.Optimizer]:
        net, head = _net(name), nn.Linear(6, 2)
        return net, head, torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-2)

    def step(
        x: torch.Tensor, net: Any, head: Any, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = head(net(x)[0]).float().pow(2).mean()
        with torch.autocast("cpu", enabled=False):
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    skip_without_kernels(_cast(_net(name)), torch.randn(2, 3, 4))
    ours, theirs = build(), build()
    mine: Any = symshape.compile(lambda x: step(x, *ours), fullgraph=True)
    for sizes in SHAPES * 3:
        x = torch.randn(*sizes, 4)
        with torch.autocast("cpu", torch.bfloat16, enabled=around == "the call"):
            torch.testing.assert_close(mine(x), step(x, *theirs), rtol=0, atol=0)
        for one, other in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
            torch.testing.assert_close((one, one.grad), (other, other.grad), rtol=0, atol=0)
    assert mine.stats().traces <= 6


@pytest.mark.parametrize("runner", ["padded", "auto"])
def test_other_runners(runner: Any) -> None:
    net = _net("LSTM").eval()
    skip_without_kernels(_cast(net), torch.randn(2, 3, 4))
    with torch.no_grad():
        mine: Any = symshape.compile(
            _cast(lambda x: net(x * 2)[0] + 1), dynamic=True, runner=runner
        )
        for sizes in SHAPES:
            x = torch.randn(*sizes, 4)
            torch.testing.assert_close(
                mine(x), _cast(lambda x: net(x * 2)[0] + 1)(x), atol=1e-2, rtol=1e-2
            )
    assert mine.stats().fallbacks == 0


def test_a_batch_without_elements_is_decomposed() -> None:
    """There is no kernel of oneDNN for a batch without elements, and the decomposition returns
    other dtypes.
    """
    net = _net("LSTM").eval()
    skip_without_kernels(_cast(net), torch.randn(2, 3, 4))
    mine: Any = symshape.compile(_cast(net), dynamic=True)
    with torch.no_grad():
        for batch in (2, 0, 3):
            x = torch.randn(batch, 3, 4)
            torch.testing.assert_close(mine(x), _cast(net)(x), rtol=0, atol=0)


def test_sizes_that_do_not_fit_are_refused_as_in_eager() -> None:
    net = _net("GRU")
    mine = symshape.compile(
        _cast(
            lambda x: torch.gru(
                x, x.new_zeros(2, 3, 6), net._flat_weights[:4], True, 1, 0.0, False, False, True
            )
        )
    )
    for run in (
        mine,
        _cast(
            lambda x: torch.gru(
                x, x.new_zeros(2, 3, 6), net._flat_weights[:4], True, 1, 0.0, False, False, True
            )
        ),
    ):
        with pytest.raises(RuntimeError):
            run(torch.randn(3, 5, 4))
