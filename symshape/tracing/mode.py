"""The dispatch mode that hands every ATen op of a thread to its tracer."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import dispatch
from symshape.torch_internals.dispatch import TorchDispatchMode
from symshape.torch_internals.dispatch import dispatch_modes as _get_current_dispatch_mode_stack
from symshape.torch_internals.library import generic_scan
from symshape.tracing.intercept.torch_functions.decompositions import is_taken_apart, take_apart
from symshape.tracing.op_plans import plan_of
from symshape.tracing.symbolic.tensors import METADATA, SymbolicTensor, Trace, under_gradients

# hashing an overload runs Python code
_metadata = {id(op): answer for op, answer in METADATA.items()}
modes_on_stack = dispatch.dispatch_mode_count
"""Return the number of active dispatch modes; zero means that no trace is running."""


_WRITTEN_OUT = frozenset({"flex_attention"})
"""Operators that take functions and that eager runs as Python code, which calls each function once.
"""


class TracingMode(TorchDispatchMode):
    """The mode that sends every ATen op to the tracer, factories and ops on real parameters
    included.
    """

    def __init__(self, tracer: Trace) -> None:
        super().__init__()
        self.tracer = tracer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo frame hook around each op

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not isinstance(func, OpOverload):
            return self._higher_order(func, args, kwargs or {})
        answer = _metadata.get(id(func))
        if answer is not None:
            asked = args[0] if type(args[0]) is SymbolicTensor else under_gradients(args[0])
            if asked is not None:
                return answer(asked, *args[1:])
        if modes_on_stack():
            self._check_modes_below(func)
        taken_apart = plan_of(func).taken_apart
        if taken_apart and is_taken_apart(taken_apart, args, kwargs):
            with self:
                return take_apart(func, args, kwargs or {})
        return self.tracer.dispatch(func, args, kwargs or {})

    def _check_modes_below(self, func: Any) -> None:
        """Check that no mode below this one would have made other tensors of the results.

        Raises:
            UnsupportedError: the program entered a mode of torch's own tracers.
        """
        for mode in dispatch.tracers_own_modes():
            raise UnsupportedError(
                f"{func} runs under {type(mode).__name__} (at {self.tracer.env.origin()}), a mode "
                "of torch's own tracers (make_fx, linearize, fake tensors). They see nothing of a "
                "function that is traced; call them outside of it",
                reason=Reason.OTHER_TRACER,
            )

    def _higher_order(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run the branch that sizes choose for ``torch.cond``, and for ``scan`` the loop that eager
        runs.

        Raises:
            UnsupportedError: a branch that only data choose, or another op that takes functions.
        """
        name = str(getattr(func, "_name", func))
        if name == "cond" and not kwargs and not isinstance(args[0], torch.Tensor):
            chosen = args[1] if bool(args[0]) else args[2]
            with self:
                return chosen(*args[3])
        if name in _WRITTEN_OUT:  # traced as the operators that eager runs
            with self:
                return func.py_kernels[dispatch.DispatchKey.CompositeExplicitAutograd](
                    *args, **kwargs
                )
        if name == "scan":
            with self:
                return generic_scan(
                    args[0],
                    args[1],
                    args[2],
                    additional_inputs=tuple(args[3]) if len(args) > 3 else (),
                )
        why = (
            "takes functions, which a compiled graph cannot hold; call it outside the compiled "
            "function"
        )
        if name == "cond":
            why = (
                "chooses by a tensor's data, and a compiled graph does not branch here; choose "
                "with torch.where"
            )
        raise UnsupportedError(
            f"{name} (at {self.tracer.env.origin()}) {why}", reason=Reason.CONTROL_FLOW
        )


_OF_SYMBOLS = "symshape.tracing.symbolic."
_DISPATCHES = TracingMode.__torch_dispatch__.__code__
_FINDS_RULE = getattr(dispatch.find_dispatch_rule, "__code__", None)


def asked_by_cpp(frame: FrameType | None) -> bool:
    """Return whether C++ may wait there for a size, a stride or the like, and end the process if
    the answer is an exception: in code of symbolic tensors and integers, or where the metadata of a
    tensor is dispatched.
    """
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_OF_SYMBOLS):
            return True
        code = frame.f_code
        if code is _FINDS_RULE and id(frame.f_locals.get("op")) in _metadata:
            return True
        if code is _DISPATCHES and id(frame.f_locals.get("func")) in _metadata:
            return True
        frame = frame.f_back
    return False


def is_tracing() -> bool:
    """Return whether this thread is inside a trace of ours."""
    return modes_on_stack() > 0 and any(
        isinstance(mode, TracingMode) for mode in _get_current_dispatch_mode_stack()
    )
