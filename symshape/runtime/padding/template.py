"""One padded program for all capacities, with formulas in place of the integers that depend on the
capacities.

A padded program is made for one bucket, with the capacities as plain integers in its arguments.
Programs of other buckets mostly differ in these integers alone, so that one compilation with
symbolic sizes can serve them all.  The formulas are guessed by comparing programs made at a few
capacities, and never trusted: a bucket is served only if its own program, op by op and integer by
integer, equals the formulas' values at its capacities.  The compared programs compute equal parts
separately (``pad(…, apart=True)``): otherwise two capacities that happen to be equal would change
the form of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations_with_replacement
from typing import Any

import attrs
import torch

from guards.sets.sources import Size
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.graph.graph import Graph
from symshape.graph.program import Slot
from symshape.graph.steps import Input, Lifted, Node, Value
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import PaddedGraph, Refusal
from symshape.torch_internals import pytree

__all__ = ["Template", "generalise"]

Pad = Callable[[Region], PaddedGraph]
"""Makes the padded program of a region."""

_aten = torch.ops.aten
_PROBES = (2, 3, 5, 4, 7, 6, -2, 9, -4, 8)
"""The multiples of a bucket's capacities that are tried (a negative one divides); the next symbol
starts one later.

Whole multiples keep the divisibility of capacities, and with it the form of the program.
"""
_WANTED = 3  # other capacities that a formula is fitted to, besides the bucket's own
_FACTORS = 3  # sizes in a formula's product, at most


@attrs.frozen(eq=False)
class Template:
    """A padded program with formulas of the capacities for its integers.

    Attributes:
        graph: the graph; its inputs are the buffers, and then one tensor with all true sizes.
        paths: the names of the inputs.
        slots: the integers of the buffers' sizes, in order, as formulas of the capacities.
    """

    graph: Graph
    paths: tuple[str, ...]
    slots: tuple[Slot, ...]
    _shape: tuple[Any, ...]

    def serves(self, padded: PaddedGraph) -> bool:
        """Return whether the template equals this padded program at its capacities."""
        values = padded.region.caps
        flat = list(_flat(padded))
        if len(flat) != len(self._shape):
            return False
        pairs = zip(flat, self._shape, strict=True)
        try:
            return all(
                _same(each, fold.evaluate(own, values) if type(own) is Term else own)
                for each, own in pairs
            )
        except (KeyError, ZeroDivisionError):
            return False


def generalise(padded: PaddedGraph, pad: Pad) -> Template | None:
    """Return the template of a padded program and of others that ``pad`` makes; None if they have
    no common form.
    """
    caps = padded.region.caps
    columns = [(caps, list(_flat(padded)))]
    for probe in _probes(padded.region):
        try:
            other = pad(Region(padded.region.given, padded.region.exact, probe))
        except (Refusal, ValueError):
            continue
        flat = list(_flat(other))
        if _alike(flat, columns[0][1]):
            columns.append((probe, flat))
        if len(columns) > _WANTED:
            break
    if len(columns) < 3:
        return None
    basis = _basis(padded.region)
    formulas: dict[tuple[int, ...], Term] = {}
    shape: list[Any] = []
    for leaves in zip(*(flat for _, flat in columns), strict=True):
        if type(leaves[0]) is not int or len(set(leaves)) == 1:
            shape.append(leaves[0])
            continue
        if leaves not in formulas:
            found = _fit(leaves, [known for known, _ in columns], basis)
            if found is None:
                return None
            formulas[leaves] = found
        shape.append(formulas[leaves])
    made = _Rebuilt(padded, iter(shape))
    template = Template(made.graph, made.paths, made.slots, tuple(shape))
    readable = {slot.term for slot in made.slots if slot.term.op is Op.SYMBOL}
    wanted = {symbol for term in shape if type(term) is Term for symbol in term.symbols}
    return template if wanted <= readable and template.serves(padded) else None


def _probes(region: Region) -> Iterator[dict[str, int]]:
    """Yield other capacities, with the same fixed symbols and the same equal symbols as the
    conditions demand.
    """
    kinds: dict[str, int] = {}
    for name, cap in region.caps.items():
        symbol = arithmetic.symbol(name)
        if region.fixed(symbol, cap):
            continue
        twin = (
            kind
            for other, kind in kinds.items()
            if region.known(boolean.eq(symbol, arithmetic.symbol(other)))
        )
        kinds[name] = next(twin, len(set(kinds.values())))
    for start in range(len(_PROBES)):
        found = {}
        for name, cap in region.caps.items():
            if name not in kinds:
                found[name] = cap
                continue
            factor = _PROBES[(start + kinds[name]) % len(_PROBES)]
            found[name] = cap * factor if factor > 0 else max(2, cap // -factor)
        yield found


def _flat(padded: PaddedGraph) -> Iterator[Any]:
    """Yield all parts of a padded program: strings and numbers for its structure, integers where
    sizes may occur.
    """
    graph = padded.graph
    inputs = graph.inputs[: len(padded.axes)]
    yield from (len(inputs), len(graph.inputs), len(graph.lifted), len(graph.steps))
    for each in inputs:
        yield _Named(each.value.index, each.value.spec.dtype, each.value.spec.device)
        yield from each.value.spec.sizes
        yield _Named("end")
    for term, size in zip(padded.sizes, graph.inputs[len(inputs) :], strict=True):
        yield _Named(str(term), size.value.index)
    for lifted in graph.lifted:
        yield _Named(lifted.value.index, id(lifted.tensor))
    for node in graph.nodes:
        yield _Named(node.op, node.single, len(node.args), tuple(node.kwargs))
        yield _Named(*(None if each is None else each.index for each in node.outputs))
        yield from _leaves([node.args, list(node.kwargs.values())])
    yield _Named(*(value.index for value in graph.outputs))


@attrs.frozen(init=False)
class _Named:
    """A part of the structure, which must be equal in two programs."""

    parts: tuple[Any, ...]

    def __init__(self, *parts: Any) -> None:
        self.__attrs_init__(parts)


def _leaves(arg: Any) -> Iterator[Any]:
    if isinstance(arg, (list, tuple)):
        yield _Named(len(arg))
        for item in arg:
            yield from _leaves(item)
    elif type(arg) is int:
        yield arg
    elif type(arg) is Value:
        yield _Named("value", arg.index)
    else:
        yield _Named(type(arg), repr(arg))


def _same(mine: Any, theirs: Any) -> bool:
    return type(mine) is type(theirs) and bool(mine == theirs)


def _alike(mine: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Return whether two programs differ in integers alone."""
    if len(mine) != len(theirs):
        return False
    return all(
        type(a) is type(b) and (type(a) is int or a == b) for a, b in zip(mine, theirs, strict=True)
    )


def _basis(region: Region) -> list[Term]:
    """Return the terms that formulas are made of: the capacities, and the sizes that the program
    has.
    """
    symbols = [arithmetic.symbol(name) for name in region.caps]
    return list(dict.fromkeys([*symbols, *region.extents]))


def _fit(
    values: Sequence[int], capacities: Sequence[Mapping[str, int]], basis: Sequence[Term]
) -> Term | None:
    """Return a formula with these values at these capacities: a multiple or part of a product, plus
    a constant.
    """
    for number in range(1, _FACTORS + 1):
        for factors in combinations_with_replacement(
            basis[: 32 if number < _FACTORS else 4], number
        ):
            term = reduce(arithmetic.mul, factors)
            at = [int(fold.evaluate(term, each)) for each in capacities]
            found = _scaled(term, at, values)
            if found is not None:
                return found
    return None


def _scaled(term: Term, at: Sequence[int], values: Sequence[int]) -> Term | None:
    """Return ``slope * term + constant``, or ``term // share``, with these values, or None if
    neither fits.
    """
    run, rise = at[1] - at[0], values[1] - values[0]
    if run == 0 or rise == 0:
        return None
    slope, rest = divmod(rise, run)
    if not rest:
        constant = values[0] - slope * at[0]
        if all(slope * x + constant == y for x, y in zip(at, values, strict=True)):
            return arithmetic.add(arithmetic.mul(slope, term), constant)
    share, rest = divmod(run, rise)
    if not rest and share > 1 and all(x // share == y for x, y in zip(at, values, strict=True)):
        return division.floordiv(term, share)
    return None


class _Rebuilt:
    """A padded program's graph, rebuilt with formulas for integers, and one input for all true
    sizes.
    """

    def __init__(self, padded: PaddedGraph, shape: Iterator[Any]) -> None:
        self._shape = shape
        self._values: dict[Value, Value] = {}
        graph = padded.graph
        number = len(padded.axes)
        for _ in range(4):
            next(shape)
        inputs, slots = [], []
        for place, each in enumerate(graph.inputs[:number]):
            next(shape)
            sizes = [next(shape) for _ in each.value.spec.sizes]
            next(shape)
            inputs.append(Input(place, f"buffer{place}", self._value(each.value)))
            slots += [
                Slot(
                    Size(f"buffer{place}", dim),
                    arithmetic.const(size) if type(size) is int else size,
                )
                for dim, size in enumerate(sizes)
            ]
        paths = tuple(each.path for each in inputs)
        steps = []
        for _ in (*padded.sizes, *graph.lifted):
            next(shape)
        if padded.sizes:
            indices = [each.value for each in graph.inputs[number:]]
            device = indices[0].spec.device
            together = Value(
                _above(graph), TensorSpec((len(indices),), (1,), 0, torch.int64, device), object()
            )
            inputs.append(Input(number, "sizes", together))
            slots.append(Slot(Size("sizes", 0), arithmetic.const(len(indices))))
            paths = (*paths, "sizes")
            outputs = tuple(map(self._value, indices))
            steps.append(Node(_aten.unbind.int, (together, 0), {}, outputs, False))
        lifted = tuple(
            Lifted(each.name, each.tensor, self._value(each.value)) for each in graph.lifted
        )
        steps += [self._node(node) for node in graph.nodes]
        outputs = tuple(map(self._value, graph.outputs))
        _, tree = pytree.tree_flatten([0] * len(outputs))
        self.graph = Graph(tuple(inputs), lifted, tuple(steps), outputs, tree)
        self.paths = paths
        self.slots = tuple(slots)

    def _value(self, value: Value) -> Value:
        found = self._values.get(value)
        if found is None:
            found = self._values[value] = Value(value.index, value.spec, object())
        return found

    def _node(self, node: Node) -> Node:
        next(self._shape)
        outputs = tuple(None if each is None else self._value(each) for each in node.outputs)
        next(self._shape)
        args, kwargs = self._argument([node.args, list(node.kwargs.values())])
        return attrs.evolve(
            node,
            args=tuple(args),
            kwargs=dict(zip(node.kwargs, kwargs, strict=True)),
            outputs=outputs,
        )

    def _argument(self, arg: Any) -> Any:
        own = next(self._shape)
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        if type(arg) is Value:
            return self._value(arg)
        return own if type(arg) is int else arg


def _above(graph: Graph) -> int:
    """Return an unused number for a value."""
    made = [output.index for node in graph.nodes for output in node.outputs if output is not None]
    made += [each.value.index for each in graph.inputs] + [
        each.value.index for each in graph.lifted
    ]
    return 1 + max(made)
