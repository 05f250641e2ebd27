"""Pointwise ops as data: names (``.default`` unless said), promotion kind, accepted common dtypes.

Kinds: ``same`` output in the common dtype; ``float`` ints and bools compute in the default float
dtype; ``bool`` a bool output; ``real`` complex gives its value dtype; ``angle`` is ``float`` then
``real``; ``double`` computes in double precision. Letters (``core.pointwise.DTYPES``) name the
common dtypes that eager's CPU kernels accept.
"""

from __future__ import annotations

from meta_fns.torch_internals import FROM_2_15

__all__ = ["BINARY", "LIKE", "SCALED", "TERNARY", "UNARY"]

# (names, kind, accepted dtypes)
Row = tuple[str, str, str]

UNARY: tuple[Row, ...] = (
    (
        "atan asin acos rsqrt log2 log sigmoid sin exp cosh log10 log1p reciprocal sinh sqrt tan "
        "tanh expm1 cos sinc acosh asinh atanh exp2",
        "float",
        "buihfc",
    ),
    (
        "special_airy_ai special_log_ndtr special_modified_bessel_k0 special_modified_bessel_k1 "
        "special_ndtri special_erfcx special_bessel_j0 special_spherical_bessel_j0 "
        "special_bessel_j1 special_modified_bessel_i0 special_modified_bessel_i1 "
        "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_bessel_y0 "
        "special_bessel_y1",
        "float",
        "buif",
    ),
    (
        "digamma lgamma erfinv erf logit i0 erfc special_entr special_i0e special_i1 special_i1e",
        "float",
        "buihf",
    ),
    (
        (
            "selu frac softplus mish elu hardshrink hardsigmoid hardswish leaky_relu celu "
            "round.decimals"
        ),
        "same",
        "hf",
    ),
    ("silu", "same", "hfc"),
    ("floor trunc relu ceil round threshold", "same", "uihf"),
    ("sign", "same", "buihf"),
    ("sgn", "same", "buihfcz"),
    ("neg", "same", "uihfcz"),
    ("bitwise_not", "same", "bui"),
    ("isnan", "bool", "buihfczw"),
    ("logical_not", "bool", "buihfc"),
    ("isposinf isneginf signbit", "bool", "buihf"),
    ("abs", "real", "uihfcz"),
    ("angle", "angle", "buihfc"),
)

# A tensor, and a number that promotes but is passed to the kernel.
SCALED: tuple[Row, ...] = (("clamp_max clamp_min", "same", "buihf"),)

# These allocate their output like the input and not through the iterator: the layout differs for
# tensors that are not dense.
LIKE: tuple[Row, ...] = (
    ("deg2rad rad2deg", "float", "buihf"),
    ("_conj_physical", "same", "buihfcz"),
    ("nan_to_num", "same", "buihfc"),
    ("relu6", "same", "uihf"),
    ("hardtanh", "same", "uihf" if FROM_2_15 else "ihf"),
)

_POLYNOMIALS = " ".join(
    f"special_{name}"
    for name in (
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_t",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_t",
        "laguerre_polynomial_l",
        "hermite_polynomial_he",
        "hermite_polynomial_h",
        "legendre_polynomial_p",
    )
)


def _each(names: str, *overloads: str) -> str:
    return " ".join(f"{name}.{overload}" for overload in overloads for name in names.split())


BINARY: tuple[Row, ...] = (
    (_each(_POLYNOMIALS, "default", "n_scalar", "x_scalar"), "float", "buif"),
    (_each("special_zeta", "default", "other_scalar", "self_scalar"), "float", "buif"),
    (
        "clamp_max.Tensor clamp_min.Tensor max.other min.other maximum minimum fmin fmax",
        "same",
        "buihf",
    ),
    ("gelu_backward logit_backward nextafter igamma igammac hypot logaddexp2", "same", "hf"),
    ("logaddexp silu_backward sigmoid_backward tanh_backward", "same", "hfc"),
    ("gcd lcm", "same", "ui"),
    (_each("__lshift__ __rshift__", "Tensor", "Scalar"), "same", "ui"),
    (
        _each("bitwise_left_shift bitwise_right_shift", "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
        "same",
        "ui",
    ),
    (_each("__and__ __or__ __xor__", "Tensor", "Scalar"), "same", "bui"),
    (
        _each("bitwise_and bitwise_or bitwise_xor", "Tensor", "Scalar", "Scalar_Tensor"),
        "same",
        "bui",
    ),
    ("logical_and logical_or logical_xor", "bool", "buihfc"),
    (_each("eq ne", "Tensor", "Scalar"), "bool", "buihfczw"),
    (_each("lt gt le ge", "Tensor", "Scalar"), "bool", "buihf"),
    (
        "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self atan2 copysign.Tensor copysign.Scalar",
        "float",
        "buihf",
    ),
    (_each("special_xlog1py", "default", "other_scalar", "self_scalar"), "float", "buihf"),
    ("div.Tensor div.Scalar true_divide.Tensor", "float", "buihfc"),
    (
        "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar",
        "same",
        "uihf",
    ),
    ("floor_divide floor_divide.Scalar", "same", "uihf"),
    ("pow.Tensor_Tensor", "same", "uihfc"),
    ("add.Tensor add.Scalar mul.Tensor mul.Scalar multiply.Tensor", "same", "buihfcz"),
    (_each("sub rsub subtract", "Tensor", "Scalar"), "same", "uihfcz"),
)

TERNARY: tuple[Row, ...] = (("addcmul", "same", "uihfcz"),)
