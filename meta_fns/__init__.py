"""Op knowledge: what each ATen overload makes of the metadata of its arguments, for plain and symbolic sizes alike.

- ``core`` is what rules are made of: ``TensorSpec`` (sizes, strides, offset, dtype, device), sizes that are ints or
  symbols, layouts, broadcasting, promotion, TensorIterator, checks; the registry; rules derived from other rules.
- ``ops`` is the rules, one module a family; importing this package registers all of them.
- ``cost`` writes into their rows what a call costs: operations, bytes, kernels.

A call of ``infer`` finds the overload's rule (``registry.lookup``; an in-place, ``out=`` or copying overload without
one of its own gets one from its functional twin, ``derived.derive``), turns tensors into specs, puts arguments in their
positions and calls the rule. The rule checks the arguments (``checks``), combines dtypes (``promote``) and sizes
(``broadcasting``, ``iterator``), lays the result out (``layout``, ``dense``, ``view_strides``) and returns specs, or
raises where eager refuses. What only the data tells comes from a ``Context``. The tracer calls the same rules on
symbolic sizes.

>>> import torch, meta_fns
>>> a = meta_fns.TensorSpec.contiguous((2, 3))
>>> b = meta_fns.TensorSpec.contiguous((3, 5))
>>> meta_fns.infer("aten.mm.default", (a, b)).sizes
(2, 5)
"""

from __future__ import annotations

import meta_fns.core.derived
import meta_fns.cost
import meta_fns.ops  # all three register rules, or write into their rows  # noqa: F401
from meta_fns.core.cost_rule import CostRule, OpCall, Work
from meta_fns.core.inference import infer
from meta_fns.core.memory_safety import MemorySafety, check_memory, memory_safety
from meta_fns.core.registry import Aliasing, Context, Rule, aliasing, has_rule, lookup, rules
from meta_fns.core.spec import TensorSpec
from meta_fns.cost.evaluation import work_of
from meta_fns.custom_rules import register_rule
from meta_fns.errors import DataDependentOutput, DtypeError, MetaError, ShapeError, UnsupportedOp

__all__ = [
    "Aliasing",
    "Context",
    "CostRule",
    "DataDependentOutput",
    "DtypeError",
    "MemorySafety",
    "MetaError",
    "OpCall",
    "Rule",
    "ShapeError",
    "TensorSpec",
    "UnsupportedOp",
    "Work",
    "aliasing",
    "check_memory",
    "has_rule",
    "infer",
    "lookup",
    "memory_safety",
    "register_rule",
    "rules",
    "work_of",
]


def __dir__() -> list[str]:
    """Return the public names: what was imported to make them is none of them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
