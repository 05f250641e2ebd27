"""The removal of dead code: steps whose results are never read, unless an error would be lost."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from meta_fns.torch_internals import OpOverload
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import BATCH_NORM, Node, Step, Value, values_in
from symshape.torch_internals import pytree

_OPS = """
_to_copy clone contiguous copy lift lift_fresh lift_fresh_copy to zero fill masked_fill cat stack
_chunk_cat block_diag constant_pad_nd roll flip rot90 repeat tile tril triu diag_embed _unsafe_view
alias_copy diagonal_copy diagonal_scatter expand_copy
narrow_copy permute_copy select_scatter slice_scatter split_with_sizes_copy squeeze_copy t_copy
transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy unsafe_split pixel_shuffle
pixel_unshuffle channel_shuffle zeros_like ones_like full_like empty_like new_zeros new_ones
new_full new_empty new_empty_strided linspace logspace complex polar rsub  sum nansum mean nanmean
amax amin aminmax max min argmax argmin prod all any var std var_mean std_mean logsumexp norm
linalg_vector_norm dist trace cumsum cumprod cummax cummin logcumsumexp count_nonzero median
nanmedian mode sort argsort topk kthvalue nonzero nonzero_static masked_select isin bucketize
_unique _unique2 unique_consecutive unique_dim softmax log_softmax _softmax _log_softmax
_safe_softmax _softmax_backward_data _log_softmax_backward_data  mm bmm addmm baddbmm addbmm matmul
linear mv addmv dot vdot addr outer linalg_cross _trilinear _cdist_forward _cdist_backward
_euclidean_dist _pdist_forward _pdist_backward _fft_c2c _fft_c2r _fft_r2c conv1d conv2d conv3d
conv_transpose1d conv_transpose2d conv_transpose3d convolution convolution_backward im2col col2im
mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward
_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
scaled_dot_product_attention  native_layer_norm native_layer_norm_backward layer_norm rms_norm
_fused_rms_norm _fused_rms_norm_backward native_group_norm native_group_norm_backward group_norm
renorm batch_norm native_batch_norm native_batch_norm_backward _native_batch_norm_legit
_batch_norm_with_update batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward glu
glu_backward elu_backward hardshrink_backward hardsigmoid_backward hardswish hardswish_backward
hardtanh_backward leaky_relu_backward log_sigmoid_forward log_sigmoid_backward mish mish_backward
_prelu_kernel _prelu_kernel_backward softplus_backward softshrink_backward rrelu_with_noise_backward
threshold huber_loss huber_loss_backward mse_loss mse_loss_backward smooth_l1_loss
smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward binary_cross_entropy_with_logits
binary_cross_entropy_backward select_backward slice_backward diagonal_backward unfold_backward
masked_scatter_backward  avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
_adaptive_avg_pool3d _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool3d
fractional_max_pool2d fractional_max_pool3d reflection_pad1d reflection_pad1d_backward
reflection_pad2d reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward
replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward
replication_pad3d replication_pad3d_backward upsample_nearest1d upsample_nearest1d_backward
upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward
_upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d
_upsample_nearest_exact2d_backward _upsample_nearest_exact3d _upsample_nearest_exact3d_backward
upsample_linear1d upsample_linear1d_backward upsample_bilinear2d upsample_bilinear2d_backward
upsample_trilinear3d upsample_trilinear3d_backward upsample_bicubic2d upsample_bicubic2d_backward
_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward grid_sampler_2d grid_sampler_3d
grid_sampler_3d_backward  native_dropout native_dropout_backward rand_like randn_like randint_like
uniform exponential geometric cauchy log_normal random _fused_adam _fused_adamw _fused_sgd
_fused_adagrad _amp_foreach_non_finite_check_and_unscale _amp_update_scale _foreach_copy
_foreach_zero _foreach_norm _foreach_max _foreach_clone broadcast_in_dim collapse collapse_view
split_dim convert_element_type view_of rev transpose
"""
_TAKES_ANY_DATA = frozenset(_OPS.split())
"""The ops that raise only because of sizes and dtypes, which their rules check, and for no values
of their tensors.

Pointwise ops and views are others.  ``tests/symshape/graph/test_any_data.py`` gives all kinds of
data to those that the samples of op_db call on the CPU.  Ops of a device, of optimizers and of
recurrent layers stand here untried.
"""
_DRAWS = frozenset({"aten::bernoulli", "aten::normal"})
_STRIDED = frozenset({"aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"})
"""Ops that raise where they reach beyond a storage, whose size no rule knows."""
_ANY_SIZE = torch.iinfo(torch.int64).max
"""The largest size: symbols are no larger."""
_DIVISIONS = frozenset({"div", "divide", "floor_divide", "remainder", "fmod"})


@attrs.frozen(eq=False)
class _OpFacts:
    """The properties of an op's calls that its schema and its name tell.

    Attributes:
        op: the op: kept alive, since it is known by its id (hashing an overload runs Python code).
        is_pure: whether a call without results that are read may be left out, unless it raises.
        takes_any_data: whether it raises for no values of its tensors; None: only if it has none.
        is_of_any_dtype: whether devices implement it for the same dtypes: pointwise ops and views.
        draws: whether its tensors are probabilities or deviations.
        divides: whether it may divide integers.
    """

    op: Any
    is_pure: bool
    takes_any_data: bool | None
    is_of_any_dtype: bool
    draws: bool
    divides: bool


_facts: dict[int, _OpFacts] = {}


def _facts_of(op: Any) -> _OpFacts:
    known = _facts.get(id(op))
    if known is not None:
        return known
    schema = op._schema
    name = schema.name.removesuffix("_")
    seeded = torch.Tag.nondeterministic_seeded in op.tags
    found = _OpFacts(
        op,
        is_pure=not (
            schema.is_mutable or seeded or schema.name in BATCH_NORM or schema.name in _STRIDED
        ),
        takes_any_data=_takes_any_data(op),
        is_of_any_dtype=_is_pointwise_or_view(op),
        draws=name in _DRAWS,
        divides=name.partition("::")[2].removeprefix("_foreach_") in _DIVISIONS,
    )
    if type(op) is OpOverload:  # others die with their programs
        _facts[id(op)] = found
    return found


def _takes_any_data(op: Any) -> bool | None:
    """Return whether an op raises for no values of its tensors; None: only if it has no tensors."""
    schema = op._schema
    if op.namespace not in ("aten", "prims"):
        return False
    if not schema.returns and not schema.is_mutable:  # a check, which only raises
        return False
    if _is_pointwise_or_view(op):
        return True
    name = schema.name.partition("::")[2]
    if schema.is_mutable:
        name = name.removesuffix("_")
    if name in _TAKES_ANY_DATA or _is_pointwise(name.removeprefix("_foreach_")):
        return True
    return None


def _is_pointwise_or_view(op: Any) -> bool:
    if torch.Tag.pointwise in op.tags or torch.Tag.inplace_view in op.tags:
        return True
    schema = op._schema
    return not schema.is_mutable and any(each.alias_info is not None for each in schema.returns)


def may_refuse_data(step: Step) -> bool:
    """Return whether a step may raise because of its tensors' values; True for unknown ops."""
    if not isinstance(step, Node):
        return True
    facts = _facts_of(step.op)
    if facts.draws:
        return not step.op._schema.is_mutable or len(step.reads) > 1
    takes_any_data = facts.takes_any_data
    if takes_any_data is None:  # a factory takes no tensors
        takes_any_data = not any(True for _ in (*values_in(step.args), *values_in(step.kwargs)))
    return not takes_any_data or (facts.divides and _may_divide_by_zero(step))


@cache
def _is_pointwise(name: str) -> bool:
    """Return whether all overloads of the ATen op of this name are pointwise, as then its list
    variants are.
    """
    packet = getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, each) for each in packet.overloads()]
    return bool(overloads) and all(torch.Tag.pointwise in each.tags for each in overloads)


def _may_refuse_device(node: Node) -> bool:
    """Return whether an op may raise because of its tensors' devices, or of their dtype on a device
    other than the CPU: rules know the dtypes of the CPU's kernels.
    """
    if len({each.spec.device for each in node.reads}) > 1:
        return True
    facts = _facts_of(node.op)
    return not facts.is_of_any_dtype and any(
        each.spec.device.type != "cpu" and not each.spec.dtype.is_floating_point
        for each in node.reads
    )


def _may_divide_by_zero(node: Node) -> bool:
    """Return whether a division is one of integers by a divisor that may be zero, for which the CPU
    raises.
    """
    if len(node.args) < 2:
        return False
    by = node.args[1]
    if isinstance(by, (int, float)) and by != 0:
        return False
    # an in-place op has no output
    tensors = [each for each in (*node.outputs, *node.reads) if each is not None]
    return (
        bool(tensors)
        and not tensors[0].spec.dtype.is_floating_point
        and not tensors[0].spec.dtype.is_complex
    )


@cache
def _range_of(dtype: torch.dtype) -> tuple[float, float]:
    """Return the least and the largest number of a dtype; none where torch does not tell."""
    if dtype.is_complex or dtype is torch.bool:
        return -math.inf, math.inf
    try:
        found = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        return found.min, found.max
    except (TypeError, NotImplementedError):  # dtypes of a few bits
        return math.inf, -math.inf


def _may_refuse_numbers(node: Node) -> bool:
    """Return whether an op may raise because a number does not fit into the dtype of a tensor.

    Sizes count as such numbers, too, as nothing tells them apart.
    """
    if any(each.alias_info is not None for each in node.op._schema.returns):
        return False  # a view: all of its numbers are sizes, strides and dimensions
    dtypes = {each.spec.dtype for each in (*node.outputs, *node.reads) if each is not None}
    ranges = [_range_of(dtype) for dtype in dtypes]
    lowest = max((least for least, _ in ranges), default=-math.inf)
    highest = min((most for _, most in ranges), default=math.inf)
    whole = any(not dtype.is_floating_point for dtype in dtypes)
    for number in pytree.tree_leaves((node.args, node.kwargs)):
        if type(number) is FloatTerm or (type(number) is Term and highest < _ANY_SIZE):
            return True
        if (
            type(number) in (int, float)
            and not lowest <= number <= highest
            and (whole or math.isfinite(number))
        ):
            return True
    return False


def without_dead_code(steps: list[Step], outputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """Return the steps without pure ATen calls whose results are never read."""
    live: set[Value | None] = set(values_in(outputs))
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Node):
            if (
                live.isdisjoint(step.outputs)
                and not step.bindings
                and _facts_of(step.op).is_pure
                and not may_refuse_data(step)
                and not _may_refuse_device(step)
                and not _may_refuse_numbers(step)
            ):
                continue
            live.update(step.reads)
        kept.append(step)
    kept.reverse()
    return tuple(kept)
