"""Programs as they run, beside the traced ones: padded for a bucket, or with kernels merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from symshape.exploring.report_records import TransformedRecord, TransformedStepRecord
from symshape.graph.graph import Graph
from symshape.graph.program import Program, size_names
from symshape.graph.steps import Assertion, Node, Step, Value, map_argument
from symshape.graph.text import describe, describe_spec, shown_argument
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.runtime.padding.planning import Plan, candidates, plan
from symshape.runtime.runners.exact.cuda_graph import CudaGraphRunner
from symshape.runtime.runners.padded.fusion import fuse, fuse_padded
from symshape.runtime.runners.pieces.runner import padded_parts
from symshape.runtime.runners.randomness import draws_any

__all__ = ["of_entry", "of_program"]

_LONGEST = 200  # characters of an op's arguments


def of_entry(entry: Entry) -> TransformedRecord | None:
    """Return the program that an entry runs: the bucket with most repairs; None if it is the traced
    program.

    For an entry that runs in pieces it is a bucket of one piece. For a device, merged kernels are
    shown merged.
    """
    whole = entry.program
    parts = list(padded_parts(entry.runner, whole))
    if not parts:
        return merged(whole) if isinstance(entry.runner, CudaGraphRunner) else None
    made = [(program, bucket.made) for program, runner in parts for bucket in runner.buckets]
    most = max(
        made, key=lambda each: len(each[1].padded.repairs if each[1].padded else ()), default=None
    )
    on_cuda = any(each.value.spec.device.type == "cuda" for each in whole.graph.inputs)
    return None if most is None else padded(*most, fused=on_cuda, whole=whole)


def of_program(program: Program) -> TransformedRecord | None:
    """Return the padded program at the capacities around the example call; None where nothing can
    be padded.
    """
    if not candidates(program):
        return None
    hints = {
        name: symbol.hint for name, symbol in program.symbols.items() if symbol.hint is not None
    }
    return padded(program, plan(program, hints, any_randomness=draws_any(program, Options())))


def padded(
    program: Program, made: Plan, *, fused: bool = False, whole: Program | None = None
) -> TransformedRecord:
    """Return the record of a padded program, or piece of the ``whole``; if nothing was padded, only
    the refusals.
    """
    words = size_names(program)
    refused = [
        f"{words[name]} keeps its value: {refusal}" for name, refusal in made.refusals.items()
    ]
    if made.padded is None:
        return TransformedRecord("padded", "", [], [], refused)
    graph = fuse_padded(made.padded) if fused else made.padded.graph
    repairs: dict[tuple[str, str], list[str]] = {}
    for each in made.padded.repairs:
        repairs.setdefault((each.op, each.where), []).append(each.what)
    sizes = [f"{words[name]} up to {cap}" for name, cap in made.caps.items()]
    sizes += [f"{words[name]} = {value}" for name, value in made.exact.items()]
    reads = [
        f"{each.path}: {describe_spec(each.value.spec)} in a buffer {describe(at.value)}"
        for each, at in zip(program.graph.inputs, graph.inputs, strict=False)
    ]
    true = graph.inputs[len(program.graph.inputs) :]
    reads += [
        f"p{at.value.index}: the true {size}"
        for at, size in zip(true, made.padded.sizes, strict=True)
    ]
    places = {id(step): number for number, step in enumerate((whole or program).graph.steps)}
    steps = list(_steps(graph, made.padded.sources, places, repairs))
    return TransformedRecord("padded", ", ".join(sizes), reads, steps, refused)


def merged(program: Program) -> TransformedRecord | None:
    """Return the program with kernels merged, as a CUDA graph captures it; None where nothing is
    merged.
    """
    graph = fuse(program.graph)
    if graph is program.graph:
        return None
    sources = {
        value: node for node in program.graph.nodes for value in node.outputs if value is not None
    }
    places = {id(step): number for number, step in enumerate(program.graph.steps)}
    return TransformedRecord("fused", "", [], list(_steps(graph, sources, places, {})), [])


def _steps(
    graph: Graph,
    sources: Mapping[Value, Node],
    places: Mapping[int, int],
    repairs: Mapping[tuple[str, str], list[str]],
) -> Iterator[TransformedStepRecord]:
    """Yield the steps of the new graph, each with its traced step."""
    for step in graph.steps:
        source = _source(step, sources)
        name = str(step.guard.term) if isinstance(step, Assertion) else str(step.op)
        told = [] if source is None else repairs.get((str(source.op), str(source.origin)), [])
        kept = source is None or _same(source, step)
        yield TransformedStepRecord(
            op=name,
            args="" if isinstance(step, Assertion) else _arguments(step),
            outputs=[]
            if isinstance(step, Assertion)
            else [_shown(each) for each in step.outputs if each is not None],
            source=places.get(id(step)) if source is None else places.get(id(source)),
            inserted=bool(told) and not kept,
            why="" if kept else ", ".join(dict.fromkeys(told)),
        )


def _source(step: Step, sources: Mapping[Value, Node]) -> Node | None:
    if isinstance(step, Assertion):
        return None
    return next(
        (sources[each] for each in step.outputs if each is not None and each in sources), None
    )


def _same(source: Node, step: Step) -> bool:
    """Return whether a step is the traced one at other sizes: the same op, whether or not it writes
    in place.
    """
    return isinstance(step, Node) and step.op._schema.name.rstrip(
        "_"
    ) == source.op._schema.name.rstrip("_")


@attrs.frozen(repr=False)
class _Named:
    """The text of a tensor of the new program, or of a size."""

    leaf: Any

    def __repr__(self) -> str:
        return f"p{self.leaf.index}" if isinstance(self.leaf, Value) else str(self.leaf)


def _arguments(node: Node) -> str:
    args: list[Any] = [shown_argument(map_argument(arg, _Named)) for arg in node.args]
    args += [
        f"{name}={shown_argument(map_argument(arg, _Named))}" for name, arg in node.kwargs.items()
    ]
    text = ", ".join(args)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _shown(value: Value) -> str:
    return f"p{value.index}: {describe(value)}"
