"""Composites that C++ computes with plain sizes, which would fix them; here the same ops on
symbolic sizes.

Source: aten/src/ATen/native (LinearAlgebra.cpp, TensorFactories.cpp, Itertools.cpp, ReduceOps.cpp,
Correlation.cpp, TensorAdvancedIndexing.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.torch_internals import dispatch, operators
from symshape.tracing.intercept.torch_functions import factories
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import SIZES_ARE_SYMBOLS
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward, spec_of

# -- ``torch.stft`` and ``torch.istft``, which C++ decomposes with plain sizes and a question about
# data.
#
# The resulting ops are those that eager runs. Each run asserts that no sum of windows is 0.
# Source: aten/src/ATen/native/SpectralOps.cpp.
aten = torch.ops.aten
_torch_stft: Any = torch.stft
_torch_istft: Any = operators.variable_functions.istft
_UNSCALED, _BY_ROOT, _BY_SIZE = 0, 1, 2  # normalisations of a transform, as ATen numbers them
_LEAST_SUM = 1e-11


def _is_plain(n_fft: Any, hop: Any, width: Any, window: Any) -> bool:
    """Return whether the window sizes are constants that fit; C++ handles refused sizes and complex
    windows.
    """
    if (
        any(type(each) is not int for each in (n_fft, hop, width))
        or not 0 < width <= n_fft
        or hop <= 0
    ):
        return False
    if window is None:
        return True
    return (
        isinstance(window, torch.Tensor)
        and not window.is_complex()
        and tuple(window.shape) == (width,)
    )


def _warn_as_torch() -> None:
    """Have C++ warn that there is no window: it does so once in a process."""
    with dispatch.modes_disabled():
        _torch_stft(torch.zeros(4), 4, center=False, return_complex=True)


def stft(
    input: SymbolicTensor,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Compute ``torch.stft``: the spectra of overlapping pieces of a signal."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    plain = (
        _is_plain(n_fft, hop, width, window)
        and return_complex is not None
        and align_to_window is None
    )
    if not plain or input.dim() not in (1, 2) or not input.is_floating_point():
        rest = (
            win_length,
            window,
            center,
            pad_mode,
            normalized,
            onesided,
            return_complex,
            align_to_window,
        )
        return _torch_stft(input, n_fft, hop_length, *rest)
    if window is None:
        _warn_as_torch()
    signal = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        margin = n_fft // 2
        signal = torch.nn.functional.pad(signal.unsqueeze(0), [margin, margin], pad_mode).squeeze(0)
    if signal.size(1) < n_fft:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {signal.size(1)}, but got n_fft={n_fft}")
    if width < n_fft:
        whole = torch.zeros(
            n_fft, dtype=input.dtype if window is None else window.dtype, device=input.device
        )
        part = whole.narrow(0, (n_fft - width) // 2, width)
        part.fill_(1) if window is None else part.copy_(window)
        window = whole
    frames = 1 + (signal.size(1) - n_fft) // hop
    row, step = signal.stride()
    columns = signal.as_strided((signal.size(0), frames, n_fft), (row, hop * step, step))
    if window is not None:
        columns = columns.mul(window)
    found = aten._fft_r2c.default(
        columns, [2], _BY_ROOT if normalized else _UNSCALED, onesided is not False
    )
    found = found.transpose(1, 2)
    found = found.squeeze(0) if input.dim() == 1 else found
    return found if return_complex else torch.view_as_real(found)


def istft(
    input: SymbolicTensor,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """Compute ``torch.istft``: the least-squares signal of overlapping spectra."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    plain = _is_plain(n_fft, hop, width, window) and hop <= width and not return_complex
    if not plain or input.dim() not in (2, 3) or not input.is_complex() or input.numel() == 0:
        rest = (window, center, normalized, onesided, length, return_complex)
        return _torch_istft(input, n_fft, hop_length, win_length, *rest)
    one_sided = bool(input.size(-2) != n_fft) if onesided is None else onesided
    if input.size(-2) != (n_fft // 2 + 1 if one_sided else n_fft):
        rest = (window, center, normalized, onesided, length, return_complex)
        return _torch_istft(input, n_fft, hop_length, win_length, *rest)
    kind = torch.view_as_real(input).dtype
    weights = torch.ones(width, dtype=kind, device=input.device) if window is None else window
    if width != n_fft:
        left = (n_fft - width) // 2
        weights = torch.constant_pad_nd(weights, [left, n_fft - width - left], 0)
    spectra = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    if not one_sided:
        spectra = aten.slice.Tensor(spectra, 2, 0, n_fft // 2 + 1)
    frames = spectra.size(1)
    whole = n_fft + hop * (frames - 1)
    pieces = aten._fft_c2r.default(spectra, [2], _BY_ROOT if normalized else _BY_SIZE, n_fft)
    pieces = pieces * weights.view(1, 1, n_fft)
    signal = aten.unfold_backward.default(pieces, [pieces.size(0), whole], 1, n_fft, hop)
    squares = weights.pow(2).expand(1, frames, n_fft)
    sums = aten.unfold_backward.default(squares, [1, whole], 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else -(n_fft // 2) if center else whole
    signal, sums = (aten.slice.Tensor(each, 1, start, end) for each in (signal, sums))
    if window is not None or width != n_fft:  # without a window every sample is covered
        nothing = sums.abs().min().lt(_LEAST_SUM)
        torch._check(nothing.logical_not().item(), lambda: "istft: window overlap add min: 1")
    signal = signal / sums
    if input.dim() == 2:
        signal = signal.squeeze(0)
    if length is not None and end > whole:
        signal = torch.constant_pad_nd(signal, [0, end - whole], 0)
    return signal


_unsafe_view = torch.ops.aten._unsafe_view.default
_torch_combinations, _torch_gradient, _torch_cov = torch.combinations, torch.gradient, torch.cov
_torch_take_along_dim = torch.take_along_dim


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.kron``: every element of the one times the other."""
    dims = max(input.dim(), other.dim())
    ones, others = ([1] * (dims - each.dim()) + list(each.shape) for each in (input, other))
    left = _unsafe_view(input, [size for each in ones for size in (each, 1)])
    right = _unsafe_view(other, [size for each in others for size in (1, each)])
    made: torch.Tensor = _unsafe_view(
        left * right, [a * b for a, b in zip(ones, others, strict=True)]
    )
    return made


def vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> torch.Tensor:
    """Compute ``torch.vander``: the powers of each element, one row for each."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    columns: Any = x.size(0) if N is None else N
    if columns < 0:
        raise RuntimeError("N must be non-negative.")
    dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
    made = torch.empty((x.size(0), columns), dtype=dtype, device=x.device)
    if columns > 0:
        made.select(1, 0).fill_(1)
        if columns > 1:
            powers = made.narrow(1, 1, columns - 1)
            powers.copy_(x.unsqueeze(1))
            powers.copy_(powers.cumprod(1))
    return made if increasing else made.flip(1)


def combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """Compute ``torch.combinations``; pairs are selected by position, and their number follows from
    the size.
    """
    if type(input) is not SymbolicTensor or input.dim() != 1 or r != 2 or input.requires_grad:
        return _torch_combinations(input, r, with_replacement)
    n, offset = input.size(0), 0 if with_replacement else 1
    if input.device.type != "cpu" or type(n) is int:
        return _torch_combinations(input, r, with_replacement)
    rows, columns = factories.make(torch.triu_indices, input._tracer, (n, n, offset), {}).unbind(0)
    return torch.stack([input[rows], input[columns]], 1)


def gradient(input: torch.Tensor, **options: Any) -> Any:
    """Compute ``torch.gradient`` with one spacing for all dimensions."""
    spacing, dim = options.get("spacing", 1), options.get("dim")
    plain = spacing is None or (type(spacing) in (int, float) and spacing != 0)
    if (
        not plain
        or options.get("edge_order", 1) != 1
        or input.dtype not in (torch.float32, torch.float64)
    ):
        return _torch_gradient(input, **options)
    dims: Sequence[Any] = range(input.dim()) if dim is None else [dim] if type(dim) is int else dim
    distinct = {
        each % input.dim()
        for each in dims
        if type(each) is int and -input.dim() <= each < input.dim()
    }
    if len(distinct) != len(dims) or not dims or any(input.size(each) < 2 for each in dims):
        return _torch_gradient(input, **options)
    return tuple(
        _slope(input, each % input.dim(), 1 if spacing is None else spacing) for each in dims
    )


def _slope(tensor: torch.Tensor, dim: int, spacing: float) -> torch.Tensor:
    size: Any = tensor.size(dim)
    first = (tensor.narrow(dim, 1, 1) - tensor.narrow(dim, 0, 1)) / spacing
    last = (tensor.narrow(dim, size - 1, 1) - tensor.narrow(dim, size - 2, 1)) / spacing
    centre = (tensor.narrow(dim, 2, size - 2) - tensor.narrow(dim, 0, size - 2)) / spacing / 2
    return torch.cat([first, centre, last], dim)


def cov(input: torch.Tensor, **options: Any) -> torch.Tensor:
    """Compute ``torch.cov`` without weights: the number of observations is a size, not data."""
    correction = options.get("correction", 1)
    observations: Any = (
        input.size(1) if input.dim() == 2 else input.size(0) if input.dim() == 1 else None
    )
    usual = (
        options.keys() <= {"correction"}
        and type(correction) is int
        and input.dtype is not torch.bool
    )
    if not usual or observations is None or observations <= correction:
        return _torch_cov(input, **options)
    values = input if input.dim() == 2 else input.view(1, -1)
    count = torch.ops.aten.scalar_tensor.default(
        observations, dtype=torch.int64, device=input.device
    )
    centred = values - (values.sum(1) / count).unsqueeze(1)
    return torch.true_divide(centred @ centred.t().conj(), count - correction).squeeze()


def corrcoef(input: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.corrcoef``."""
    found = cov(input)
    if found.dim() == 0:
        return found / found
    deviations = found.diag().sqrt() if not found.is_complex() else torch.real(found.diag()).sqrt()
    found = found / deviations.view(-1, 1)
    found = found / deviations.view(1, -1)
    return (
        found.clip(-1, 1)
        if not found.is_complex()
        else torch.complex(torch.real(found).clip(-1, 1), torch.imag(found).clip(-1, 1))
    )


def take_along_dim(input: torch.Tensor, indices: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """Compute ``torch.take_along_dim``: tensor and positions are broadcast against each other,
    except along ``dim``.
    """
    if dim is None:
        return _torch_take_along_dim(input, indices)
    if (
        type(dim) is not int
        or input.dim() != indices.dim()
        or not -input.dim() <= dim < input.dim()
    ):
        return _torch_take_along_dim(input, indices, dim)
    if indices.dtype is not torch.int64:
        return _torch_take_along_dim(input, indices, dim)
    along = dim % input.dim()
    common = [
        a
        if d == along or (type(b) is int and b == 1) or a is b
        else b
        if type(a) is int and a == 1
        else None
        for d, (a, b) in enumerate(zip(spec_of(input).sizes, spec_of(indices).sizes, strict=True))
    ]
    if None in common:
        return _torch_take_along_dim(input, indices, dim)
    shape = [outward(each) for each in common]
    where = [*shape[:along], indices.size(along), *shape[along + 1 :]]
    return input.expand(shape).gather(along, indices.expand(where))


HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.kron: kron,
    torch.Tensor.kron: kron,
    torch.vander: vander,
    torch.combinations: combinations,
    torch.gradient: gradient,
    torch.cov: cov,
    torch.Tensor.cov: cov,
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.corrcoef: corrcoef,
    torch.Tensor.corrcoef: corrcoef,
    **dict.fromkeys((torch.stft, torch.Tensor.stft), stft),
    **dict.fromkeys((_torch_istft, torch.Tensor.istft), istft),
}


# -- Quantiles, for which C++ of torch before 2.13 asks for plain sizes and the value of the
# fraction; here the same ops.
#
# Source: aten/src/ATen/native/Sorting.cpp.
_TOO_LARGE = 2**24
_ROUNDED: dict[str, Callable[[torch.Tensor], object]] = {
    "lower": torch.Tensor.floor_,
    "higher": torch.Tensor.ceil_,
    "nearest": torch.Tensor.round_,
}


def _by(plain: Callable[..., Any], ignores_nan: bool) -> Callable[..., Any]:
    """Return ``torch.quantile`` or ``torch.nanquantile`` for one fraction given as a number."""

    def quantile(
        input: SymbolicTensor,
        q: Any,
        dim: Any = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Any:
        number, dims = input.dim(), type(dim) is int
        usual = (
            type(q) in (int, float)
            and 0 <= q <= 1
            and input.dtype in (torch.float32, torch.float64)
        )
        known = (
            interpolation in ("linear", "midpoint", *_ROUNDED)
            and (dim is None or dims)
            and number > 0
        )
        if not usual or not known or (dims and not -number <= dim < number) or input.numel() < 1:
            return plain(input, q, dim, keepdim, interpolation=interpolation)
        ordered, shape = _sorted(input, dim, keepdim)
        size: Any = ordered.size(-1)
        if size > _TOO_LARGE:
            return plain(input, q, dim, keepdim, interpolation=interpolation)
        fraction = torch.ops.aten.scalar_tensor.default(q, dtype=input.dtype, device=input.device)
        ordered = ordered.view([*shape, size])
        return _picked(
            ordered, _ranks(ordered, fraction, size, ignores_nan), interpolation
        ).squeeze_(-1)

    return quantile


def _sorted(tensor: torch.Tensor, dim: int | None, keepdim: bool) -> tuple[torch.Tensor, list[Any]]:
    """Return the values sorted along the last dimension, and the sizes of the result."""
    sizes = list(tensor.shape)
    if dim is None:
        return tensor.reshape(-1).sort()[0], [1] * len(sizes) if keepdim else []
    along = dim % len(sizes)
    rest = [*sizes[:along], *([1] if keepdim else []), *sizes[along + 1 :]]
    if along == len(sizes) - 1:
        return tensor.sort()[0], rest
    return tensor.unsqueeze(-1).transpose(along, -1).sort()[0], rest


def _ranks(
    ordered: torch.Tensor, fraction: torch.Tensor, size: Any, ignores_nan: bool
) -> torch.Tensor:
    if ignores_nan:
        ranks: torch.Tensor = fraction * (ordered.isnan().logical_not_().sum(-1, True) - 1)
        return ranks.masked_fill_(ranks < 0, 0)
    ranks, is_nan = torch.broadcast_tensors(fraction * (size - 1), ordered.isnan().any(-1, True))
    return ranks.masked_fill(is_nan, size - 1)  # type: ignore[no-any-return, unused-ignore]


def _picked(ordered: torch.Tensor, ranks: torch.Tensor, interpolation: str) -> torch.Tensor:
    if interpolation in _ROUNDED:
        _ROUNDED[interpolation](ranks)
    below = ranks.to(torch.int64)
    values = ordered.gather(-1, below)
    if interpolation not in _ROUNDED:
        weights = ranks - below if interpolation == "linear" else torch.full_like(ranks, 0.5)
        values.lerp_(ordered.gather(-1, ranks.ceil_().to(torch.int64)), weights)
    return values


_QUANTILE, _NANQUANTILE = _by(torch.quantile, False), _by(torch.nanquantile, True)
QUANTILES: dict[Any, Callable[..., Any]] = (
    {}
    if SIZES_ARE_SYMBOLS
    else {
        **dict.fromkeys((torch.quantile, torch.Tensor.quantile), _QUANTILE),
        **dict.fromkeys((torch.nanquantile, torch.Tensor.nanquantile), _NANQUANTILE),
    }
)
"""The replacements for torch's quantile functions, by function; ``FunctionMode`` calls these."""
