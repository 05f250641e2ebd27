"""Losses and their gradients. ``reduction``: 0 none, 1 mean, 2 sum; a reduced loss is 0-d."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.checks import (
    FLOATS,
    fit_into,
    need_dtype,
    need_equal,
    need_nonempty,
    need_same_sizes,
    need_sizes,
    refuse_unless_empty,
)
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, same_shape, show, static
from meta_fns.core.spec import TensorSpec
from meta_fns.core.tensor_iterator import iterate, laid_out_like
from meta_fns.core.type_promotion import result_type
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import gradients
from meta_fns.padding import losses as padded_losses

__all__: list[str] = []

NONE = 0


def _scalar(spec: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    return TensorSpec((), (), 0, dtype or spec.dtype, spec.device, torch.strided, True)


@rule("aten.mse_loss.default", padding=padded_losses.by_element)
def mse_loss(self: TensorSpec, target: TensorSpec, reduction: int = 1) -> TensorSpec:
    """The squared difference."""
    common = result_type((self, target))
    if common not in FLOATS:
        raise DtypeError(f"not implemented for {common}")
    result = iterate((self, target), common, common)
    return result if reduction == NONE else _scalar(result)


@rule("aten.smooth_l1_loss.default", padding=padded_losses.by_element)
def smooth_l1_loss(
    self: TensorSpec, target: TensorSpec, reduction: int = 1, beta: Any = 1.0
) -> TensorSpec:
    """Squared below ``beta``, absolute above."""
    if not beta >= 0:  # NaN, too
        raise ShapeError(f"beta must not be negative, got {beta}")
    return mse_loss(self, target, reduction)


@rule("aten.huber_loss.default", padding=padded_losses.by_element)
def huber_loss(
    self: TensorSpec, target: TensorSpec, reduction: int = 1, delta: Any = 1.0
) -> TensorSpec:
    """Squared below ``delta``, linear above."""
    if not delta > 0:  # NaN, too
        raise ShapeError(f"delta must be positive, got {delta}")
    return _in_dtype_of(self, mse_loss(self, target, reduction))


def _in_dtype_of(self: TensorSpec, result: TensorSpec) -> TensorSpec:
    if not torch.can_cast(result.dtype, self.dtype):
        raise DtypeError(f"a loss of {result.dtype} does not fit into {self.dtype}")
    return result.with_(dtype=self.dtype)


def _like_input(grad_output: TensorSpec, self: TensorSpec, target: TensorSpec) -> TensorSpec:
    """The gradient in zeros like ``self``, contiguous: operands must broadcast to it."""
    need_dtype("self", self, FLOATS)
    common = result_type((self, target, grad_output))
    if not torch.can_cast(common, self.dtype):
        raise DtypeError(f"a gradient of {common} does not fit into {self.dtype}")
    sizes = broadcast(self.sizes, target.sizes, grad_output.sizes)
    return self.fresh(sizes)


@rule("aten.mse_loss_backward.default", padding=gradients.loss_by_element)
def mse_loss_backward(
    grad_output: TensorSpec, self: TensorSpec, target: TensorSpec, reduction: int
) -> TensorSpec:
    """The gradient of mse_loss in self."""
    return _like_input(grad_output, self, target)


@rule(
    "aten.smooth_l1_loss_backward.default",
    "aten.huber_loss_backward.default",
    name="gradient of smooth l1 loss",
    padding=gradients.loss_by_element,
)
def smooth_l1_loss_backward(
    grad_output: TensorSpec, self: TensorSpec, target: TensorSpec, reduction: int, beta: Any
) -> TensorSpec:
    """The gradient of smooth_l1_loss (huber_loss) in self."""
    return _like_input(grad_output, self, target)


@rule("aten.soft_margin_loss.default", padding=padded_losses.by_element)
def soft_margin_loss(self: TensorSpec, target: TensorSpec, reduction: int = 1) -> TensorSpec:
    """log(1 + exp(-target * self))."""
    fit_into("target", target.sizes, self.sizes)
    common = result_type((self, target))
    if common not in FLOATS:
        raise DtypeError(f"not implemented for {common}")
    result = _in_dtype_of(self, iterate((self, target), common, common))
    return result if reduction == NONE else _scalar(result)


@rule("aten.soft_margin_loss_backward.default", padding=gradients.loss_by_element)
def soft_margin_loss_backward(
    grad_output: TensorSpec, self: TensorSpec, target: TensorSpec, reduction: int
) -> TensorSpec:
    """The gradient of soft_margin_loss in self."""
    common = result_type((grad_output, target, self))
    if target.dtype is torch.bool or not torch.can_cast(common, self.dtype):
        raise DtypeError(f"arguments of {common} have no gradient of {self.dtype}")
    return iterate((grad_output, target, self), self.dtype)


@rule("aten.binary_cross_entropy.default", padding=padded_losses.by_element)
def binary_cross_entropy(
    self: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, reduction: int = 1
) -> TensorSpec:
    """The cross entropy of probabilities, laid out like self where it is not reduced."""
    need_dtype("self", self, FLOATS)
    _need_dtype_of(self, target)
    _squeezed_broadcast(self, target, weight)
    return laid_out_like(self) if reduction == NONE else _scalar(self)


def _need_dtype_of(self: TensorSpec, *others: TensorSpec | None) -> None:
    for other in others:
        if other is not None and other.dtype is not self.dtype:
            raise DtypeError(f"an argument is of {other.dtype}, self of {self.dtype}")


def _squeezed_broadcast(*operands: TensorSpec | None) -> None:
    """Require that operands broadcast once their dimensions of size 1 are gone (which is what eager
    does here).
    """
    given = [t.sizes for t in operands if t is not None]
    if all(same_shape(sizes, given[0]) for sizes in given[1:]):
        return
    if not all(static(sizes) for sizes in given):
        broadcast(*given)
        return
    broadcast(*[tuple(size for size in sizes if size != 1) for sizes in given])


@rule("aten.binary_cross_entropy_backward.default", padding=gradients.loss_by_element)
def binary_cross_entropy_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None = None,
    reduction: int = 1,
) -> TensorSpec:
    """The gradient of binary_cross_entropy in self, laid out like it."""
    need_dtype("self", self, FLOATS)
    _need_dtype_of(self, target, grad_output)
    _squeezed_broadcast(self, target, grad_output, weight)
    return laid_out_like(self)


@rule("aten.binary_cross_entropy_with_logits.default", padding=padded_losses.by_element)
def binary_cross_entropy_with_logits(
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None = None,
    pos_weight: TensorSpec | None = None,
    reduction: int = 1,
) -> TensorSpec:
    """The cross entropy of logits."""
    need_dtype("self", self, FLOATS)
    common = result_type((target, self))
    fit_into("self", self.sizes, target.sizes)
    if pos_weight is not None:
        fit_into("pos_weight", broadcast(pos_weight.sizes, target.sizes), self.sizes)
    if weight is not None:
        fit_into("weight", weight.sizes, target.sizes)
    result = iterate((target,), result_type((target, 1)))
    if common is not result.dtype and not torch.can_cast(common, result.dtype):
        raise DtypeError(f"self of {self.dtype} does not fit target of {target.dtype}")
    return result if reduction == NONE else _scalar(result)


def _nll_checks(self: TensorSpec, target: TensorSpec, weight: TensorSpec | None) -> None:
    if len(self.sizes) not in (1, 2) or len(target.sizes) > 1:
        raise ShapeError(
            f"self must have 1 or 2 dimensions and target 0 or 1: {show(self.sizes)}, "
            f"{show(target.sizes)}"
        )
    if not (len(self.sizes) == 1 and not target.sizes):
        if not target.sizes:
            raise ShapeError(f"target must have a dimension for self {show(self.sizes)}")
        need_equal(self.sizes[0], target.sizes[0], "the batches of self and target")
    if weight is not None:
        _nll_weight(weight, self.sizes[-1])


def _nll_weight(weight: TensorSpec, classes: Size) -> None:
    need_sizes("weight", weight, (classes,))


@rule("aten.nll_loss_forward.default", padding=padded_losses.negative_log_likelihood)
def nll_loss_forward(
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None,
    reduction: int,
    ignore_index: Size,
) -> tuple[TensorSpec, TensorSpec]:
    """The negative log likelihood of the target classes: ``(n, c), (n,) -> (n,)`` or 0-d; and the
    total weight.
    """
    need_dtype("self", self, FLOATS)
    need_dtype("target", target, (torch.int64, torch.uint8))
    _need_dtype_of(self, weight)
    _nll_checks(self, target, weight)
    total = _scalar(self)
    if reduction == NONE and len(self.sizes) == 2:
        return TensorSpec.contiguous((self.sizes[0],), self.dtype, self.device), total
    return total, total


@rule("aten.nll_loss_backward.default", padding=gradients.negative_log_likelihood)
def nll_loss_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None,
    reduction: int,
    ignore_index: Size,
    total_weight: TensorSpec,
) -> TensorSpec:
    """The gradient of nll_loss in self, contiguous."""
    _need_dtype_of(self, grad_output, weight, *(() if reduction == NONE else (total_weight,)))
    need_dtype("self", self, FLOATS)
    need_dtype("target", target, (torch.int64, torch.uint8))
    _nll_checks(self, target, weight)
    need_equal(total_weight.numel(), 1, "total_weight must be one element")
    if reduction == NONE and len(self.sizes) == 2:
        need_sizes("grad_output", grad_output, (self.sizes[0],))
    elif len(grad_output.sizes) > 1:
        raise ShapeError(f"grad_output must be one element, got {show(grad_output.sizes)}")
    else:
        need_equal(grad_output.numel(), 1, "grad_output must be one element")
    return self.fresh()


def _nll2d_checks(self: TensorSpec, target: TensorSpec, weight: TensorSpec | None) -> None:
    if len(target.sizes) != 3 or len(self.sizes) != 4:
        raise ShapeError(
            f"self must have 4 dimensions and target 3: {show(self.sizes)}, {show(target.sizes)}"
        )
    for i in (0, 2, 3):
        need_equal(self.sizes[i], target.sizes[i - (i > 0)], "self and target")
    if weight is not None:
        need_equal(weight.numel(), self.sizes[1], "weight must have an element for each class")


@rule("aten.nll_loss2d_forward.default", padding=padded_losses.negative_log_likelihood)
def nll_loss2d_forward(
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None,
    reduction: int,
    ignore_index: Size,
) -> tuple[TensorSpec, TensorSpec]:
    """Negative log likelihoods by position, ``(n, c, h, w), (n, h, w) -> (n, h, w)`` or 0-d; the
    total weight.
    """
    need_dtype("self", self, FLOATS)
    need_dtype("target", target, (torch.int64, torch.uint8))
    _need_dtype_of(self, weight)
    _nll2d_checks(self, target, weight)
    total = _scalar(self)
    if reduction == NONE:
        return TensorSpec.contiguous(target.sizes, self.dtype, self.device), total
    return total, total


@rule("aten.nll_loss2d_backward.default", padding=gradients.negative_log_likelihood)
def nll_loss2d_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    target: TensorSpec,
    weight: TensorSpec | None,
    reduction: int,
    ignore_index: Size,
    total_weight: TensorSpec,
) -> TensorSpec:
    """The gradient of nll_loss2d in self, contiguous."""
    _need_dtype_of(self, grad_output, weight, *(() if reduction == NONE else (total_weight,)))
    need_dtype("self", self, FLOATS)
    need_dtype("target", target, (torch.int64,))
    _nll2d_checks(self, target, weight)
    need_equal(total_weight.numel(), 1, "total_weight must be one element")
    if reduction == NONE:
        need_sizes("grad_output", grad_output, target.sizes)
    if not self.canonical() and not laid_out_like(self).is_contiguous():
        raise ShapeError(f"self must be contiguous, got {self}")
    return self.fresh()


def _margin_sizes(self: TensorSpec, target: TensorSpec, *, by_class: bool) -> tuple[Size, Size]:
    """Batch and number of classes of a margin loss. ``by_class``: the target has an entry for each
    class.
    """
    ndim = len(self.sizes)
    if ndim > 2:
        raise ShapeError(f"self must have at most 2 dimensions, got {show(self.sizes)}")
    classes = self.sizes[-1] if ndim else 1
    batch = self.sizes[0] if ndim == 2 else 1
    if ndim == 0:
        if len(target.sizes) > 1:
            raise ShapeError(f"target {show(target.sizes)} does not fit self {show(self.sizes)}")
    else:
        need_nonempty("self", self, (ndim - 1,))
    if by_class:
        if ndim < 2:
            if len(target.sizes) > 1:
                raise ShapeError(
                    f"target {show(target.sizes)} does not fit self {show(self.sizes)}"
                )
            need_equal(target.numel(), classes, "target must have an element for each class")
        else:
            need_sizes("target", target, self.sizes)
    else:
        if len(target.sizes) > 1:
            raise ShapeError(f"target must be a vector, got {show(target.sizes)}")
        need_equal(target.numel(), batch, "target must have an element for each row")
    return batch, classes


@rule("aten.multi_margin_loss.default")
def multi_margin_loss(
    self: TensorSpec,
    target: TensorSpec,
    p: Any = 1,
    margin: Any = 1,
    weight: TensorSpec | None = None,
    reduction: int = 1,
) -> TensorSpec:
    """The margin loss of one class: ``(n, c), (n,) -> (n,)`` or 0-d."""
    need_dtype("self", self, (torch.float32, torch.float64))
    need_dtype("target", target, (torch.int64,))
    if p not in (1, 2):
        raise ShapeError(f"p must be 1 or 2, got {p}")
    batch, classes = _margin_sizes(self, target, by_class=False)
    if weight is not None:
        need_equal(weight.numel(), classes, "weight must have an element for each class")
    if reduction == NONE and target.sizes:
        return TensorSpec.contiguous((batch,), self.dtype, self.device)
    return _scalar(self)


@rule("aten.multi_margin_loss_backward.default")
def multi_margin_loss_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    target: TensorSpec,
    p: Any,
    margin: Any,
    weight: TensorSpec | None = None,
    reduction: int = 1,
) -> TensorSpec:
    """The gradient of multi_margin_loss in self, contiguous."""
    _need_dtype_of(self, grad_output, weight)
    need_dtype("self", self, (torch.float32, torch.float64))
    if p not in (1, 2):
        raise ShapeError(f"p must be 1 or 2, got {p}")
    if target.dtype is not torch.int64:
        refuse_unless_empty(f"target must be int64, got {target.dtype}", self.sizes)
    _, classes = _margin_sizes(self, target, by_class=False)
    if weight is not None:
        need_equal(weight.numel(), classes, "weight must have an element for each class")
    return self.fresh()


@rule("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss_forward(
    self: TensorSpec, target: TensorSpec, reduction: int
) -> tuple[TensorSpec, TensorSpec]:
    """The margin loss of several classes: ``(n, c), (n, c) -> (n,)`` or 0-d; and which classes are
    targets.
    """
    need_dtype("self", self, (torch.float32, torch.float64))
    need_dtype("target", target, (torch.int64,))
    batch, _ = _margin_sizes(self, target, by_class=True)
    is_target = TensorSpec.contiguous(target.sizes, self.dtype, self.device)
    if reduction == NONE and len(target.sizes) > 1:
        return TensorSpec.contiguous((batch,), self.dtype, self.device), is_target
    return _scalar(self), is_target


@rule("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    target: TensorSpec,
    reduction: int,
    is_target: TensorSpec,
) -> TensorSpec:
    """The gradient of multilabel_margin_loss in self, contiguous."""
    _need_dtype_of(self, grad_output, is_target)
    need_dtype("self", self, (torch.float32, torch.float64))
    if target.dtype is not torch.int64:
        refuse_unless_empty(f"target must be int64, got {target.dtype}", self.sizes)
    _margin_sizes(self, target, by_class=True)
    need_same_sizes("is_target", is_target, "target", target)
    return self.fresh()
