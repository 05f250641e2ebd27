"""The context in which rules of data-dependent ops make unbacked symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean
from guards.terms.extremes import maximum
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Step, Value, written_values
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.float_node import FloatNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


class Counts:
    """The number of nonzero elements of each mask, as one symbol until the mask is written to."""

    def __init__(self) -> None:
        self._counts: dict[Value, IntNode] = {}

    def get(self, value: Value) -> IntNode | None:
        """Return the symbol of a mask that was counted before; else None."""
        return self._counts.get(value)

    def keep(self, value: Value, count: IntNode) -> None:
        """Store the symbol of a mask."""
        self._counts[value] = count

    def copy(self) -> Counts:
        """Return a copy, for a part of the program that may not run: counts made there are known
        there alone.
        """
        made = Counts()
        made._counts = self._counts.copy()
        return made

    def forget(self, written: Iterable[Value], given: Callable[[], Iterable[Value]]) -> None:
        """Forget the counts of masks whose memory an op may have changed.

        Args:
            written: the values that the op writes to.
            given: returns the values of arguments, parameters and buffers. Any two of them may
                share memory in a later call, so a write to one may change them all.
        """
        if not self._counts:
            return
        storages = {id(value.storage) for value in written}
        outside = {id(value.storage) for value in given()}
        if not storages.isdisjoint(outside):
            storages |= outside
        self._counts = {
            value: count
            for value, count in self._counts.items()
            if id(value.storage) not in storages
        }


class Unknowns:
    """The context of one data-dependent op's rule: makes unbacked symbols and remembers them for
    binding.

    Args:
        env: the environment of the trace.
        op: the name of the op whose rule runs.
        counts: the counts of masks so far in the trace.
        specs, values: the arguments of the op, for its rule and for the graph, in the same places.

    Attributes:
        made: the unbacked integers, in order.
    """

    def __init__(
        self,
        env: ShapeEnv,
        op: str,
        counts: Counts | None = None,
        specs: Sequence[Any] = (),
        values: Sequence[Any] = (),
    ) -> None:
        self.env = env
        self.op = op
        self.made: list[IntNode] = []
        self._counts = Counts() if counts is None else counts
        self._specs, self._values = specs, values

    def new_size(self, lower: Any, upper: Any) -> IntNode:
        """Return a size of a result, between two sizes."""
        return self._new(lower, upper, f"a size of the result of {self.op}")

    def count_of(self, counted: TensorSpec, lower: Any, upper: Any) -> IntNode:
        """Return how many elements of an argument are not 0: an earlier symbol unless the argument
        was written.
        """
        values = set(_values_of(counted, self._specs, self._values))
        value = values.pop() if len(values) == 1 else None  # two arguments may have one spec
        found = None if value is None else self._counts.get(value)
        if found is None:
            found = self.new_size(lower, upper)
            if value is not None:
                self._counts.keep(value, found)
        return found

    def new_int(self, lower: Any, upper: Any) -> IntNode:
        """Return an integer read from a tensor."""
        return self._new(lower, upper, f"the integer read by {self.op}")

    def new_float(self) -> FloatNode:
        """Return a float read from a tensor."""
        return self.env.new_float()

    def new_bool(self) -> BoolNode:
        """Return a bool read from a tensor."""
        node = self._new(0, 1, f"the bool read by {self.op} (1 for True)")
        return BoolNode(self.env, boolean.eq(node.term, 1))

    def _new(self, lower: Any, upper: Any, description: str) -> IntNode:
        node = self.env.new_unbacked(lower, upper, description=description)
        self.made.append(node)
        return node


def _values_of(spec: TensorSpec, specs: Sequence[Any], values: Sequence[Any]) -> Iterator[Value]:
    """Yield the values of the arguments that have this very spec object."""
    for each, value in zip(specs, values, strict=True):
        if each is spec:
            yield value
        elif isinstance(each, (list, tuple)):
            yield from _values_of(spec, each, value)


# -- Bounds of an integer that is read from a tensor, derived from the ops that made the tensor.
#
# ``torch.randint(0, h - 15, (1,)).item()`` is at least 0 and at most ``h - 16``: a slice that
# begins there needs no guard. Positions are bounded too: of the largest element, of nonzero
# elements, in a permutation.
aten = torch.ops.aten
_DEEPEST = 32  # ops
_SMALL = 1 << 53
_INTEGERS = (torch.int64, torch.int32)
_PICKING = frozenset(
    (
        *(
            aten.clone.default,
            aten.detach.default,
            aten.alias.default,
            aten.view.default,
            aten._unsafe_view.default,
        ),
        *(
            aten.unsqueeze.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.select.int,
            aten.slice.Tensor,
        ),
        *(
            aten.flip.default,
            aten.permute.default,
            aten.t.default,
            aten.expand.default,
            aten.index_select.default,
        ),
        *(aten.max.default, aten.min.default, aten.amax.default, aten.amin.default),
        *(
            aten.index.Tensor,
            aten.masked_select.default,
            aten.gather.default,
            aten.repeat_interleave.self_int,
        ),
    )
)
"""Ops whose results' elements are elements of their first argument."""
_BELOW = frozenset(
    (aten.randint.default, aten.randint.generator, aten.randperm.default, aten.randperm.generator)
)
_BETWEEN = frozenset((aten.randint.low, aten.randint.low_generator))
_WHERE = frozenset((aten.argmax.default, aten.argmin.default))
_WITH_POSITIONS: dict[Any, tuple[int, Any]] = {
    aten.max.dim: (1, None),
    aten.min.dim: (1, None),
    aten.sort.default: (1, -1),
    aten.topk.default: (2, -1),
}
"""Ops whose second result holds positions: the argument index of their dimension, and its default.
"""

_Range = tuple[Any, Any]
"""The least and the greatest value: each an int or an ``IntNode``."""


class _Unknown(Exception):
    """No bounds are known."""


class Bounds:
    """A backward reader of a trace's graph, from a tensor to the bounds of its elements.

    Args:
        env: the environment of the trace.
        steps: its steps, which grow.
    """

    def __init__(self, env: ShapeEnv, steps: Sequence[Step]) -> None:
        self._env = env
        self._new = StepCursor(steps)
        self._makers: dict[Value, Node] = {}
        self._written: set[object] = set()
        self._reshaped: set[Value] = set()

    def tell(self, op: OpOverload, values: Sequence[Any], made: Sequence[IntNode]) -> None:
        """Assume the bounds of a number that an op read from a tensor, or of the count that
        ``bincount`` makes.

        Args:
            op: the op that reads.
            values: its arguments.
            made: the unknown integers of its result.
        """
        if len(made) == 1 and op in (aten._local_scalar_dense.default, aten.bincount.default):
            self._tell(values[0], made[0], values[2:] if op is aten.bincount.default else None)

    def _tell(self, value: Value, number: IntNode, least: Sequence[Any] | None) -> None:
        for node in self._new.nodes():
            self._makers.update((output, node) for output in node.outputs if output is not None)
            self._written.update(written.storage for written in written_values(node))
            if node.leaves is not None:
                self._reshaped.add(node.leaves[0])
        try:
            low, high = self._range(value, _DEEPEST)
        except _Unknown:
            return
        facts = [boolean.ge(number.term, _term(low)), boolean.le(number.term, _term(high))]
        if least is not None:  # at least as many counts as there are numbers up to the largest
            counts = arithmetic.add(_term(high), 1)
            facts = [boolean.le(number.term, maximum(counts, *least))]
        for fact in facts:
            self._env.facts = self._env.facts.assume(fact)

    def _range(self, value: Value, depth: int) -> _Range:
        node = self._makers.get(value)
        if (
            node is None
            or not depth
            or value.storage in self._written
            or value.spec.dtype not in _INTEGERS
        ):
            raise _Unknown
        op, args = node.op, node.args
        if op in _BELOW:
            return 0, self._size(args[0]) - 1
        if op in _BETWEEN:
            return self._size(args[0]), self._size(args[1]) - 1
        if op in _WHERE:
            dim = args[1] if len(args) > 1 else None
            return self._positions(args[0], dim)
        if op in _WITH_POSITIONS and len(node.outputs) > 1 and node.outputs[1] is value:
            at, dim = _WITH_POSITIONS[op]
            return self._positions(args[0], args[at] if len(args) > at else dim)
        if op is aten.select.int and args[1] in (1, -1) and type(args[2]) is int:
            found = self._makers.get(args[0])
            if (
                found is not None
                and found.op is aten.nonzero.default
                and args[0].storage not in self._written
            ):
                return self._positions(found.args[0], args[2])
        if op is aten.clamp.default and len(args) == 3 and type(args[1]) is type(args[2]) is int:
            return min(args[1], args[2]), args[2]
        if op is aten.remainder.Scalar and type(args[1]) is int and args[1] > 0:
            return 0, args[1] - 1
        if op in _PICKING and node.outputs[0] is value:
            return self._range(args[0], depth - 1)
        if op in (aten.add.Tensor, aten.sub.Tensor) and not node.kwargs:
            return self._moved(op is aten.sub.Tensor, args[0], args[1], depth)
        raise _Unknown

    def _positions(self, tensor: Value, dim: Any) -> _Range:
        """Return the bounds of positions in a tensor, along one dimension or (None) among all
        elements.
        """
        sizes = tensor.spec.sizes
        if tensor in self._reshaped or not sizes or type(dim) not in (int, type(None)):
            raise _Unknown
        return 0, (tensor.spec.numel() if dim is None else sizes[dim]) - 1

    def _moved(self, away: bool, tensor: Value, by: Any, depth: int) -> _Range:
        """Return the bounds of an element plus or minus a number; raise ``_Unknown`` where the sum
        may overflow.
        """
        low, high = self._range(tensor, depth - 1)
        small = type(by) is int and all(self._is_small(_term(each)) for each in (by, low, high))
        if not small or tensor.spec.dtype is not torch.int64:
            raise _Unknown
        by = -by if away else by
        return low + by, high + by

    def _is_small(self, term: Term) -> bool:
        """Return whether an integer is a small constant, or made of sizes of the arguments
        alone.
        """
        if term.op is Op.CONST:
            return abs(term.value) < _SMALL
        sources = [self._env.symbols[symbol.name].sources for symbol in term.symbols]
        return all(of and all(isinstance(each, Size) for each in of) for of in sources)

    def _size(self, number: Any) -> Any:
        if type(number) is Term and not number.is_bool:
            return self._env.nodes.size(number)
        if type(number) is not int:
            raise _Unknown
        return number


def _term(size: Any) -> Term:
    return size.term if isinstance(size, IntNode) else arithmetic.const(size)
