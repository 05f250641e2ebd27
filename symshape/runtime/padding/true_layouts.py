"""The sizes for which eager's results have other strides than the formulas of the trace say.

The strides in a trace are those of the general case.  Where a size turns out to be 0 or 1, eager's
strides may differ from them (see ``meta_fns/core/layout.py``).  Where a graph calls ``reshape``
itself, the trace does not record whether it makes a view or a copy (see
``graph/reshape_copies.py``).  A padded program returns the strides of the formulas, so it serves no
call whose eager results have other strides.  The shape rules decide: on plain integers they are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch

from guards.terms import fold
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from meta_fns.core.registry import NO_CONTEXT, aliasing, lookup
from meta_fns.errors import MetaError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.reshape_copies import CONTIGUOUS_RESULTS
from symshape.graph.steps import Node, Value, map_argument, moves_nothing, values_in
from symshape.runtime.padding.numbers import Numbers

__all__ = ["TrueLayouts"]

_RESHAPE = torch.ops.aten.reshape.default
_REMEMBERED = 4096
"""The number of tuples of sizes whose answer is stored."""


class TrueLayouts:
    """The layouts of a graph's results, computed without data.

    Args:
        graph: the graph.
        unseen: the results whose strides nobody sees.

    Attributes:
        exact_from: if all varying sizes are at least this, results have the traced layout.
    """

    def __init__(self, graph: Graph, unseen: Set[Value] = frozenset()) -> None:
        given = {each.value for each in graph.inputs} | {each.value for each in graph.lifted}
        settled = _settled(graph, given)
        self._results = [
            value
            for value in dict.fromkeys(values_in(graph.outputs))
            if value not in given and value not in settled and value not in unseen
        ]
        self._nodes: list[Node] = []
        needed = set(self._results)
        for node in reversed(graph.nodes):
            if any(output in needed for output in node.outputs if output not in settled):
                self._nodes.append(node)
                if node.op._schema.name not in CONTIGUOUS_RESULTS:
                    needed.update(node.reads)  # settled ones too: what they make may be doubted
        self._nodes.reverse()
        self._sizes = Numbers()
        self._sizes.places(
            [size for value in needed for size in value.spec.sizes if not isinstance(size, int)]
        )
        self._doubted = _doubted(self._nodes, needed)
        self._sure = self._doubted.isdisjoint(self._results)
        varying: list[Any] = [
            getattr(size, "term", size) for value in needed for size in value.spec.sizes
        ]
        # known only at run time
        later = {binding.symbol for node in graph.nodes for binding in node.bindings}
        plain = all(
            isinstance(each, int) or (each.op is Op.SYMBOL and each.name not in later)
            for each in varying
        )
        self.exact_from: float = 2 if plain and self._sure else math.inf
        self._turned = any(
            node.leaves is not None and not moves_nothing(node) for node in graph.nodes
        )
        self._said: dict[tuple[tuple[str, int], ...], bool] = {}

    def differ(self, values: Mapping[str, int]) -> bool:
        """Return whether a result has another layout in calls with these sizes, or may have."""
        large = self._all_large(values)
        if large and self._sure:
            return False
        key = tuple(values.items())
        said = self._said.get(key)
        if said is None:
            if len(self._said) >= _REMEMBERED:
                self._said.clear()
            said = self._said[key] = self._turned or self._found_to_differ(
                values, self._doubted if large else None
            )
        return said

    def _all_large(self, values: Mapping[str, int]) -> bool:
        """Return whether no varying size is 0 or 1, so that the formulas are exact."""
        try:
            return min(self._sizes.at(values), default=2) > 1
        except (
            LookupError,
            ZeroDivisionError,
        ):  # known only at run time, or in no call that satisfies the guards
            return False

    def _found_to_differ(self, values: Mapping[str, int], among: Set[Value] | None) -> bool:
        """Return whether the shape rules give another layout for a result, or raise.

        ``among``: the tensors that may differ from their formulas; None for all.
        """
        specs: dict[Value, TensorSpec] = {}

        def real(leaf: Any) -> Any:
            if type(leaf) is Value:
                if leaf not in specs:
                    specs[leaf] = _by_formula(leaf.spec, values)
                return specs[leaf]
            return leaf.evaluate(values) if type(leaf) is FloatTerm else fold.evaluate(leaf, values)

        try:
            for node in self._nodes:
                if among is not None and among.isdisjoint(node.outputs):
                    continue
                made = _inferred(node, real)
                specs.update(
                    (output, spec)
                    for output, spec in zip(node.outputs, made, strict=True)
                    if output
                )
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            MetaError,
            RuntimeError,
            TypeError,
            ValueError,
        ):
            return True
        asked = [value for value in self._results if value in specs]
        return any(_lies(specs[value]) != _lies(_by_formula(value.spec, values)) for value in asked)


def _settled(graph: Graph, given: Set[Value]) -> set[Value]:
    """Return the tensors that have the same sizes and strides in every call.

    They are arguments and parameters of fixed layout, what an op computes from such tensors and no
    number that varies, and results of fixed size that are contiguous for any layout of the op's
    arguments: by :data:`CONTIGUOUS_RESULTS`, or since they have memory of their own and no
    dimension, or one of at least two elements.  (The stride of a single element may be that of an
    argument.)
    """
    found = {value for value in given if _is_fixed(value.spec)}
    for node in graph.nodes:
        if lookup(node.op) is None or node.leaves is not None:
            continue
        alike = not node.numbers and found.issuperset(node.reads)
        contiguous = node.op._schema.name in CONTIGUOUS_RESULTS
        views = aliasing(node.op).view_of
        for place, value in enumerate(node.outputs):
            if value is None or not _is_fixed(value.spec):
                continue
            owned = place < len(views) and views[place] is None
            sizes = value.spec.sizes
            plain = owned and (not sizes or (len(sizes) == 1 and sizes[0] > 1))
            if alike or contiguous or plain:
                found.add(value)
    return found


def _is_fixed(spec: TensorSpec) -> bool:
    return all(isinstance(each, int) for each in (*spec.sizes, *spec.strides, spec.storage_offset))


def _doubted(nodes: Sequence[Node], needed: Set[Value]) -> frozenset[Value]:
    """Return the tensors whose strides may differ from their formulas though no varying size is 0
    or 1.

    The strides of a dimension that always has size 1 mean nothing, and ``reshape`` makes a view or
    a copy.  What is computed from such tensors is doubted, unless the op's results are contiguous
    for any layout of its arguments.
    """
    found = {value for value in needed if _has_idle_strides(value.spec)}
    for node in nodes:
        if node.op._schema.name not in CONTIGUOUS_RESULTS and (
            node.op is _RESHAPE or not found.isdisjoint(node.reads)
        ):
            found.update(value for value in node.outputs if value is not None)
    return frozenset(found)


def _has_idle_strides(spec: TensorSpec) -> bool:
    """Return whether a non-contiguous tensor has a dimension of size 1 or 0 in every call."""
    return not spec.canonical() and any(isinstance(size, int) and size < 2 for size in spec.sizes)


def _inferred(node: Node, real: Any) -> list[Any]:
    """Return the metadata of a node's results.

    Raises:
        LookupError: the op has no rule.
        DataDependentOutput: a size depends on data.
    """
    rule = lookup(node.op)
    if rule is None:
        raise LookupError(node.op)
    context = [NO_CONTEXT] if rule.data_dependent else []
    made = rule.fn(
        *context,
        *(map_argument(arg, real) for arg in node.args),
        **{name: map_argument(arg, real) for name, arg in node.kwargs.items()},
    )
    return [made] if node.single else list(made)


def _by_formula(spec: TensorSpec, values: Mapping[str, int]) -> TensorSpec:
    def number(size: Any) -> int:
        if isinstance(size, int):
            return size
        found: int = fold.evaluate(size if isinstance(size, Term) else size.term, values)
        return found

    sizes, strides = tuple(map(number, spec.sizes)), tuple(map(number, spec.strides))
    return TensorSpec(
        sizes, strides, number(spec.storage_offset), spec.dtype, spec.device, spec.layout
    )


def _lies(spec: TensorSpec) -> tuple[Any, ...]:
    return spec.sizes, spec.strides, spec.storage_offset
