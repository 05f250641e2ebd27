"""The order of the sizes that an argument's dimension is a product of: which size is the outer one.

A graph may receive a tensor of ``batch * length`` rows, for example a backward pass, whose forward
saved it.  The graph does not say in which order the sizes were merged.  Views in the graph do: of
that tensor, or of one with the same rows that an op combines with it.  Without such views, the
order of separate sizes in other tensors decides.  A wrong guess costs a refusal and never a wrong
result: the axes say where padding is, in either order.  (Where an element's place among all matters
in two programs, as for dropout in attention, the axes are compared:
:mod:`symshape.runtime.runners.padded.tied_buckets`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cmp_to_key
from itertools import combinations
from typing import Any

import torch

from guards.terms.term import Op, Term
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value

__all__ = ["Merged"]

_aten = torch.ops.aten
_VIEWS = (
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.reshape.default,
    _aten._reshape_alias.default,
)
_Rows = tuple[Value, Term]
"""A dimension of a tensor whose size is a product: the tensor and the product."""
_Votes = Counter[tuple[Term, Term]]
"""The number of times one size was seen outside of another, by pair."""


class Merged:
    """The order of the sizes in products that are dimensions of a graph's arguments.

    Args:
        graph: the graph.
        simplified: a size's term under the guards, by which ``b*min(s, 512)`` may be ``b*s``.
    """

    def __init__(self, graph: Graph, simplified: Callable[[Term], Term]) -> None:
        self._graph, self._simplified = graph, cache(simplified)
        self._classes: dict[_Rows, _Rows] | None = None
        self._votes: dict[_Rows, _Votes] = {}
        self._everywhere: _Votes = Counter()

    def parts(self, value: Value, size: Any) -> tuple[Term, ...]:
        """Return the sizes whose product a size is, slowest first; empty if it is no product of
        symbols.
        """
        term = self._product(size)
        if term is None:
            return ()
        if self._classes is None:
            self._learn()
        votes = self._votes.get(self._class_of((value, term)), Counter())

        def later(a: Term, b: Term) -> int:
            own = votes[b, a] - votes[a, b]
            return own or self._everywhere[b, a] - self._everywhere[a, b]

        return tuple(sorted(term.args, key=cmp_to_key(later)))

    def _learn(self) -> None:
        self._classes = {}
        for value in (each.value for each in self._graph.inputs):
            self._everywhere.update(combinations(self._apart(value), 2))
        for node in self._graph.nodes:
            made = [each for each in node.outputs if each is not None]
            for value in made:
                self._everywhere.update(combinations(self._apart(value), 2))
            if node.op in _VIEWS:
                self._view(node, made[0])
            else:
                self._unite((*node.reads, *made))

    def _view(self, node: Node, made: Value) -> None:
        """Record the order of sizes that a view merges into a product, or splits a product into."""
        self._unite((node.args[0], made))
        for merged, other in ((made, node.args[0]), (node.args[0], made)):
            order = self._apart(other)
            for term in self._products(merged):
                found = [each for each in order if any(each is one for one in term.args)]
                if len(found) == len(term.args):
                    self._votes.setdefault(self._class_of((merged, term)), Counter()).update(
                        combinations(found, 2)
                    )

    def _unite(self, values: Sequence[Value]) -> None:
        """Record that dimensions of these tensors with the same product are the same rows."""
        assert self._classes is not None
        first: dict[Term, _Rows] = {}
        for value in values:
            for term in self._products(value):
                own = self._class_of((value, term))
                one = self._class_of(first.setdefault(term, own))
                if one != own:
                    self._classes[own] = one
                    self._votes.setdefault(one, Counter()).update(self._votes.pop(own, Counter()))

    def _class_of(self, rows: _Rows) -> _Rows:
        assert self._classes is not None
        while (above := self._classes.get(rows)) is not None:
            rows = above
        return rows

    def _term(self, size: Any) -> Any:
        term = getattr(size, "term", size)
        return self._simplified(term) if type(term) is Term else term

    def _product(self, size: Any) -> Term | None:
        """Return the term of a size that is a product of symbols, else None."""
        term = self._term(size)
        if (
            type(term) is not Term
            or term.op is not Op.MUL
            or any(each.op is not Op.SYMBOL for each in term.args)
        ):
            return None
        return term

    def _products(self, value: Value) -> Iterator[Term]:
        return (term for term in map(self._product, value.spec.sizes) if term is not None)

    def _apart(self, value: Value) -> Sequence[Term]:
        """Return the symbols among the sizes of a tensor, in order."""
        terms = map(self._term, value.spec.sizes)
        return [term for term in terms if type(term) is Term and term.op is Op.SYMBOL]
