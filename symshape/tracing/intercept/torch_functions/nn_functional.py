"""Layers of ``torch.nn.functional`` that C++ computes with plain numbers, which fixes sizes.

Pooling and interpolation may be given sizes (``F.avg_pool2d(x, x.shape[2:])``), and batch norm a
momentum that depends on data.  The recorded op gets its numbers when the graph runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals import functorch
from symshape.tracing.intercept.torch_functions.whole_composites import can_be_whole, run_whole
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward

aten = torch.ops.aten
_F = torch.nn.functional


# -- Pooling
def _pool(
    function: Callable[..., Any], op: OpOverload, finish: Callable[[Any], Any]
) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]

    def use(input: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        sizes = [
            size
            for each in given
            for size in (each if isinstance(each, (list, tuple)) else (each,))
        ]
        if not any(type(size) is torch.SymInt for size in sizes) or not can_be_whole((input,)):
            return function(input, *args, **kwargs)
        found = {name: value for name, value in kwargs.items() if name != "return_indices" or value}
        found |= dict(zip(names[1:], args, strict=False))
        if len(args) >= len(names) or not found.keys() <= set(names):
            return function(input, *args, **kwargs)
        return finish(run_whole(op, [input, *_in_order(op, found)]))

    return use


def _in_order(op: OpOverload, found: dict[str, Any]) -> list[Any]:
    """Return all arguments after the first in schema order; a lone number becomes a list where the
    schema has one.
    """
    values: list[Any] = []
    for slot in op._schema.arguments[1:]:
        value = found.get(slot.name, slot.default_value)
        if value is None and slot.name == "stride":
            value = []
        if str(slot.type) == "List[int]":
            value = list(value) if isinstance(value, Sequence) else [value]
        values.append(value)
    return values


def _itself(result: Any) -> Any:
    return result


def _values(result: Any) -> Any:
    return result[0]


# -- Batch norm with a cumulative average (``momentum=None``)
#
# The number of batches is a tensor, so the weight of the next batch in the running statistics is
# known only when the graph runs. The result does not depend on it: the layer without statistics
# gives the same. A separate call, by the kernel that eager runs, writes the statistics.
_batch_norm = torch.nn.functional.batch_norm
_kernel = torch.ops.aten.native_batch_norm.default


def batch_norm(
    input: SymbolicTensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Compute ``torch.nn.functional.batch_norm`` with a momentum that depends on data."""
    given = running_mean, running_var
    counted = type(momentum) is torch.SymFloat and type(eps) is float and type(training) is bool
    if (
        not counted
        or None in given
        or not can_be_whole((input, *given, weight, bias), on_cuda=True)
    ):
        return _batch_norm(input, *given, weight, bias, training, momentum, eps)
    if not training:
        return _batch_norm(input, *given, weight, bias, False, 0.0, eps)
    found = _batch_norm(input, None, None, weight, bias, True, 0.0, eps)
    with torch.no_grad():
        input._tracer.dispatch(_kernel, (input, None, None, *given, True, momentum, eps), {})
    return found


# -- CTC loss with lengths on another device than the probabilities
#
# C++ reads the lengths on their own device. The decomposition that a mode sees would divide by the
# lengths there, and one kernel computes on one device. So the lengths are moved to the device of
# the probabilities. The loss moves the targets itself, as in eager. Source:
# aten/src/ATen/native/LossCTC.cpp.
def _on_one_device(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return torch's function, called with length tensors moved to the device of the
    probabilities.
    """

    def ctc_loss(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        *args: Any,
        **named: Any,
    ) -> torch.Tensor:
        lengths = (input_lengths, target_lengths)
        if type(log_probs) is SymbolicTensor and all(
            isinstance(each, torch.Tensor) for each in lengths
        ):
            input_lengths, target_lengths = (each.to(log_probs.device) for each in lengths)
        return function(log_probs, targets, input_lengths, target_lengths, *args, **named)

    return ctc_loss


# -- Interpolation: C++ computes an op's sizes from scale factors with plain integers only
#
# The resulting op is the one that eager runs. Source: torch/nn/functional.py (interpolate),
# ATen/native/UpSample.cpp (compute_output_size).
_plain_interpolate = torch.nn.functional.interpolate
_OPS: dict[tuple[str, int, bool], Callable[..., Any]] = {
    ("nearest", 3, False): aten.upsample_nearest1d.default,
    ("nearest", 4, False): aten.upsample_nearest2d.default,
    ("nearest", 5, False): aten.upsample_nearest3d.default,
    ("nearest-exact", 3, False): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 4, False): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 5, False): aten._upsample_nearest_exact3d.default,
    ("linear", 3, False): aten.upsample_linear1d.default,
    ("bilinear", 4, False): aten.upsample_bilinear2d.default,
    ("trilinear", 5, False): aten.upsample_trilinear3d.default,
    ("bicubic", 4, False): aten.upsample_bicubic2d.default,
    ("bilinear", 4, True): aten._upsample_bilinear2d_aa.default,
    ("bicubic", 4, True): aten._upsample_bicubic2d_aa.default,
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


def interpolate_outside(
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
    return interpolate(aten.alias.default(input), size, scale_factor, *args, **kwargs)


def _scaled(size: Any, factor: float) -> Any:
    """Return the size times the factor, rounded down."""
    return math.floor(size * factor)


HANDLERS: dict[Any, Callable[..., Any]] = {
    _F.avg_pool2d: _pool(_F.avg_pool2d, aten.avg_pool2d.default, _itself),
    _F.avg_pool3d: _pool(_F.avg_pool3d, aten.avg_pool3d.default, _itself),
    _F.max_pool2d: _pool(_F.max_pool2d, aten.max_pool2d_with_indices.default, _values),
    _batch_norm: batch_norm,
    _F.interpolate: interpolate,
    **{each: _on_one_device(each) for each in (torch.ctc_loss, _F.ctc_loss)},
}
"""The replacements for these layers, by function; ``FunctionMode`` calls them."""
