"""Inductor's functions that compile a graph.  Importing this module loads Inductor."""

from __future__ import annotations

from typing import Any

from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from symshape.torch_internals.private import optional

__all__ = ["compile_fx", "compile_fx_inner", "invoke_subgraph"]

invoke_subgraph: Any = optional("torch._higher_order_ops.invoke_subgraph.invoke_subgraph", None)
"""Calls a subgraph of a graph: the subgraphs of one name are compiled once."""
