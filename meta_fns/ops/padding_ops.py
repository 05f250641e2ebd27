"""Padding: constant, reflection, replication, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core import dense
from meta_fns.core.checks import (
    COMPLEX,
    FLOATS,
    need_dtype,
    need_equal,
    need_nonempty,
    need_rank,
    need_same,
)
from meta_fns.core.registry import register, rule
from meta_fns.core.sizes import Shape, Size, check, known, only_at_run_time, show, sym_min
from meta_fns.core.spec import TensorSpec, in_suggested_format
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.padding import joining as padded_joining
from meta_fns.padding.rearranging import mirrored

__all__ = ["constant_pad_nd"]


@rule("aten.constant_pad_nd.default", padding=padded_joining.margin)
def constant_pad_nd(self: TensorSpec, pad: Sequence[Size], value: Any = 0) -> TensorSpec:
    """Elements of a number before and after the last dimensions; negative ones cut.

    ``pad[2 i]`` and ``pad[2 i + 1]`` are how many before and after the i-th dimension from the end.
    """
    if len(pad) % 2:
        raise ShapeError(f"pad needs an even number of values, got {len(pad)}")
    n, padded = len(self.sizes), len(pad) // 2
    if padded > n:
        raise ShapeError(f"pad names {padded} dimensions, self has {n}: {show(self.sizes)}")
    sizes = list(self.sizes)
    grows = False
    open_amounts = []
    cut = list(self.sizes)
    for i in range(padded):
        before, after = pad[2 * i], pad[2 * i + 1]
        d = n - 1 - i
        for amount in (before, after):
            if type(amount) is not int and not known(amount <= 0) and only_at_run_time(amount < 0):
                open_amounts.append(amount)
                cut[d] = cut[d] + sym_min(amount, 0)
            elif known(amount >= 0) or not (known(amount <= 0) or amount < 0):
                if known(amount > 0):
                    grows = True
                elif not (type(amount) is int and amount == 0):
                    open_amounts.append(amount)
            else:
                cut[d] = cut[d] + amount
        sizes[d] = self.sizes[d] + before + after
        for size in (cut[d], sizes[d]):
            if not (type(size) is int and size >= 0) and not known(size >= 0):
                check(
                    size >= 0,
                    lambda: f"padding {show(self.sizes)} by {list(pad)} gives a negative size",
                )
    # Where nothing is added eager clones, which keeps more layouts; a contiguous tensor gives a
    # contiguous one anyway.
    if not grows and open_amounts:
        grows = self.canonical() or any(bool(amount != 0) for amount in open_amounts)
    if not grows:
        strides = dense.like_strides(tuple(cut), self.strides, None)
        return TensorSpec(tuple(cut), strides, 0, self.dtype, self.device)
    return in_suggested_format(self, tuple(sizes))


def _padded_sizes(
    self: TensorSpec, padding: Sequence[Size], n: int, *, reflect: bool, nonempty: bool
) -> Shape:
    if len(padding) != 2 * n:
        raise ShapeError(f"padding needs {2 * n} values, got {len(padding)}")
    need_rank("self", self, n + 1, n + 2)
    ndim = len(self.sizes)
    if nonempty:
        # Only the batch may be empty.
        need_nonempty("self", self, range(ndim - n - 1, ndim))
    sizes = list(self.sizes)
    left: Any = False
    for i, d in enumerate(range(ndim - 1, ndim - 1 - n, -1)):
        before, after = padding[2 * i], padding[2 * i + 1]
        size = self.sizes[d]
        if reflect:
            for amount in (before, after):
                fits = amount < size
                if not known(fits):
                    check(
                        fits,
                        lambda: (
                            f"reflection by {list(padding)} must be less than the sizes "
                            f"{show(self.sizes)}"
                        ),
                    )
        sizes[d] = size + before + after
        if not known(sizes[d] >= 0):
            check(
                sizes[d] >= 0,
                lambda: f"padding {show(self.sizes)} by {list(padding)} gives a negative size",
            )
        left = left | (sizes[d] >= 1)
    if not known(left):
        check(left, lambda: f"padding {show(self.sizes)} by {list(padding)} leaves nothing")
    return tuple(sizes)


def _register(kind: str, n: int) -> None:
    reflect = kind == "reflection"

    def keeps_format(self: TensorSpec) -> bool:
        return n > 1 and self.device.type == "cpu"

    def pad(self: TensorSpec, padding: Sequence[Size]) -> TensorSpec:
        if self.dtype is torch.bool:
            raise DtypeError("not implemented for bool")
        sizes = _padded_sizes(self, padding, n, reflect=reflect, nonempty=True)
        return in_suggested_format(self, sizes, keeps=keeps_format(self))

    def pad_backward(
        grad_output: TensorSpec, self: TensorSpec, padding: Sequence[Size]
    ) -> TensorSpec:
        sizes = _padded_sizes(self, padding, n, reflect=reflect and n == 1, nonempty=False)
        if len(grad_output.sizes) != len(sizes):
            raise ShapeError(
                f"grad_output {show(grad_output.sizes)} must be of sizes {show(sizes)}"
            )
        # Eager looks at the padded dimensions only.
        looked_at = n + (kind == "replication" and n == 3)
        for mine, wanted in zip(grad_output.sizes[-looked_at:], sizes[-looked_at:], strict=True):
            need_equal(mine, wanted, "grad_output does not fit")
        need_same("grad_output", grad_output, "self", self)
        need_dtype("grad_output", grad_output, FLOATS | COMPLEX)
        return in_suggested_format(self, keeps=keeps_format(self))

    pad.__doc__ = (
        f"{kind.capitalize()} padding of the last {n} dimensions: `[before, after]` "
        "from the last one on."
    )
    pad_backward.__doc__ = f"The gradient of {kind}_pad{n}d."
    register(f"aten.{kind}_pad{n}d.default", pad, name=f"{kind} padding", padding=mirrored)
    register(
        f"aten.{kind}_pad{n}d_backward.default", pad_backward, name=f"gradient of {kind} padding"
    )


for _n in (1, 2, 3):
    _register("reflection", _n)
    _register("replication", _n)
