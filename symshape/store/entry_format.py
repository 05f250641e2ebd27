"""The file of an entry: one line with its identity and its calls, one line with the rest; readable
JSON.

The name of a file is the digest of its content. Readers trust nothing: see the modules for the
parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.facts.definedness import satisfied
from guards.sets.guard_set import GuardSet
from guards.sets.origin import Origin
from guards.sets.sources import Source
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term
from symshape.calls.arguments import Call, skeleton, sources_of
from symshape.calls.modes import Modes
from symshape.calls.outputs import result_of
from symshape.calls.questions import DATA, Question
from symshape.dims import Policy
from symshape.graph.codegen import LateRun, Run
from symshape.graph.graph import Graph
from symshape.graph.program import Program, Slot, Symbol, positions_among
from symshape.graph.steps import Node, Value
from symshape.graph.symbol_names import names_in, names_of_step
from symshape.store.call_structure import (
    answered,
    answers,
    question_from_json,
    question_to_json,
    questions_to_json,
    structure_to_json,
)
from symshape.store.descriptions import flat_key
from symshape.store.environment import device_names
from symshape.store.graph_format import GraphReader, GraphWriter, guard_set, guards_text
from symshape.store.json_values import (
    Json,
    TermsReader,
    TermsWriter,
    exactly,
    fields_of,
    integer_of,
    label_of,
    list_of,
    text_of,
)
from symshape.store.state_format import StateReader, StateWriter
from symshape.store.store_errors import Differs, EntryError, NotStorable
from symshape.torch_internals import pytree
from symshape.tracing.capture import between_traces
from symshape.tracing.state.compare.state import State
from symshape.tracing.traced_modes import without_autocast

FORMAT, VERSION = "symshape entry", 5
LARGEST = 256 << 20
"""The largest size of a file, in bytes."""
_STRUCTURE = ("modes", "tree", "leaves", "duplicates", "shared")
_HEADER = (
    "format",
    "version",
    "function",
    "address",
    "environment",
    "structure",
    "slots",
    "guards",
)


@attrs.frozen(eq=False)
class BuiltEntry:
    """The parts of an entry that need no call.

    Attributes:
        state: what it read, in this process.
        holds: returns whether the objects that were described are still what they were then.
        graph: its operators.
        specs: of what it returns.
        run: what runs it.
        data: what is asked of numbers, with the answers.
    """

    state: State
    holds: Callable[[], bool]
    graph: Graph
    specs: Any
    run: Run
    data: Sequence[tuple[Question, Json]]


@attrs.frozen(eq=False)
class StoredEntry:
    """One entry as it was read: what says for which calls it is, and the rest, not yet looked at.

    Attributes:
        digest: of the file, and its name.
        header: the first line.
        body: the second.
    """

    digest: str
    header: Mapping[str, Json]
    body: str


# -- writing


@between_traces
def to_bytes(
    program: Program,
    fn: Callable[..., Any],
    call: Call,
    address: str,
    environment: Mapping[str, Any],
) -> bytes:
    """Return a program as a file.

    Args:
        program: what is kept.
        fn: what was traced.
        call: the call that it was traced for, with its leaves.
        address: where it is looked for.
        environment: see :func:`environment.environment`.

    Raises:
        NotStorable: something of it has no words that another process understands; the message
            names it.
    """
    if program.writes or program.variables:
        what = [each.variable.name for each in program.writes] or [
            each.name for each in program.variables
        ]
        raise NotStorable(f"a program that writes outside its arguments ({what[0]})")
    if program.given is not None:
        raise NotStorable(
            "a program that writes to, or returns, a list or dictionary among its arguments"
        )
    assert isinstance(program.state, State)
    structure = structure_to_json(call, program.modes)
    state = StateWriter(fn, program.state, call, call.leaves)
    terms = TermsWriter()
    graph = GraphWriter(program.graph, terms, state.number_of).json()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "function": program.name,
        "address": address,
        "environment": dict(environment),
        "structure": structure,
        "slots": [f"{each.source.text()} = {each.term}" for each in program.slots],
        "guards": [each.text() for each in program.guards],
    }
    body = {
        "slots": [terms.term(each.term) for each in program.slots],
        "symbols": [
            symbol_to_json(each, program.slots, terms) for each in program.symbols.values()
        ],
        "conditions": guards_text(program.guards),
        "questions": questions_to_json(program.questions),
        "data": [
            [question_to_json(each.about, terms, state.number_of), flat_key(answer)]
            for each, answer in program.questions.items()
            if each.what == DATA
        ],
        "told_compiling": program.told_compiling,
        "documented": state.documented,
        "objects": state.objects,
        "checks": state.checks,
        "graph": graph,
        "devices": device_names(_devices(program.graph)),
        "terms": terms.written,
    }
    made = two_lines(header, body)
    if len(made) > LARGEST:
        raise NotStorable(f"an entry of {len(made):,} bytes")
    return made


def _devices(graph: Graph) -> set[torch.device]:
    values: list[Value] = [each.value for each in graph.inputs] + [
        each.value for each in graph.lifted
    ]
    values += [each for node in graph.nodes for each in node.outputs if each is not None]
    return {each.spec.device for each in values}


# -- reading


def digest_of(content: bytes) -> str:
    """Return the name of a file with this content."""
    return hashlib.sha256(content).hexdigest()


def read_header(content: bytes, digest: str | None = None) -> StoredEntry:
    """Read the header of a file.

    Raises:
        EntryError: it is no entry, is damaged, or is of another version.
    """
    if len(content) > LARGEST:
        raise EntryError(f"a file of {len(content):,} bytes is no entry")
    found = digest_of(content)
    if digest is not None and found != digest:
        raise EntryError("the file is damaged: its content is not that of its name")
    first, second = lines_of(content, "an entry")
    header = parsed_json(first)
    if type(header) is not dict or header.get("format") != FORMAT:
        raise EntryError("the file is not an entry of symshape")
    if header.get("version") != VERSION:
        raise EntryError(
            f"version {str(header.get('version'))[:20]} is not supported; this is version {VERSION}"
        )
    try:
        return StoredEntry(found, _typed(header), second.decode())
    except UnicodeDecodeError as error:
        raise EntryError("the file is damaged: it is no text") from error


def _typed(header: Json) -> dict[str, Json]:
    """Check the types in a header that its readers rely on, and that its labels can be shown;
    return it.
    """
    *_, function, address, environment, structure, slots, conditions = fields_of(header, *_HEADER)
    if type(environment) is not dict:
        raise EntryError("the environment in it is not a JSON object")
    modes, _, leaves, duplicates, shared = fields_of(structure, *_STRUCTURE)
    for each in exactly(modes, 5)[3:4]:
        for pair in list_of(each, 64):
            exactly(pair, 2)
    for each in (leaves, duplicates, shared):
        list_of(each)
    return {
        **header,
        "function": label_of(function),
        "address": text_of(address, 32),
        "slots": [label_of(each) for each in list_of(slots)],
        "guards": [label_of(each) for each in list_of(conditions)],
    }


def two_lines(header: Json, body: Json) -> bytes:
    """Return a file of two lines, each of JSON."""
    lines = [json.dumps(each, separators=(",", ":"), allow_nan=False) for each in (header, body)]
    return "\n".join((*lines, "")).encode()


def lines_of(content: bytes, kind: str) -> tuple[bytes, bytes]:
    """Return the two lines of a file.

    Raises:
        EntryError: it has another number; ``kind`` says what has two.
    """
    lines = content.split(b"\n")
    if len(lines) != 3 or lines[2]:
        raise EntryError(f"the file is damaged: {kind} has two lines")
    return lines[0], lines[1]


def parsed_json(line: bytes | str) -> Json:
    """Parse one line of a file.

    Raises:
        EntryError: it is no JSON, says a name twice, or nests too deep.
    """
    try:
        return json.loads(line, object_pairs_hook=_members, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EntryError(f"the file is damaged: {error}") from error


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice")
    return members


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


class EntryBody:
    """The body of an entry, read as far as is needed to know whether it fits a call.

    Raises:
        EntryError: (all methods) it is none.
    """

    def __init__(self, stored: StoredEntry) -> None:
        names = (
            "slots",
            "symbols",
            "conditions",
            "questions",
            "data",
            "told_compiling",
            "documented",
            "objects",
            "checks",
            "graph",
            "devices",
            "terms",
        )
        found = dict(zip(names, fields_of(parsed_json(stored.body), *names), strict=True))
        self._stored, self._found = stored, found
        self._terms = TermsReader(found["terms"])
        self.slots: list[Term] = [self._terms.term(each) for each in list_of(found["slots"])]
        self.guards: GuardSet = guard_set(found["conditions"])
        self.checks, self.objects = list_of(found["checks"]), list_of(found["objects"])
        self._whole = True

    def forget(self) -> None:
        """Free the parts that are of no use after building; they are read again if the entry is
        built again.
        """
        self._found = {each: self._found[each] for each in _KEPT}
        self.checks, self.objects, self._whole = [], [], False

    def admits(self, values: Sequence[int]) -> bool:
        """Return whether the guards hold for the integers of a call."""
        if len(values) != len(self.slots):
            return False
        known: dict[str, int] = {}
        for term, value in zip(self.slots, values, strict=True):
            if term.op is Op.SYMBOL:
                known.setdefault(term.name, value)
        needed = {symbol.name for term in self.slots for symbol in term.symbols}
        needed |= {symbol.name for guard in self.guards for symbol in guard.term.symbols}
        if not needed <= known.keys():
            raise EntryError("a condition on a symbol that no argument gives")
        try:
            same = all(
                fold.evaluate(term, known) == value
                for term, value in zip(self.slots, values, strict=True)
            )
        except ZeroDivisionError:
            return False
        return (
            same
            and all(satisfied(guard.term, known) for guard in self.guards)
            and self._in_range(known)
        )

    def _in_range(self, known: Mapping[str, int]) -> bool:
        for name, (low, high) in self.guards.ranges.items():
            value = known.get(name)
            if value is not None and not (
                (low is None or low <= value) and (high is None or value <= high)
            ):
                return False
        return True

    def compare(self, fn: Callable[..., Any], leaves: Sequence[Any]) -> StateReader:
        """Find again everything that the entry read.

        Raises:
            Differs: something of it is not what it was.
        """
        return StateReader(self.checks, self.objects, fn, leaves, self._found["documented"] is True)

    def graph(self, tensors: Callable[[int], torch.Tensor]) -> Graph:
        """Return the graph, with the real tensors of these numbers."""
        return self._reading(tensors).graph()

    def _reading(self, tensors: Callable[[int], torch.Tensor]) -> GraphReader:
        return GraphReader(self._found["graph"], self._terms, tensors, self._leaves())

    @property
    def asks_for_numbers(self) -> bool:
        """True if the entry serves calls only while numbers in tensors are unchanged."""
        return bool(self._found["data"])

    def data(self, tensors: Callable[[int], torch.Tensor]) -> list[tuple[Question, Json]]:
        """Return the entry's questions about numbers, with the answers."""
        pairs = [exactly(each, 2) for each in list_of(self._found["data"], 64)]
        return [
            (question_from_json(asked, self._terms, tensors, self._leaves()), answer)
            for asked, answer in pairs
        ]

    def _leaves(self) -> int:
        return len(
            list_of(
                fields_of(self._stored.header["structure"], *_STRUCTURE)[_STRUCTURE.index("leaves")]
            )
        )

    @between_traces
    def built(self, fn: Callable[..., Any], leaves: Sequence[Any]) -> BuiltEntry:
        """Build the expensive parts of an entry, which do not depend on the sizes of a call.

        Args:
            fn: the function.
            leaves: those of a call; empty ones for a program that read nothing of them.

        Raises:
            Differs: something that it read is not what it was.
        """
        if not self._whole:
            return EntryBody(self._stored).built(fn, leaves)
        state = self.compare(fn, leaves)
        reading = self._reading(state.tensor)
        graph = reading.graph()
        reading.compare_groups()
        if device_names(_devices(graph)) != self._found["devices"]:
            raise Differs("the accelerator")
        positions = positions_among(self.slots)
        _check_symbols(graph, positions)
        parts = (graph, _specs(graph), LateRun(graph, positions), self.data(state.tensor))
        return BuiltEntry(state.state(), state.holds, *parts)

    @between_traces
    def program(
        self, fn: Callable[..., Any], call: Call, modes: Modes, built: BuiltEntry | None = None
    ) -> Program:
        """Return the program for calls of this process; ``built`` if it was built before and still
        holds.

        Raises:
            Differs: something that it read is not what it was.
        """
        found = self._found
        questions = answered(found["questions"], call.leaves)
        if questions is None:
            raise Differs("what it asked of its arguments")
        built = built or self.built(fn, call.leaves)
        if not all(answers(question, answer, call.leaves) for question, answer in built.data):
            raise Differs("what it asked of numbers in its arguments")
        questions |= {question: question.among(call.leaves) for question, _ in built.data}
        sources = sources_of(call)
        slots = tuple(Slot(source, term) for source, term in zip(sources, self.slots, strict=True))
        symbols = {
            each.name: each
            for each in (
                symbol_from_json(data, sources, self._terms) for data in list_of(found["symbols"])
            )
        }
        run = without_autocast(built.run, modes)
        name, graph = self._stored.header["function"], built.graph
        parts = (
            slots,
            symbols,
            self.guards,
            graph,
            built.specs,
            built.state,
            modes,
            run,
            0.0,
            questions,
        )
        told = found["told_compiling"] is not False
        return Program(name, skeleton(call), *parts, told_compiling=told)


_KEPT = ("symbols", "questions", "data", "told_compiling")
"""The parts of an entry that are of use after building."""


def _check_symbols(graph: Graph, positions: Mapping[str, int]) -> None:
    """Check that each symbol is known where it is needed.

    Raises:
        EntryError: one is not.
    """
    known = set(positions)
    for step in graph.steps:
        missing = names_of_step(step) - known
        if isinstance(step, Node):
            known |= {each.symbol for each in step.bindings}
        if missing:
            raise EntryError(f"{sorted(missing)[0]} is read before it is computed")
    numbers = [each for each in graph.outputs if not isinstance(each, Value)]
    if missing := names_in(numbers) - known:
        raise EntryError(f"{sorted(missing)[0]} is returned and never computed")


def _specs(graph: Graph) -> Any:
    shown = [each.spec if isinstance(each, Value) else each for each in graph.outputs]
    return result_of(pytree.tree_unflatten(shown, graph.output_tree))


# -- Symbols of a program as JSON: their sources, or their origin and bounds.
def symbol_to_json(symbol: Symbol, slots: Sequence[Slot], terms: TermsWriter) -> Json:
    """Return a symbol as JSON, with its sources by their places among the slots."""
    sources = [each.source for each in slots]
    birth = None if symbol.birth is None else list(attrs.astuple(symbol.birth))
    where = [sources.index(each) for each in symbol.sources]
    bounds = None if symbol.bounds is None else [terms.term(each) for each in symbol.bounds]
    return [symbol.name, symbol.hint, where, symbol.policy.value, birth, symbol.description, bounds]


def symbol_from_json(data: Json, sources: Sequence[Source], terms: TermsReader) -> Symbol:
    """Return a symbol, read from these sources.

    Raises:
        EntryError: it is none.
    """
    name, hint, where, policy, birth, description, bounds = exactly(data, 7)
    if not text_of(name, 64).isidentifier():
        raise EntryError(f"not the name of a symbol: {name}")
    term = arithmetic.symbol(name)
    born = None
    if birth is not None:
        file, line, *texts = exactly(birth, 6)
        born = Origin(text_of(file), integer_of(line), *map(label_of, texts))
    read = tuple(sources[integer_of(each, 0, len(sources))] for each in list_of(where, 1000))
    try:
        chosen = Policy(policy)
    except ValueError as error:
        raise EntryError(f"unknown policy: {str(policy)[:80]}") from error
    known = None if bounds is None else tuple(terms.term(each) for each in list_of(bounds, 2))
    number = None if hint is None else integer_of(hint, -(1 << 62))
    return Symbol(term, number, read, chosen, born, label_of(description), known)
