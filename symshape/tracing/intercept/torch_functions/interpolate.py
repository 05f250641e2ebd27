"""``F.interpolate`` on symbolic sizes: C++ computes an op's sizes from scale factors with plain
integers only.

The resulting op is the one that eager runs.
Source: torch/nn/functional.py (interpolate), ATen/native/UpSample.cpp (compute_output_size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.torch_internals import functorch
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward

_aten = torch.ops.aten
_plain_interpolate = torch.nn.functional.interpolate
_OPS: dict[tuple[str, int, bool], Callable[..., Any]] = {
    ("nearest", 3, False): _aten.upsample_nearest1d.default,
    ("nearest", 4, False): _aten.upsample_nearest2d.default,
    ("nearest", 5, False): _aten.upsample_nearest3d.default,
    ("nearest-exact", 3, False): _aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 4, False): _aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 5, False): _aten._upsample_nearest_exact3d.default,
    ("linear", 3, False): _aten.upsample_linear1d.default,
    ("bilinear", 4, False): _aten.upsample_bilinear2d.default,
    ("trilinear", 5, False): _aten.upsample_trilinear3d.default,
    ("bicubic", 4, False): _aten.upsample_bicubic2d.default,
    ("bilinear", 4, True): _aten._upsample_bilinear2d_aa.default,
    ("bicubic", 4, True): _aten._upsample_bicubic2d_aa.default,
}
_NEAREST = ("nearest", "nearest-exact")


def interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """Compute ``F.interpolate``; calls that torch refuses, and modes that need no help, go to
    torch.
    """
    sizes: Sequence[Any] = input._spec.sizes if type(input) is SymbolicTensor else input.shape
    dims = len(sizes) - 2
    op = _OPS.get((mode, dims + 2, antialias))
    given = scale_factor if size is None else size
    each = list(given) if isinstance(given, (list, tuple)) else [given] * max(dims, 0)
    # C++ reads numbers from tensors
    if scale_factor is None and any(type(s) is SymbolicTensor for s in each):
        each = size = [s.item() if type(s) is SymbolicTensor else s for s in each]
    fine = (
        op is not None
        and (size is None) != (scale_factor is None)
        and len(each) == dims
        and not (recompute_scale_factor and scale_factor is None)
        and not (align_corners is not None and mode in _NEAREST)
    )
    symbolic = any(isinstance(s, (IntNode, torch.SymInt)) for s in (*sizes, *each))
    if not fine or not symbolic:
        return _plain_interpolate(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    assert op is not None
    scales: list[float | None] = [None] * dims
    if scale_factor is not None:
        wanted = [
            _scaled(outward(s), float(factor)) for s, factor in zip(sizes[2:], each, strict=True)
        ]
        if not recompute_scale_factor:
            scales = [float(factor) for factor in each]
    else:
        wanted = each
    corners = () if mode in _NEAREST else (bool(align_corners),)
    return op(input, wanted, *corners, *scales)  # type: ignore[no-any-return]


def of_outside(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Compute ``F.interpolate`` of a parameter, a buffer or a constant, whose new size may be
    symbolic.

    A tensor inside a transform of ``torch.func`` may have symbolic sizes itself.
    """
    if functorch.is_wrapped(input):
        return interpolate(input, size, scale_factor, *args, **kwargs)
    given = scale_factor if size is None else size
    each = given if isinstance(given, (list, tuple)) else (given,)
    if not any(type(s) in (torch.SymInt, SymbolicTensor) for s in each):
        return _plain_interpolate(input, size, scale_factor, *args, **kwargs)
    # the mode makes it symbolic
    return interpolate(_aten.alias.default(input), size, scale_factor, *args, **kwargs)


def _scaled(size: Any, factor: float) -> Any:
    """Return the size times the factor, rounded down."""
    return math.floor(size * factor)
