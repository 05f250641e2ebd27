"""The public ops that were called with wrong sizes, indices and data, and never left the memory of
their arguments.

An op that is not listed is not known to be safe: add it after ``tests/fuzz/fuzz_op_memory.py`` has
called it.
"""

from __future__ import annotations

__all__ = ["PROBED"]

PROBED = frozenset(
    """
    abs acos acosh adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv
    addr affine_grid_generator alias all allclose amax amin aminmax angle any arange argmax argmin
    argwhere as_strided as_strided_scatter asin asinh atan atan2 atanh avg_pool2d avg_pool3d baddbmm
    bartlett_window bernoulli binary_cross_entropy binary_cross_entropy_with_logits bincount
    binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    blackman_window block_diag bmm bucketize cat cauchy cdist ceil celu channel_shuffle cholesky
    cholesky_inverse cholesky_solve clamp clamp_max clamp_min clip clone col2im complex concat
    concatenate conj_physical constant_pad_nd convolution copy copysign cos cosh count_nonzero
    cummax cummin cumprod cumsum deg2rad detach diag_embed diagonal diagonal_scatter digamma dist
    div dot dropout elu embedding embedding_renorm empty empty_like empty_permuted empty_strided eq
    equal erf erfc erfinv exp exp2 expand expm1 exponential eye
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask fft_fftfreq
    fft_rfftfreq fill flip float_power floor floor_divide fmax fmin fmod frac fractional_max_pool2d
    fractional_max_pool3d frexp full full_like gather gcd ge gelu geometric geqrf glu
    grid_sampler_2d grid_sampler_3d gru_cell gt hamming_window hann_window hardshrink hardsigmoid
    hardswish hardtanh hash_tensor heaviside histc histogram huber_loss hypot i0 igamma igammac
    im2col index index_add index_copy index_fill index_put index_reduce index_select is_nonzero
    isfinite isin isinf isnan isneginf isposinf item kaiser_window kthvalue lcm ldexp le leaky_relu
    lerp lgamma lift lift_fresh linalg_cholesky_ex linalg_cross linalg_eig
    linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex linalg_lstsq linalg_lu
    linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr
    linalg_solve_triangular linalg_vector_norm linspace log log10 log1p log2 log_normal
    log_sigmoid_forward logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or
    logical_xor logit logspace logsumexp lstm_cell lt masked_fill masked_scatter masked_select max
    max_pool1d max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d maximum
    mean median min minimum mish mm mode mse_loss mul multi_margin_loss
    multilabel_margin_loss_forward multinomial multiply mv mvlgamma nan_to_num nanmedian nansum
    narrow_copy native_dropout native_group_norm native_layer_norm ne neg new_empty
    new_empty_strided new_full new_ones new_zeros nextafter nll_loss2d_forward nll_loss_forward
    nonzero nonzero_static norm normal numpy_T one_hot ones ones_like ormqr permute pixel_shuffle
    pixel_unshuffle poisson polar polygamma positive pow prod put rad2deg rand rand_like randint
    randint_like randn randn_like random randperm reciprocal reflection_pad1d reflection_pad2d
    reflection_pad3d relu relu6 remainder renorm repeat repeat_interleave replication_pad1d
    replication_pad2d replication_pad3d reshape resolve_conj resolve_neg rnn_relu_cell rnn_tanh_cell
    roll rot90 round rrelu rrelu_with_noise rsqrt rsub scalar_tensor scatter scatter_add
    scatter_reduce searchsorted select select_scatter selu sgn sigmoid sign signbit silu sin sinc
    sinh slice slice_scatter smooth_l1_loss soft_margin_loss softplus softshrink sort sparse_mask
    sparse_sampled_addmm special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0
    special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u
    special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_entr special_erfcx
    special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1 special_i1e
    special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py special_zeta
    split split_with_sizes sqrt square squeeze stack std std_mean sub subtract sum swapaxes swapdims
    t take tan tanh threshold topk trace transpose triangular_solve tril tril_indices triu
    triu_indices true_divide trunc unbind unfold uniform unique_consecutive unique_dim
    unique_dim_consecutive unsafe_split unsafe_split_with_sizes unsqueeze upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d var var_mean vdot view view_as_complex view_as_real view_copy where xlogy
    zero zeros zeros_like
    """.split()  # noqa: SIM905 - one name a line would be 422 lines
)
