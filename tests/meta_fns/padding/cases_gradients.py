"""What the poison harness runs of gradients: the ops that a backward pass calls, on padded
tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.meta_fns.padding.cases import HEADS, Case, case
from tests.meta_fns.padding.poison import floats, ints

aten = torch.ops.aten
ROWS = floats(3, 4, 6, static=(2,))
LINE = floats(6)
KERNEL = torch.linspace(-1, 1, 3 * 2 * 3 * 3).view(3, 2, 3, 3)


def _normed(grad: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """All gradients of a layer norm."""
    grad = grad + x  # of the same sizes
    _, mean, rstd = aten.native_layer_norm(x, [6], weight, bias, 1e-5)
    return aten.native_layer_norm_backward(
        grad, x, [6], mean, rstd, weight, bias, [True, True, bias is not None]
    )


def _attention(query: Any, key: Any, grad: Any, causal: bool = False, mask: Any = None) -> Any:
    if 0 in query.shape or 0 in key.shape:
        raise ValueError("the kernel does not survive empty tensors")
    key = key + query.sum(2, keepdim=True)  # of as many batches and heads
    value = key + 1
    mask = mask if mask is None else mask + query[0, 0] @ key[0, 0].t()
    fused = aten._scaled_dot_product_flash_attention_for_cpu
    out, total = fused(query, key, value, 0.0, causal, attn_mask=mask)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(grad + out, query, key, value, out, total, 0.0, causal, attn_mask=mask)


def _convolved(x: Any, grad: Any, *, stride: int = 1, margin: int = 1) -> Any:
    rest = ([stride, stride], [margin, margin], [1, 1], False, [0, 0], 1)
    shape = aten.convolution(x, KERNEL, None, *rest)
    return aten.convolution_backward(shape * grad, x, KERNEL, [3], *rest, [True, True, True])


def _convolved_back(x: Any, *, stride: int = 1, margin: int = 1, more: int = 0) -> Any:
    rest = ([stride, stride], [margin, margin], [1, 1], True, [more, more], 1)
    kernel = KERNEL.transpose(0, 1).contiguous()
    shape = aten.convolution(x, kernel, None, *rest)
    return aten.convolution_backward(
        shape * 2.0, x, kernel, [kernel.shape[1]], *rest, [True, True, True]
    )


def _pooled(x: Any, window: int, step: int, margin: int) -> Any:
    rest = ([window, window], [step, step], [margin, margin], [1, 1], False)
    values, places = aten.max_pool2d_with_indices(x, *rest)
    return aten.max_pool2d_with_indices_backward(values * 2, x, *rest, places)


def _averaged(x: Any) -> Any:
    rest = ([2, 2], [2, 2], [0, 0], False, True, None)
    adaptive = aten._adaptive_avg_pool2d(x, [2, 2])
    gradient = aten.avg_pool2d(x, *rest) * 2
    return aten.avg_pool2d_backward(gradient, x, *rest), aten._adaptive_avg_pool2d_backward(
        adaptive * 2, x
    )


def _losses(grad: Any, x: Any, target: Any) -> Any:
    """The gradients of losses by element under all reductions."""
    given = grad.sum()
    found = [
        aten.mse_loss_backward(grad if not way else given, x, target, way) for way in (0, 1, 2)
    ]
    found += [
        aten.smooth_l1_loss_backward(grad if not way else given, x, target, way, 0.5)
        for way in (0, 1, 2)
    ]
    found += [
        aten.huber_loss_backward(grad if not way else given, x, target, way, 0.5)
        for way in (0, 1, 2)
    ]
    found += [
        aten.soft_margin_loss_backward(grad if not way else given, x, target, way)
        for way in (0, 1, 2)
    ]
    chance, wanted = x.sigmoid(), target.sigmoid()
    found += [
        aten.binary_cross_entropy_backward(given, chance, wanted),
        aten.binary_cross_entropy_backward(grad, chance, wanted, x.abs(), 0),
    ]
    return found


def _likelihood(x: Any, target: Any, weight: Any = None) -> Any:
    found = []
    op, backward = aten.nll_loss_forward, aten.nll_loss_backward
    if x.ndim == 4:
        op, backward = aten.nll_loss2d_forward, aten.nll_loss2d_backward
    for way in (0, 1, 2):
        loss, total = op(x, target, weight, way, -100)
        found.append(backward(loss * 2, x, target, weight, way, -100, total))
    return found


def _embedded(index: Any, grad: Any) -> Any:
    rows = (grad + index).unsqueeze(-1) * torch.ones(6)
    return (
        aten.embedding_dense_backward(rows, index, 5, -1, False),
        aten.embedding_dense_backward(rows, index, 5, 2, False),
    )


def _stored(x: Any, mean: Any, weight: Any) -> Any:
    """All gradients of a batch norm by stored statistics."""
    if 0 in x.shape:
        raise ValueError("the kernel divides by the number of elements")
    variance = mean.abs() + 1
    out, kept, spread = aten.native_batch_norm(x, weight, weight, mean, variance, False, 0.1, 1e-5)
    rest = (weight, mean, variance, kept, spread, False, 1e-5, [True, True, True])
    return out, aten.native_batch_norm_backward(out * 2, x, *rest)


def _grouped(x: Any, weight: Any) -> Any:
    n, c, positions = x.shape
    out, mean, rstd = aten.native_group_norm(x, weight, weight, n, c, positions, 2, 1e-5)
    return aten.native_group_norm_backward(
        out * x, x, mean, rstd, weight, n, c, positions, 2, [True, True, True]
    )


def _log_sigmoid(x: Any) -> Any:
    out, buffer = aten.log_sigmoid_forward(x)
    return aten.log_sigmoid_backward(out * 2, x, buffer)


def _resampled(x: Any) -> Any:
    """The gradients of the resamplings of two dimensions."""
    n, c, *_ = x.shape
    grad, scales = x.repeat(1, 1, 2, 2), (2.0, 2.0)
    found = [aten.upsample_bilinear2d_backward(grad, [8, 10], [n, c, 4, 5], False, *scales)]
    found += [aten.upsample_bicubic2d_backward(grad, [8, 10], [n, c, 4, 5], True, *scales)]
    return [*found, aten.upsample_nearest2d_backward(grad, [8, 10], [n, c, 4, 5], *scales)]


CLASSES = floats(4, 5, static=(1,))
PLANES = floats(2, 2, 6, 7, static=(1,))

GRADIENTS: tuple[Case, ...] = (
    case(
        "slice_backward",
        lambda g: (
            aten.slice_backward(g, [g.shape[0], g.shape[1] + 2], 1, 2, g.shape[1] + 2, 1).sum(0),
            aten.slice_backward(g, [g.shape[0], 9], 1, 0, g.shape[1], 1) + 1,
            aten.slice_backward(g, [g.shape[0] + 1, g.shape[1]], 0, 0, -1, 1).cumsum(0),
        ),
        floats(3, 4),
    ),
    case(
        "select_backward",
        lambda g, x: (
            aten.select_backward(g, [g.shape[0], x.shape[0]], 1, x.shape[0] - 1).cumsum(1),
            aten.select_backward(g, [x.shape[0] + 1, g.shape[0]], 0, 0) + x.sum(),
        ),
        floats(3),
        floats(4),
    ),
    case(
        "select_backward of the last",
        lambda g, x: aten.select_backward(g, [x.shape[0], x.shape[1], 6], 1, -1).sum(1),
        floats(3, 6, static=(1,)),
        floats(3, 4),
    ),
    case("embedding_dense_backward", _embedded, ints(3, 4, high=5), floats(3, 4)),
    case(
        "native_layer_norm_backward",
        _normed,
        ROWS,
        ROWS,
        floats(6, static=(0,)),
        floats(6, static=(0,)),
        tolerance=1e-4,
    ),
    case(
        "native_layer_norm_backward without bias",
        _normed,
        ROWS,
        ROWS,
        floats(6, static=(0,)),
        tolerance=1e-4,
    ),
    case(
        "native_batch_norm_backward",
        _stored,
        floats(2, 3, 4, 5, static=(1,)),
        floats(3, static=(0,)),
        floats(3, static=(0,)),
        tolerance=1e-4,
    ),
    case(
        "_softmax_backward_data",
        lambda g, x: (
            aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32),
            aten._softmax_backward_data(g, x.softmax(0), 0, torch.float32),
            aten._log_softmax_backward_data(g, x.log_softmax(1), 1, torch.float32).sum(),
        ),
        floats(3, 4),
        floats(3, 4),
    ),
    case(
        "attention, backward",
        lambda q, k, g: _attention(q, k, g),
        HEADS,
        HEADS,
        HEADS,
        tolerance=1e-4,
    ),
    case(
        "attention, causal, backward",
        lambda q, g: _attention(q, q * 2, g, True),
        HEADS,
        HEADS,
        tolerance=1e-3,
    ),
    case(
        "attention with a mask, backward",
        lambda q, k, g, m: _attention(q, k, g, mask=m),
        HEADS,
        floats(2, 2, 7, 8, static=(3,)),
        HEADS,
        floats(5, 7),
        tolerance=1e-4,
    ),
    case("convolution_backward", lambda x: _convolved(x, 2.0), PLANES, tolerance=1e-4),
    case("convolution_backward, transposed", _convolved_back, PLANES, tolerance=1e-4),
    case(
        "convolution_backward, transposed, with steps",
        lambda x: _convolved_back(x, stride=2, more=1),
        PLANES,
        tolerance=1e-4,
    ),
    case(
        "convolution_backward with steps",
        lambda x: _convolved(x, 2.0, stride=2),
        PLANES,
        tolerance=1e-4,
    ),
    case("max_pool2d_with_indices_backward", lambda x: _pooled(x, 2, 2, 0).sum(0), PLANES),
    case(
        "max_pool2d_with_indices_backward, windows that overlap",
        lambda x: _pooled(x, 3, 1, 1),
        PLANES,
    ),
    case(
        "native_group_norm_backward",
        _grouped,
        floats(3, 4, 5, static=(1, 2)),
        floats(4, static=(0,)),
        tolerance=1e-4,
    ),
    case(
        "glu_backward",
        lambda x: aten.glu_backward(aten.glu(x, 1) * 2, x, 1),
        floats(3, 6, 4, static=(1,)),
    ),
    case("log_sigmoid_backward", _log_sigmoid, floats(3, 4)),
    case("upsample_backward", _resampled, floats(3, 2, 4, 5, static=(2, 3))),
    case(
        "products with a vector",
        lambda a, b, c: (aten.mv(a, b), aten.addmv(c, a, b)),
        floats(3, 4),
        floats(4),
        floats(3),
    ),
    case("avg_pool2d_backward", _averaged, floats(3, 2, 6, 4, static=(2, 3))),
    case("losses, backward", _losses, floats(3, 4), floats(3, 4), floats(3, 4), tolerance=1e-4),
    case("nll_loss_backward", _likelihood, CLASSES, ints(4, high=5)),
    case(
        "nll_loss_backward with weights",
        _likelihood,
        CLASSES,
        ints(4, high=5),
        floats(5, positive=True, static=(0,)),
    ),
    case(
        "nll_loss2d_backward", _likelihood, floats(2, 5, 3, 4, static=(1,)), ints(2, 3, 4, high=5)
    ),
)
"""Gradients that are no elementwise op."""
