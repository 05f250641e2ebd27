"""Dynamo's state of the graph that is being compiled."""

from __future__ import annotations

from typing import Any

from symshape.torch_internals.private import needed

CompileContext: Any = needed("torch._guards.CompileContext")
TracingContext: Any = needed("torch._guards.TracingContext")
tracing: Any = needed("torch._guards.tracing")
