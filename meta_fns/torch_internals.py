"""The private parts of torch that operator rules use, seen working in torch 2.11 to 2.14.

The parts that only symshape uses are in ``symshape/torch_internals``.  Where a torch lacks one of these, the same is
found or asked in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OperatorBase as OperatorBase
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch.fx.experimental.symbolic_shapes import guard_or_false as guard_or_false
    from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true
else:
    OpOverload = type(torch.ops.aten.add.Tensor)
    OpOverloadPacket = type(torch.ops.aten.add)
    OperatorBase = OpOverload.__mro__[1]
    try:
        from torch._ops import HigherOrderOperator
    except ImportError:
        HigherOrderOperator = type("HigherOrderOperator", (), {})

    def _asked(name: str) -> Any:
        """Return a function that asks the node of a ``torch.SymBool``, where it is not a bool."""
        return lambda condition: condition if isinstance(condition, bool) else getattr(condition.node, name)("", 0)

    try:
        from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true
    except ImportError:
        guard_or_false, statically_known_true = _asked("guard_or_false"), _asked("statically_known_true")
