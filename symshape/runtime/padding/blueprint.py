"""A padded program that is derived once, and its instances at the capacities of each bucket.

The padding rules walk over a traced graph once, with capacities as formulas (``capacities.py``).
Their questions about the capacities and the region are recorded with the answers.  A region with
the same answers gets the same program with the formulas evaluated, and no rule runs again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from meta_fns import TensorSpec
from meta_fns.padding.fills import Fill
from meta_fns.padding.padded import Padded
from symshape.graph.codegen import compile_graph
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value
from symshape.runtime.padding.capacities import Capacities, Capacity, small, text_of
from symshape.runtime.padding.emission import Repair
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.padding.padded_graph import PaddedGraph, Refusal
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.rewrites import Answered, Rewrite

__all__ = ["MOST", "Blueprint", "Blueprints"]

MOST = 8
"""The most blueprints of one program, each for other answers; also the most failed derivations with
formulas.
"""

Derive = Callable[[Region], PaddedGraph]
"""Derives the padded program of a region; raises ``Refusal`` if an op refuses."""


_Metadata = tuple[Any, Any, Any, TensorSpec]
"""Sizes, strides and storage offset, with holes, and the spec that they come from."""


@attrs.frozen
class _Number:
    """A hole for an integer that depends on the capacities: its index among the numbers."""

    place: int


@attrs.frozen
class _Tensor:
    """A hole for a tensor that differs from bucket to bucket: its index among these tensors."""

    place: int


class Blueprint:
    """A padded program with formulas of the capacities.

    Args:
        made: the program, with capacities in its sizes and arguments.
        capacities: the capacities, with the comparisons that the rules asked about.
        compiled: whether one function is to run the program at any capacities.
    """

    def __init__(self, made: PaddedGraph, capacities: Capacities, *, compiled: bool) -> None:
        self._made = made
        self._capacities = capacities
        self._names = tuple(made.region.caps)
        self._numbers = Numbers()
        self._specs: list[_Metadata] = []
        self._spec_places: dict[int, int] = {}
        self._tensors: list[tuple[Value, int]] = []
        self._places: dict[Value, _Tensor] = {}
        graph = made.head
        for value in made.roots:
            self._note(value)
        self._steps = [self._step(node) for node in graph.nodes]
        self._texts = [(self._numbers.place(term), text_of(term)) for term in capacities.terms]
        self._formulas = attrs.evolve(graph, steps=tuple(self._with_terms()))
        places = {name: at for at, name in enumerate(self._names)}
        self._run = compile_graph(self._formulas, places) if compiled else None

    def serves(self, region: Region) -> bool:
        """Return whether the rules would make this program for a region, with the region's
        capacities.
        """
        own = self._made.region
        alike = region.exact == own.exact and region.caps.keys() == own.caps.keys()
        return alike and self._capacities.agree(region.caps) and region.answers_alike(own)

    def is_like(self, caps: Mapping[str, int]) -> bool:
        """Return whether the same capacities are 0 or 1 as in this program, which nearly always
        makes it fit.
        """
        return small(caps) == small(self._made.region.caps)

    def at(self, region: Region) -> PaddedGraph:
        """Return the program's instance for a region that it serves."""
        made, found = self._made, self._numbers.at(region.caps)
        tensors = _Tensors(self._tensors, self._specs, found)
        places = self._places

        def own(value: Any) -> Value:
            place = places.get(value)
            one: Value = value if place is None else tensors[place.place]
            return one

        def late() -> tuple[tuple[Step, ...], Mapping[Value, Node]]:
            return self._late(found, tensors), {
                own(value): node for value, node in made.made_for.items()
            }

        def at_numbers(fill: Fill) -> Fill:
            return Fill(fill.kind, _filled(self._holes(fill.value), found, {}))

        outputs = {
            value: (
                place,
                Padded(
                    own(each.tensor),
                    _at(each.axes, region),
                    *map(at_numbers, (each.fill, each.valid)),
                ),
            )
            for value, (place, each) in made.outputs.items()
        }
        run, caps = self._run, tuple([region.caps[name] for name in self._names])
        return attrs.evolve(
            made,
            head=self._head(found, tensors),
            axes=_at(made.axes, region),
            outputs=outputs,
            region=region,
            repairs=tuple([self._repair(each, found) for each in made.repairs]),
            made_for={},
            rewrites=tuple([_rewrite(each, region) for each in made.rewrites]),
            run=None if run is None else lambda arguments: run(arguments, caps),
            formulas=self._formulas,
            late=late,
        )

    def _repair(self, repair: Repair, numbers: Sequence[int]) -> Repair:
        """Return a repair with integers for the capacities in its text."""
        text = repair.what
        for place, each in self._texts:
            text = text.replace(each, str(numbers[place])) if each in text else text
        return repair if text is repair.what else attrs.evolve(repair, what=text)

    def _note(self, value: Value) -> None:
        """Record a tensor if its metadata depend on the capacities."""
        spec = value.spec
        sizes, strides, offset = map(self._holes, (spec.sizes, spec.strides, spec.storage_offset))
        if sizes is spec.sizes and strides is spec.strides and offset is spec.storage_offset:
            return
        place = self._spec_places.get(id(spec))
        if place is None:
            place = self._spec_places[id(spec)] = len(self._specs)
            self._specs.append((sizes, strides, offset, spec))
        self._places[value] = _Tensor(len(self._tensors))
        self._tensors.append((value, place))

    def _step(self, node: Node) -> tuple[Node, Any]:
        """Return a node, with its arguments, results and reads with holes; None for those if all
        buckets share it.
        """
        for value in node.outputs:
            if value is not None:
                self._note(value)
        parts = node.args, dict(node.kwargs), node.outputs, node.reads
        holes = tuple(map(self._holes, parts))
        return node, None if all(a is b for a, b in zip(parts, holes, strict=True)) else holes

    def _holes(self, arg: Any) -> Any:
        """Return an argument with holes for parts that differ by bucket; the argument itself if
        none does.
        """
        kind = type(arg)
        if kind is Value:
            return self._places.get(arg, arg)
        if kind is Capacity:
            return _Number(self._numbers.place(arg.term))
        if isinstance(arg, (list, tuple)):
            found = kind([self._holes(each) for each in arg])
            return arg if all(a is b for a, b in zip(found, arg, strict=True)) else found
        if kind is dict:
            filled = {name: self._holes(each) for name, each in arg.items()}
            return arg if all(filled[name] is each for name, each in arg.items()) else filled
        return arg

    def _late(self, numbers: Sequence[int], tensors: Mapping[int, Value]) -> tuple[Step, ...]:
        """Return the steps with these integers and tensors."""
        steps = []
        for node, holes in self._steps:
            if holes is None:
                steps.append(node)
                continue
            args, kwargs, outputs, reads = holes
            made = node.again(
                _filled(args, numbers, tensors), _filled(reads, numbers, tensors), node.location
            )
            made.kwargs = _filled(kwargs, numbers, tensors)
            made.outputs = _filled(outputs, numbers, tensors)
            steps.append(made)
        return tuple(steps)

    def _head(self, numbers: Sequence[int], tensors: Mapping[int, Value]) -> Graph:
        """Return the graph with these integers and tensors, without its steps."""
        graph, places = self._made.head, self._places
        inputs = tuple(
            [
                each
                if (place := places.get(each.value)) is None
                else attrs.evolve(each, value=tensors[place.place])
                for each in graph.inputs
            ]
        )
        outputs = tuple([_filled(self._holes(each), numbers, tensors) for each in graph.outputs])
        return Graph(inputs, graph.lifted, (), outputs, graph.output_tree)

    def _with_terms(self) -> Iterator[Node]:
        """Yield the nodes with terms for capacities among their arguments.

        Whatever converts a capacity to an integer makes the program depend on it; a term can only
        be evaluated.
        """
        for node, holes in self._steps:
            if holes is None:
                yield node
            else:
                yield attrs.evolve(
                    node, args=_formulas(node.args), kwargs=_formulas(dict(node.kwargs))
                )


class _Tensors(dict[int, Value]):
    """The tensors of one instance, by index, each made at its first use.

    Args:
        values: the blueprint's tensors, each with the index of its metadata.
        specs: metadata with holes: sizes, strides, offset, and the spec with the rest.
        numbers: the integers of the instance.
    """

    def __init__(
        self,
        values: Sequence[tuple[Value, int]],
        specs: Sequence[_Metadata],
        numbers: Sequence[int],
    ) -> None:
        super().__init__()
        self._values = values
        self._specs = specs
        self._numbers = numbers
        self._made: dict[int, TensorSpec] = {}

    def __missing__(self, place: int) -> Value:
        value, metadata = self._values[place]
        spec = self._made.get(metadata)
        if spec is None:
            *parts, like = self._specs[metadata]
            sizes, strides, offset = [_filled(each, self._numbers, {}) for each in parts]
            spec = self._made[metadata] = TensorSpec(
                sizes, strides, offset, like.dtype, like.device, like.layout
            )
        found = self[place] = Value(value.index, spec, object())
        return found


class Blueprints:
    """The blueprints of one traced program.

    Args:
        derive: derives the padded program of a region.
        most: the most blueprints; 0 for none, so that each program is derived with plain integers.
        compiled: whether one function is to run each of them at any capacities.

    Attributes:
        derived: the number of times the padding rules walked over the program.
        derived_ms: the ms that this took, with the code for any capacities.
    """

    def __init__(self, derive: Derive, *, most: int = MOST, compiled: bool) -> None:
        self._derive = derive
        self._most = most
        self._compiled = compiled
        self._known: list[Blueprint] = []  # the most recently used first
        self._failed = 0
        self.derived = 0
        self.derived_ms = 0.0

    def expected_ms(self, caps: Mapping[str, int]) -> float:
        """Return the ms that it probably takes to derive the program for these capacities; 0 if one
        is there, or none was derived yet.
        """
        if not self.derived or any(each.is_like(caps) for each in self._known):
            return 0.0
        return self.derived_ms / self.derived

    def padded(self, region: Region) -> PaddedGraph:
        """Return the padded program of a region.

        Raises:
            Refusal: an op refuses.
        """
        found = next((each for each in self._known if each.serves(region)), None)
        if found is None:
            start = time.perf_counter()
            try:
                found = self._new(region)
            finally:
                self.derived_ms += (time.perf_counter() - start) * 1e3
        if found is None:
            self.derived += 1
            return self._derive(region)
        self._known = [found, *(each for each in self._known if each is not found)][: self._most]
        return found.at(region)

    def _new(self, region: Region) -> Blueprint | None:
        """Return a blueprint for a region and others with the same answers; None if none can be
        derived.
        """
        if self._failed >= self._most:
            return None
        self.derived += 1
        capacities = Capacities(region.caps)
        try:
            made = self._derive(Region(region.given, region.exact, region.caps, capacities))
        except (
            Refusal
        ):  # a rule refused the region, or the formulas: a run on plain integers decides which
            self._failed += 1
            return None
        return Blueprint(made, capacities, compiled=self._compiled)


def _filled(arg: Any, numbers: Sequence[int], tensors: Mapping[int, Value]) -> Any:
    """Return an object with its holes filled by a bucket's integers and tensors."""
    kind = type(arg)
    if kind is _Tensor:
        return tensors[arg.place]
    if kind is _Number:
        return numbers[arg.place]
    if kind is list or kind is tuple:
        return kind([_filled(each, numbers, tensors) for each in arg])
    if kind is dict:
        return {name: _filled(each, numbers, tensors) for name, each in arg.items()}
    return arg


def _formulas(arg: Any) -> Any:
    """Return an argument with terms for its capacities."""
    kind = type(arg)
    if kind is Capacity:
        return arg.term
    if isinstance(arg, (list, tuple)):
        return kind([_formulas(each) for each in arg])
    return {name: _formulas(each) for name, each in arg.items()} if kind is dict else arg


def _at(axes: Any, region: Region) -> Any:
    """Return axes, of one tensor or of several, with the sizes of a region."""
    return tuple(
        [_at(each, region) if type(each) is tuple else region.at_capacities(each) for each in axes]
    )


def _rewrite(rewrite: Rewrite, region: Region) -> Rewrite:
    def at(arg: Any) -> Any:
        if type(arg) is Answered:
            return Answered(arg.place, _at(arg.axes, region))
        return type(arg)([at(each) for each in arg]) if isinstance(arg, (list, tuple)) else arg

    kwargs: Mapping[str, Any] = {name: at(each) for name, each in rewrite.kwargs.items()}
    return attrs.evolve(rewrite, args=at(rewrite.args), kwargs=kwargs)
