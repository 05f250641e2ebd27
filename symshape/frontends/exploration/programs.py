"""Traced programs as records: their ops, and every integer as a formula that a page can compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from guards.terms import arithmetic
from guards.terms.printing import tree_sizes
from guards.terms.tape import Tape
from guards.terms.term import Op, Term
from meta_fns import TensorSpec
from symshape.calls.arguments import flat_with_paths
from symshape.calls.naming import Naming
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
)
from symshape.frontends.exploration.origins import Origins
from symshape.graph.program import Program
from symshape.graph.steps import Assertion, Node, Value
from symshape.graph.text import describe_spec, shown_argument
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
                ", ".join(source.text() for source in each.sources) or _born(each),
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


def _born(symbol: Any) -> str:
    place = "" if symbol.birth is None else symbol.birth.place or symbol.birth.op
    return ", born at ".join(part for part in (symbol.description, place) if part)


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
    naming = Naming()
    for path, leaf in flat_with_paths(program.output_specs)[0]:
        name = naming.path("", path) or "result"
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
    args = [shown_argument(arg) for arg in step.args]
    args += [f"{name}={shown_argument(arg)}" for name, arg in step.kwargs.items()]
    outputs = [formulas.tensor(value) for value in step.outputs if value is not None]
    text = ", ".join(args)
    bound = "".join(f" -> {binding.symbol}" for binding in step.bindings)
    origin = (
        origins.add(origin_of(step.location), excerpt=False) if step.location is not None else None
    )
    return StepRecord(
        str(step.op),
        (text if len(text) <= _LONGEST else text[:_LONGEST] + "…") + bound,
        outputs,
        origin,
    )


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
