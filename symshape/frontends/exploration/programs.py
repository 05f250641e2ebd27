"""Traced programs as records: their ops, and every integer as a formula that a page can compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from guards.terms import arithmetic
from guards.terms.printing import tree_sizes
from guards.terms.tape import Tape
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.cost.cost import Cost
from symshape.cost.domain import Domain
from symshape.cost.peak_memory import PeakMemory
from symshape.errors import SymShapeError
from symshape.exploring.report_records import (
    FormulaRecord,
    ProgramRecord,
    StepRecord,
    SymbolRecord,
    TapeRecord,
    TensorRecord,
    TransformedRecord,
    TransformedStepRecord,
)
from symshape.exploring.tables import output_leaves, whence
from symshape.frontends.exploration.spaces import Origins
from symshape.graph.graph import Graph
from symshape.graph.program import Program, size_names
from symshape.graph.steps import Assertion, Node, Step, Value, map_argument
from symshape.graph.text import describe, describe_spec, shown_argument
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.runtime.padding.planning import Plan, candidates, plan
from symshape.runtime.runners.padded.cache_append import append
from symshape.runtime.runners.pieces.runner import padded_parts
from symshape.runtime.runners.randomness import draws_any
from symshape.user_code import origin_of

_LONGEST = 300  # characters of an op's arguments
_SIMPLIFIED = 400  # different sizes that are simplified under the guards; each may ask a solver
_LARGEST_MEMORY = 4000  # nodes of a program's peak memory that are shown


def program_record(
    program: Program,
    origins: Origins,
    slots: Mapping[str, int],
    after: TransformedRecord | None = None,
    *,
    whole: bool = True,
) -> ProgramRecord:
    """Return the record of a program; ``slots`` maps each symbol to the slot of its space that
    holds it.

    ``after`` is the program as it runs. If not ``whole``, the record has neither ops nor costs.
    """
    formulas = _Formulas(program)
    inputs = [formulas.tensor(each.value, each.path) for each in program.graph.inputs]
    outputs = list(_outputs(program, formulas))
    steps = [_step(step, formulas, origins) for step in program.graph.steps] if whole else []
    costs, notes = (
        _costs(program, formulas)
        if whole
        else ({}, ["its ops and costs are left out of this report"])
    )
    return ProgramRecord(
        name=program.name,
        symbols=[
            SymbolRecord(
                each.name,
                whence(each),
                each.hint,
                each.policy.value,
                slots.get(each.name),
            )
            for each in program.symbols.values()
        ],
        tape=TapeRecord(formulas.tape.steps, formulas.tape.exact_up_to()),
        formulas=formulas.records,
        inputs=inputs,
        outputs=outputs,
        lifted=len(program.graph.lifted),
        steps=steps,
        costs=costs,
        notes=notes,
        milliseconds=round(program.milliseconds, 1),
        after=after,
    )


class _Formulas:
    """The integers of a program, each once, simplified under its guards."""

    def __init__(self, program: Program) -> None:
        self.domain = Domain.of(program)
        self.tape = Tape(list(program.symbols))
        self.records: list[FormulaRecord] = []
        self._known: dict[Term, int] = {}

    def add(self, size: Any) -> int:
        """Return the position of the formula of a size, an int or symbolic."""
        term = size if isinstance(size, Term) else getattr(size, "term", None)
        if term is None:
            term = arithmetic.const(size)
        found = self._known.get(term)
        if found is None:
            plain = term.op is Op.CONST or len(self._known) > _SIMPLIFIED
            best = term if plain else self.domain.simplified(term)
            found = self._known.get(best)
            if found is None:
                names = [
                    name for name in self.domain.symbols if arithmetic.symbol(name) in best.symbols
                ]
                found = len(self.records)
                self.records.append(FormulaRecord(str(best), self.tape.add(best), names))
            self._known[term] = self._known[best] = found
        return found

    def tensor(self, value: Value, path: str = "") -> TensorRecord:
        """Return the record of a tensor of the program."""
        return self.spec(value.spec, value.name, path)

    def spec(self, spec: TensorSpec, name: str = "", path: str = "") -> TensorRecord:
        """Return the record of a tensor from its spec."""
        dtype = describe_spec(spec).partition("[")[0]
        return TensorRecord(name, path, dtype, [self.add(size) for size in spec.sizes])


def _outputs(program: Program, formulas: _Formulas) -> Iterator[TensorRecord]:
    for name, leaf in output_leaves(program):
        if isinstance(leaf, TensorSpec):
            yield formulas.spec(leaf, "", name)
        elif isinstance(leaf, Term):
            yield TensorRecord("", name, "int", [formulas.add(leaf)])
        else:
            yield TensorRecord("", f"{name} = {shown_argument(leaf)}", "", [])


def _step(step: Node | Assertion, formulas: _Formulas, origins: Origins) -> StepRecord:
    if isinstance(step, Assertion):
        return StepRecord(
            "assert",
            str(step.guard.term),
            [],
            origins.add(step.guard.origin, excerpt=False),
            "assert",
        )
    outputs = [formulas.tensor(value) for value in step.outputs if value is not None]
    bound = "".join(f" -> {binding.symbol}" for binding in step.bindings)
    origin = (
        origins.add(origin_of(step.location), excerpt=False) if step.location is not None else None
    )
    return StepRecord(
        str(step.op),
        _arguments(step, _LONGEST) + bound,
        outputs,
        origin,
    )


def _arguments(node: Node, longest: int, shown: Callable[[Any], str] = shown_argument) -> str:
    """Return the arguments of an op as one text."""
    args = [shown(arg) for arg in node.args]
    args += [f"{name}={shown(arg)}" for name, arg in node.kwargs.items()]
    text = ", ".join(args)
    return text if len(text) <= longest else f"{text[:longest]}…"


def _costs(program: Program, formulas: _Formulas) -> tuple[dict[str, int], list[str]]:
    try:
        cost = Cost.of(program)
        found = {
            "flops": cost.flops.written,
            "read": cost.read.written,
            "written": cost.written.written,
        }
    except SymShapeError as error:
        return {}, [f"no costs: {error}"]
    notes = []
    if cost.unpriced:
        notes.append(
            f"left out of the costs, because no rule knows them: {', '.join(cost.unpriced)}"
        )
    try:
        memory = PeakMemory.of(program).total.written
        if tree_sizes(memory, {}) <= _LARGEST_MEMORY:
            found["memory"] = memory
        else:
            notes.append(
                "peak memory: its formula is too large to be shown here; see peak_memory()"
            )
    except SymShapeError as error:
        notes.append(f"no peak memory: {error}")
    return {name: formulas.add(term) for name, term in found.items()}, notes


# -- Programs as they run, beside the traced ones: padded for a bucket.
_LONGEST_AFTER = 200  # characters of an op's arguments


def of_entry(entry: Entry) -> TransformedRecord | None:
    """Return the program that an entry runs: the bucket with most repairs; None if it is the traced
    program.

    For an entry that runs in pieces it is a bucket of one piece. For a device, fused appends are
    shown fused.
    """
    whole = entry.program
    parts = list(padded_parts(entry.runner, whole))
    if not parts:
        return None
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
        return TransformedRecord("", [], [], refused)
    graph = append(made.padded) if fused else made.padded.graph
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
    return TransformedRecord(", ".join(sizes), reads, steps, refused)


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
            args="" if isinstance(step, Assertion) else _arguments(step, _LONGEST_AFTER, _renamed),
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


def _renamed(arg: Any) -> str:
    return shown_argument(map_argument(arg, _Named))


def _shown(value: Value) -> str:
    return f"p{value.index}: {describe(value)}"
