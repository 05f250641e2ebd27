"""Functions whose kernels call ops that autocast changes, while it is on, where no mode sees them.

The casts of autocast are written into a graph, which runs without it: inside of such a kernel there would be none.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.errors import UnsupportedError
from symshape.torch_internals import dispatch, operators

aten = torch.ops.aten
_FUNCTIONS: Any = (
    *(torch.bilinear, torch.nn.functional.affine_grid, torch.affine_grid_generator),
    *(torch.linalg.pinv, torch.pinverse, torch.Tensor.pinverse),
    *operators.whole_layers,
    *(aten._trilinear, aten.affine_grid_generator, aten.linalg_pinv),
    *(aten._transformer_encoder_layer_fwd, aten._native_multi_head_attention),
)
_overloads = [getattr(each, name) for each in _FUNCTIONS if hasattr(each, "overloads") for name in each.overloads()]
CAST_INSIDE = frozenset((*_FUNCTIONS, *_overloads))
"""These functions: found by running each op of torch's own list with autocast and without."""


def check_cast_inside(function: Any) -> None:
    """Whether one of these functions does what its node in a graph would do.

    Raises:
        UnsupportedError: autocast is on.
    """
    if dispatch.any_autocast():
        name = getattr(function, "__name__", str(function))
        raise UnsupportedError(
            f"{name} calls ops inside that autocast changes, which a graph that has autocast's casts written into it "
            "would not do; turn autocast off around it (torch.autocast(..., enabled=False))"
        )
