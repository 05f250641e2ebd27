"""Recurrent layers as cuDNN has them: all layers and directions over a sequence at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.core.checks import need_rank, need_sizes
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size
from meta_fns.core.spec import TensorSpec
from meta_fns.ops.views import transpose
from meta_fns.padding import recurrent as padded_recurrent

__all__: list[str] = []


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
