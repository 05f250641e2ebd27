"""Recurrent layers and cells as one op each, and sequences packed for them.

Eager takes them apart, one step of the sequence after the other; as one op they serve every length.
Source: aten/src/ATen/native/RNN.cpp, PackedSequence.cpp (CPU).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core import layout
from meta_fns.core.checks import FLOATS, need_dtype, need_equal, need_rank, need_same, need_sizes
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import Size, check, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.ops.views import transpose
from meta_fns.padding import recurrent as padded_recurrent
from meta_fns.padding import rows

__all__: list[str] = []


def _of_one_kind(input: TensorSpec, others: Sequence[TensorSpec]) -> None:
    """Require what one dtype and device computes on the CPU or on CUDA, whose results' strides are
    known here.
    """
    need_dtype("input", input, FLOATS)
    if input.device.type not in ("cpu", "cuda"):
        raise UnsupportedOp("recurrent layers as one op on this device")
    for other in others:
        need_same("a state or a weight", other, "input", input)


def _layers(
    input: TensorSpec,
    batch: Size,
    states: Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    ways: int,
) -> Size:
    """The width of what one direction puts out; checks states and weights, those of projections
    (the last) too.
    """
    _of_one_kind(input, (*states, *params))
    each = len(params) // (num_layers * ways) if num_layers > 0 else 0
    projects = len(states) == 2 and each == (5 if has_biases else 3)
    if each != (4 if has_biases else 2) + projects or each * num_layers * ways != len(params):
        raise ShapeError(f"{len(params)} weights do not fit {num_layers} layers")
    for position, weight in enumerate(params):
        need_rank(
            f"params[{position}]", weight, 1 if has_biases and position % each in (2, 3) else 2
        )
    projected = params[1].sizes[1]
    hidden = params[each - 1].sizes[1] if projects else projected
    for name, state, width in zip(("hx", "cx"), states, (projected, hidden), strict=False):
        need_sizes(name, state, (num_layers * ways, batch, width))
    gates = params[0].sizes[0]
    for number in range(num_layers * ways):
        width = input.sizes[-1] if number < ways else projected * ways
        need_sizes("weight of the input", params[number * each], (gates, width))
        need_sizes("weight of the state", params[number * each + 1], (gates, projected))
        for bias in params[number * each + 2 : number * each + 4] if has_biases else ():
            need_sizes("bias", bias, (gates,))
        if projects:
            need_sizes(
                "weight of the projection", params[(number + 1) * each - 1], (projected, hidden)
            )
    return projected


def _results(
    input: TensorSpec,
    states: Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[TensorSpec, ...]:
    """``(n, b, in) -> (n, b, ways * out)`` and the last states; ``batch_first`` transposes input
    and output.
    """
    need_rank("input", input, 3)
    length, batch = (input.sizes[1], input.sizes[0]) if batch_first else input.sizes[:2]
    check(length > 0, "the sequence must be of at least one step")
    width = _layers(input, batch, states, params, has_biases, num_layers, 2 if bidirectional else 1)
    width = width * 2 if bidirectional else width
    sizes: tuple[Size, ...] = (length, batch, width)
    strides = layout.contiguous_strides(sizes)
    if batch_first:
        sizes, strides = (batch, length, width), (strides[1], strides[0], strides[2])
    output = TensorSpec(sizes, strides, 0, input.dtype, input.device)
    return output, *(
        TensorSpec.contiguous(state.sizes, state.dtype, state.device) for state in states
    )


@rule("aten.lstm.input", name="recurrent layers", padding=padded_recurrent.layers)
def lstm(
    input: TensorSpec,
    hx: Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[TensorSpec, ...]:
    """The output at each step, and the last hidden and cell states."""
    if len(hx) != 2:
        raise ShapeError(f"an LSTM has two states, got {len(hx)}")
    return _results(input, hx, params, has_biases, num_layers, bidirectional, batch_first)


@rule(
    "aten.gru.input",
    "aten.rnn_tanh.input",
    "aten.rnn_relu.input",
    name="recurrent layers",
    padding=padded_recurrent.layers,
)
def gru(
    input: TensorSpec,
    hx: TensorSpec,
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[TensorSpec, ...]:
    """The output at each step, and the last state."""
    return _results(input, (hx,), params, has_biases, num_layers, bidirectional, batch_first)


def _packed_results(
    data: TensorSpec,
    batch_sizes: TensorSpec,
    states: Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
) -> tuple[TensorSpec, ...]:
    need_rank("data", data, 2)
    _need_batch_sizes(batch_sizes)
    need_rank("hx", states[0], 3)
    ways = 2 if bidirectional else 1
    width = _layers(data, states[0].sizes[1], states, params, has_biases, num_layers, ways)
    made = ((data.sizes[0], width * ways), *(state.sizes for state in states))
    return tuple(TensorSpec.contiguous(sizes, data.dtype, data.device) for sizes in made)


@rule("aten.lstm.data", name="recurrent layers")
def lstm_of_packed(
    data: TensorSpec,
    batch_sizes: TensorSpec,
    hx: Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[TensorSpec, ...]:
    """The same of a packed sequence: ``(total, in) -> (total, ways * out)``."""
    if len(hx) != 2:
        raise ShapeError(f"an LSTM has two states, got {len(hx)}")
    return _packed_results(data, batch_sizes, hx, params, has_biases, num_layers, bidirectional)


@rule("aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data", name="recurrent layers")
def gru_of_packed(
    data: TensorSpec,
    batch_sizes: TensorSpec,
    hx: TensorSpec,
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[TensorSpec, ...]:
    """The same of a packed sequence: ``(total, in) -> (total, ways * out)``."""
    return _packed_results(data, batch_sizes, (hx,), params, has_biases, num_layers, bidirectional)


# --- cells ----------------------------------------------------------------------------------------


def _cell(
    input: TensorSpec,
    states: Sequence[TensorSpec],
    w_ih: TensorSpec,
    w_hh: TensorSpec,
    b_ih: TensorSpec | None,
    b_hh: TensorSpec | None,
    gates: int,
) -> tuple[TensorSpec, ...]:
    biases = [bias for bias in (b_ih, b_hh) if bias is not None]
    _of_one_kind(input, (*states, w_ih, w_hh, *biases))
    need_rank("input", input, 2)
    hidden = w_hh.sizes[-1]
    for state in states:
        need_sizes("hx", state, (input.sizes[0], hidden))
        if not state.canonical() and not state.is_contiguous():
            raise UnsupportedOp("a recurrent cell as one op on states that are not contiguous")
    need_sizes("w_ih", w_ih, (gates * hidden, input.sizes[1]))
    need_sizes("w_hh", w_hh, (gates * hidden, hidden))
    for bias in biases:
        need_sizes("a bias", bias, (gates * hidden,))
    return tuple(TensorSpec.contiguous(state.sizes, state.dtype, state.device) for state in states)


@rule("aten.lstm_cell.default", name="recurrent cell", padding=rows.long_cell)
def lstm_cell(
    input: TensorSpec,
    hx: Sequence[TensorSpec],
    w_ih: TensorSpec,
    w_hh: TensorSpec,
    b_ih: TensorSpec | None = None,
    b_hh: TensorSpec | None = None,
) -> tuple[TensorSpec, ...]:
    """One step: ``(b, in)`` and two states ``(b, out)`` -> two states."""
    if len(hx) != 2:
        raise ShapeError(f"an LSTM has two states, got {len(hx)}")
    return _cell(input, hx, w_ih, w_hh, b_ih, b_hh, 4)


@rule("aten.gru_cell.default", name="recurrent cell", padding=rows.cell)
def gru_cell(
    input: TensorSpec,
    hx: TensorSpec,
    w_ih: TensorSpec,
    w_hh: TensorSpec,
    b_ih: TensorSpec | None = None,
    b_hh: TensorSpec | None = None,
) -> TensorSpec:
    """One step: ``(b, in)`` and a state ``(b, out)`` -> a state."""
    return _cell(input, (hx,), w_ih, w_hh, b_ih, b_hh, 3)[0]


@rule(
    "aten.rnn_tanh_cell.default",
    "aten.rnn_relu_cell.default",
    name="recurrent cell",
    padding=rows.cell,
)
def rnn_cell(
    input: TensorSpec,
    hx: TensorSpec,
    w_ih: TensorSpec,
    w_hh: TensorSpec,
    b_ih: TensorSpec | None = None,
    b_hh: TensorSpec | None = None,
) -> TensorSpec:
    """One step: ``(b, in)`` and a state ``(b, out)`` -> a state."""
    return _cell(input, (hx,), w_ih, w_hh, b_ih, b_hh, 1)[0]


# --- packed sequences -----------------------------------------------------------------------------


def _need_batch_sizes(batch_sizes: TensorSpec) -> None:
    need_rank("batch_sizes", batch_sizes, 1)
    need_dtype("batch_sizes", batch_sizes, (torch.int64,))
    if batch_sizes.device.type != "cpu":
        raise DtypeError(f"batch_sizes must be on the CPU, got {batch_sizes.device}")


@rule("aten._pack_padded_sequence.default", data_dependent=True)
def pack_padded_sequence(
    ctx: Context, input: TensorSpec, lengths: TensorSpec, batch_first: bool
) -> tuple[TensorSpec, TensorSpec]:
    """The steps of all sequences, step by step, and how many sequences have each step:
    ``(n, b, ...) -> (u, ...)``.

    How many steps there are, and how many the longest has, is in the lengths.
    """
    if len(input.sizes) < 2:
        raise ShapeError(f"input must have a batch and a length, got {show(input.sizes)}")
    _need_batch_sizes(lengths)
    length, batch = (input.sizes[1], input.sizes[0]) if batch_first else input.sizes[:2]
    check(input.numel() > 0, "tensors without elements cannot be packed")
    need_equal(lengths.sizes[0], batch, "lengths and the batch")
    total, longest = ctx.new_size(batch, batch * length), ctx.new_size(1, length)
    data = TensorSpec.contiguous((total, *input.sizes[2:]), input.dtype, input.device)
    return data, TensorSpec.contiguous((longest,), torch.int64, lengths.device)


@rule("aten._pack_padded_sequence_backward.default")
def pack_padded_sequence_backward(
    grad: TensorSpec, input_size: Sequence[Size], batch_sizes: TensorSpec, batch_first: bool
) -> TensorSpec:
    """The gradient where the steps came from, 0 elsewhere; transposed for ``batch_first``."""
    if not batch_first:
        return TensorSpec.contiguous(tuple(input_size), grad.dtype, grad.device)
    sizes = (input_size[1], input_size[0], *input_size[2:])
    strides = layout.contiguous_strides(sizes)
    return TensorSpec(
        tuple(input_size), (strides[1], strides[0], *strides[2:]), 0, grad.dtype, grad.device
    )


@rule("aten._pad_packed_sequence.default", data_dependent=True)
def pad_packed_sequence(
    ctx: Context,
    data: TensorSpec,
    batch_sizes: TensorSpec,
    batch_first: bool,
    padding_value: float,
    total_length: Size,
) -> tuple[TensorSpec, TensorSpec]:
    """The sequences side by side, padded, and their lengths: ``(u, ...) -> (n, b, ...)``; how many
    is data.
    """
    _need_batch_sizes(batch_sizes)
    longest: Size = batch_sizes.sizes[0]
    check(longest > 0, "batch_sizes must not be empty")
    if not (type(total_length) is int and total_length <= 0):
        check(
            total_length >= longest,
            lambda: f"total_length {total_length} is shorter than a sequence of {longest}",
        )
        longest = total_length
    batch = ctx.new_size(1, data.sizes[0])
    sizes: tuple[Size, ...] = (longest, batch, *data.sizes[1:])
    strides = layout.contiguous_strides(sizes)
    if batch_first:
        sizes, strides = (batch, longest, *sizes[2:]), (strides[1], strides[0], *strides[2:])
    padded = TensorSpec(sizes, strides, 0, data.dtype, data.device)
    return padded, TensorSpec.contiguous((batch,), torch.int64, batch_sizes.device)


# -- layers as cuDNN has them ----------------------------------------------------------------------


@rule("aten._cudnn_rnn.default", padding=padded_recurrent.on_cuda)
def cudnn_rnn(
    input: TensorSpec,
    weight: Sequence[TensorSpec],
    weight_stride0: int,
    weight_buf: TensorSpec | None,
    hx: TensorSpec,
    cx: TensorSpec | None,
    mode: int,
    hidden_size: Size,
    proj_size: Size,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[Size],
    dropout_state: TensorSpec | None,
) -> tuple[TensorSpec, ...]:
    """All layers of a network over a sequence, ``(t, b, n) -> (t, b, out)``, its last states, and
    what cuDNN keeps.

    Batch first, memory has the time first all the same.  Packed, ``(sum of batches, n) -> (sum of
    batches, out)``.
    """
    need_rank("input", input, 2 if batch_sizes else 3)
    need_rank("hx", hx, 3)
    directions = 2 if bidirectional else 1
    out = proj_size if proj_size else hidden_size
    batch = batch_sizes[0] if batch_sizes else input.sizes[0 if batch_first else 1]
    states = (num_layers * directions, batch)
    need_sizes("hx", hx, (*states, out))
    if cx is not None:
        need_sizes("cx", cx, (*states, hidden_size))
    if batch_sizes:
        output = TensorSpec.contiguous(
            (input.sizes[0], out * directions), input.dtype, input.device
        )
    else:
        time = input.sizes[1 if batch_first else 0]
        output = TensorSpec.contiguous((time, batch, out * directions), input.dtype, input.device)
        output = transpose(output, 0, 1) if batch_first else output
    cell = (0,) if cx is None else (*states, hidden_size)
    kept = TensorSpec.contiguous((0,), torch.uint8, input.device)
    numbers = sum(int(each.numel()) for each in weight)
    buffer = weight_buf or TensorSpec.contiguous((numbers,), input.dtype, input.device)
    last = TensorSpec.contiguous((*states, out), hx.dtype, hx.device)
    return output, last, TensorSpec.contiguous(cell, input.dtype, input.device), kept, buffer
