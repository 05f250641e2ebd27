"""Composites inside of gradient transforms: eager's gradients, in one program for all sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jvp, vjp

import symshape

Function = Callable[[torch.Tensor], torch.Tensor]
SIZES = (3, 5, 2, 9, 4, 7)


def served(
    program: Callable[..., object], calls: list[tuple[torch.Tensor, ...]], traces: int = 3
) -> None:
    """A few programs at most: some ops ask whether a size is 1, or as it was."""
    compiled = symshape.compile(program, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        for call in calls:
            torch.testing.assert_close(
                compiled(*call), program(*call), rtol=0, atol=0, equal_nan=True
            )
    assert symshape.compiled_of(compiled).stats().traces <= traces


def images() -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(n, 3, n + 1, 2 * n),) for n in SIZES]


def rows() -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(n, 3),) for n in SIZES]


def squares(function: Function) -> Function:
    return lambda x: (function(x) ** 2).sum()


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2},
        {"scale_factor": 1.5, "mode": "bilinear"},
        {"scale_factor": (0.5, 3.0), "mode": "bicubic", "align_corners": True},
        {"size": (5, 7), "mode": "bilinear"},
        {"size": 6, "mode": "nearest-exact"},
        {"scale_factor": 0.7, "mode": "bilinear", "recompute_scale_factor": True},
        {"scale_factor": 2, "mode": "area"},
    ],
    ids=str,
)
def test_interpolate(options: dict[str, object]) -> None:
    resized = lambda x: F.interpolate(x, **options)  # type: ignore[arg-type]  # noqa: E731
    served(
        grad(squares(resized)), images(), traces=len(SIZES) if options.get("mode") == "area" else 3
    )
    if options.get("mode") != "area":
        served(lambda x: vjp(resized, x)[1](resized(x).cos())[0], images())
        served(lambda x: jvp(resized, (x,), (x.sin(),))[1], images())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.masked_select(x, x > 0),
        lambda x: x.masked_select(torch.tensor([True, False, True])),
        lambda x: torch.kron(x, torch.ones(2, 2)),
        lambda x: torch.gradient(x, dim=0)[0],
        torch.cov,
        torch.corrcoef,
    ],
    ids=["masked_select", "broadcast mask", "kron", "gradient", "cov", "corrcoef"],
)
def test_gradients(function: Function) -> None:
    served(grad(squares(function)), rows())


def test_gradients_of_gradients() -> None:
    """Vmap asks for the sizes."""
    served(
        hessian(lambda x: (x.masked_select(x > 0) ** 3).sum()),
        [(torch.randn(n),) for n in SIZES],
        len(SIZES),
    )


def test_gradients_of_a_module() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Upsample(scale_factor=2)
    )
    weights = {name: each.detach() for name, each in module.named_parameters()}

    def program(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return grad(lambda w: functional_call(module, w, (x,)).square().sum())(weights)  # type: ignore[no-any-return]

    compiled = symshape.compile(program, dynamic=True)
    for (x,) in images():
        torch.testing.assert_close(compiled(x), program(x))
    assert symshape.compiled_of(compiled).stats().traces == 1
    assert symshape.compiled_of(compiled).stats().fallbacks == 0


def test_a_spectrum_is_traced_whatever_its_size() -> None:
    """Autograd in C++ asks for the sizes of what ``as_strided`` reads: a program for each length,
    none refused.
    """
    served(
        grad(lambda x: torch.stft(x, 8, window=torch.ones(8), return_complex=True).abs().sum()),
        [(torch.randn(16 + n),) for n in SIZES],
        traces=len(SIZES),
    )
