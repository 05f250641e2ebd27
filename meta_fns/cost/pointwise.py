"""Pointwise ops: so many operations for each element of the result, one kernel."""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall, specs_in
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all

__all__ = ["for_each_result"]


def for_each_result(operations: int) -> Formula:
    """Return the formula of ``operations`` for each element of the first result."""

    def flops(call: OpCall) -> Size:
        return product(call.results[0].sizes) * operations

    return flops


_OPERATIONS: dict[int, str] = {
    0: "_conj_physical conj_physical positive",
    1: """
        __and__ __lshift__ __or__ __rshift__ __xor__ abs abs_ acos acosh add angle asin asinh atan
        atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
        bitwise_xor ceil clamp_max clamp_min complex copysign cos cosh deg2rad digamma div eq erf
        erfc erfinv exp exp2 expm1 float_power floor floor_divide fmax fmin fmod frac frexp gcd ge
        gt heaviside hypot i0 igamma igammac isfinite isinf isnan isneginf isposinf lcm ldexp le
        lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor lt masked_fill
        max.other maximum min.other minimum mul multiply ne neg nextafter pow rad2deg reciprocal
        relu remainder round rsqrt sgn sign signbit sin sinh special_airy_ai special_bessel_j0
        special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
        special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
        special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he special_i0e
        special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p
        special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
        special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
        special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
        special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
        special_spherical_bessel_j0 special_zeta sqrt square sub subtract tan tanh threshold
        threshold_backward true_divide trunc where mvlgamma polygamma polygamma_
        """,
    2: """
        _prelu_kernel _prelu_kernel_backward clamp clip hardshrink hardshrink_backward hardtanh
        hardtanh_backward leaky_relu leaky_relu_backward native_dropout native_dropout_backward
        _fused_dropout nan_to_num polar relu6 rrelu rrelu_with_noise rrelu_with_noise_
        rrelu_with_noise_backward rsub sinc softshrink softshrink_backward dropout special_entr
        special_xlog1py xlogy huber_loss_backward mse_loss_backward smooth_l1_loss_backward
        """,
    3: """
        addcdiv addcmul celu elu elu_backward hardsigmoid hardsigmoid_backward lerp logaddexp
        logaddexp2 logit logit_backward selu sigmoid_backward soft_margin_loss_backward
        tanh_backward
        """,
    4: """
        hardswish hardswish_backward sigmoid silu softplus softplus_backward
        fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        """,
    5: "glu log_sigmoid_backward log_sigmoid_forward",
    6: "binary_cross_entropy_backward gelu mish",
    8: "silu_backward glu_backward",
    12: "gelu_backward mish_backward",
}
"""Operations an element; an elementary function counts as one (``silu`` is x / (1 + exp(-x)):
negate, exp, add, divide).
"""


def _for_each_parameter(operations: int) -> Formula:
    """Return the formula of ``operations`` for each element of the tensors in the first list."""

    def flops(call: OpCall) -> Size:
        return sum((product(spec.sizes) * operations for spec in specs_in(call.args[0])), start=0)

    return flops


for _operations, _names in _OPERATIONS.items():
    charge_all(CostRule("pointwise", for_each_result(_operations)), _names)
for _operations, _names in {
    14: "_fused_adam_ _fused_adamw_",
    4: "_fused_sgd_",
    6: "_fused_adagrad_",
}.items():
    # averages, their root, and the update
    charge_all(CostRule("pointwise", _for_each_parameter(_operations)), _names)
charge_all(
    CostRule("pointwise", _for_each_parameter(2)), "_amp_foreach_non_finite_check_and_unscale_"
)
charge_all(CostRule("pointwise", for_each_result(3)), "_amp_update_scale_")
