"""The private parts of torch that operator rules use, seen working in torch 2.11 to 2.15.

The parts that only symshape uses are in ``symshape/torch_internals``.  Where a torch lacks one of
these, the same is found or asked in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

FROM_2_15 = torch.torch_version.TorchVersion(torch.__version__) >= "2.15"
"""True for a torch whose ops differ from those of 2.14: empty batches of Fourier transforms,
``hardtanh`` of unsigned integers.
"""

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OperatorBase as OperatorBase
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
else:
    OpOverload = type(torch.ops.aten.add.Tensor)
    OpOverloadPacket = type(torch.ops.aten.add)
    OperatorBase = OpOverload.__mro__[1]
    try:
        from torch._ops import HigherOrderOperator
    except ImportError:
        HigherOrderOperator = type("HigherOrderOperator", (), {})


def guard_or_false(condition: bool | torch.SymBool) -> bool:
    """Return whether ``condition`` holds, with a guard; False if only data decide the condition."""
    return condition if isinstance(condition, bool) else bool(_ask("guard_or_false", condition))


def statically_known_true(condition: bool | torch.SymBool) -> bool:
    """Return whether ``condition`` is provably true, without a guard."""
    return (
        condition if isinstance(condition, bool) else bool(_ask("statically_known_true", condition))
    )


def _ask(name: str, condition: torch.SymBool) -> Any:
    """Call torch's function of this name; ask the condition's node itself where this torch lacks
    the function.

    The module is imported here, and not above, because importing it loads SymPy.
    """
    try:
        from torch.fx.experimental import symbolic_shapes
    except ImportError:
        found = None
    else:
        found = getattr(symbolic_shapes, name, None)
    return getattr(condition.node, name)("", 0) if found is None else found(condition)
