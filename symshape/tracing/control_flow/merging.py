"""One description of the results of two functions, one of which runs: sizes that differ are known
after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch

from guards.terms import boolean
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from symshape.errors import DataDependentError
from symshape.graph.steps import Binding
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode


@attrs.frozen(eq=False)
class Merged:
    """A tensor that either of two functions returns.

    Attributes:
        spec: its spec; sizes that differ are symbols of their own.
        unknown: the dimensions of these sizes.
    """

    spec: TensorSpec
    unknown: tuple[int, ...] = ()

    def bindings(self, output: int) -> Iterator[Binding]:
        """Yield where these sizes are read, for the output of this number."""
        for dim in self.unknown:
            yield Binding(self.spec.sizes[dim].term.name, "size", output, dim)


def merged(
    env: ShapeEnv, one: TensorSpec, other: TensorSpec, hidden: frozenset[str]
) -> Merged | None:
    """Merge two fresh tensors; return None if they differ in more than sizes: in dtype, device or
    layout.

    No guard is left for sizes that differ. Sizes that are equal in this call alone get a guard.

    Args:
        env: answers questions about sizes.
        one: a dense tensor that starts at the beginning of its storage.
        other: likewise.
        hidden: symbols that are known only inside the functions.
    """
    if one.dtype is not other.dtype or one.device != other.device or one.dim != other.dim:
        return None
    if any(type(spec.storage_offset) is not int or spec.storage_offset for spec in (one, other)):
        return None
    pairs = list(zip(one.sizes, other.sizes, strict=True))
    unknown = tuple(dim for dim, pair in enumerate(pairs) if not equal(env, *pair, hidden))
    order = _order(env, one, other)
    if not unknown or order is None:
        return None
    sizes = [
        _either(env, *pair, hidden) if dim in unknown else pair[0] for dim, pair in enumerate(pairs)
    ]
    strides = _dense(sizes, order)
    return Merged(one.with_(sizes=tuple(sizes), strides=strides), unknown)


def same_layout(env: ShapeEnv, one: TensorSpec, other: TensorSpec) -> bool:
    """Return whether sizes, strides and offsets are the same; leave guards where this holds in this
    call alone.

    Strides of a dimension that has size 1 in all calls are ignored.
    """
    if one.dim != other.dim or not all(
        same_size(env, *pair) for pair in zip(one.sizes, other.sizes, strict=True)
    ):
        return False
    strides = zip(one.sizes, one.strides, other.strides, strict=True)
    kept = [(left, right) for size, left, right in strides if not _known(env, size, 1)]
    return all(
        same_size(env, *pair) for pair in (*kept, (one.storage_offset, other.storage_offset))
    )


def same_size(env: ShapeEnv, left: Any, right: Any) -> bool:
    """Return whether two sizes are the same; leave a guard where this holds in this call alone."""
    terms = [_term(each) for each in (left, right)]
    if terms[0] is terms[1] or (type(terms[0]) is type(terms[1]) is int and terms[0] == terms[1]):
        return True
    try:
        return env.evaluate(boolean.eq(*terms))
    except DataDependentError:
        return False


def equal(env: ShapeEnv, left: Any, right: Any, hidden: frozenset[str]) -> bool:
    """Return whether two sizes or integers are equal; leave a guard where this holds in this call
    alone.

    Sizes with ``hidden`` symbols never count as equal.
    """
    left, right = (each.node if isinstance(each, torch.SymInt) else each for each in (left, right))
    if type(left) is type(right) is int:
        return bool(left == right)
    if _names(left, right) & hidden:
        return False
    condition = boolean.eq(*(_term(each) for each in (left, right)))
    hint = env.hint(condition)
    return env.known(condition) if hint is None else bool(hint) and env.evaluate(condition)


def _either(env: ShapeEnv, left: Any, right: Any, hidden: frozenset[str]) -> IntNode:
    """Return a symbol for a size that is one of two."""
    if _names(left, right) & hidden:
        least, most = 0, None
    elif type(left) is type(right) is int:
        least, most = min(left, right), max(left, right)
    else:
        node, size = (left, right) if isinstance(left, IntNode) else (right, left)
        least, most = node.sym_min(size), node.sym_max(size)
    return env.new_unbacked(least, most, description="a size of what one of two functions returns")


def _order(env: ShapeEnv, one: TensorSpec, other: TensorSpec) -> tuple[int, ...] | None:
    """Return an order of dimensions in which both tensors are dense in memory; None if none is
    known.
    """
    dims = tuple(range(one.dim))
    orders = [dims, dims[::-1], *([(0, *dims[2:], 1)] if len(dims) > 2 else [])]
    return next(
        (order for order in orders if all(_lies(env, spec, order) for spec in (one, other))), None
    )


def _lies(env: ShapeEnv, spec: TensorSpec, order: Sequence[int]) -> bool:
    places = zip(spec.sizes, spec.strides, _dense(spec.sizes, order), strict=True)
    return all(_known(env, stride, dense) or _known(env, size, 1) for size, stride, dense in places)


def _dense(sizes: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the strides of a dense tensor with dimensions in this order."""
    strides = dict(zip(order, contiguous_strides([sizes[dim] for dim in order]), strict=True))
    return tuple(strides[dim] for dim in range(len(sizes)))


def _known(env: ShapeEnv, left: Any, right: Any) -> bool:
    if type(left) is type(right) is int:
        return bool(left == right)
    return env.known(boolean.eq(_term(left), _term(right)))


def _term(size: Any) -> Any:
    return size.term if isinstance(size, IntNode) else size


def _names(*sizes: Any) -> set[str]:
    return {
        symbol.name for each in sizes if isinstance(each, IntNode) for symbol in each.term.symbols
    }
