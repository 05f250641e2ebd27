"""The gradients of fused attention of padded tensors on devices.

Padded queries weigh nothing (their logarithms of sums are infinite, their gradients and results 0),
so they add 0 to the gradients of keys and values; padded keys are hidden as in
:mod:`attention_on_device`.

With dropout, forward was padded in the same program: the same kernel ran at the same capacities, so
that its random state drops the same elements again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.layout import contiguous_strides
from meta_fns.core.sizes import ceil_div, same
from meta_fns.padding.attention import need_mask, prepared
from meta_fns.padding.attention_on_device import (
    ALIGNED,
    added_to_scores,
    infinite_beyond,
    need_as_many_heads,
    needs_no_plan,
    packed,
    unpacked,
)
from meta_fns.padding.axes import capacity_of, is_padded, length
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked

__all__ = ["cudnn_backward", "efficient_backward", "flash_backward"]

_aten = torch.ops.aten


class _Backward:
    """Gradients of attention: what goes into them, with padding that adds nothing to those of keys
    and values.

    Args:
        state: what forward keeps of its random state: the seed and the offset, or both in one and
            something unused.

    Raises: Refuse where dimensions do not fit.
    """

    def __init__(
        self,
        emit: Emitter,
        tensors: tuple[Padded, Padded, Padded, Padded, Padded],
        logarithms: Padded,
        bias: Padded | None,
        dropout: float,
        causal: bool,
        state: tuple[Padded, Padded],
    ) -> None:
        gradient, query, key, value, out = tensors
        if query.ndim != 4:
            raise Refuse("attention without a dimension of heads", *query.sizes)
        self.emit, self.query, self.causal, self.dropout = emit, query, causal, dropout
        self.state = state[0].tensor, state[1].tensor
        self.key, self.value = prepared(emit, query, key, value, causal)
        if causal and is_padded(key.axes[2]):
            need_agreement(query.axes[2], key.axes[2])
        for each in (gradient.axes[:3], out.axes[:3], logarithms.axes[:2]):
            for own, other in zip(each, query.axes, strict=False):
                need_agreement(own, other)
        self.hidden = is_padded(key.axes[2]) and not causal
        self.bias = bias
        if bias is not None:
            need_mask(query, key.axes[2], bias)
            # of rows that weigh nothing, none is no number
            self.bias = masked(emit, bias, 0, {bias.ndim - 2})
        self.rows = [masked(emit, each, 0, {2}).tensor for each in (gradient, query, out)]
        self.logarithms = infinite_beyond(emit, logarithms.tensor, query.axes[2])

    def by_efficient(self, wanted: Sequence[bool], scale: float | None) -> list[Any]:
        """Return the gradients by the memory-efficient kernel, also of the bias; ``wanted`` selects
        them.
        """
        emit, (gradient, query, out) = self.emit, self.rows
        need_as_many_heads(self.query, self.key, self.value)
        bias = self.bias and self.bias.tensor
        if not self.causal and (self.hidden or bias is not None):
            bias = added_to_scores(emit, self.query, self.key, self.bias)
        out, rows = self._heads_inside(out), self._aligned()
        made = emit.call(
            _aten._scaled_dot_product_efficient_attention_backward.default,
            *(
                gradient,
                query,
                self.key.tensor,
                self.value.tensor,
                bias,
                out,
                rows,
                *self._seed_and_offset(),
            ),
            *(self.dropout, list(wanted), self.causal),
            scale=scale,
        )
        found: list[Any] = self._padded(made[:3])
        if self.bias is None or not wanted[3]:
            return [*found, None]
        if tuple(made[3].spec.sizes) != tuple(map(capacity_of, self.bias.axes)):
            return [*found, Refuse("the gradient of a bias that is shared", *self.bias.sizes)]
        return [*found, Padded(made[3], self.bias.axes)]

    def _seed_and_offset(self) -> tuple[Handle, Handle]:
        """Return the random state as the memory-efficient kernel takes it."""
        if not self.dropout:
            none = self.emit.call(
                _aten.scalar_tensor.default, 0, dtype=torch.int64, device=self.query.device
            )
            return none, none
        return unpacked(self.emit, self.state[0]) if self.state[0].spec.sizes else self.state

    def _packed_state(self) -> tuple[Handle, Handle]:
        """Return the random state as flash attention takes it: both numbers in one, and what it
        does not read.
        """
        emit, device = self.emit, self.query.device
        unused = emit.call(_aten.full.default, [], 0, dtype=torch.uint64, device=device)
        if not self.dropout:
            return emit.call(_aten.full.default, [2], 0, dtype=torch.uint64, device=device), unused
        return (self.state[0] if self.state[0].spec.sizes else packed(emit, *self.state)), unused

    def _heads_inside(self, out: Handle) -> Handle:
        """Return the result in the memory layout ``(b, s, h, d)``, whatever strides the kernel is
        told.

        (``o_strideM`` of its parameters in half precision is the product of the heads and their
        size.)
        """
        turned = self.emit.call(_aten.transpose.int, out, 1, 2)
        if tuple(turned.spec.strides) == tuple(contiguous_strides(turned.spec.sizes)):
            return out
        kept = self.emit.call(_aten.clone.default, turned, memory_format=torch.contiguous_format)
        return self.emit.call(_aten.transpose.int, kept, 1, 2)  # type: ignore[no-any-return]

    def _aligned(self) -> Handle:
        """The logarithms as the memory-efficient kernel has them."""
        rows, emit = self.logarithms, self.emit
        if len(rows.spec.sizes) > 3:
            rows = emit.call(_aten.squeeze.dim, rows, -1)
        number = rows.spec.sizes[2]
        if number % ALIGNED:
            rows = emit.call(_aten.constant_pad_nd.default, rows, [0, -number % ALIGNED], math.inf)
        return rows

    def by_flash(self, scale: float | None) -> list[Padded]:
        """Return the gradients by flash attention."""
        emit, (gradient, query, out), rows = self.emit, self.rows, self.logarithms
        if len(rows.spec.sizes) > 3:
            rows = emit.call(_aten.squeeze.dim, rows, -1)
        sizes = self.query.tensor.spec.sizes[2], self.key.tensor.spec.sizes[2]
        return self._padded(
            emit.call(
                _aten._scaled_dot_product_flash_attention_backward.default,
                *(
                    gradient,
                    query,
                    self.key.tensor,
                    self.value.tensor,
                    out,
                    rows,
                    None,
                    None,
                    *sizes,
                ),
                *(self.dropout, self.causal, *self._packed_state()),
                scale=scale,
            )
        )

    def _padded(self, made: Sequence[Handle]) -> list[Padded]:
        pairs = zip(made, (self.query, self.key, self.value), strict=True)
        return [Padded(each, given.axes) for each, given in pairs]


def efficient_backward(
    emit: Emitter,
    grad_out_: Padded | None,
    query: Padded,
    key: Padded,
    value: Padded,
    attn_bias: Padded | None,
    out: Padded,
    logsumexp: Padded,
    philox_seed: Padded,
    philox_offset: Padded,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key, value and bias: padded queries add 0 to them, and padded keys
    weigh nothing.
    """
    if grad_out_ is None:
        return None, None, None, None
    rows = ceil_div(length(query.axes[2]), ALIGNED) * ALIGNED
    aligned = -(-capacity_of(query.axes[2]) // ALIGNED) * ALIGNED
    if not same(length(logsumexp.axes[2]), rows) or logsumexp.tensor.spec.sizes[2] != aligned:
        raise Refuse(
            f"logarithms for {length(logsumexp.axes[2])} queries, not for {rows}", *query.sizes
        )
    tensors = grad_out_, query, key, value, out
    state = philox_seed, philox_offset
    work = _Backward(emit, tensors, logsumexp, attn_bias, dropout_p, is_causal, state)
    return tuple(work.by_efficient(grad_input_mask, scale))


def flash_backward(
    emit: Emitter,
    grad_out: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    cum_seq_q: Padded | None,
    cum_seq_k: Padded | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Padded,
    philox_offset: Padded,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key and value; where padded keys are to be hidden, of the
    memory-efficient kernel.
    """
    if cum_seq_q is not None or cum_seq_k is not None:
        raise Refuse("sequences that lie one behind the other", *query.sizes)
    need_agreement(logsumexp.axes[2], query.axes[2])
    tensors, state = (grad_out, query, key, value, out), (philox_seed, philox_offset)
    work = _Backward(emit, tensors, logsumexp, None, dropout_p, is_causal, state)
    if work.hidden:
        return tuple(work.by_efficient((True, True, True, False), scale)[:3])
    return tuple(work.by_flash(scale))


def cudnn_backward(
    emit: Emitter,
    grad_out: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    philox_seed: Padded,
    philox_offset: Padded,
    attn_bias: Padded | None,
    cum_seq_q: Padded | None,
    cum_seq_k: Padded | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key and value, by flash attention or the memory-efficient kernel.

    How cuDNN's own takes infinite logarithms was not tried.
    """
    if cum_seq_q is not None or cum_seq_k is not None:
        raise Refuse("sequences that lie one behind the other", *query.sizes)
    need_agreement(logsumexp.axes[2], query.axes[2])
    tensors, state = (grad_out, query, key, value, out), (philox_seed, philox_offset)
    work = _Backward(emit, tensors, logsumexp, attn_bias, dropout_p, is_causal, state)
    if (
        not work.hidden
        and attn_bias is None
        and needs_no_plan(query, work.key, work.value, is_causal)
    ):
        return tuple(work.by_flash(scale))
    return tuple(work.by_efficient((True, True, True, False), scale)[:3])
