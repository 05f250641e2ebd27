"""The mode that hands every ATen op of a thread to its tracer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from symshape.errors import UnsupportedError
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.tensors import METADATA, SymbolicTensor

_modes_on_stack = torch._C._len_torch_dispatch_stack


class Dispatcher(Protocol):
    """What is needed of a tracer here."""

    @property
    def env(self) -> ShapeEnv:
        """Its environment, for the user's line in errors."""

    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The op's outputs, written down."""


class TracingMode(TorchDispatchMode):
    """Sends every ATen op, factories and ops on real parameters included, to the tracer."""

    def __init__(self, tracer: Dispatcher) -> None:
        super().__init__()
        self.tracer = tracer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo frame hook around each op

    supports_higher_order_operators = True  # to refuse them ourselves

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            raise UnsupportedError(f"{func} (at {self.tracer.env.origin()}) takes functions, and cannot be traced")
        if func in METADATA and type(args[0]) is SymbolicTensor:
            return METADATA[func](*args)
        return self.tracer.dispatch(func, args, kwargs or {})


def is_tracing() -> bool:
    """Whether this thread is inside a trace of ours."""
    return _modes_on_stack() > 0 and any(isinstance(mode, TracingMode) for mode in _get_current_dispatch_mode_stack())
