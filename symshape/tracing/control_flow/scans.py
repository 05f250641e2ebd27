"""``associative_scan`` as one node for any length: eager's own recursion, with the function traced
into parts.

Eager combines pairs of rows, scans the results, and combines those with the remaining rows. The
memory layout of rows differs between the level of the operands and inner levels, and where one or
two rows are left. Each case has a part of its own. A part takes any number of rows; if the function
asks for that number, the scan is unrolled level by level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import torch

from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.errors import Reason, UnsupportedError
from symshape.graph.control_flow import AssociativeScan, ControlFlow, Scan
from symshape.graph.steps import Assertion, Value
from symshape.torch_internals import pytree
from symshape.tracing.control_flow.subgraphs import Part, Parts, around, names_in
from symshape.tracing.data.assumptions import presuming
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward, spec_of
from symshape.tracing.trace_state import TraceState

_slice = torch.ops.aten.slice.Tensor


class Placing(Protocol):
    """The members of the object that places nodes in the graph."""

    parts: Parts

    def stand_in(self, spec: TensorSpec, outer: Sequence[Any]) -> Any:
        """Return a tensor that stands for others of this spec, which are made of ``outer``."""

    def carried(self, part: Part, before: Any, after: Any, *, layout: bool = True) -> TensorSpec:
        """Return the spec of a carried tensor after a round."""

    def recorded(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
    ) -> list[Any]:
        """Return the results of a node that autograd records as it runs."""

    def placed(
        self,
        op: ControlFlow,
        operands: Sequence[Any],
        parts: Sequence[Part],
        specs: Sequence[TensorSpec],
    ) -> list[Any]:
        """Return the results of a node that autograd sees as one operation."""


@attrs.frozen(eq=False)
class _Rows:
    """The memory layout of rows: their specs, and the symbol of their number (None where the number
    is a formula).
    """

    specs: Sequence[TensorSpec]
    symbol: Term | None

    def of(self, number: Any, env: ShapeEnv) -> list[TensorSpec]:
        """Return the specs for a given number of rows."""
        other = number.term if type(number) is IntNode else arithmetic.const(number)

        def stride(each: Any) -> Any:
            if type(each) is not IntNode or self.symbol is None:
                return each
            return env.nodes.size(fold.substitute(each.term, {self.symbol: other}))

        return [
            spec.with_(sizes=(number, *spec.sizes[1:]), strides=tuple(map(stride, spec.strides)))
            for spec in self.specs
        ]


class LevelsTrace:
    """One call of ``associative_scan`` along the first dimension, on at least two rows.

    Args:
        env: the environment of the trace.
        placing: places the node.
        combine: the function, of twice the operands, with rows side by side.
        operands: the tensors to scan.
    """

    def __init__(
        self,
        env: ShapeEnv,
        placing: Placing,
        combine: Callable[..., Any],
        operands: Sequence[SymbolicTensor],
    ) -> None:
        self._env, self._placing, self._combine, self._operands = env, placing, combine, operands
        self._tracked = [torch.is_grad_enabled() and each.requires_grad for each in operands]

    def results(self, loop: Callable[..., Any]) -> list[Any]:
        """Return the results of the node, which runs eager's ``loop`` on parts.

        Raises:
            SymShapeError: the parts cannot be traced for any number of rows.
        """
        env, outer = self._env, [each._spec for each in self._operands]
        length = outer[0].sizes[0]
        with presuming(False):
            level, made = self._level(_Rows(outer, _symbol(length, outer)))
            inner, again = self._level(made, made)
            _check_same(again.of(number := self._number(4), env), made.of(number, env))
        parts = [*level, *inner]
        op = AssociativeScan(
            "associative_scan", around(parts), loop, draws=any(part.draws for part in parts)
        )
        specs = [TensorSpec.contiguous(spec.sizes, spec.dtype, spec.device) for spec in outer]
        return self._placing.recorded(op, self._operands, parts, specs)

    # -- parts
    def _level(self, rows: _Rows, made: _Rows | None = None) -> tuple[list[Part], _Rows]:
        """Return the parts of a level, and the layout of the combined pairs; ``made`` is that
        layout if it is known.
        """
        env = self._env
        pairs, found = self._pairs(rows.of(number := self._number(4), env), number)
        made = made or found
        parts = [self._pairs(rows.of(few, env), few)[0] for few in (2, 3)] + [pairs]
        parts += [self._filled(rows.of(few, env), few, made.of(1, env)) for few in (2, 3)]
        parts += [
            self._filled(rows.of(number, env), number, None) for number in (4, self._number(5))
        ]
        return parts, found

    def _number(self, least: int) -> IntNode:
        return self._env.new_unbacked(least, None, description="a number of rows")

    def _pairs(self, rows: Sequence[TensorSpec], length: Any) -> tuple[Part, _Rows]:
        """Return the part that combines neighbours of these rows, and the layout of its results."""
        count = 1 if type(length) is int else self._number(2)
        every = [self._every_other(spec, count) for _ in range(2) for spec in rows]
        part = self._traced(every, length, count, self._combine)
        return part, self._made(part, rows, count)

    def _made(self, part: Part, rows: Sequence[TensorSpec], count: Any) -> _Rows:
        specs: list[TensorSpec] = []
        if len(part.leaves) != len(rows):
            self._placing.parts.refuse(part.name, "returns more or less than it is given")
        for leaf, like in zip(part.leaves, rows, strict=True):
            self._placing.parts.fresh(part, leaf, part.own_numbers)
            spec: TensorSpec = leaf._spec
            sizes = (count, *like.sizes[1:])
            if (
                spec.dtype is not like.dtype
                or spec.device != like.device
                or not _equal(spec.sizes, sizes)
            ):
                self._placing.parts.refuse(part.name, "returns other rows than it is given")
            if spec.storage_offset != 0:
                self._placing.parts.refuse(part.name, "returns a view")
            specs.append(spec)
        return _Rows(specs, count.term if type(count) is IntNode else None)

    def _filled(
        self, rows: Sequence[TensorSpec], length: Any, single: Sequence[TensorSpec] | None
    ) -> Part:
        """Return the part that combines the scanned pairs, or the ``single`` pair, with the
        remaining rows.
        """
        count = (length - 1) // 2 if type(length) is int else self._number(2)
        scanned = single or [
            TensorSpec.contiguous((count + 1, *s.sizes[1:]), s.dtype, s.device) for s in rows
        ]
        head = [spec.with_(sizes=(1, *spec.sizes[1:])) for spec in rows]
        number = len(rows)

        def fill(*given: Any) -> list[torch.Tensor]:
            odd, rest = given[:number], given[number : 2 * number]
            made: list[torch.Tensor] = self._combine(
                *(_slice(each, 0, 0, outward(count)) for each in odd), *rest
            )
            _check_layout(
                given[2 * number :], made if type(count) is IntNode or count else None, odd
            )
            return made

        rest = [self._every_other(spec, count) for spec in rows]
        part = self._traced([*scanned, *rest, *head], length, count, fill)
        self._made(part, rows, count)
        return part

    def _every_other(self, spec: TensorSpec, count: Any) -> TensorSpec:
        offset = self._env.new_unbacked(0, None, description="where a row begins")
        return spec.with_(
            sizes=(count, *spec.sizes[1:]),
            strides=(spec.strides[0] * 2, *spec.strides[1:]),
            storage_offset=offset,
        )

    def _traced(
        self, specs: Sequence[TensorSpec], length: Any, count: Any, function: Callable[..., Any]
    ) -> Part:
        """Return a part whose numbers are how many rows its level has, and how many it gets."""
        names = [_name(length, self._env) or "rows on a level", _name(count, self._env) or "rows"]
        operands = [self._operands[i % len(self._operands)] for i in range(len(specs))]
        given = [
            self._placing.stand_in(spec, [each]) for spec, each in zip(specs, operands, strict=True)
        ]
        own: list[Value] = [each._value for each in given]
        parts = self._placing.parts
        part = parts.traced(
            "the function of associative_scan", function, given, own, names, self._combine
        )
        if any(isinstance(step, Assertion) for step in parts.steps_of(*part.place)):
            parts.refuse(part.name, "asserts something of data")
        if [leaf.requires_grad for leaf in part.leaves] != self._tracked:
            parts.refuse(
                part.name,
                "returns a tensor that requires gradients from inputs that do not, or the other "
                "way round",
            )
        return part


def _symbol(length: Any, specs: Sequence[TensorSpec]) -> Term | None:
    """Return the symbol of a length, if no other size depends on it."""
    if type(length) is not IntNode or length.term.op is not Op.SYMBOL:
        return None
    others = (size for spec in specs for size in spec.sizes[1:] if type(size) is IntNode)
    return None if any(length.term in size.term.symbols for size in others) else length.term


def _name(number: Any, env: ShapeEnv) -> str:
    """Return the name of a number that is a symbol of a part; empty for other numbers."""
    if type(number) is not IntNode or number.term.op is not Op.SYMBOL:
        return ""
    name = number.term.name
    return "" if env.symbols[name].backed else name


def _check_layout(head: Sequence[Any], made: Sequence[Any] | None, odd: Sequence[Any]) -> None:
    """Check that the rows of a level are contiguous, as the next level expects.

    Raises:
        UnsupportedError: they may have another layout.
    """
    even = (
        head
        if made is None
        else [torch.cat([one, other], 0) for one, other in zip(head, made, strict=True)]
    )
    for one, other in zip(even, odd, strict=True):
        for second in (
            (other, one) if made is None or type(one._spec.sizes[0]) is IntNode else (one,)
        ):
            rows: Any = torch.stack([one, second], 1).flatten(0, 1)
            if not rows._spec.canonical():
                raise UnsupportedError(
                    "associative_scan combines rows into results that are not contiguous row "
                    "by row; return .contiguous() from its function",
                    reason=Reason.CONTROL_FLOW,
                )


def _check_same(specs: Sequence[TensorSpec], others: Sequence[TensorSpec]) -> None:
    """Check that the results of pairs have the same layout on all levels.

    Raises:
        UnsupportedError: the layout may differ.
    """
    for one, other in zip(specs, others, strict=True):
        if not _equal(one.strides, other.strides):
            raise UnsupportedError(
                "the strides of what associative_scan's function returns depend on the number "
                "of rows; return .contiguous() from it",
                reason=Reason.CONTROL_FLOW,
            )


def _equal(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    terms = (
        [each.term if type(each) is IntNode else each for each in of] for of in (sizes, others)
    )
    return all(
        one is other or (type(one) is int and one == other)
        for one, other in zip(*terms, strict=True)
    )


# -- ``scan`` as one node: its function is traced once on one row, or twice where the first round
# changes strides.
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
        states = [spec_of(each) for each in self._init]
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
            specs.append(spec_of(each).with_(storage_offset=0))  # the result is copied
            if names_in(specs[-1]) & part.born:
                placing.parts.refuse(part.name, "returns a tensor whose size depends on data")
        return part, specs

    def _row(self, operand: Any) -> TensorSpec:
        spec = spec_of(operand)
        unknown = self._trace.env.new_unbacked(0, None, description="where a row begins")
        return spec.with_(sizes=spec.sizes[1:], strides=spec.strides[1:], storage_offset=unknown)


def _alike(one: TensorSpec, other: TensorSpec) -> bool:
    return (
        len(one.sizes) == len(other.sizes)
        and one.dtype is other.dtype
        and _equal(one.sizes, other.sizes)
    )
