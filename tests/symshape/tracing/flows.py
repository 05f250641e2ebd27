"""What control flow is held against: plain Python that does the same, and torch's own operators now
and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan as torch_associative_scan
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop
from torch.utils import _pytree as pytree

import symshape
from tests.symshape.tracing.flow_programs import ROWS_GO_BACK

SIZES = (3, 5, 9, 2, 40, 1)
"""The lengths of most tests, in the order of calls."""


class Real:
    """Torch's own: what compiled functions call."""

    cond = staticmethod(torch.cond)
    while_loop = staticmethod(torch_while_loop)
    scan = staticmethod(torch_scan)
    associative_scan = staticmethod(torch_associative_scan)


class Plain:
    """The same in plain Python."""

    @staticmethod
    def cond(condition: Any, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> Any:
        """A branch."""
        return (then if condition else otherwise)(*operands)

    @staticmethod
    def while_loop(goes_on: Any, body: Any, carried: Sequence[Any]) -> Any:
        """A loop, whose results are no operands."""
        found = tuple(carried)
        while goes_on(*found):
            found = body(*found)
        return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in found)

    @staticmethod
    def scan(combine: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
        """A loop over rows, whose results are stacked."""
        leaves, tree = pytree.tree_flatten(xs)
        moved = [
            each.movedim(dim, 0).flip([0]) if reverse else each.movedim(dim, 0) for each in leaves
        ]
        state, made = init, []
        for rows in zip(*moved, strict=True):
            state, row = combine(state, pytree.tree_unflatten(rows, tree))
            made.append(row)
        stacked = pytree.tree_map(lambda *rows: torch.stack(rows), *made)
        stacked = pytree.tree_map(lambda each: each.flip([0]), stacked) if reverse else stacked
        if ROWS_GO_BACK:
            stacked = pytree.tree_map(
                lambda each: each.movedim(0, dim) if dim < each.ndim else each, stacked
            )
        return state, stacked

    associative_scan = staticmethod(torch_associative_scan)


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    """A function compiled to be traced or refused."""
    return symshape.compile(fn, fullgraph=True, dynamic=True, **options)


def assert_alike(expected: Any, got: Any) -> None:
    """The same values, dtypes, strides and structure."""
    left, right = pytree.tree_flatten(expected), pytree.tree_flatten(got)
    assert left[1] == right[1]
    for one, other in zip(left[0], right[0], strict=True):
        assert type(one) is type(other)
        if not isinstance(one, torch.Tensor):
            assert one == other
            continue
        assert one.dtype is other.dtype
        assert torch.equal(one, other)
        if one.numel() and all(size > 1 for size in one.shape):
            assert one.stride() == other.stride()


def run(
    fn: Callable[..., Any], args: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
) -> list[Any]:
    """The results on leaves of their own, and the gradients of arguments and parameters: zeros
    where there are none.
    """
    mine = [each.detach().clone().requires_grad_(each.requires_grad) for each in args]
    for each in parameters:
        each.grad = None
    results = fn(*mine)
    tensors = [each for each in pytree.tree_leaves(results) if isinstance(each, torch.Tensor)]
    total = sum((each.float() ** 2).sum() for each in tensors if each.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    given = [
        torch.zeros_like(each) if each.grad is None else each.grad for each in (*mine, *parameters)
    ]
    return [
        pytree.tree_map(
            lambda each: each.detach() if isinstance(each, torch.Tensor) else each, results
        ),
        *given,
    ]


def assert_same_run(
    fn: Callable[..., Any],
    fast: Any,
    args: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor] = (),
) -> None:
    """A program of these operators (its first argument) does compiled what plain Python does, with
    gradients.
    """
    expected = run(lambda *given: fn(Plain, *given), args, parameters)
    got = run(lambda *given: fast(Real, *given), args, parameters)
    assert_alike(expected[0], got[0])
    for one, other in zip(expected[1:], got[1:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3, equal_nan=True)
