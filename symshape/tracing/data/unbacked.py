"""The context in which rules of data-dependent ops make unbacked symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from guards.terms import boolean
from meta_fns import TensorSpec
from symshape.graph.steps import Value
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
