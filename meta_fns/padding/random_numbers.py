"""Random numbers for padded tensors: each element is drawn for itself, so valid ones are
distributed as they should be.

The numbers are others than eager's, which draws for the valid elements alone.
"""

from __future__ import annotations

from typing import Any

from meta_fns.padding.padded import Emitter, Padded, apply
from meta_fns.padding.repairs import masked

__all__ = ["DRAWN_ALONE", "drawn", "drawn_by_self", "dropped"]

DRAWN_ALONE = frozenset(
    f"aten::{name}"
    for name in (
        *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "native_dropout"),
        *("bernoulli", "bernoulli_", "uniform", "uniform_", "exponential", "exponential_"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *(
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_efficient_attention_backward",
        ),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"),
    )
)
"""Ops that draw each element for itself: attention, whether it drops a weight."""


def drawn(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Padded:
    """Numbers in the place of those of a tensor, from a distribution that is the same for all of
    them.
    """
    return Padded(apply(emit, self, *args, **kwargs), self.axes)


def drawn_with(emit: Emitter, self: Padded, p: float = 0.5, **kwargs: Any) -> Padded:
    """``bernoulli`` with one probability, which ``bernoulli_`` need not name."""
    return drawn(emit, self, p, **kwargs)


def drawn_by_self(emit: Emitter, self: Padded, **kwargs: Any) -> Padded:
    """Numbers from distributions that the tensor itself names; at its padding nothing is drawn."""
    self = masked(emit, self, 0)
    return Padded(apply(emit, self, **kwargs), self.axes)


def dropped(emit: Emitter, self: Padded, p: float, train: bool | None) -> tuple[Padded, Padded]:
    """``native_dropout``: what is left, and which elements are."""
    tensor, mask = apply(emit, self, p, train)
    return Padded(tensor, self.axes), Padded(mask, self.axes)
