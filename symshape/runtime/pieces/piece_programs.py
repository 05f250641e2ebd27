"""A piece of a program as a program itself, whose arguments are results of earlier pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch

from guards.domains.interval_arithmetic import Pair
from guards.facts.facts import Facts
from guards.regions.satisfiability import components
from guards.sets.guard_set import GuardSet
from guards.sets.sources import IntArg, Size
from guards.terms import arithmetic, fold
from guards.terms.term import Term
from symshape.calls.arguments import Call, TensorKey
from symshape.dims import Policy
from symshape.graph.codegen import LateRun
from symshape.graph.program import Program, Slot, Symbol
from symshape.graph.steps import Value
from symshape.runtime.pieces.subgraphs import Subgraph
from symshape.torch_internals import pytree
from symshape.tracing.traced_modes import without_autocast

__all__ = ["piece_program"]

_EXAMPLES = (2, 3, 4, 8, 1, 0)  # hints that are tried for a symbol, in order


def piece_program(program: Program, piece: Subgraph, number: int) -> Program:
    """Return a piece of a program as a program; its integers are those in ``piece.names``, in that
    order.

    A symbol that the whole program computes becomes an input size of the piece, if it is known not
    to be negative.
    """
    guards = GuardSet(piece.conditions, ranges=_ranges(program, piece))
    symbols: dict[str, Symbol] = {}
    for name in guards.ranges:
        symbols[name] = _given(program.symbols[name], guards, symbols)
    sources = [
        symbols[name].sources[0] if name in symbols else IntArg(name) for name in piece.names
    ]
    positions = {name: place for place, name in enumerate(piece.names)}
    run = LateRun(piece.graph, positions)
    return attrs.evolve(
        program,
        name=f"{program.name}, piece {number}",
        call=_call(program, piece),
        slots=tuple(
            Slot(source, arithmetic.symbol(name))
            for source, name in zip(sources, piece.names, strict=True)
        ),
        symbols=symbols,
        guards=guards,
        graph=piece.graph,
        output_specs=None,
        run=without_autocast(run, program.modes),
        questions={},
        writes=(),
        variables=(),
        given=None,
    )


def _ranges(program: Program, piece: Subgraph) -> dict[str, tuple[int | None, int | None]]:
    """Return the ranges of a piece's symbols: declared for arguments, derived from the conditions
    for others.
    """
    given = program.guards.ranges
    unknown = {arithmetic.symbol(name): (None, None) for name in piece.names if name not in given}
    facts = (
        _facts_about(unknown, given, [guard.term for guard in piece.known]) if unknown else Facts()
    )
    found = {}
    for name in piece.names:
        if name in given:
            found[name] = given[name]
        elif name in program.symbols:
            interval = (
                facts.interval(arithmetic.symbol(name))
                if arithmetic.symbol(name) in unknown
                else None
            )
            found[name] = (None, None) if interval is None else (interval.lo, interval.hi)
    return found


def _facts_about(
    unknown: Mapping[Term, Pair], given: Mapping[str, Pair], conditions: Sequence[Term]
) -> Facts:
    """Return the facts about these symbols that follow from conditions connected to them by shared
    symbols.
    """
    groups = [[conditions[index] for index in group] for group in components(conditions)]
    about = [
        row
        for group in groups
        if any(row.symbols & unknown.keys() for row in group)
        for row in group
    ]
    others = {symbol for row in about for symbol in row.symbols} - unknown.keys()
    return Facts.make(
        {**{each: given.get(each.name, (None, None)) for each in others}, **unknown}, about
    )


def _given(symbol: Symbol, guards: GuardSet, others: Mapping[str, Symbol]) -> Symbol:
    """Return a symbol as an input of the piece."""
    if symbol.backed:
        return symbol
    words = f"{symbol.name}, {symbol.description}" if symbol.description else symbol.name
    least = guards.ranges[symbol.name][0]
    padded = symbol.bounds is not None and least is not None and least >= 0
    source = Size(words, 0) if padded else IntArg(words)
    policy = Policy.AUTO if padded else Policy.STATIC
    return attrs.evolve(
        symbol, hint=_hint(symbol, guards, others), sources=(source,), policy=policy
    )


def _hint(symbol: Symbol, guards: GuardSet, others: Mapping[str, Symbol]) -> int:
    """Return an example value that the conditions allow together with the other hints, if one is
    easily found.
    """
    values = {name: each.hint for name, each in others.items() if each.hint is not None}
    names = {*values, symbol.name}
    terms = [guard.term for guard in guards if {each.name for each in guard.term.symbols} <= names]
    for tried in (*_EXAMPLES, *values.values()):
        if all(_holds(term, {**values, symbol.name: tried}) for term in terms):
            return tried
    return _EXAMPLES[0]


def _holds(term: Term, values: Mapping[str, int]) -> bool:
    try:
        return bool(fold.evaluate(term, values))
    except ZeroDivisionError:
        return False


def _call(program: Program, piece: Subgraph) -> Call:
    given = {each.value: program.call.keys[each.position] for each in program.graph.inputs}
    keys = tuple(given.get(value) or _key(value) for value in piece.takes)
    number = len(keys)
    tree = pytree.tree_structure(((0,) * number, {}))
    paths = tuple(each.path for each in piece.graph.inputs)
    return Call((None,) * number, tree, paths, keys, tuple(range(number)), ())


def _key(value: Value) -> TensorKey:
    spec = value.spec
    return TensorKey(
        spec.dtype, spec.device, False, len(spec.sizes), "made by the program", torch.Tensor
    )
