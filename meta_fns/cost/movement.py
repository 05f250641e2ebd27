"""Ops that move data and compute nothing with it: views, copies, fills, gathers, scatters, random
numbers.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, OpCall, elements, nbytes, specs_in, total, writes
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all
from meta_fns.cost.pointwise import for_each_result


def nothing(call: OpCall) -> Size:
    """0."""
    return 0


def _read_but_first(call: OpCall) -> Size:
    """Return the bytes that a gather reads: as many elements of its source as it returns, and its
    indices.
    """
    return writes(call) + total(nbytes(spec) for spec in specs_in(call.args[1:]))


def _read_embedding(call: OpCall) -> Size:
    """Rows of the weight, as many as there are indices, and the indices."""
    return writes(call) + nbytes(call.args[1])


def _copied_from(call: OpCall) -> Size:
    """Return the bytes that a copy reads: those of its source; the memory that it overwrites is not
    read.
    """
    return total(nbytes(spec) for spec in specs_in(call.args[1:]))


def _read_for_scatter(call: OpCall) -> Size:
    """Indices and sources; and what is written over, unless in place: the rest of it is copied."""
    found = total(nbytes(spec) for spec in specs_in(call.args[1:]))
    return found if call.writes_into else found + nbytes(call.args[0])


def _scattered(call: OpCall) -> Size:
    """Return the bytes that a scatter moves: those of its sources or indices, and the whole copy
    unless in place.
    """
    target = call.args[0]
    sources = [spec for spec in specs_in(call.args[1:]) if spec.dtype == target.dtype]
    if not sources:
        sources = [spec for spec in specs_in(call.args[1:]) if not spec.dtype.is_floating_point][:1]
    found = total(elements(spec) * target.dtype.itemsize for spec in sources[:1])
    return found if call.writes_into else found + nbytes(target)


def _scatter_adds(call: OpCall) -> Size:
    """One operation for each element that is scattered."""
    return total(product(spec.sizes) for spec in list(specs_in(call.args[1:]))[-1:])


_VIEW = CostRule("view", nothing, nothing, nothing, kernels=0)
_FILL = CostRule("creation", nothing, nothing)
_COPY = CostRule("movement", nothing)

charge_all(
    _VIEW,
    """
    _conj _fw_primal _neg_view _reshape_alias _unsafe_view alias as_strided detach expand lift
    lift_fresh numpy_T permute squeeze swapaxes swapdims t transpose unsqueeze view view_as_complex
    view_as_real diagonal select slice split split_with_sizes unsafe_split unsafe_split_with_sizes
    unbind unfold empty empty_like empty_permuted empty_strided new_empty new_empty_strided
    _has_same_storage_numel _efficientzerotensor resize_ resize_as_ _local_scalar_dense item
    _linalg_check_errors
    """,
)
charge_all(
    _FILL,
    """
    full full_like new_full new_ones new_zeros _new_zeros_with_same_feature_meta ones ones_like
    scalar_tensor zeros zeros_like arange eye linspace logspace fft_fftfreq fft_rfftfreq
    tril_indices triu_indices fill zero hann_window hamming_window blackman_window bartlett_window
    kaiser_window
    """,
)
charge_all(
    _COPY,
    """
    _to_copy clone copy reshape resolve_conj resolve_neg view_copy _chunk_cat flip narrow_copy roll
    rot90 cat concat concatenate repeat stack constant_pad_nd reflection_pad1d _pack_padded_sequence
    _pack_padded_sequence_backward _pad_packed_sequence reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d channel_shuffle pixel_shuffle
    pixel_unshuffle im2col block_diag diag_embed tril triu lu_unpack masked_select
    as_strided_scatter diagonal_scatter select_scatter slice_scatter diagonal_backward
    select_backward slice_backward unfold_backward masked_scatter masked_scatter_
    masked_scatter_backward repeat_interleave one_hot nonzero nonzero_static argwhere
    """,
)
charge_all(CostRule("movement", nothing, _copied_from), "copy_")
charge_all(
    CostRule("movement", nothing, _read_but_first),
    "index gather index_select take _unsafe_index _unsafe_masked_index",
)
charge_all(CostRule("movement", nothing, _read_embedding), "embedding")
charge_all(
    CostRule("movement", nothing, _read_for_scatter, _scattered),
    """
    _index_put_impl_ _unsafe_index_put index_copy index_copy_ index_fill index_fill_ index_put
    index_put_ put put_ scatter scatter_
    """,
)
charge_all(
    CostRule("movement", _scatter_adds, _read_for_scatter, _scattered),
    """
    index_add index_add_ index_reduce index_reduce_ scatter_add scatter_add_ scatter_reduce
    scatter_reduce_ _unsafe_masked_index_put_accumulate
    """,
)
charge_all(
    CostRule("movement", lambda call: product(call.args[0].sizes)),
    """
    col2im embedding_dense_backward reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward
    """,
)
charge_all(
    CostRule("random", for_each_result(1)),
    """
    rand rand_like randint randint_like randn randn_like randperm _sample_dirichlet _standard_gamma
    bernoulli bernoulli_ binomial cauchy cauchy_ exponential exponential_ geometric geometric_
    log_normal log_normal_ multinomial normal normal_ poisson random random_ uniform uniform_
    """,
)
