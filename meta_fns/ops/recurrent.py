"""Recurrent layers, fused transformer layers, and losses over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.checks import DOUBLES, need_dtype, need_equal, need_rank, need_same, need_sizes
from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import Size, check, known, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError, UnsupportedOp
from meta_fns.ops.normalization import batch_norm
from meta_fns.padding import recurrent as padded_recurrent
from meta_fns.padding import transformer_layers
from meta_fns.padding.matmul import grouped_product

__all__: list[str] = []


@rule("aten.mkldnn_rnn_layer.default", data_dependent=True)
def mkldnn_rnn_layer(
    ctx: Context,
    input: TensorSpec,
    weight0: TensorSpec,
    weight1: TensorSpec,
    weight2: TensorSpec,
    weight3: TensorSpec,
    hx_: TensorSpec,
    cx_: TensorSpec,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec | None]:
    """One direction of one layer: the output, the last states, and oneDNN's workspace.

    The workspace is there where a gradient may be asked for; its size is the library's secret: an
    unknown.
    """
    need_rank("input", input, 3)
    need_equal(weight0.sizes[-1], input.sizes[-1], "the widths of weight and input")
    output = TensorSpec.contiguous((*input.sizes[:2], hidden_size), input.dtype, input.device)
    workspace = None
    if train and torch.is_grad_enabled():
        workspace = TensorSpec.contiguous((ctx.new_size(0, None),), torch.uint8, input.device)
    return output, hx_.fresh(), cx_.fresh(), workspace


@rule("aten.mkldnn_rnn_layer_backward.default")
def mkldnn_rnn_layer_backward(
    input: TensorSpec,
    weight1: TensorSpec,
    weight2: TensorSpec,
    weight3: TensorSpec,
    weight4: TensorSpec,
    hx_: TensorSpec,
    cx_tmp: TensorSpec,
    output: TensorSpec,
    hy_: TensorSpec,
    cy_: TensorSpec,
    grad_output: TensorSpec | None,
    grad_hy: TensorSpec | None,
    grad_cy: TensorSpec | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: TensorSpec,
) -> tuple[TensorSpec, ...]:
    """The gradients of input, weights, bias (twice) and states."""
    gates = {0: 1, 1: 1, 2: 4, 3: 4}.get(mode)
    if gates is None:
        raise ShapeError(f"unknown mode {mode}")
    bias = TensorSpec.contiguous((gates * hidden_size,), weight1.dtype, weight1.device)
    return input.fresh(), weight1.fresh(), weight2.fresh(), bias, bias, hx_.fresh(), cx_tmp.fresh()


@rule("aten._thnn_fused_lstm_cell.default", padding=padded_recurrent.cell)
def thnn_fused_lstm_cell(
    input_gates: TensorSpec,
    hidden_gates: TensorSpec,
    cx: TensorSpec,
    input_bias: TensorSpec | None = None,
    hidden_bias: TensorSpec | None = None,
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """One step of an LSTM from its gates (CUDA): the states, and a workspace like the gates."""
    return cx.fresh(), cx.fresh(), input_gates.fresh()


@rule("aten._thnn_fused_gru_cell.default", padding=padded_recurrent.cell)
def thnn_fused_gru_cell(
    input_gates: TensorSpec,
    hidden_gates: TensorSpec,
    hx: TensorSpec,
    input_bias: TensorSpec | None = None,
    hidden_bias: TensorSpec | None = None,
) -> tuple[TensorSpec, TensorSpec]:
    """One step of a GRU from its gates (CUDA): the state, and a workspace."""
    return hx.fresh(), hx.fresh((hx.sizes[0], hx.sizes[1] * 5))


# --- fused layers of transformers -----------------------------------------------------------------


def _need_mask(mask: TensorSpec | None, kind: int | None, x: TensorSpec, num_heads: int) -> None:
    """Require a mask of queries and keys (type 0), of a batch and its keys (1), or of the size of
    the scores.
    """
    if mask is None:
        return
    b, s, _ = x.sizes
    need_sizes(
        "mask", mask, {0: (s, s), 1: (b, s)}.get(2 if kind is None else kind, (b, num_heads, s, s))
    )


@rule("aten._native_multi_head_attention.default", padding=transformer_layers.heads)
def native_multi_head_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    embed_dim: int,
    num_head: int,
    qkv_weight: TensorSpec,
    qkv_bias: TensorSpec,
    proj_weight: TensorSpec,
    proj_bias: TensorSpec,
    mask: TensorSpec | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[TensorSpec, TensorSpec | None]:
    """``(b, s, e) -> (b, s, e)``, and the attention weights, averaged over heads or
    ``(b, heads, s, t)``, if any.
    """
    for name, spec in (("query", query), ("key", key), ("value", value)):
        need_rank(name, spec, 3)
    need_equal(query.sizes[2], embed_dim, "the width of query")
    if num_head <= 0 or embed_dim % num_head:
        raise ShapeError(f"{embed_dim} is no multiple of {num_head} heads")
    _need_mask(mask, mask_type, query, num_head)
    output = query.fresh((*query.sizes[:2], embed_dim))
    if not need_weights or any(size == 0 for size in query.sizes):
        return output, None
    b, s, _ = query.sizes
    t = key.sizes[1]
    return output, query.fresh((b, s, t) if average_attn_weights else (b, num_head, s, t))


@rule("aten._transformer_encoder_layer_fwd.default", padding=transformer_layers.encoder_layer)
def transformer_encoder_layer_fwd(
    src: TensorSpec,
    embed_dim: int,
    num_heads: int,
    qkv_weight: TensorSpec,
    qkv_bias: TensorSpec,
    proj_weight: TensorSpec,
    proj_bias: TensorSpec,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: TensorSpec,
    norm_bias_1: TensorSpec,
    norm_weight_2: TensorSpec,
    norm_bias_2: TensorSpec,
    ffn_weight_1: TensorSpec,
    ffn_bias_1: TensorSpec,
    ffn_weight_2: TensorSpec,
    ffn_bias_2: TensorSpec,
    mask: TensorSpec | None = None,
    mask_type: int | None = None,
) -> TensorSpec:
    """A whole encoder layer: ``(b, s, e) -> (b, s, e)``."""
    need_rank("src", src, 3)
    need_equal(src.sizes[2], embed_dim, "the width of src")
    if num_heads <= 0 or embed_dim % num_heads:
        raise ShapeError(f"{embed_dim} is no multiple of {num_heads} heads")
    _need_mask(mask, mask_type, src, num_heads)
    return src.fresh()


@rule("aten._masked_softmax.default")
def masked_softmax(
    self: TensorSpec, mask: TensorSpec, dim: int | None = None, mask_type: int | None = None
) -> TensorSpec:
    """Softmax of what the mask leaves, contiguous."""
    if mask.dtype is not torch.bool:
        raise DtypeError(f"mask must be bool, got {mask.dtype}")
    return self.fresh()


# --- products of groups ---------------------------------------------------------------------------


def _need_aligned(name: str, spec: TensorSpec) -> None:
    """Require matrices dense along one of their dimensions, and rows that start at multiples of 16
    bytes.
    """
    outer, inner = spec.strides[-2], spec.strides[-1]
    rows, columns = spec.sizes[-2], spec.sizes[-1]
    step = 16 // spec.dtype.itemsize
    if known(outer == 1) and known((inner >= rows) & (inner >= 1)):
        stride = inner
    elif known(inner == 1) and known((outer >= columns) & (outer >= 1)):
        stride = outer
    elif outer == 1 and inner >= rows and inner >= 1:
        stride = inner
    else:
        fits = (inner == 1) & (outer >= columns) & (outer >= 1)
        check(
            fits,
            lambda: (
                f"{name} must be dense along one of its last dimensions, got strides "
                f"{show(spec.strides)}"
            ),
        )
        stride = outer
    aligned = stride % step == 0
    if not known(aligned):
        check(
            aligned,
            lambda: f"strides of {name} must be multiples of 16 bytes, got {show(spec.strides)}",
        )


@rule("aten._grouped_mm.default", padding=grouped_product)
def grouped_mm(
    self: TensorSpec,
    mat2: TensorSpec,
    offs: TensorSpec | None = None,
    bias: TensorSpec | None = None,
    out_dtype: torch.dtype | None = None,
) -> TensorSpec:
    """Products of groups of rows (columns) that end at ``offs``: ``(n, k), (g, k, m) -> (n, m)``,
    ``(n, k), (k, m) -> (g, n, m)``, ``(g, n, k), (k, m) -> (n, m)``, and plainly
    ``(g, n, k), (g, k, m) -> (g, n, m)``.

    Rows of the result start at multiples of 16 bytes.
    """
    if self.dtype is not mat2.dtype:
        raise DtypeError(f"self is of {self.dtype}, mat2 of {mat2.dtype}")
    need_dtype("self", self, (torch.float32, torch.bfloat16, torch.float16))
    need_rank("self", self, 2, 3)
    need_rank("mat2", mat2, 2, 3)
    flat, flat2 = len(self.sizes) == 2, len(mat2.sizes) == 2
    need_equal(self.sizes[-1], mat2.sizes[-2], "the contracted sizes")
    _need_aligned("self", self)
    _need_aligned("mat2", mat2)
    if (flat or flat2) != (offs is not None):
        raise ShapeError("offs goes with a 2-d matrix, and only with one")
    if offs is not None:
        need_rank("offs", offs, 1)
        need_dtype("offs", offs, (torch.int32,))
    if bias is not None:
        raise UnsupportedOp("bias of _grouped_mm")
    if out_dtype is not None and out_dtype is not self.dtype:
        raise DtypeError(f"out_dtype {out_dtype} must be that of self, {self.dtype}")
    if offs is None:
        need_equal(self.sizes[0], mat2.sizes[0], "the numbers of groups")
        sizes = (*self.sizes[:2], mat2.sizes[2])
    elif flat and flat2:
        sizes = (offs.sizes[0], self.sizes[0], mat2.sizes[1])
    else:
        need_equal(offs.sizes[0], (mat2 if flat else self).sizes[0], "the numbers of groups")
        sizes = (self.sizes[-2], mat2.sizes[-1])
    step = 16 // self.dtype.itemsize
    row: Size = sizes[-1]
    if not known(row % step == 0):
        row = (row + (step - 1)) // step * step
    strides = (row, 1) if len(sizes) == 2 else (sizes[1] * row, row, 1)
    return TensorSpec(sizes, strides, 0, self.dtype, self.device)


# --- connectionist temporal classification --------------------------------------------------------


def _ctc(
    log_probs: TensorSpec, targets: TensorSpec, longest: Size
) -> tuple[TensorSpec, TensorSpec]:
    need_rank("log_probs", log_probs, 3)
    need_dtype("log_probs", log_probs, DOUBLES)
    need_dtype("targets", targets, (torch.int64, torch.int32))
    steps, batch, _ = log_probs.sizes
    alpha = TensorSpec.contiguous(
        (batch, steps, 2 * longest + 1), log_probs.dtype, log_probs.device
    )
    return TensorSpec.contiguous((batch,), log_probs.dtype, log_probs.device), alpha


def _ctc_blank(log_probs: TensorSpec, blank: int) -> None:
    need_rank("log_probs", log_probs, 3)
    inside = (blank >= 0) & (blank < log_probs.sizes[2])
    check(inside, lambda: f"blank {blank} is not a label of {show(log_probs.sizes)}")
    check(log_probs.sizes[1] > 0, "the batch must not be empty")


@rule("aten._ctc_loss.default")
def ctc_loss(
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[TensorSpec, TensorSpec]:
    """The loss of each sequence, and log alpha ``(n, t, 2 longest target + 1)``."""
    _ctc_blank(log_probs, blank)
    need_equal(len(input_lengths), log_probs.sizes[1], "input_lengths and the batch")
    need_equal(len(target_lengths), log_probs.sizes[1], "target_lengths and the batch")
    for length in input_lengths:
        check(length <= log_probs.sizes[0], "input_lengths must not be longer than log_probs")
    longest = max((length for length in target_lengths), default=0)
    _ctc_targets(targets, log_probs, target_lengths, longest)
    return _ctc(log_probs, targets, longest)


def _ctc_targets(
    targets: TensorSpec, log_probs: TensorSpec, lengths: Sequence[int], longest: int
) -> None:
    if len(targets.sizes) == 1:
        need_equal(targets.sizes[0], sum(lengths), "targets and the sum of target_lengths")
        return
    need_rank("targets", targets, 1, 2)
    need_equal(targets.sizes[0], log_probs.sizes[1], "targets and the batch")
    check(
        targets.sizes[1] >= longest,
        lambda: f"targets {show(targets.sizes)} are shorter than target_lengths",
    )


@rule("aten._ctc_loss.Tensor", data_dependent=True)
def ctc_loss_tensor(
    ctx: Context,
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: TensorSpec,
    target_lengths: TensorSpec,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[TensorSpec, TensorSpec]:
    """The same with lengths in tensors: that of the longest target depends on data."""
    _ctc_blank(log_probs, blank)
    for name, spec in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if spec.dtype.is_floating_point or spec.dtype.is_complex or spec.dtype is torch.bool:
            raise DtypeError(f"{name} must be integers, got {spec.dtype}")
        need_equal(spec.numel(), log_probs.sizes[1], f"{name} and the batch")
    width = ctx.new_size(1, 2 * targets.sizes[-1] + 1)
    loss, alpha = _ctc(log_probs, targets, 0)
    return loss, TensorSpec.contiguous((*alpha.sizes[:2], width), alpha.dtype, alpha.device)


@rule("aten._ctc_loss_backward.default", "aten._ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: TensorSpec,
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: TensorSpec,
    log_alpha: TensorSpec,
    blank: int,
    zero_infinity: bool = False,
) -> TensorSpec:
    """The gradient of the loss in log_probs, contiguous."""
    need_dtype("log_probs", log_probs, DOUBLES)
    need_same("grad", grad, "log_probs", log_probs)
    return log_probs.fresh()


@rule("aten._batch_norm_with_update.default")
def batch_norm_with_update(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    momentum: float,
    eps: float,
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    """``native_batch_norm`` in training; and room that the backend reserves (none on the CPU)."""
    if input.device.type != "cpu":
        raise UnsupportedOp("the reserve of _batch_norm_with_update on this device")
    output, mean, rstd = batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return output, mean, rstd, TensorSpec.contiguous((0,), torch.uint8, input.device)
