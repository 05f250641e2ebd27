"""The symbols of torch's sizes. Their kind tells torch's helpers whether a number is computed from
data.
"""

from __future__ import annotations

from typing import Any

from symshape.torch_internals.private import optional

SymT: Any = optional("torch.utils._sympy.symbol.SymT")
"""The kinds of symbols."""
make_symbol: Any = optional("torch.utils._sympy.symbol.make_symbol")
