"""Inductor's functions that compile a graph.  Importing this module loads Inductor."""

from __future__ import annotations

from torch._inductor.compile_fx import compile_fx, compile_fx_inner

__all__ = ["compile_fx", "compile_fx_inner"]
