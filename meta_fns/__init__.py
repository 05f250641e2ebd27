"""Meta functions: the metadata of each ATen overload's results, for plain and symbolic sizes.

- ``core`` has the parts that rules are built from: ``TensorSpec`` (sizes, strides, offset, dtype,
  device), sizes that are ints or symbols, layouts, broadcasting, promotion, TensorIterator, checks;
  the registry; derived rules.
- ``padding`` has the padding rules: how an op runs right on tensors whose capacity exceeds their
  true size.
- ``ops`` has the rules, one module a family, each row with its padding rule; importing this package
  registers all.
- ``cost`` writes the cost of a call into the rows: operations, bytes, kernels.

A call of ``infer`` finds the overload's rule by ``registry.lookup``. An in-place, ``out=`` or
copying overload without a rule of its own gets one from its functional twin
(``derived_rules.derive``). Then tensors become specs, arguments are put in their positions, and the
rule is called. The rule checks the arguments (``checks``), combines dtypes (``type_promotion``) and
sizes (``broadcasting``, ``tensor_iterator``), and lays out the result (``layout``, ``dense``,
``view_strides``). It returns specs, or raises where eager raises. Values that depend on data come
from a ``Context``. The tracer calls the same rules on symbolic sizes.

>>> import torch, meta_fns
>>> a = meta_fns.TensorSpec.contiguous((2, 3))
>>> b = meta_fns.TensorSpec.contiguous((3, 5))
>>> meta_fns.infer("aten.mm.default", (a, b)).sizes
(2, 5)
"""

from __future__ import annotations

import meta_fns.core.derived_rules
import meta_fns.cost
import meta_fns.ops  # all three register rules, or write into their rows  # noqa: F401
from meta_fns.core.cost_rule import CostRule, OpCall, Work
from meta_fns.core.inference import infer
from meta_fns.core.memory_safety import MemorySafety, check_memory, checks_data, memory_safety
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
    "checks_data",
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
