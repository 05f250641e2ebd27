"""Dynamo's ways to pass on a graph, and its state of the graph that is being compiled.

Importing this module loads Dynamo.
"""

from __future__ import annotations

from typing import Any

from symshape.torch_internals.private import needed, optional

aot_autograd: Any = optional("torch._dynamo.backends.common.aot_autograd")
TorchDynamoException: Any = optional("torch._dynamo.exc.TorchDynamoException", ())
wrapping: str = optional("torch._dynamo.external_utils.__file__", "")
"""The file of the functions that torch puts around modules and functions that are not the user's.
"""
FakeTensor: Any = optional("torch._subclasses.fake_tensor.FakeTensor")
guard_scalar: Any = optional("torch.fx.experimental.symbolic_shapes.guard_scalar")


CompileContext: Any = needed("torch._guards.CompileContext")
TracingContext: Any = needed("torch._guards.TracingContext")
tracing: Any = needed("torch._guards.tracing")
