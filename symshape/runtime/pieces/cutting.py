"""A program cut to pieces, each a program of its own."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import torch

from guards.sets.guard import Guard
from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from symshape.graph.program import Program
from symshape.runtime.pieces.faults import Faults, Left, told
from symshape.runtime.pieces.partition import Piece, partition
from symshape.runtime.pieces.piece_programs import piece_program
from symshape.runtime.pieces.subgraphs import Subgraph, subgraphs

__all__ = ["Part", "cut"]

REPLAYING = frozenset({"cuda"})
"""Types of devices where a piece is recorded even if its sizes never change: a replay saves the host's time."""
LEAST = 6
"""Ops from which on a piece is recorded: a call of a recorded piece takes the host as long as some ops do."""


@attrs.frozen(eq=False)
class Part:
    """A piece of a program.

    Attributes:
        piece: which steps, and whether they can be recorded.
        subgraph: what it takes and gives.
        program: the piece as a program.
        reasons: why it cannot be recorded, a text for each op, line and reason; with no step to blame it is too small.
    """

    piece: Piece
    subgraph: Subgraph
    program: Program
    reasons: tuple[str, ...] = ()


def cut(program: Program, device: torch.device, left: Left | None = None, *, draws: bool = False) -> tuple[Part, ...]:
    """The pieces of a program, and behind them one without steps that makes its results.

    Nothing where all of it can be recorded in one piece, or nothing can.

    Args:
        program: the program.
        device: where pieces compute that are recorded.
        left: what is left out besides what can never be recorded.
        draws: whether these may draw random numbers.
    """
    sizes = None if device.type in REPLAYING else program.symbols.keys() - _fixed(program.guards)
    if sizes is not None and not sizes:
        return ()
    pieces = partition(program.graph, Faults(program.graph, device, left or {}, draws).of, LEAST, sizes)
    if all(each.recorded for each in pieces):
        return ()
    known = [*program.guards]
    for symbol in program.symbols.values():
        known += [Guard(term) for term in symbol.bounds or () if term is not boolean.TRUE]
    found = subgraphs(program.graph, pieces, program.positions, known)
    pieces.append(Piece((), recorded=False))
    return tuple(
        Part(piece, part, piece_program(program, part, number, late=piece.recorded), tuple(_reasons(program, piece)))
        for number, (piece, part) in enumerate(zip(pieces, found, strict=True), 1)
    )


def _fixed(guards: Iterable[Guard]) -> set[str]:
    """Return the symbols that a guard holds to one value."""
    alone = [guard.term for guard in guards if guard.term.op is Op.EQ and len(guard.term.symbols) == 1]
    return {symbol.name for term in alone for symbol in term.symbols if _has_one_value(term, symbol)}


def _has_one_value(equation: Term, symbol: Term) -> bool:
    """Return whether an equation in one symbol is that it has this value: a multiple of it and a constant are 0."""
    _, monomials = arithmetic.split(equation.args[0])
    return len(monomials) == 1 and monomials[0][0] is symbol


def _reasons(program: Program, piece: Piece) -> Iterable[str]:
    if piece.recorded or not piece.numbers:
        return ()
    steps = program.graph.steps
    small = f"{len(piece.numbers)} ops, too few to be recorded"
    return dict.fromkeys(told(steps[number], fault) for number, fault in piece.faults) or (small,)
