"""The splitting of a program into pieces, each a program itself."""

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
from symshape.runtime.pieces.unfused_attention import fuses_dropout, without_fused_dropout

__all__ = ["Part", "cut"]

REPLAYING = frozenset({"cuda"})
"""The device types where a piece is recorded even if its sizes never change: a replay saves the host's time."""
LEAST = 6
"""The fewest ops of a recorded piece: a call of a recorded piece takes the host as long as some ops do."""


@attrs.frozen(eq=False)
class Part:
    """A piece of a program.

    Attributes:
        piece: the steps, and whether they can be recorded.
        subgraph: the steps as a graph with its inputs and results.
        program: the piece as a program.
        reasons: why the piece is not recorded, a text for each op, line and reason; if no step is to blame, it is too
            small.
    """

    piece: Piece
    subgraph: Subgraph
    program: Program
    reasons: tuple[str, ...] = ()


def cut(
    program: Program, device: torch.device, left: Left | None = None, *, draws: bool = False, unfuses: bool = False
) -> tuple[Part, ...]:
    """Return the pieces of a program, and after them a piece without steps that makes its results.

    Return nothing if all of the program can be recorded in one piece, or nothing can.

    Args:
        program: the program.
        device: the device on which recorded pieces compute.
        left: the ops to leave out of recorded pieces, besides ops that can never be recorded.
        draws: whether recorded pieces may draw random numbers.
        unfuses: whether recorded pieces are to have single ops in place of fused attention with dropout.  Where forward
            and backward would be in different pieces, they are in none.
    """
    sizes = None if device.type in REPLAYING else program.symbols.keys() - _fixed(program.guards)
    if sizes is not None and not sizes:
        return ()
    pieces = partition(program.graph, Faults(program.graph, device, left or {}, draws, unfuses).of, LEAST, sizes)
    if all(each.recorded for each in pieces):
        return ()
    known = [*program.guards]
    for symbol in program.symbols.values():
        known += [Guard(term) for term in symbol.bounds or () if term is not boolean.TRUE]
    found = subgraphs(program.graph, pieces, program.positions, known)
    pieces.append(Piece((), recorded=False))
    if unfuses and any(piece.recorded and _stays_fused(part) for piece, part in zip(pieces, found, strict=True)):
        return cut(program, device, left, draws=draws)
    return tuple(
        Part(piece, part, piece_program(program, part, number, late=piece.recorded), tuple(_reasons(program, piece)))
        for number, (piece, part) in enumerate(zip(pieces, found, strict=True), 1)
    )


def _stays_fused(piece: Subgraph) -> bool:
    """Return whether fused attention with dropout in a piece cannot become single ops."""
    return any(map(fuses_dropout, without_fused_dropout(piece.graph).nodes))


def _fixed(guards: Iterable[Guard]) -> set[str]:
    """Return the symbols that a guard fixes to one value."""
    alone = [guard.term for guard in guards if guard.term.op is Op.EQ and len(guard.term.symbols) == 1]
    return {symbol.name for term in alone for symbol in term.symbols if _has_one_value(term, symbol)}


def _has_one_value(equation: Term, symbol: Term) -> bool:
    """Return whether an equation fixes its symbol to a value: a multiple of the symbol plus a constant is 0."""
    _, monomials = arithmetic.split(equation.args[0])
    return len(monomials) == 1 and monomials[0][0] is symbol


def _reasons(program: Program, piece: Piece) -> Iterable[str]:
    if piece.recorded or not piece.numbers:
        return ()
    steps = program.graph.steps
    small = f"{len(piece.numbers)} ops, too few to be recorded"
    return dict.fromkeys(told(steps[number], fault) for number, fault in piece.faults) or (small,)
