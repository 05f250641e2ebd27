"""Between tensors and Python numbers."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.registry import Context, rule
from meta_fns.core.sizes import check, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import UnsupportedOp

__all__ = ["local_scalar_dense"]

_RANGES = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.int64: (None, None),
    torch.uint16: (0, 2**16 - 1),
    torch.uint32: (0, 2**32 - 1),
    torch.uint64: (0, None),
}


@rule(
    "aten._local_scalar_dense.default",
    "aten.item.default",
    name="the one element",
    data_dependent=True,
)
def local_scalar_dense(ctx: Context, self: TensorSpec) -> Any:
    """The one element as an unknown number of the dtype's kind, within the dtype's range."""
    if self.sizes:
        check(self.numel() == 1, lambda: f"a tensor of sizes {show(self.sizes)} is not one number")
    if self.dtype is torch.bool:
        return ctx.new_bool()
    if self.dtype.is_floating_point:
        return ctx.new_float()
    if self.dtype in _RANGES:
        return ctx.new_int(*_RANGES[self.dtype])
    raise UnsupportedOp(f"a Python number from {self.dtype}")


@rule("aten.is_nonzero.default", data_dependent=True)
def is_nonzero(ctx: Context, self: TensorSpec) -> Any:
    """Return whether the one element is not 0."""
    if self.sizes:
        check(self.numel() == 1, lambda: f"a tensor of sizes {show(self.sizes)} has no truth value")
    return ctx.new_bool()
