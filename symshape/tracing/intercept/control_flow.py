"""Operators that take functions, such as ``torch.cond``, as torch's own code finds them during a
trace.

The functions that a program calls (``torch.cond``, ``while_loop``, ``scan``) check their arguments
and would then compile a call of the operator. A trace makes a node of the operator instead.
(Private names, checked on 2.11 and 2.13.)
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import functorch, pytree
from symshape.torch_internals.dispatch import dispatch_modes as _get_current_dispatch_mode_stack
from symshape.torch_internals.library import generic_associative_scan

# -- ``associative_scan`` over a symbolic length: one program for each number of levels, not for
# each length.
#
# Torch's own implementation halves the sequence and asks at each level whether the remaining
# length is even. An element of the result depends on its position alone. So the same
# combinations are recorded here in the same order without that question: the elements at even
# positions are those after the first ``(n - 1) // 2`` odd ones. (Source:
# torch/_higher_order_ops/associative_scan.py, checked on 2.13.)
_slice = torch.ops.aten.slice
_Combine = Callable[..., list[torch.Tensor]]


def by_levels(
    operator: Callable[..., Any],
    leaves: Sequence[torch.Tensor],
    dim: int = 0,
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """Compute ``generic_associative_scan``, whose length may be symbolic."""
    sizes = leaves[0].shape
    if not isinstance(sizes[dim], torch.SymInt) or any(
        s == 0 for i, s in enumerate(sizes) if i != dim
    ):
        return generic_associative_scan(operator, leaves, dim, additional_inputs)

    def combine(*pairs: torch.Tensor) -> list[torch.Tensor]:
        return pytree.tree_leaves(operator(*pairs, *additional_inputs))

    flows = getattr(leaves[0], "_tracer", None) and leaves[0]._tracer.flows  # type: ignore[attr-defined]
    found = flows and flows.associative_scan(combine, leaves, dim, generic_associative_scan)
    return found or _scanned(combine, list(leaves), dim)


def _scanned(combine: _Combine, elems: list[torch.Tensor], dim: int) -> list[torch.Tensor]:
    n = elems[0].shape[dim]
    if n < 2:
        return elems
    firsts, seconds = ([_slice(each, dim, i, n - 1 + i, 2) for each in elems] for i in (0, 1))
    odd = _scanned(combine, combine(*firsts, *seconds), dim)
    before = [_slice(each, dim, 0, (n - 1) // 2) for each in odd]
    even = combine(*before, *(_slice(each, dim, 2, None, 2) for each in elems))
    even = [torch.cat([_slice(a, dim, 0, 1), b], dim) for a, b in zip(elems, even, strict=True)]
    return [_interleaved(a, b, n, dim) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: torch.Tensor, odd: torch.Tensor, n: Any, dim: int) -> torch.Tensor:
    """Interleave even and odd elements; if their total number is odd the last one is even."""
    as_many = torch.cat([odd, _slice(even, dim, n // 2)], dim)
    both = torch.stack([even, as_many], dim + 1).flatten(dim, dim + 1)
    result: torch.Tensor = _slice(both, dim, 0, n)
    return result


SCANS: dict[int, Any] = {id(generic_associative_scan): by_levels}
"""The replacements for scans in traced code, by ``id``."""


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


# -- ``torch.cond`` under ``torch.vmap``: both branches if each example has its own condition, else
# one branch for all. (Source: torch/_higher_order_ops/cond.py, checked on 2.13.)
def cond_of_examples(
    flows: Any,
    cond: Callable[..., Any],
    condition: Any,
    then: Callable[..., Any],
    otherwise: Callable[..., Any],
    ops: Any,
) -> Any:
    """Compute ``cond`` inside a transform.

    Args:
        flows: the object that makes control-flow nodes of a trace.
        cond: the same function outside this transform.
        condition: the condition.
        then: a function of the operands.
        otherwise: a function of the operands, too.
        ops: the operands.

    Raises:
        UnsupportedError: torch does not support ``cond`` under this transform.
    """
    interpreter: Any = functorch.current_interpreter()
    if interpreter.key() != functorch.TransformType.Vmap:
        raise UnsupportedError(
            "torch.cond cannot be traced under a transform of torch.func "
            f"({interpreter.key().name.lower()}); "
            "compute both branches and choose with torch.where",
            reason=Reason.TRANSFORMS,
        )
    level = interpreter.level()
    if (
        isinstance(condition, torch.Tensor)
        and functorch.is_batched(condition)
        and functorch.level_of(condition) == level
    ):
        return flows.both(condition, then, otherwise, ops)
    number, randomness = interpreter.batch_size(), interpreter.randomness()

    def of_all(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            with functorch.vmap_level(number, randomness) as inner:
                if inner != level:  # captured tensors would be of another level
                    raise UnsupportedError(
                        "torch.cond cannot be traced under this nesting of torch.vmap, whose "
                        "levels differ inside "
                        "the branches; compute both branches and choose with torch.where",
                        reason=Reason.TRANSFORMS,
                    )
                return pytree.tree_map(unwrapped, function(*operands))

        def unwrapped(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            of_each = functorch.is_batched(leaf) and functorch.level_of(leaf) == level
            made = functorch.without_batch_dim(leaf, level, number, 0)
            return made if of_each else made.clone(memory_format=torch.contiguous_format)

        run.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
        return run

    with interpreter.lower():
        made = cond(condition, of_all(then), of_all(otherwise), ops)
    return pytree.tree_map_only(
        torch.Tensor, lambda leaf: functorch.with_batch_dim(leaf, 0, level), made
    )


def _cond(condition: Any, then: Any, otherwise: Any, operands: Any) -> Any:
    if functorch.interpreters() is not None:
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
    if functorch.interpreters() is not None:
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
