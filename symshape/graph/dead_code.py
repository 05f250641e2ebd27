"""Steps whose results nobody reads, and which of them may go."""

from __future__ import annotations

from typing import Any

import torch

from symshape.graph.steps import BATCH_NORM, Node, Step, Value, values_in

_REFUSES_DATA = frozenset(
    f"aten::{name}"
    for name in (
        *("index", "index_select", "gather", "take", "take_along_dim", "embedding", "embedding_bag", "one_hot"),
        "embedding_renorm",
        *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put"),
        *("nll_loss_forward", "nll_loss2d_forward", "bincount", "multinomial", "binary_cross_entropy", "searchsorted"),
        *("linalg_cholesky_ex", "linalg_inv_ex", "_linalg_solve_ex", "_linalg_det", "_linalg_eigh", "cholesky"),
        *("put", "index_reduce", "masked_scatter", "repeat_interleave", "_pack_padded_sequence", "_unsafe_index"),
        *("_embedding_bag", "embedding_dense_backward", "multi_margin_loss", "multilabel_margin_loss_forward"),
        *("_linalg_svd", "linalg_eig", "linalg_lu_factor_ex", "poisson", "binomial"),
        *("_assert_async", "_local_scalar_dense", "max_unpool2d", "max_unpool3d", "ctc_loss", "_ctc_loss"),
        *("histc", "histogram", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "segment_reduce"),
        *("_embedding_bag_forward_only", "nll_loss_backward", "nll_loss2d_backward"),
        *("multi_margin_loss_backward", "multilabel_margin_loss_backward", "lu_unpack", "cholesky_inverse"),
        *("linalg_lstsq", "linalg_pinv", "_linalg_eigvals", "linalg_eigvals"),
    )
)
"""Ops that may refuse the data that they get: they run even where nobody reads their result."""
_REFUSES_NOTHING = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "clone",
            "contiguous",
            "_to_copy",
            "to",
            "copy",
            "lift_fresh_copy",
            "cat",
            "stack",
            "constant_pad_nd",
            "roll",
        ),
        *("flip", "rot90", "repeat", "tile", "tril", "triu", "diag_embed", "slice_scatter", "select_scatter", "fill"),
        *("sum", "nansum", "mean", "nanmean", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "prod"),
        *("all", "any", "var", "std", "var_mean", "std_mean", "logsumexp", "norm", "linalg_vector_norm", "dist"),
        *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "count_nonzero", "median", "nanmedian", "mode"),
        *("sort", "argsort", "topk", "kthvalue", "softmax", "log_softmax", "_softmax", "_log_softmax"),
        *("mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "mv", "addmv", "dot", "vdot", "addr", "outer"),
        *("native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "rms_norm", "_fused_rms_norm"),
        *("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"),
    )
)
"""Ops that refuse arguments by sizes and dtypes alone, which their rules check; so do pointwise ops and views."""
_DRAWS = frozenset({"aten::bernoulli", "aten::normal"})
_DIVISIONS = frozenset(f"aten::{name}" for name in ("div", "divide", "floor_divide", "remainder", "fmod"))


def _is_pure(node: Node) -> bool:
    op = node.op
    return not (
        op._schema.is_mutable
        or node.bindings
        or torch.Tag.nondeterministic_seeded in op.tags
        or op._schema.name in BATCH_NORM
        or op.namespace not in ("aten", "prims")
        or op._schema.name in _REFUSES_DATA
        or not op._schema.returns  # all that it does is to refuse
        or may_divide_by_zero(node)
        or not _refuses_nothing(node)
    )


def _refuses_nothing(node: Node) -> bool:
    """Return whether a call is known to raise for no data: one that is not runs though nobody reads its results."""
    op = node.op
    if op.namespace == "prims" or torch.Tag.pointwise in op.tags or op._schema.name in _REFUSES_NOTHING:
        return True
    viewed = any(each.alias_info is not None for each in op._schema.returns)
    return viewed or not any(True for _ in (*values_in(node.args), *values_in(node.kwargs)))  # a factory


def may_refuse_data(step: Step) -> bool:
    """Whether a step may fail on what its tensors hold: one that fails only on what they are does so at once."""
    if not isinstance(step, Node):
        return True
    op = step.op
    name = op._schema.name.removesuffix("_")  # of one that writes in place
    if name in _DRAWS:  # by probabilities or deviations that are data, but for the written tensor itself
        return op._schema.name == name or len(step.reads) > 1
    refuses = op.namespace not in ("aten", "prims") or name in _REFUSES_DATA or not op._schema.returns
    return refuses or may_divide_by_zero(step)


def may_divide_by_zero(node: Node) -> bool:
    """Whether a node divides integers by what may be zero, which the CPU refuses."""
    if node.op._schema.name.removesuffix("_") not in _DIVISIONS or len(node.args) < 2:
        return False
    by = node.args[1]
    if isinstance(by, (int, float)) and by != 0:
        return False
    tensors = [each for each in (*node.outputs, *node.reads) if each is not None]  # what is written has no output
    return bool(tensors) and not tensors[0].spec.dtype.is_floating_point and not tensors[0].spec.dtype.is_complex


def without_dead_code(steps: list[Step], outputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """The steps without pure ATen calls whose results nobody reads."""
    live: set[Value | None] = set(values_in(outputs))
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Node):
            if live.isdisjoint(step.outputs) and _is_pure(step):
                continue
            live.update(step.reads)
        kept.append(step)
    kept.reverse()
    return tuple(kept)
