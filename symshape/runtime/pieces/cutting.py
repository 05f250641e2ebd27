"""A program cut to pieces, each a program of its own."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import torch

from guards.sets.guard import Guard
from guards.terms import boolean
from symshape.graph.program import Program
from symshape.runtime.pieces.faults import Faults, Left, told
from symshape.runtime.pieces.partition import Piece, partition
from symshape.runtime.pieces.piece_programs import piece_program
from symshape.runtime.pieces.subgraphs import Subgraph, subgraphs

__all__ = ["Part", "cut"]

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
    pieces = partition(program.graph, Faults(program.graph, device, left or {}, draws).of, LEAST)
    if all(each.recorded for each in pieces):
        return ()
    known = [*program.guards]
    for symbol in program.symbols.values():
        known += [Guard(term) for term in symbol.bounds or () if term is not boolean.TRUE]
    found = subgraphs(program.graph, pieces, program.positions, known)
    pieces.append(Piece((), recorded=False))
    return tuple(
        Part(piece, part, piece_program(program, part, number), tuple(_reasons(program, piece)))
        for number, (piece, part) in enumerate(zip(pieces, found, strict=True), 1)
    )


def _reasons(program: Program, piece: Piece) -> Iterable[str]:
    if piece.recorded or not piece.numbers:
        return ()
    steps = program.graph.steps
    small = f"{len(piece.numbers)} ops, too few to be recorded"
    return dict.fromkeys(told(steps[number], fault) for number, fault in piece.faults) or (small,)
