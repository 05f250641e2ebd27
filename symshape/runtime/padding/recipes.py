"""Recipes: the ops that padding rules emit for one node, repeated for similar nodes, such as a
model's layers.

A rule's result depends on the op, its other arguments, and the true metadata of its results.  It
also depends on the facts about its tensors (metadata in memory, axes, fills) and on which of them
are the same.  Nodes that agree in all of these get the same ops on their own tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from guards.terms.term import Term
from meta_fns import TensorSpec
from meta_fns.padding.axes import Axis, varies
from meta_fns.padding.fills import Fill
from meta_fns.padding.padded import Padded
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, draws_random_numbers, values_in, written_values
from symshape.runtime.padding.emission import Called, Emission, Noted

__all__ = ["Recipes"]


@attrs.frozen
class _Hole:
    """A hole for a tensor in a recipe: the number of a tensor that the node reads, or of one that
    was made for it.
    """

    number: int


@attrs.frozen(eq=False)
class _Step:
    """One emitted call, with holes for its tensors, in order; without kwargs if they contain no
    tensor.
    """

    called: Called
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    reads: tuple[int, ...]


@attrs.frozen(eq=False)
class _Made:
    """One result: the number of its tensor, the axes and fills, and its mark."""

    number: int
    axes: tuple[Axis, ...]
    fill: Fill
    valid: Fill
    mark: int


@attrs.frozen(eq=False)
class _Recipe:
    """The calls, sizes and repairs that were emitted for a node, and its results."""

    steps: Sequence[_Step | Noted]
    results: Sequence[_Made | None]


class Recipes:
    """The recipes of one walk over a graph.

    Args:
        graph: the traced program.
        emission: receives the emitted ops.
    """

    def __init__(self, graph: Graph, emission: Emission) -> None:
        self._forms = _forms_of(graph)
        self._emission = emission
        self._known: dict[Any, _Recipe] = {}
        self._marks: dict[Any, int] = {}
        self._marked: dict[int, tuple[Padded, int]] = {}

    def __contains__(self, node: Node) -> bool:
        """Return whether recipes apply to a node: it writes to nothing, draws nothing and binds
        nothing.
        """
        return node in self._forms

    def key(self, node: Node, reads: Sequence[Padded]) -> Any:
        """Return the key of a node that reads these tensors, equal for nodes with one recipe; None
        for no recipe.
        """
        form = self._forms.get(node)
        if form is None:
            return None
        marks = tuple([self._mark(each) for each in reads])
        if len(reads) < 2:
            return form, marks
        tensors = [id(each.tensor) for each in reads]
        return (
            form,
            marks,
            () if len(set(tensors)) == len(tensors) else tuple(map(tensors.index, tensors)),
        )

    def _mark(self, padded: Padded) -> int:
        found = self._marked.get(id(padded))
        if found is None:
            spec = padded.tensor.spec
            numbers = tuple(map(_number, (*spec.sizes, *spec.strides, spec.storage_offset)))
            memory = numbers, spec.dtype, spec.device, spec.layout
            mark = self._mark_of(memory, padded)
            self._marked[id(padded)] = padded, mark  # kept alive, so that its id is not reused
            return mark
        return found[1]

    def _mark_of(self, memory: Any, padded: Padded) -> int:
        axes = tuple(
            [
                tuple([id(size) if varies(size) else (size,) for size in axis])
                for axis in padded.axes
            ]
        )
        fills = tuple(
            [
                (each.kind, type(each.value), repr(each.value))
                for each in (padded.fill, padded.valid)
            ]
        )
        return self._marks.setdefault((memory, axes, fills), len(self._marks))

    def follow(self, key: Any, node: Node, reads: Sequence[Padded]) -> list[Padded | None] | None:
        """Return the results of a node by the recipe of a similar node; None if there is no recipe
        yet.
        """
        recipe = self._known.get(key)
        if recipe is None:
            return None
        emission = self._emission
        emission.begin(node, emission.op, ())
        tensors: list[Any] = [each.tensor for each in reads]
        for step in recipe.steps:
            if isinstance(step, Noted):
                tensors += emission.note(step)
                continue
            own = tuple([tensors[number] for number in step.reads])
            args = tuple([_filled(arg, tensors) for arg in step.args])
            given = step.kwargs
            kwargs = (
                None
                if given is None
                else {name: _filled(arg, tensors) for name, arg in given.items()}
            )
            tensors += emission.repeat(step.called, own, args, kwargs)
        return [None if each is None else self._answered(each, tensors) for each in recipe.results]

    def _answered(self, made: _Made, tensors: Sequence[Any]) -> Padded:
        padded = Padded(tensors[made.number], made.axes, made.fill, made.valid)
        self._marked[id(padded)] = padded, made.mark
        return padded

    def learn(
        self,
        key: Any,
        reads: Sequence[Padded],
        emitted: Sequence[Called | Noted],
        results: Sequence[Any],
    ) -> None:
        """Store the ops emitted for a node as a recipe, if each tensor in them can be identified in
        another node.
        """
        numbers: dict[int, int] = {}
        for place, padded in enumerate(reads):
            numbers.setdefault(id(padded.tensor), place)
        count = own = len(reads)
        steps: list[_Step | Noted] = []
        for asked in emitted:
            if isinstance(asked, Called):
                node = asked.node
                used = [
                    number for value in node.reads if (number := numbers.get(id(value))) is not None
                ]
                if len(used) != len(node.reads):
                    return
                holes = map(_Hole, used)
                args = tuple([_holed(arg, holes) for arg in node.args])
                kwargs = {name: _holed(arg, holes) for name, arg in node.kwargs.items()}
                named = any(True for _ in values_in(node.kwargs))
                steps.append(_Step(asked, args, kwargs if named else None, tuple(used)))
                outputs: Sequence[Value | None] = node.outputs
            else:
                steps.append(asked)
                outputs = asked.outputs
            for value in outputs:
                if value is not None and numbers.setdefault(id(value), count) < own:
                    # a result is by chance one of the node's own tensors: a later use would be
                    # ambiguous
                    return
                count += 1
        made: list[_Made | None] = []
        for result in results:
            if result is None:
                made.append(None)
                continue
            found = numbers.get(id(result.tensor)) if isinstance(result, Padded) else None
            if found is None:
                return
            made.append(_Made(found, result.axes, result.fill, result.valid, self._mark(result)))
        self._known[key] = _Recipe(tuple(steps), tuple(made))


def _number(size: Any) -> Any:
    """Return an integer of a tensor's metadata as a part of a key; a capacity is one object for
    each formula.
    """
    return size if type(size) is int else (id(size),)


def _filled(arg: Any, tensors: Sequence[Any]) -> Any:
    kind = type(arg)
    if kind is _Hole:
        return tensors[arg.number]
    if kind is list or kind is tuple:
        return kind([_filled(each, tensors) for each in arg])
    return arg


def _holed(arg: Any, holes: Iterator[_Hole]) -> Any:
    if type(arg) is Value:
        return next(holes)
    if isinstance(arg, (list, tuple)):
        return type(arg)([_holed(each, holes) for each in arg])
    return arg


_forms: weakref.WeakKeyDictionary[Graph, dict[Node, int]] = weakref.WeakKeyDictionary()


def _forms_of(graph: Graph) -> dict[Node, int]:
    """Return a number for each node that recipes apply to, shared by nodes that differ only in
    their tensors.

    The numbers are computed once for a graph: they do not depend on sizes.
    """
    found = _forms.get(graph)
    if found is None:
        numbers: dict[Any, int] = {}
        found = {
            node: numbers.setdefault(_form(node), len(numbers))
            for node in graph.nodes
            if _is_for(node)
        }
        _forms[graph] = found
    return found


def _is_for(node: Node) -> bool:
    return not (
        node.bindings or draws_random_numbers(node) or any(True for _ in written_values(node))
    )


def _form(node: Node) -> Any:
    outputs = tuple(None if each is None else _spec_form(each.spec) for each in node.outputs)
    kwargs = tuple((name, _argument_form(arg)) for name, arg in node.kwargs.items())
    return node.op, tuple(map(_argument_form, node.args)), kwargs, outputs, node.single


def _spec_form(spec: TensorSpec) -> Any:
    sizes = tuple(
        id(getattr(size, "term", size)) if not isinstance(size, int) else (size,)
        for size in spec.sizes
    )
    return sizes, spec.dtype, spec.device, spec.layout


def _argument_form(arg: Any) -> Any:
    kind = type(arg)
    if kind is Value:
        return Value
    if kind is Term or kind is FloatTerm:
        return kind, id(arg)  # the graph keeps it alive
    if isinstance(arg, (list, tuple)):
        return kind, *map(_argument_form, arg)
    return kind, repr(arg)
