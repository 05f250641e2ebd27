"""Recurrent layers and cells as one op, and packed sequences, against eager."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import meta_fns
from meta_fns import ShapeError, TensorSpec, UnsupportedOp, infer
from tests.meta_fns.answers import Answers
from tests.meta_fns.eager import check_call, describe

aten = torch.ops.aten
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}
SIZES = ((3, 5), (1, 1), (0, 5), (3, 0), (1, 4), (4, 1))


def weights(
    name: str, layers: int, ways: int, biases: bool, projected: int = 0
) -> list[torch.Tensor]:
    options = {"proj_size": projected} if projected else {}
    net = KINDS[name](8, 6, num_layers=layers, bias=biases, bidirectional=ways == 2, **options)
    return [each.detach() for each in net.parameters()]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("layers", "ways"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_layers(name: str, layers: int, ways: int) -> None:
    accepted = 0
    for (b, n), first, biases in itertools.product(SIZES, (False, True), (False, True)):
        x = torch.randn((b, n, 8) if first else (n, b, 8))
        state = torch.randn(layers * ways, b, 6)
        states = [state, state.clone()] if name == "lstm" else state
        params = weights(name, layers, ways, biases)
        rest = (params, biases, layers, 0.0, False, ways == 2, first)
        accepted += check_call(f"aten.{name}.input", x, states, *rest)
    assert accepted == 20


@pytest.mark.parametrize("projected", [0, 4])
def test_layers_of_an_lstm_that_projects(projected: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        params = weights("lstm", 2, 2, True, projected)
        states = [torch.randn(4, 3, projected or 6), torch.randn(4, 3, 6)]
        assert check_call(
            "aten.lstm.input",
            torch.randn(5, 3, 8),
            states,
            params,
            True,
            2,
            0.0,
            False,
            True,
            False,
        )


def test_what_does_not_fit_is_refused() -> None:
    params = weights("gru", 1, 1, True)
    x, state = torch.randn(5, 3, 8), torch.randn(1, 3, 6)
    rest = (params, True, 1, 0.0, False, False, False)
    for wrong, hidden in (
        (torch.randn(5, 3, 7), state),
        (x, torch.randn(1, 3, 5)),
        (x, torch.randn(2, 3, 6)),
    ):
        with pytest.raises(ShapeError):
            infer("aten.gru.input", (wrong, hidden, *rest))
    with pytest.raises(ShapeError, match="weights do not fit"):
        infer("aten.gru.input", (x, state, params, True, 2, 0.0, False, False, False))


CELLS = {
    "lstm_cell": (nn.LSTMCell, 2),
    "gru_cell": (nn.GRUCell, 1),
    "rnn_tanh_cell": (nn.RNNCell, 1),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str) -> None:
    make, count = CELLS[name]
    for b, biases in itertools.product((0, 1, 4), (False, True)):
        params = [each.detach() for each in make(8, 6, biases).parameters()]
        states = [torch.randn(b, 6) for _ in range(count)]
        assert check_call(
            f"aten.{name}.default", torch.randn(b, 8), states if count == 2 else states[0], *params
        )


def test_cells_are_one_op_on_states_in_order_alone() -> None:
    params = [each.detach() for each in nn.GRUCell(8, 6).parameters()]
    with pytest.raises(UnsupportedOp, match="not contiguous"):
        infer("aten.gru_cell.default", (torch.randn(4, 8), torch.randn(6, 4).t(), *params))


def with_answers(op: Any, args: tuple[Any, ...], sizes: list[int]) -> Any:
    return infer(str(op), args, ctx=Answers(sizes))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [False, True])
def test_packed_sequences(first: bool) -> None:
    x, lengths = torch.randn((3, 5, 8) if first else (5, 3, 8)), torch.tensor([4, 2, 1])
    data, sizes = aten._pack_padded_sequence(x, lengths, first)
    packed = with_answers(aten._pack_padded_sequence.default, (x, lengths, first), [7, 4])
    assert describe(packed) == describe((data, sizes))
    back = aten._pack_padded_sequence_backward(data, x.shape, sizes, first)
    inferred = infer("aten._pack_padded_sequence_backward.default", (data, x.shape, sizes, first))
    assert describe(inferred) == describe(back)
    for total in (-1, 4, 6):
        args = (data, sizes, first, 0.5, total)
        padded = with_answers(aten._pad_packed_sequence.default, args, [3])
        assert describe(padded) == describe(aten._pad_packed_sequence(*args))
    with pytest.raises(ShapeError, match="shorter"):
        with_answers(aten._pad_packed_sequence.default, (data, sizes, first, 0.5, 3), [3])


@pytest.mark.parametrize("name", KINDS)
def test_layers_of_packed_sequences(name: str) -> None:
    data, sizes = aten._pack_padded_sequence(torch.randn(5, 3, 8), torch.tensor([4, 2, 1]), False)
    state = torch.randn(4, 3, 6)
    states = [state, state.clone()] if name == "lstm" else state
    assert check_call(
        f"aten.{name}.data",
        data,
        sizes,
        states,
        weights(name, 2, 2, True),
        True,
        2,
        0.0,
        False,
        True,
    )


def test_of_other_devices_nothing_is_claimed() -> None:
    spec = TensorSpec.contiguous((5, 3, 8), torch.float32, torch.device("xpu"))
    state = TensorSpec.contiguous((1, 3, 6), torch.float32, torch.device("xpu"))
    with pytest.raises(UnsupportedOp):
        infer("aten.gru.input", (spec, state, [], True, 1, 0.0, False, False, False))


# -- layers as cuDNN has them ----------------------------------------------------------------------


CUDNN_RNN = torch.ops.aten._cudnn_rnn.default
LSTM, GRU = 2, 3  # cuDNN's numbers


def _cudnn_call(mode: int, first: bool, both: bool, packed: tuple[int, ...] = ()) -> list[Any]:
    ways = 2 if both else 1
    batch = packed[0] if packed else 3
    sound = (sum(packed), 6) if packed else (batch, 7, 6) if first else (7, batch, 6)
    gates = 4 if mode == LSTM else 3
    weights = [
        s
        for _ in range(2 * ways)
        for s in ((gates * 5, 6), (gates * 5, 5), (gates * 5,), (gates * 5,))
    ]
    state = (2 * ways, batch, 5)
    tensors = [torch.empty(size, device="meta") for size in (sound, state, *weights)]
    cell = torch.empty(state, device="meta") if mode == LSTM else None
    rest = [mode, 5, 0, 2, first, 0.0, False, both, list(packed), None]
    return [tensors[0], tensors[2:], 4, None, tensors[1], cell, *rest]


def _cudnn_specs(args: list[Any]) -> list[Any]:
    def spec(each: Any) -> Any:
        return TensorSpec.of(each) if isinstance(each, torch.Tensor) else each

    return [[spec(each) for each in arg] if isinstance(arg, list) else spec(arg) for arg in args]


@pytest.mark.parametrize("mode", [LSTM, GRU])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("first", "packed"), [(True, ()), (False, ()), (False, (3, 2, 2, 1))])
def test_sizes_are_torchs_own(mode: int, both: bool, first: bool, packed: tuple[int, ...]) -> None:
    args = _cudnn_call(mode, first, both, packed)
    mine, theirs = meta_fns.infer(CUDNN_RNN, _cudnn_specs(args), {}), CUDNN_RNN(*args)
    assert isinstance(mine, (list, tuple))
    for each, other in zip(mine[:3], theirs[:3], strict=True):
        assert isinstance(each, TensorSpec)
        assert tuple(each.sizes) == tuple(other.shape)
        assert each.dtype is other.dtype


def test_states_of_another_batch_are_refused() -> None:
    args = _cudnn_call(GRU, True, False)
    args[4] = torch.empty(2, 4, 5, device="meta")
    with pytest.raises(ShapeError, match="hx"):
        meta_fns.infer(CUDNN_RNN, _cudnn_specs(args), {})
