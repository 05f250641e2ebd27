"""A traced function, ready to be checked, explained and run: its graph, its guards, and the sources
of its integers.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch

from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.origin import Origin
from guards.sets.sources import IntArg, Source
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import Op, Term
from symshape.calls.arguments import Call
from symshape.calls.container_arguments import ArgumentWrites
from symshape.calls.modes import Modes
from symshape.calls.outputs import writes_records
from symshape.calls.questions import Question
from symshape.calls.variables import Variable, Write
from symshape.dims import Policy
from symshape.graph.codegen import Run
from symshape.graph.graph import Graph
from symshape.graph.steps import Value


class State(Protocol):
    """The values that a program read besides its arguments, as :mod:`symshape.tracing.state`
    records them.
    """

    @property
    def empty(self) -> bool:
        """Return whether the function reads nothing that can change."""

    def unchanged(self) -> bool:
        """Return whether every place still holds its value from the time of the trace."""

    def make_ready(self) -> None:
        """Generate the comparison of the places, unless it exists."""

    def covers(self, other: Any) -> bool:
        """Return whether this state compares everything that another one compares."""

    def and_(self, other: Any) -> Any:
        """Return the state that compares what either compares."""

    def changes(self) -> list[str]:
        """Return the differences from the time of the trace, in words."""


@attrs.frozen
class Symbol:
    """One symbol of a trace.

    Attributes:
        term: the symbol.
        hint: its value in the example call; None for an unbacked symbol.
        sources: where its value is read at run time; empty for an unbacked one.
        policy: what tracing may do with it.
        birth: the line that made an unbacked symbol, with the op.
        description: what an unbacked symbol counts, in words.
        bounds: what is known of an unbacked symbol by its birth; None where nobody noted it.
    """

    term: Term
    hint: int | None
    sources: tuple[Source, ...] = ()
    policy: Policy = Policy.AUTO
    birth: Origin | None = None
    description: str = ""
    bounds: tuple[Term, ...] | None = None

    @property
    def name(self) -> str:
        """The symbol's name."""
        return self.term.name

    @property
    def backed(self) -> bool:
        """True if the symbol has a hint."""
        return self.hint is not None


_NUMBERED = re.compile(r"[su]\d+")  # symbols that nobody named


def given_name(term: Term) -> str:
    """Return the name that the user gave a size, as by ``Dim("batch")``; empty for other terms and
    for symbols of ours.

    >>> batch, s0 = arithmetic.symbol("batch"), arithmetic.symbol("s0")
    >>> given_name(batch), given_name(s0), given_name(batch * 2)
    ('batch', '', '')
    """
    return term.name if term.op is Op.SYMBOL and not _NUMBERED.fullmatch(term.name) else ""


@attrs.frozen(eq=False)
class Slot:
    """One integer of the call: its source, and its term in the program (a constant, a symbol, a
    formula).
    """

    source: Source
    term: Term


@attrs.frozen(eq=False)
class Program:
    """A traced function, ready to be checked, explained and run.

    Attributes:
        name: the function's name.
        call: the example call: tree, paths and keys of its arguments.
        slots: the integers of a call, in order, in terms of the program's symbols.
        symbols: by name.
        guards: minimal, over the symbols.
        graph: the ops.
        output_specs: the result in the program's own structure, with specs for tensors and terms
            for sizes.
        state: modules and other state that the function read.
        modes: torch's modes while tracing.
        run: runs the graph op by op (see ``codegen.Run``).
        milliseconds: how long tracing took.
        questions: what else the program asked of its arguments, with the answers.
        writes: what each call writes outside at its end, with outputs that follow those of the
            result.
        variables: places that it read, and that it or another program writes: to be read at each
            call.
        given: what each call writes to containers among its arguments, and which of them it
            returns.
        apart: the ids of lists and dictionaries outside, none of which may be an argument (see
            ``calls/container_arguments.py``).
        handed_over: the results that only another program reads: nobody sees their strides at sizes
            of 0 and 1.
        told_compiling: whether the function asked ``torch.compiler.is_compiling()`` and was told
            yes: run eagerly, it may take another way.
    """

    name: str
    call: Call
    slots: tuple[Slot, ...]
    symbols: Mapping[str, Symbol]
    guards: GuardSet
    graph: Graph
    output_specs: Any
    state: State
    modes: Modes
    run: Run
    milliseconds: float
    questions: Mapping[Question, Hashable] = attrs.field(factory=dict)
    writes: Sequence[Write] = ()
    variables: Sequence[Variable] = ()
    given: ArgumentWrites | None = None
    apart: frozenset[int] = frozenset()
    handed_over: frozenset[Value] = frozenset()
    told_compiling: bool = False

    @property
    def lifted_tensors(self) -> list[torch.Tensor]:
        """The parameters, buffers and constants, as ``run`` takes them."""
        return [lifted.tensor for lifted in self.graph.lifted]

    @property
    def positions(self) -> dict[str, int]:
        """The index of each input symbol among a call's integers."""
        return symbol_positions(self.slots)

    @property
    def sources(self) -> dict[str, Source]:
        """The source of each symbol that is read from an argument."""
        return {
            symbol.name: symbol.sources[0] for symbol in self.symbols.values() if symbol.sources
        }

    @property
    def writes_at_its_end(self) -> bool:
        """True if a run is followed by writes, to places outside or to objects and containers among
        the arguments.
        """
        return bool(self.writes) or self.given is not None or writes_records(self.graph.output_tree)

    def slot_guards(self) -> GuardSet:
        """The guards over slots named ``v0, v1, …``, on which the dispatch tree and the check
        function work.
        """
        return slot_guards(self.slots, self.guards)


def slot_guards(slots: Sequence[Slot], guards: GuardSet) -> GuardSet:
    """Return guards over symbols as guards over slots named ``v0, v1, …``, with the terms of the
    slots.
    """
    names = slot_names(len(slots))
    first: dict[Term, Term] = {}
    found: list[Guard] = []
    for name, slot in zip(names, slots, strict=True):
        if slot.term.op is Op.SYMBOL and slot.term not in first:
            first[slot.term] = arithmetic.symbol(name)
    for name, slot in zip(names, slots, strict=True):
        condition = boolean.eq(arithmetic.symbol(name), fold.substitute(slot.term, first))
        if condition is not boolean.TRUE:
            static = slot.term.op is Op.CONST
            text = f"{slot.source.text()} is {'static' if static else slot.term}"
            found.append(
                Guard(condition, Origin("", 0, text=text, rule="static" if static else "layout"))
            )
    found += [Guard(fold.substitute(guard.term, first), guard.origin) for guard in guards]
    ranges = {name: limits_of(slot.source) for name, slot in zip(names, slots, strict=True)}
    return GuardSet(found, ranges=ranges)


def symbol_positions(slots: Sequence[Slot]) -> dict[str, int]:
    """Return for each symbol the first slot that holds it."""
    return positions_among(slot.term for slot in slots)


def positions_among(terms: Iterable[Term]) -> dict[str, int]:
    """Return for each symbol the first of the slots' terms that is the symbol itself."""
    positions: dict[str, int] = {}
    for position, term in enumerate(terms):
        if term.op is Op.SYMBOL:
            positions.setdefault(term.name, position)
    return positions


def slot_names(number: int) -> tuple[str, ...]:
    """Return the names of the slots."""
    return tuple(f"v{position}" for position in range(number))


def size_names(program: Program) -> dict[str, str]:
    """Return how people read each symbol of the arguments: the user's name for the size
    (``batch``), or else where it is read.
    """
    return {
        name: given_name(arithmetic.symbol(name)) or source.text()
        for name, source in program.sources.items()
    }


def limits_of(source: Source) -> tuple[int | None, int | None]:
    """Return the range of a source: any integer for an integer argument or a stride, else a
    size.
    """
    return (None, None) if isinstance(source, IntArg) else (0, None)
