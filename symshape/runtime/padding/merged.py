"""Dimensions of arguments that are products of sizes: which of the sizes is the outer one.

A graph that is handed a tensor of ``batch * length`` rows (a backward pass, whose forward kept it) does not say in
which order they were merged, but its other tensors, where the sizes stand apart, do.  A wrong guess costs a refusal and
never a wrong result: padding is where the axes say, whatever they say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cmp_to_key
from itertools import combinations
from typing import Any

from guards.terms.term import Op, Term
from symshape.graph.graph import Graph

__all__ = ["Merged"]


class Merged:
    """The order of the sizes that dimensions of a graph's arguments are products of."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._votes: Counter[tuple[Term, Term]] | None = None

    def parts(self, size: Any) -> tuple[Term, ...]:
        """The sizes whose product, the first slowest, a size is; empty for one that is no product of symbols."""
        term = getattr(size, "term", size)
        if type(term) is not Term or term.op is not Op.MUL or any(each.op is not Op.SYMBOL for each in term.args):
            return ()
        if self._votes is None:
            self._votes = Counter(pair for shape in _shapes(self._graph) for pair in combinations(shape, 2))
        votes = self._votes

        def later(a: Term, b: Term) -> int:
            return votes[b, a] - votes[a, b]

        return tuple(sorted(term.args, key=cmp_to_key(later)))


def _shapes(graph: Graph) -> Iterator[list[Term]]:
    """For each tensor, the symbols among its sizes, in order."""
    values = [each.value for each in graph.inputs]
    values += [output for node in graph.nodes for output in node.outputs if output is not None]
    for value in values:
        terms = (getattr(size, "term", None) for size in value.spec.sizes)
        yield [term for term in terms if term is not None and term.op is Op.SYMBOL]
