"""Functions whose kernels call ops that autocast changes, out of sight of any mode.

A trace writes autocast's casts into the graph, which runs without autocast. Inside such a kernel
there would be no casts.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import dispatch, operators

aten = torch.ops.aten
_FUNCTIONS: Any = (
    *(torch.bilinear, torch.nn.functional.affine_grid, torch.affine_grid_generator),
    *(torch.linalg.pinv, torch.pinverse, torch.Tensor.pinverse),
    *operators.whole_layers,
    *(aten._trilinear, aten.affine_grid_generator, aten.linalg_pinv),
    *(aten._transformer_encoder_layer_fwd, aten._native_multi_head_attention),
)
_overloads = [
    getattr(each, name)
    for each in _FUNCTIONS
    if hasattr(each, "overloads")
    for name in each.overloads()
]
CAST_INSIDE = frozenset((*_FUNCTIONS, *_overloads))
"""The functions whose kernels call ops that autocast changes.

They were found by running each op of torch's own list with autocast and without.
"""


def check_cast_inside(function: Any) -> None:
    """Refuse a function whose kernel casts inside, where autocast is on.

    Raises:
        UnsupportedError: autocast is on.
    """
    if dispatch.any_autocast():
        name = getattr(function, "__name__", str(function))
        raise UnsupportedError(
            f"{name} runs ops inside it that autocast changes, which a compiled graph, where casts "
            "are ops of their own, would leave out; turn autocast off around that call "
            "(torch.autocast(..., enabled=False))",
            reason=Reason.OPERATOR,
        )
