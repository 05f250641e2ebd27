"""``torch.stft`` and ``torch.istft``, which C++ decomposes with plain sizes and a question about
data.

The resulting ops are those that eager runs. Each run asserts that no sum of windows is 0.
Source: aten/src/ATen/native/SpectralOps.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.torch_internals import dispatch, operators
from symshape.tracing.symbolic.tensors import SymbolicTensor

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


HANDLERS: dict[Any, Callable[..., Any]] = dict.fromkeys((torch.stft, torch.Tensor.stft), stft)
HANDLERS |= dict.fromkeys((_torch_istft, torch.Tensor.istft), istft)
"""The replacements for ``torch.stft`` and ``torch.istft``, by function; ``FunctionMode`` calls
these.
"""
