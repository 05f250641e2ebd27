"""``scan`` as one node: its function is traced once on one row, or twice where the first round
changes strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from meta_fns import TensorSpec
from symshape.errors import Reason, UnsupportedError
from symshape.graph.control_flow import ControlFlow, Scan
from symshape.torch_internals import pytree
from symshape.tracing.control_flow.subgraphs import Part, Parts, around, names_in
from symshape.tracing.symbolic.tensors import SymbolicTensor
from symshape.tracing.trace_state import TraceState


class Placing(Protocol):
    """The members of the object that places nodes in the graph."""

    parts: Parts

    def stand_in(self, spec: TensorSpec, outer: Sequence[Any]) -> Any:
        """Return a tensor that stands for others of this spec."""

    def carried(self, part: Part, before: Any, after: Any, *, layout: bool = True) -> TensorSpec:
        """Return the spec of a carried tensor after a round."""

    def placed(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
    ) -> list[Any]:
        """Return the results of a node that autograd sees as one operation."""


class RowsTrace:
    """One call of ``scan`` along the first dimension.

    Args:
        trace: the trace.
        placing: places the node.
        combine: the function, of the state, a row of each operand, and ``more``.
        init: the state at the beginning.
        operands: the tensors to scan.
        more: further arguments of the function.
    """

    def __init__(
        self,
        trace: TraceState,
        placing: Placing,
        combine: Callable[..., Any],
        init: Sequence[Any],
        operands: Sequence[Any],
        more: Sequence[Any],
    ) -> None:
        self._trace, self._placing, self._combine = trace, placing, combine
        self._init, self._operands, self._more = init, operands, more

    def results(self, name: str) -> Any:
        """Return the results of the node, as the function (of this name) nests them.

        Raises:
            SymShapeError: the function cannot be traced on any row.
        """
        length = self._operands[0].shape[0]
        if any(each.shape[0] != length for each in self._operands) or length == 0:
            raise UnsupportedError(
                "a scan's operands have different lengths or no rows; give all of them the "
                "same length, 1 or more, along the scanned dimension",
                reason=Reason.CONTROL_FLOW,
            )
        states = [each_spec(each) for each in self._init]
        first, made = self._round(name, states, layout=False)
        parts = [first]
        if any(
            not _equal(one.strides, other.strides)
            for one, other in zip(states, made[: len(states)], strict=True)
        ):
            second, again = self._round(name, made[: len(states)], layout=True)
            if second.tree != first.tree or not all(
                map(_alike, made[len(states) :], again[len(states) :])
            ):
                self._placing.parts.refuse(first.name, "returns something else in the second round")
            parts.append(second)
        count = length.node if isinstance(length, torch.SymInt) else length
        stacked = [
            TensorSpec.contiguous((count, *s.sizes), s.dtype, s.device) for s in made[len(states) :]
        ]
        op = Scan(
            "scan", around(parts), len(states), whole=True, draws=any(part.draws for part in parts)
        )
        found = self._placing.placed(
            op, [*self._init, *self._operands], parts, [*made[: len(states)], *stacked]
        )
        return pytree.tree_unflatten(found, first.tree)

    def _round(
        self, name: str, states: Sequence[TensorSpec], *, layout: bool
    ) -> tuple[Part, list[TensorSpec]]:
        """Trace the function on a state and a row; return the part and the specs of its results."""
        outer, placing = [*self._init, *self._operands], self._placing
        given = [
            placing.stand_in(spec, outer) for spec in (*states, *map(self._row, self._operands))
        ]
        own = [each._value for each in given]
        part = placing.parts.traced(
            f"the function of scan ({name})", self._combine, [*given, *self._more], own
        )
        leaves = part.leaves
        if len(leaves) < len(states) or not all(isinstance(each, torch.Tensor) for each in leaves):
            placing.parts.refuse(part.name, "returns something else than tensors")
        specs = [
            placing.carried(part, *pair, layout=layout)
            for pair in zip(given, leaves[: len(states)], strict=False)
        ]
        if len({id(each._value.storage) for each in leaves[: len(states)]}) < len(states):
            placing.parts.refuse(part.name, "carries two tensors on one memory; carry clones")
        for each in leaves[len(states) :]:
            specs.append(each_spec(each).with_(storage_offset=0))  # the result is copied
            if names_in(specs[-1]) & part.born:
                placing.parts.refuse(part.name, "returns a tensor whose size depends on data")
        return part, specs

    def _row(self, operand: Any) -> TensorSpec:
        spec = each_spec(operand)
        unknown = self._trace.env.new_unbacked(0, None, description="where a row begins")
        return spec.with_(sizes=spec.sizes[1:], strides=spec.strides[1:], storage_offset=unknown)


def each_spec(tensor: Any) -> TensorSpec:
    """Return the spec of a tensor, symbolic or real."""
    return tensor._spec if type(tensor) is SymbolicTensor else TensorSpec.of(tensor)


def _equal(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    terms = [[each if type(each) is int else each.term for each in of] for of in (sizes, others)]
    return all(
        one is other or (type(one) is int and one == other)
        for one, other in zip(*terms, strict=True)
    )


def _alike(one: TensorSpec, other: TensorSpec) -> bool:
    return (
        len(one.sizes) == len(other.sizes)
        and one.dtype is other.dtype
        and _equal(one.sizes, other.sizes)
    )
