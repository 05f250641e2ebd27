"""Reductions, scans, losses and normalisations: so many operations for each element that they
read.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all

__all__ = ["for_each_element"]


def for_each_element(operations: int) -> Formula:
    """Return the formula of ``operations`` for each element of the first tensor among the
    arguments.
    """

    def flops(call: OpCall) -> Size:
        first = next(iter(call.tensors), None)
        return 0 if first is None else product(first.sizes) * operations

    return flops


_REDUCTIONS: dict[int, str] = {
    1: """
        all amax amin any argmax argmin count_nonzero equal max.default max.dim mean
        min.default min.dim nansum prod sum trace _is_all_true _is_any_true is_nonzero
        hash_tensor cumprod cumprod_ cumsum cumsum_ cummax cummin
        """,
    2: "aminmax linalg_vector_norm norm renorm allclose",
    3: "dist logcumsumexp",
    4: "logsumexp std std_mean var var_mean",
}
_LOSSES: dict[int, str] = {
    2: "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward",
    3: "mse_loss smooth_l1_loss huber_loss",
    4: "soft_margin_loss multi_margin_loss multilabel_margin_loss_forward",
    5: "multi_margin_loss_backward multilabel_margin_loss_backward",
    6: "binary_cross_entropy binary_cross_entropy_with_logits",
    8: "_ctc_loss _ctc_loss_backward",
}
_NORMALISATIONS: dict[int, str] = {
    4: "_fused_rms_norm _softmax_backward_data _log_softmax_backward_data _weight_norm_interface",
    5: """
        _softmax _log_softmax _safe_softmax _masked_softmax native_batch_norm cudnn_batch_norm
        _native_batch_norm_legit _batch_norm_with_update
        """,
    8: (
        "native_layer_norm native_group_norm _fused_rms_norm_backward "
        "_weight_norm_interface_backward"
    ),
    9: "native_batch_norm_backward cudnn_batch_norm_backward batch_norm_backward",
    13: "native_layer_norm_backward native_group_norm_backward",
}
"""Operations an element: softmax finds the greatest, subtracts it, exponentiates, sums, divides; a
layer norm takes mean and variance, subtracts, divides, scales and shifts.
"""

for _family, _table in (
    ("reduction", _REDUCTIONS),
    ("loss", _LOSSES),
    ("normalisation", _NORMALISATIONS),
):
    for _operations, _names in _table.items():
        charge_all(CostRule(_family, for_each_element(_operations)), _names)
