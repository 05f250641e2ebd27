"""Operators that take functions, such as ``torch.cond``, as torch's own code finds them during a
trace.

The functions that a program calls (``torch.cond``, ``while_loop``, ``scan``) check their arguments
and would then compile a call of the operator. A trace makes a node of the operator instead.
(Private names, checked on 2.11 and 2.13.)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals.dispatch import dispatch_modes as _get_current_dispatch_mode_stack
from symshape.tracing.intercept.scans import by_levels
from symshape.tracing.intercept.vmapped_branches import cond_of_examples, is_transformed

_CALLERS = "torch/_higher_order_ops/"


def _flows() -> Any:
    """Return the object that makes control-flow nodes for this thread's trace."""
    tracers = [
        mode.tracer for mode in _get_current_dispatch_mode_stack() if hasattr(mode, "tracer")
    ]
    if not tracers:
        raise UnsupportedError(
            "torch.cond, while_loop, scan or associative_scan is called on traced tensors in a "
            "thread that does not trace; call it in the thread that runs the compiled function",
            reason=Reason.CONTROL_FLOW,
        )
    return tracers[-1].flows


def _exchanged(operator: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for an operator.

    Calls from torch's own code, or with a graph that torch made, go to ``ours``; other calls go to
    the operator.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename.replace("\\", "/")
        known = _CALLERS in caller or any(
            isinstance(each, torch.fx.GraphModule) for each in args[:3]
        )
        return (ours if known else operator)(*args, **kwargs)

    return call


def _cond(condition: Any, then: Any, otherwise: Any, operands: Any) -> Any:
    if is_transformed():
        return cond_of_examples(_flows(), _cond, condition, then, otherwise, operands)
    return _flows().cond(condition, then, otherwise, operands)


def _torch_cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """Compute ``torch.cond``; a symbolic condition goes to the operator, where torch would take it
    for a known one.
    """
    if type(pred) is torch.SymBool and isinstance(operands, (tuple, list)):
        return _cond(pred, true_fn, false_fn, tuple(operands))
    return torch.cond(pred, true_fn, false_fn, operands)


def _while_loop(goes_on: Any, body: Any, carried: Any, more: Any = (), **unknown: Any) -> Any:
    if unknown:
        raise UnsupportedError(
            "while_loop is called with keyword arguments that torch itself does not pass; call "
            "it as while_loop(cond_fn, body_fn, carried_inputs)",
            reason=Reason.CONTROL_FLOW,
        )
    if is_transformed():
        raise UnsupportedError(
            "while_loop is called under a transform of torch.func (grad, vmap …), which torch "
            "refuses too; call it outside the transform",
            reason=Reason.TRANSFORMS,
        )
    return _flows().while_loop(_with(goes_on, more), _with(body, more), carried)


def _with(function: Any, more: Any) -> Any:
    """Return a function that also gets the additional inputs ``more``, which are not carried."""
    return functools.partial(_called, function, tuple(more)) if more else function


def _called(function: Any, more: tuple[Any, ...], *carried: Any) -> Any:
    return function(*carried, *more)


def _scan(combine: Any, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    return _flows().scan(combine, init, xs, additional_inputs)


def _associative_scan(combine: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    """Compute the associative scan that a program requests on devices
    (``combine_mode="pointwise"``), as eager does.

    Its gradients differ on devices: on 2.13 they are not those of the values where a function mixes
    its operands.
    """
    found = by_levels(combine, xs, additional_inputs=additional_inputs)
    if any(each.requires_grad for each in found):
        raise UnsupportedError(
            'associative_scan(..., combine_mode="pointwise") cannot be traced while '
            'gradients are recorded; use combine_mode="generic", or call it under '
            "torch.no_grad()",
            reason=Reason.CONTROL_FLOW,
        )
    return found


_OURS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "associative_scan": _associative_scan,
}


def _run(function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function`` here, in the trace, in place of torch's helper that compiles it with Dynamo
    and runs it.
    """
    return function(*args)


def _table() -> dict[int, Any]:
    found: dict[int, Any] = {}
    for name, ours in _OURS.items():
        operator = getattr(
            sys.modules.get(f"{torch.__name__}._higher_order_ops.{name}"), f"{name}_op", None
        )
        if operator is not None:  # this version of torch may lack it
            found[id(operator)] = _exchanged(operator, ours)
    compiling = getattr(
        sys.modules.get(f"{torch.__name__}._higher_order_ops.utils"),
        "_maybe_compile_and_run_fn",
        None,
    )
    if compiling is not None:  # 2.11 to 2.13
        found[id(compiling)] = _run
    found[id(torch.cond)] = _torch_cond
    return found


CONTROL_FLOW: dict[int, Any] = _table()
"""The replacements for these operators in traced code, by ``id``."""
