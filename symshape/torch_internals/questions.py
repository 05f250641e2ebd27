"""The questions of torch about sizes whose answer changes no value, so that they need no guard.

Each was read in the source: the header as torch 2.11, 2.13 and 2.14 install it, the other files in
public copies.  Tests compare their effects with eager on these versions.  Later versions guard
every question, until they are read too.
"""

from __future__ import annotations

from types import FrameType

import torch

READ = torch.torch_version.TorchVersion(torch.__version__) < "2.15"
"""True if this version is not later than those that were read and tested."""
SUMS = "/aten/src/ATen/ExpandUtils.h"
"""The source that asks whether to sum a gradient over a size, which it does in its next op.

Where the size is 1 in another call, eager's result is the gradient itself.
"""
ONE_RESULT: tuple[str, ...] = (
    "/torch/csrc/autograd/input_metadata.cpp",
    SUMS,
    "/aten/src/ATen/ExpandUtils.cpp",
    "/aten/src/ATen/TensorUtils.cpp",
)
"""The sources whose questions all need no guard; none in versions that were not read.

The first three ask whether a size is 1, to sum a gradient or to broadcast.  If the answer is no,
they check that both sizes are equal, and that check becomes the guard: a call with a size of 1 that
passes it has nothing to sum, and nothing to broadcast.  The rest of their questions choose between
no expansion and one to the same sizes.  The last asks whether ``reshape`` can make a view: the rule
of ``view`` asks that again, and a copy is known as one (see ``graph/reshape_copies.py``).
"""
if not READ:
    ONE_RESULT = ()
_BROADCAST = "_broadcast_shapes", "/torch/_refs/__init__.py"
_BETWEEN = 3
"""The most frames between a question of Python code and the function that asks it."""


def broadcasts(frame: FrameType | None) -> bool:
    """Return whether ``torch.broadcast_shapes`` asks, a few frames below this one.

    It checks that sizes are equal if none is known to be 1, so the shape is the same either way.
    """
    name, file = _BROADCAST
    for _ in range(_BETWEEN):
        if frame is None or not READ:
            return False
        code = frame.f_code
        if code.co_name == name and code.co_filename.endswith(file):
            return True
        frame = frame.f_back
    return False
