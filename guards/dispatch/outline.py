"""A dispatch tree as data, to be drawn: what each node looks at, and where each answer leads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from guards.dispatch.box import Values
from guards.dispatch.nodes import Gate, Leaf, Node, Span, Steps, Table
from guards.dispatch.tree import Tree
from guards.facts.definedness import satisfied
from guards.sets.guard import Names
from guards.terms import boolean
from guards.terms.fold import evaluate
from guards.terms.printing import text
from guards.terms.term import Term


@attrs.frozen(eq=False)
class Outline:
    """A node of a dispatch tree, for people.

    Attributes:
        asks: what it looks at; empty for a leaf.
        entries: what a leaf tries, in order (empty for a node that is none).
        branches: the nodes below, each with the answer that leads there; ``otherwise`` for what is
            searched where the branches hold nothing.
        below: everything that a look-up from here can answer.
    """

    asks: str
    entries: tuple[Any, ...]
    branches: tuple[tuple[str, Outline], ...]
    below: frozenset[int]
    _route: Callable[[Values], int | None]
    _otherwise: bool

    def holds(self, entry: object) -> bool:
        """Return whether a look-up from this node can return ``entry``."""
        return id(entry) in self.below

    def chosen(self, values: Values, entry: object) -> int | None:
        """The branch by which a look-up of these values finds ``entry``; None where it does not."""
        found = self._route(values)
        if found is not None and self.branches[found][1].holds(entry):
            return found
        last = len(self.branches) - 1
        return last if self._otherwise and self.branches[last][1].holds(entry) else None


def outline(tree: Tree[Any], names: Names | None = None) -> Outline:
    """Return an outline of the present tree; ``names`` spells the symbols.

    >>> from guards import GuardSet
    >>> tree = Tree(["n"])
    >>> for low in range(0, 50, 10):
    ...     tree.insert(GuardSet.read(f"n >= {low}", f"n < {low + 10}"), low)
    >>> [(label, node.entries) for label, node in outline(tree).branches]
    [('0 to 9', (0,)), ('10 to 19', (10,)), ('20 to 29', (20,)),
     ('30 to 39', (30,)), ('40 to 49', (40,))]
    """
    return _Reader(tree, names).node(tree._root)


class _Reader:
    def __init__(self, tree: Tree[Any], names: Names | None) -> None:
        self._names = names
        self._slots = tree.slots

    def node(self, node: Node) -> Outline:
        if isinstance(node, Leaf):
            return _outline(
                "", tuple(record.entry for record in node.records), (), lambda values: None, False
            )
        if isinstance(node, Table):
            return self._table(node)
        if isinstance(node, Gate):
            return self._gate(node)
        return self._steps(node) if isinstance(node, Steps) else self._span(node)

    def _text(self, term: Term) -> str:
        return text(term, self._names)

    def _value(self, term: Term, values: Values) -> int:
        found: int = evaluate(term, dict(zip(self._slots, values, strict=True)))
        return found

    def _table(self, node: Table) -> Outline:
        keys = list(node.branches)
        places = {key: index for index, key in enumerate(keys)}
        forms = node.forms

        def route(values: Values) -> int | None:
            found = tuple(self._value(form, values) for form in forms)
            return places.get(found if len(forms) > 1 else found[0])

        asks = ", ".join(self._text(form) for form in forms)
        labels = [", ".join(map(str, key)) if len(forms) > 1 else str(key) for key in keys]
        below = [self.node(node.branches[key]) for key in keys]
        return self._with_rest(asks, labels, below, node.rest, route)

    def _gate(self, node: Gate) -> Outline:
        conditions = [*_ranges(node.shared.limits), *node.shared.rest]
        asked = boolean.and_(*conditions)

        def route(values: Values) -> int | None:
            return 0 if satisfied(asked, dict(zip(self._slots, values, strict=True))) else None

        return self._with_rest(
            self._text(asked), ["yes"], [self.node(node.branch)], node.rest, route
        )

    def _steps(self, node: Steps) -> Outline:
        segments = [index for index, branch in enumerate(node.branches) if branch is not None]
        places = {segment: index for index, segment in enumerate(segments)}
        below = [self.node(branch) for branch in node.branches if branch is not None]
        labels = [_segment(node.bounds, segment) for segment in segments]

        def route(values: Values) -> int | None:
            return places.get(bisect_right(node.bounds, self._value(node.form, values)))

        return self._with_rest(self._text(node.form), labels, below, node.rest, route)

    def _span(self, node: Span) -> Outline:
        """Ranges that overlap: drawn as the list of those that have the same form, in order."""
        inside = _outline(
            "", tuple(record.entry for record in node.records), (), lambda values: None, False
        )
        return self._with_rest(
            self._text(node.form), ["its ranges"], [inside], node.rest, lambda values: 0
        )

    def _with_rest(
        self,
        asks: str,
        labels: Sequence[str],
        below: Sequence[Outline],
        rest: Node | None,
        route: _Route,
    ) -> Outline:
        branches = list(zip(labels, below, strict=True))
        if rest is not None:
            branches.append(("otherwise", self.node(rest)))
        return _outline(asks, (), tuple(branches), route, rest is not None)


_Route = Callable[[Values], int | None]


def _outline(
    asks: str,
    entries: tuple[Any, ...],
    branches: tuple[tuple[str, Outline], ...],
    route: _Route,
    otherwise: bool,
) -> Outline:
    below = frozenset(id(entry) for entry in entries).union(*(node.below for _, node in branches))
    return Outline(asks, entries, branches, below, route, otherwise)


def _ranges(limits: Any) -> list[Term]:
    found: list[Term] = []
    for form, (low, high) in limits.items():
        if low is not None and low == high:
            found.append(boolean.eq(form, low))
            continue
        if low is not None:
            found.append(boolean.ge(form, low))
        if high is not None:
            found.append(boolean.le(form, high))
    return found


def _segment(bounds: Sequence[int], index: int) -> str:
    if index == 0:
        return f"below {bounds[0]}"
    if index == len(bounds):
        return f"{bounds[-1]} and more"
    low, high = bounds[index - 1], bounds[index] - 1
    return str(low) if low == high else f"{low} to {high}"
