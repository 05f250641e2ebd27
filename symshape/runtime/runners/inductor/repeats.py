"""Layers that repeat in a graph: Inductor compiles one of them, and the others are calls of it.

A model is one layer many times, and Inductor's time grows with the number of nodes: a small Llama
of 12 layers took 34 s on a CPU, and with one layer compiled 5 s (torch 2.13).  Layers are found in
the graph alone: the same operations, with the same constants, wired in the same way, on tensors
with the same metadata at all sizes.  What differs between them, such as parameters, is passed in.
Nothing is fused across the border of two layers.  (``invoke_subgraph`` was run on 2.11, 2.13 and
2.14.)
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.fx
from torch.fx.node import map_arg

from meta_fns.torch_internals import OpOverload
from symshape.torch_internals.dispatch import python_dispatcher
from symshape.torch_internals.inductor import invoke_subgraph

__all__ = ["with_repeats_once"]

_LEAST_NODES = 16
"""The nodes of the smallest layer: a call of a subgraph costs Inductor time, too."""
_LEAST_TIMES = 3
"""The fewest layers: with two, half of a time is saved that is short anyway."""
_PERIODS = 8
"""The candidates for the number of nodes of a layer: the most frequent distances of equal nodes."""
_BORDERS = 4
"""The places where a layer may begin that are tried, those with the fewest results first."""


@attrs.frozen(eq=False)
class _Layers:
    """Layers with the same operations on tensors of the same kinds.

    Attributes:
        blocks: the nodes of each layer, in order.
        operands: what each layer reads from outside, in the order of its first use.
        results: the places in a layer of the nodes that are used outside.
    """

    blocks: Sequence[Sequence[torch.fx.Node]]
    operands: Sequence[Sequence[torch.fx.Node]]
    results: Sequence[int]


def with_repeats_once(
    module: torch.fx.GraphModule, inputs: Sequence[Any], mode: Any
) -> torch.fx.GraphModule:
    """Return the graph with calls of one subgraph in place of repeated layers; the graph
    itself if there are none.

    Args:
        module: the graph.
        inputs: its inputs: fake tensors and symbolic or plain integers.
        mode: the mode of the fake tensors.
    """
    kinds = {each.op for each in module.graph.nodes}
    if invoke_subgraph is None or not kinds <= {"placeholder", "call_function", "output"}:
        return module
    nodes = _sizes_first(module.graph)
    found = _all_layers(nodes)
    given = [each for each in module.graph.nodes if each.op == "placeholder"]
    try:
        with mode, python_dispatcher():  # whose rules fix fewer sizes than C++'s
            while found:
                other = _of_several_kinds(nodes, found, dict(zip(given, inputs, strict=True)))
                if other is None:
                    return _folded(module, nodes, found)
                found.remove(other)
    except _DependsOnData:
        pass
    return module


# -- Find runs of nodes that repeat.


def _sizes_first(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the calls of a graph, integers that are computed from sizes alone before all others:
    only the first layer that needs such an integer computes it.
    """
    calls = [each for each in graph.nodes if each.op == "call_function"]
    early: set[torch.fx.Node] = {each for each in graph.nodes if each.op == "placeholder"}
    first = []
    for each in calls:
        of_sizes = each.target is torch.ops.aten.sym_size.int or each.target in _ARITHMETIC
        if of_sizes and all(given in early for given in each.all_input_nodes):
            early.add(each)
            first.append(each)
    known = set(first)
    return [*first, *(each for each in calls if each not in known)]


_ARITHMETIC = frozenset(
    (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
)


def _sorts(nodes: Sequence[torch.fx.Node]) -> list[int]:
    """Return a number for each node that equal operations with equal constants share."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(_outline(each), len(numbers)) for each in nodes]


def _outline(node: torch.fx.Node) -> tuple[str, str]:
    """Return an operation and its arguments, without telling which nodes those are."""
    given = map_arg((node.args, node.kwargs), lambda _: "·")
    return f"{node.target}", repr(given)


def _longest_run(sorts: Sequence[int], taken: Sequence[bool]) -> tuple[int, int, int] | None:
    """Return the beginning, the period and the end of the run that saves most nodes; None if none
    has enough layers.
    """
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for place, sort in enumerate(sorts):
        if not taken[place]:
            if place - last.get(sort, place) >= _LEAST_NODES:
                distances[place - last[sort]] += 1
            last[sort] = place
    best, most = None, 0
    for period, _ in distances.most_common(_PERIODS):
        start = 0  # of the nodes up to here that equal those a period later
        for place in range(len(sorts) - period + 1):
            other = place + period
            if (
                other < len(sorts)
                and sorts[place] == sorts[other]
                and not (taken[place] or taken[other])
            ):
                continue
            times = (other - start) // period
            if times >= _LEAST_TIMES and (times - 1) * period > most:
                best, most = (start, period, other), (times - 1) * period
            start = place + 1
    return best


# -- Cut a run into layers that are alike.


def _all_layers(nodes: Sequence[torch.fx.Node]) -> list[_Layers]:
    """Return the layers of all runs of a graph."""
    sorts, taken, found = _sorts(nodes), [False] * len(nodes), list[_Layers]()
    places = {node: place for place, node in enumerate(nodes)}
    while (run := _longest_run(sorts, taken)) is not None:
        start, period, end = run
        layers = next(_layers(nodes, places, start, period, end), None)
        if layers is None:
            taken[start:end] = [True] * (end - start)
            continue
        found.append(layers)
        for block in layers.blocks:
            for node in block:
                taken[places[node]] = True
    return found


def _layers(
    nodes: Sequence[torch.fx.Node],
    places: Mapping[torch.fx.Node, int],
    start: int,
    period: int,
    end: int,
) -> Iterator[_Layers]:
    """Yield the layers of a run, those with the fewest results first."""
    last = [max((places.get(user, len(nodes)) for user in node.users), default=0) for node in nodes]

    def results(border: int) -> int:
        return sum(last[place] >= border + period for place in range(border, border + period))

    borders = range(start, min(start + period, end - _LEAST_TIMES * period + 1))
    for border in sorted(borders, key=lambda each: (results(each + period), each))[:_BORDERS]:
        times = (end - border) // period
        blocks = [nodes[border + k * period : border + (k + 1) * period] for k in range(times)]
        layers = _wired_alike(blocks)
        if layers is not None and all(map(_is_pure, layers.blocks[0])):
            yield layers


def _wired_alike(blocks: Sequence[Sequence[torch.fx.Node]]) -> _Layers | None:
    """Return blocks as layers if each node reads in all of them what it reads in the first one."""
    operands: list[list[torch.fx.Node]] = []
    results = set[int]()
    wires: list[tuple[bool, int]] | None = None
    for block in blocks:
        inside = {node: place for place, node in enumerate(block)}
        outside: dict[torch.fx.Node, int] = {}
        own = [
            (True, inside[given])
            if given in inside
            else (False, outside.setdefault(given, len(outside)))
            for node in block
            for given in _read(node)
        ]
        if wires is None:
            wires = own
        elif own != wires:
            return None
        operands.append(list(outside))
        results |= {
            place
            for place, node in enumerate(block)
            if any(user not in inside for user in node.users)
        }
    return _Layers(blocks, operands, sorted(results))


def _read(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the nodes that a node reads, one after the other, also several times."""
    found: list[torch.fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def _is_pure(node: torch.fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return target in _ARITHMETIC or target is operator.getitem
    if torch.Tag.nondeterministic_seeded in target.tags and not _drops_nothing(node):
        return False
    return not target._schema.is_mutable


def _drops_nothing(node: torch.fx.Node) -> bool:
    """Return whether a node is attention without dropout."""
    target: Any = node.target
    names = [each.name for each in target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}.get("dropout_p") == 0.0


# -- Compare the metadata of what layers are given.


class _DependsOnData(Exception):
    """Raised for a node whose sizes depend on data: running it would make new symbols."""


def _of_several_kinds(
    nodes: Sequence[torch.fx.Node], found: Sequence[_Layers], values: dict[torch.fx.Node, Any]
) -> _Layers | None:
    """Return layers for which one subgraph may not stand: they are given tensors or integers of
    other kinds, or a result shares memory with what is given or with another result.  None if
    there are no such layers.

    The first layer alone is run: what is alike and is given the same makes the same.

    Args:
        nodes: the calls of the graph.
        found: the layers in it.
        values: the fake values of its inputs; those of the nodes are added.

    Raises:
        _DependsOnData: sizes depend on data.
    """
    first = {block[0]: (each, k) for each in found for k, block in enumerate(each.blocks)}
    ends = {each.blocks[0][-1]: each for each in found}
    later = {node for each in found for block in each.blocks[1:] for node in block}
    for node in nodes:
        layers, k = first.get(node, (None, 0))
        if layers is not None:
            kinds = [_kind(values[each]) for each in layers.operands[k]]
            if None in kinds or kinds != [_kind(values[each]) for each in layers.operands[0]]:
                return layers
            for own, one in zip(layers.operands[k], layers.operands[0], strict=True):
                if own is not one and not isinstance(values[own], torch.Tensor):
                    return layers
            for place in layers.results if k else ():
                values[layers.blocks[k][place]] = values[layers.blocks[0][place]]
        if node in later:
            continue
        values[node] = _run(node, values)
        if node in ends:
            layers = ends[node]
            made = {
                _memory(values[node]) for node in map(layers.blocks[0].__getitem__, layers.results)
            }
            taken = {_memory(values[each]) for each in layers.operands[0]}
            if None in made or len(made) < len(layers.results) or made & taken:
                return layers
    return None


def _run(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """Return the fake value of a node.

    Raises:
        _DependsOnData: its sizes depend on data.
    """
    target: Any = node.target
    given: Any = map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = given
    tags = getattr(target, "tags", ())
    if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
        masks = (torch.bool, torch.uint8)
        by_numbers = target is torch.ops.aten.index.Tensor and not any(
            each is not None and each.dtype in masks for each in args[1]
        )
        if not by_numbers:
            raise _DependsOnData
    return target(*args, **kwargs)


def _kind(value: Any) -> Any:
    """Return the metadata of what a layer is given; None for what a subgraph may not be given."""
    if isinstance(value, torch.Tensor):
        sizes = [str(each) for each in (*value.shape, *value.stride(), value.storage_offset())]
        return (*sizes, value.dtype, value.device)
    return str(value) if isinstance(value, int | torch.SymInt) else None


def _memory(value: Any) -> int | None:
    """Return a number of the memory of a tensor; None for other values."""
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


# -- Make the graph with subgraphs.


def _folded(
    module: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], found: Sequence[_Layers]
) -> torch.fx.GraphModule:
    """Return the graph with a call of a subgraph for each layer."""
    root, graph = torch.nn.Module(), torch.fx.Graph()
    first: dict[torch.fx.Node, tuple[int, _Layers, int]] = {}
    inside = set[torch.fx.Node]()
    for number, layers in enumerate(found):
        setattr(root, f"layer_{number}", _subgraph(layers))
        for k, block in enumerate(layers.blocks):
            first[block[0]] = number, layers, k
            inside.update(block)
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    given = [each for each in module.graph.nodes if each.op == "placeholder"]
    (output,) = [each for each in module.graph.nodes if each.op == "output"]
    for node in (*given, *nodes, output):
        if node not in inside:
            made[node] = graph.node_copy(node, made.__getitem__)
            continue
        if node not in first:
            continue
        number, layers, k = first[node]
        name = f"layer_{number}"
        operands = [made[each] for each in _given(layers, k)]
        call = graph.call_function(invoke_subgraph, (graph.get_attr(name), name, *operands))
        for place, result in enumerate(layers.results):
            made[layers.blocks[k][result]] = graph.call_function(operator.getitem, (call, place))
    graph.lint()
    return torch.fx.GraphModule(root, graph)


def _subgraph(layers: _Layers) -> torch.fx.GraphModule:
    """Return the first layer as a graph of its own: from its operands to its results."""
    graph, block = torch.fx.Graph(), layers.blocks[0]
    made = {
        node: graph.placeholder(f"operand_{place}") for place, node in enumerate(_given(layers, 0))
    }
    for node in (*_computed(layers), *block):
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[block[place]] for place in layers.results))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _computed(layers: _Layers) -> list[torch.fx.Node]:
    """Return the operands that are computed from sizes, with what they are computed from, in order.

    A subgraph computes them itself: Inductor may fix an integer that is given and no plain symbol.
    """
    found: dict[torch.fx.Node, None] = {}

    def compute(node: torch.fx.Node) -> None:
        if node.target in _ARITHMETIC and node not in found:
            for each in node.all_input_nodes:
                compute(each)
            found[node] = None

    for each in layers.operands[0]:
        compute(each)
    return list(found)


def _given(layers: _Layers, number: int) -> list[torch.fx.Node]:
    """Return what a layer is given: its operands, or what those are computed from."""
    computed = dict.fromkeys(_computed(layers))
    given = [each for each in layers.operands[number] if each not in computed]
    bases = (each for node in computed for each in node.all_input_nodes if each not in computed)
    return list(dict.fromkeys((*given, *bases)))
