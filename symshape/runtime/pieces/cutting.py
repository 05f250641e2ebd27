"""The splitting of a program into pieces, each a program itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import attrs
import torch

from guards.sets.guard import Guard
from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates, keeps_random_state_on_host
from symshape.runtime.pieces.faults import Faults, Left, told
from symshape.runtime.pieces.partition import Piece, partition
from symshape.runtime.pieces.piece_programs import piece_program
from symshape.runtime.pieces.subgraphs import Subgraph, subgraphs

__all__ = ["Part", "cut"]

REPLAYING = frozenset({"cuda"})
"""The device types where a piece is recorded even if its sizes never change: a replay saves the
host's time.
"""
LEAST = 6
"""The fewest ops of a recorded piece: a call of a recorded piece takes the host as long as some ops
do.
"""


@attrs.frozen(eq=False)
class Part:
    """A piece of a program.

    Attributes:
        piece: the steps, and whether they can be recorded.
        subgraph: the steps as a graph with its inputs and results.
        program: the piece as a program.
        reasons: why the piece is not recorded, a text for each op, line and reason; if no step is
            to blame, it is too small.
    """

    piece: Piece
    subgraph: Subgraph
    program: Program
    reasons: tuple[str, ...] = ()


def cut(
    program: Program, device: torch.device, left: Left | None = None, *, draws: bool = False
) -> tuple[Part, ...]:
    """Return the pieces of a program, and after them a piece without steps that makes its results.

    Return nothing if all of the program can be recorded in one piece, or nothing can, or if an op
    sees autograd's history, which pieces do not have.

    Args:
        program: the program.
        device: the device on which recorded pieces compute.
        left: the ops to leave out of recorded pieces, besides ops that can never be recorded.
        draws: whether recorded pieces may draw random numbers.  Where forward and backward of
            attention with dropout would be in different pieces, kernels that keep their random
            state on the CPU are in none.
    """
    ops: list[Any] = [node.op for node in program.graph.nodes]
    if any(isinstance(op, LiveCall) and op.sees_history for op in ops):
        return ()
    sizes = None if device.type in REPLAYING else program.symbols.keys() - _fixed(program.guards)
    if sizes is not None and not sizes:
        return ()
    pieces = _pieces(Faults(program.graph, device, left or {}, draws), sizes)
    if all(each.recorded for each in pieces):
        return ()
    known = [*program.guards]
    for symbol in program.symbols.values():
        known += [Guard(term) for term in symbol.bounds or () if term is not boolean.TRUE]
    found = subgraphs(program.graph, pieces, program.positions, known)
    pieces.append(Piece((), recorded=False))
    return tuple(
        Part(
            piece,
            part,
            piece_program(program, part, number),
            tuple(_reasons(program, piece)),
        )
        for number, (piece, part) in enumerate(zip(pieces, found, strict=True), 1)
    )


def _pieces(faults: Faults, sizes: Collection[str] | None) -> list[Piece]:
    """Return the pieces of a graph; attention that keeps its random state on the CPU is with its
    backward or alone.
    """
    graph = faults.graph
    pieces = partition(graph, faults.of, LEAST, sizes)
    at = {
        id(graph.steps[number]): place
        for place, piece in enumerate(pieces)
        for number in piece.numbers
    }
    pairs = [
        pair for pair in RandomStates.of(graph).pairs if at.get(id(pair[0])) != at.get(id(pair[1]))
    ]
    parted = faults.parted.union(
        node for pair in pairs for node in pair if keeps_random_state_on_host(node)
    )
    return (
        pieces if parted == faults.parted else _pieces(attrs.evolve(faults, parted=parted), sizes)
    )


def _fixed(guards: Iterable[Guard]) -> set[str]:
    """Return the symbols that a guard fixes to one value."""
    alone = [
        guard.term for guard in guards if guard.term.op is Op.EQ and len(guard.term.symbols) == 1
    ]
    return {
        symbol.name for term in alone for symbol in term.symbols if _has_one_value(term, symbol)
    }


def _has_one_value(equation: Term, symbol: Term) -> bool:
    """Return whether an equation fixes its symbol to a value: a multiple of the symbol plus a
    constant is 0.
    """
    _, monomials = arithmetic.split(equation.args[0])
    return len(monomials) == 1 and monomials[0][0] is symbol


def _reasons(program: Program, piece: Piece) -> Iterable[str]:
    if piece.recorded or not piece.numbers:
        return ()
    steps = program.graph.steps
    small = f"{len(piece.numbers)} ops, too few to be recorded"
    return dict.fromkeys(told(steps[number], fault) for number, fault in piece.faults) or (small,)
