"""The memory safety of ops: which calls of an op stay within the memory of its arguments.

PyTorch's public functions check their arguments before they call a kernel.  Kernels that only such
functions call, and the backward of most ops, do not check: a call with other sizes reads and writes
beyond its tensors.  Programs that come from a file may name any op with any arguments, so each op
with a rule is one of three kinds.  The lists were found by ``tests/fuzz/fuzz_op_memory.py``: it
calls ops with arguments of wrong sizes between pages that may not be touched.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from meta_fns.core.inference import infer
from meta_fns.core.probed_ops import PROBED
from meta_fns.errors import DataDependentOutput, ShapeError
from meta_fns.torch_internals import OpOverload

__all__ = ["MemorySafety", "check_memory", "checks_data", "memory_safety"]


class MemorySafety(enum.Enum):
    """The three kinds of ops by memory safety: whether their calls stay within the memory of their
    arguments.
    """

    SAFE = "on any arguments: its kernel checks them"
    CHECKED = "on arguments that check_memory admits"
    UNSAFE = "not known of any arguments"


_PRIVATE_AND_SAFE = frozenset(
    {
        *(
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool3d",
            "_addmm_activation",
            "_cdist_forward",
            "_chunk_cat",
        ),
        *("_euclidean_dist", "_fft_c2r", "_grouped_mm", "_int_mm", "_linalg_det", "_linalg_eigh"),
        *(
            "_linalg_slogdet",
            "_linalg_solve_ex",
            "_linalg_svd",
            "_local_scalar_dense",
            "_log_softmax",
        ),
        *(
            "_pdist_forward",
            "_prelu_kernel",
            "_prelu_kernel_backward",
            "_safe_softmax",
            "_scaled_mm",
            "_softmax",
        ),
        *(
            "_softmax_backward_data",
            "_standard_gamma",
            "_to_copy",
            "_unique",
            "_unique2",
            "_unsafe_index",
        ),
        *(
            "_unsafe_index_put",
            "_unsafe_view",
            "_upsample_nearest_exact1d",
            "_upsample_nearest_exact2d",
        ),
        *("_upsample_nearest_exact2d_backward", "_upsample_nearest_exact3d", "avg_pool2d_backward"),
        *(
            "binary_cross_entropy_backward",
            "convolution_backward",
            "diagonal_backward",
            "elu_backward",
        ),
        *(
            "gelu_backward",
            "glu_backward",
            "hardsigmoid_backward",
            "hardswish_backward",
            "hardtanh_backward",
        ),
        *("huber_loss_backward", "leaky_relu_backward", "log_sigmoid_backward", "logit_backward"),
        *("masked_scatter_backward", "max_pool3d_with_indices_backward"),
        *(
            "mish_backward",
            "mse_loss_backward",
            "native_dropout_backward",
            "native_group_norm_backward",
        ),
        *(
            "nll_loss2d_backward",
            "nll_loss_backward",
            "rrelu_with_noise_backward",
            "select_backward",
        ),
        *("sigmoid_backward", "silu_backward", "slice_backward", "smooth_l1_loss_backward"),
        *("soft_margin_loss_backward", "softplus_backward", "tanh_backward", "threshold_backward"),
        "upsample_nearest2d_backward",
    }
)
# Python's operators (``__and__``), and safe ops on lists of tensors
_PRIVATE_FAMILIES = ("__", "_foreach_")
_UNSAFE = frozenset(
    {
        *("resize_", "resize_as_", "set_"),  # they expose unwritten memory
        *(
            "lu_unpack",
            "linalg_ldl_solve",
            "segment_reduce",
        ),  # they do not check the numbers in an index
        *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
    }
)


def _vector(tensor: Any, size: int, name: str) -> None:
    if tensor is not None and tensor.numel() != size:
        raise ShapeError(f"{name} has {tensor.numel()} elements, and {size} are read")


def _same(tensor: Any, other: Any) -> None:
    if tuple(tensor.shape) != tuple(other.shape):
        raise ShapeError(
            f"tensors of sizes {list(tensor.shape)} and {list(other.shape)} are read as if of one "
            "size"
        )


def _gradient_first(gradient: Any, forward: Any, *_: Any, **__: Any) -> None:
    _same(gradient, forward)


def _layer_norm_backward(
    gradient: Any, given: Any, sizes: Sequence[int], mean: Any, rstd: Any, *vectors: Any
) -> None:
    _same(gradient, given)
    inner = prod(sizes)
    if not sizes or tuple(given.shape[-len(sizes) :]) != tuple(sizes):
        raise ShapeError(f"{list(given.shape)} does not end with {list(sizes)}")
    for each in (mean, rstd):
        _vector(
            each, given.numel() // inner if inner else prod(given.shape[: -len(sizes)]), "a mean"
        )
    for each in vectors[:2]:
        _vector(each, inner, "a weight")


def _batch_norm(given: Any, *vectors_and_numbers: Any, **_: Any) -> None:
    if given.dim() < 2:
        raise ShapeError("batch normalization of less than two dimensions")
    for each in vectors_and_numbers:
        if hasattr(each, "numel"):
            _vector(each, given.shape[1], "a vector of channels")


def _batch_norm_backward(
    gradient: Any,
    given: Any,
    weight: Any,
    mean: Any,
    var: Any,
    saved: Any,
    inverse: Any,
    train: bool,
    *_: Any,
) -> None:
    _same(gradient, given)
    _batch_norm(given, weight, mean, var, *((saved, inverse) if train else ()))
    if (None in (saved, inverse)) if train else (mean is None or var is None):
        raise ShapeError("batch normalization without statistics")


def _attention(query: Any, key: Any, value: Any, *_: Any, attn_mask: Any = None, **__: Any) -> None:
    if query.dim() != 4:
        raise ShapeError(f"attention of {query.dim()} dimensions")
    batch, heads, length, width = query.shape
    if tuple(key.shape) != (batch, heads, key.shape[2] if key.dim() == 4 else -1, width):
        raise ShapeError(f"keys of sizes {list(key.shape)} for queries of {list(query.shape)}")
    if tuple(value.shape) != tuple(key.shape):
        raise ShapeError(f"values of sizes {list(value.shape)} for keys of {list(key.shape)}")
    if attn_mask is not None:
        wanted = (batch, heads, length, key.shape[2])[4 - attn_mask.dim() :]
        if attn_mask.dim() not in (2, 4) or any(
            a not in (1, b) for a, b in zip(attn_mask.shape, wanted, strict=True)
        ):
            raise ShapeError(
                f"a mask of sizes {list(attn_mask.shape)} for scores of {list(wanted)}"
            )


def _attention_by_kernel(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> None:
    _attention(query, key, value, *rest, **named)
    if not query.numel() or not key.numel():  # the kernel divides by the length
        raise ShapeError("attention of no elements")


def _attention_of_any_layout(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    if query.dim() < 2 or key.dim() < 2 or key.shape[:-1] != value.shape[:-1]:
        raise ShapeError(f"values of sizes {list(value.shape)} for keys of {list(key.shape)}")


def _pool_backward(
    gradient: Any, given: Any, window: Any, strides: Any, *_rest_and_indices: Any, **_: Any
) -> None:
    indices = _rest_and_indices[-1]
    _same(gradient, indices)
    inside = given.shape[-1] * given.shape[-2]
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= inside):
        raise ShapeError(f"an index beyond the {inside} elements that were pooled")


def _unfold_backward(
    gradient: Any, sizes: Sequence[int], dim: int, size: int, step: int, *_: Any
) -> None:
    rank = len(sizes)
    if not -max(rank, 1) <= dim < max(rank, 1) or step <= 0 or size < 0:
        raise ShapeError(f"windows of {size} elements by {step} along the dimension {dim}")
    windows = list(sizes)
    if rank:
        windows[dim] = (windows[dim] - size) // step + 1 if windows[dim] >= size else -1
    if list(gradient.shape) != [*windows, size]:
        raise ShapeError(f"a gradient of sizes {list(gradient.shape)} for {[*windows, size]}")


def _finite(matrix: Any) -> None:
    if not bool(matrix.isfinite().all()):
        raise ShapeError("LAPACK does not return from eigenvalues of NaN or infinity")


def _by_rule(*_: Any, **__: Any) -> None:
    """Accept any arguments: the op's shape rule checks enough."""


_CHECKED: dict[str, Callable[..., None]] = {
    "_batch_norm_with_update": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "_log_softmax_backward_data": _gradient_first,
    "_scaled_dot_product_flash_attention_for_cpu": _attention_by_kernel,
    "scaled_dot_product_attention": _attention_of_any_layout,
    "max_pool2d_with_indices_backward": _pool_backward,
    "unfold_backward": _unfold_backward,
    "_linalg_eigvals": _finite,
    "linalg_eigvals": _finite,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn_layer"), _by_rule),
    **dict.fromkeys(
        ("_fft_c2c", "_fft_r2c", "_fused_dropout", "_fused_rms_norm", "_weight_norm_interface"),
        _by_rule,
    ),
    **dict.fromkeys(("_native_multi_head_attention", "_transformer_encoder_layer_fwd"), _by_rule),
    **dict.fromkeys(("_cudnn_rnn", "_thnn_fused_lstm_cell", "_pack_padded_sequence"), _by_rule),
    **dict.fromkeys(
        ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"), _by_rule
    ),
    **dict.fromkeys(("_scaled_dot_product_cudnn_attention", "_flash_attention_forward"), _by_rule),
    **dict.fromkeys(
        ("_efficient_attention_forward", "_scaled_dot_product_fused_attention_overrideable"),
        _by_rule,
    ),
}
"""The checks of arguments by op name, beyond those of the op's shape rule."""
READ_DATA = frozenset({"_linalg_eigvals", "linalg_eigvals", "max_pool2d_with_indices_backward"})
"""The checked ops whose check reads elements of the arguments, so that it must be repeated for
equal sizes.
"""


def memory_safety(op: OpOverload) -> MemorySafety:
    """Return whether a torch op stays within the memory of its arguments.

    >>> import torch
    >>> aten = torch.ops.aten
    >>> [
    ...     memory_safety(each).name
    ...     for each in (aten.add.Tensor, aten.native_batch_norm.default, aten.resize_.default)
    ... ]
    ['SAFE', 'CHECKED', 'UNSAFE']
    """
    name = op._schema.name.partition("::")[2]
    if name in _CHECKED:
        return MemorySafety.CHECKED
    if name in _UNSAFE:
        return MemorySafety.UNSAFE
    probed = (
        name.removesuffix("_") in PROBED
        or name.removesuffix("_copy") in PROBED
        or name == "lift_fresh_copy"
    )
    if probed or name in _PRIVATE_AND_SAFE or name.startswith(_PRIVATE_FAMILIES):
        return MemorySafety.SAFE
    return MemorySafety.UNSAFE


def checks_data(op: OpOverload) -> bool:
    """Return whether :func:`check_memory` of an op reads elements of its arguments, and not only
    sizes.
    """
    return op._schema.name.partition("::")[2] in READ_DATA


def _by_position(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return all arguments of a call: positional ones by position, keyword-only ones by name."""
    given, named = list(args), {}
    for argument in op._schema.arguments[len(args) :]:
        value = kwargs.get(argument.name, argument.default_value)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            given.append(value)
    return given, named


def check_memory(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise unless a call of a ``CHECKED`` op stays within the memory of its arguments.

    Raises:
        ShapeError: the op's rule refuses the arguments, or they are smaller than what the kernel
            reads.
    """
    name = op._schema.name.partition("::")[2]
    with contextlib.suppress(DataDependentOutput):  # the rule's checks have passed
        infer(op, args, dict(kwargs))
    given, named = _by_position(op, args, kwargs)
    try:
        _CHECKED[name](*given, **named)
    except ShapeError as error:
        raise error.at(str(op)) from None
