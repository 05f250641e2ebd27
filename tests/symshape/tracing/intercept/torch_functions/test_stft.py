"""``stft`` and ``istft``: equal to eager at every size, one program for all lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

WINDOW = torch.hann_window(16)
Tensor = torch.Tensor


def _spectrum(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.complex64)


def signals(b: int, n: int) -> tuple[Tensor]:
    return (torch.randn(b, 40 + 3 * n),)


def spectra(b: int, n: int) -> tuple[Tensor]:
    return (_spectrum(b, 9, 10 + n),)


CASES: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Any, ...]]]] = {
    "stft": (lambda x: torch.stft(x, 16, 4, window=WINDOW, return_complex=True), signals),
    "stft of one": (
        lambda x: torch.stft(x, 16, window=WINDOW, return_complex=True),
        lambda b, n: (torch.randn(40 + n),),
    ),
    "a short window": (
        lambda x: x.stft(
            16, 4, 10, WINDOW[:10], normalized=True, pad_mode="constant", return_complex=True
        ),
        signals,
    ),
    "no window": (lambda x: torch.stft(x, 16, 4, 10, return_complex=True, center=False), signals),
    "both sides, as real numbers": (
        lambda x: torch.view_as_real(
            torch.stft(x, 16, 5, window=WINDOW, onesided=False, return_complex=True)
        ),
        signals,
    ),
    "istft": (lambda s: torch.istft(s, 16, 4, window=WINDOW), spectra),
    "istft of one": (
        lambda s: s.istft(16, 4, window=WINDOW, length=30),
        lambda b, n: (_spectrum(9, 10 + n),),
    ),
    "istft, longer": (
        lambda s: torch.istft(s, 16, 4, window=WINDOW, length=s.size(-1) * 4 + 20),
        spectra,
    ),
    "istft, a short window": (
        lambda s: torch.istft(s, 16, 4, 10, WINDOW[3:13], normalized=True, length=s.size(-1) * 3),
        spectra,
    ),
    "istft, both sides": (
        lambda s: torch.istft(s, 16, 4, window=WINDOW + 1, center=False, onesided=False),
        lambda b, n: (_spectrum(b, 16, 10 + n),),
    ),
    "istft, no window": (lambda s: torch.istft(s, 16, 5), spectra),
    "there and back": (
        lambda x: torch.istft(
            torch.stft(x, 16, 4, window=WINDOW, return_complex=True),
            16,
            4,
            window=WINDOW,
            length=x.size(-1),
        ),
        signals,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_equal_to_eager(name: str) -> None:
    fn, make = CASES[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for b, n in ((2, 3), (3, 4), (1, 7), (4, 1), (2, 10)):
        args = make(b, n)
        found, expected = compiled(*args), fn(*args)
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected)
    assert compiled.stats().traces <= 2


def test_gradients_flow_there_and_back() -> None:
    fn = CASES["there and back"][0]
    compiled = symshape.compile(lambda x: (fn(x * 2) ** 2).sum(), fullgraph=True)
    for n in (3, 5, 8):
        (x,) = signals(2, n)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(one).backward()
        (fn(other * 2) ** 2).sum().backward()
        torch.testing.assert_close(one.grad, other.grad)


def test_windows_that_sum_to_nothing_are_an_error() -> None:
    def fn(s: Tensor, w: Tensor) -> Tensor:
        return torch.istft(s, 16, 4, window=w)

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (10, 12):
        compiled(_spectrum(2, 9, n), WINDOW)
        with pytest.raises(RuntimeError, match="window overlap add min"):
            compiled(_spectrum(2, 9, n), torch.zeros(16))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.stft(x, 128, return_complex=True, center=False),
        lambda x: torch.stft(x, 16, 4, 20, return_complex=True),
        lambda x: torch.stft(x, 16, 0, return_complex=True),
        lambda x: torch.istft(torch.complex(x, x)[:, :9], 16, 20),
        lambda x: torch.istft(torch.complex(x, x)[:, :8, None], 16),
    ],
)
def test_what_eager_refuses_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 60)
    with pytest.raises(RuntimeError):
        call(x)
    with pytest.raises(RuntimeError):
        symshape.compile(call, dynamic=True)(x)
