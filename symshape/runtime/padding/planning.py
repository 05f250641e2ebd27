"""The planning of a padded program: symbols that an op refuses become exact, until the program can
be padded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

import attrs

from guards.sets.sources import IntArg, Size
from guards.terms import arithmetic, boolean
from guards.terms.term import Term
from symshape.graph.program import Program
from symshape.runtime.padding.alignment import aligned
from symshape.runtime.padding.blueprint import MOST, Blueprints
from symshape.runtime.padding.buckets import capacities, satisfies, step_up
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.result_rows import Row
from symshape.runtime.padding.results import Results, aliased_storages
from symshape.runtime.padding.transform import PaddedGraph, Refusal, device_of, pad
from symshape.runtime.pieces.faults import Fault, Left

__all__ = [
    "MOST",
    "Choice",
    "Plan",
    "blueprints_of",
    "candidates",
    "choose",
    "left_out",
    "plan",
    "rows_of",
]


@attrs.frozen(eq=False)
class Plan:
    """A padded program for the sizes of one call and others like it.

    Attributes:
        padded: the program; None if every symbol was refused.
        results: makes a call's results from the program's tensors; None if there is no program.
        exact: the symbols that keep their value, with that value.
        caps: the capacities of the other symbols.
        refusals: why a symbol is exact, by symbol.
    """

    padded: PaddedGraph | None
    results: Results | None
    exact: Mapping[str, int]
    caps: Mapping[str, int]
    refusals: Mapping[str, Refusal]


def candidates(program: Program) -> frozenset[str]:
    """Return the symbols that may be padded: sizes of arguments, and integer arguments that size
    tensors.
    """
    found = _CANDIDATES.get(program)
    if found is None:
        known = [each for each in program.symbols.values() if each.backed]
        sizes = {
            each.name for each in known if any(isinstance(source, Size) for source in each.sources)
        }
        integers = {
            each.name
            for each in known
            if any(isinstance(source, IntArg) for source in each.sources)
        } - sizes
        integers &= _sizing(program) if integers else set()
        sizes |= {
            name
            for name in integers
            if program.guards.implies(boolean.ge(arithmetic.symbol(name), 0))
        }
        found = _CANDIDATES[program] = frozenset(sizes)
    return found


_CANDIDATES: WeakKeyDictionary[Program, frozenset[str]] = WeakKeyDictionary()


def _sizing(program: Program) -> set[str]:
    """Return the symbols in the sizes of the tensors that a program computes."""
    specs = [getattr(each, "spec", None) for node in program.graph.nodes for each in node.outputs]
    sizes = [
        size
        for spec in specs
        if spec is not None
        for size in spec.sizes
        if not isinstance(size, int)
    ]
    return {
        each.name
        for size in sizes
        for each in (size if isinstance(size, Term) else size.term).symbols
    }


@attrs.frozen
class Choice:
    """The values of exact symbols, and the capacities of padded ones."""

    exact: Mapping[str, int]
    caps: Mapping[str, int]


def choose(
    program: Program,
    values: Mapping[str, int],
    refused: Collection[str],
    planned: Sequence[Mapping[str, int]] = (),
    step: Callable[[int], int] = step_up,
) -> Choice:
    """Return the bucket of a call with these values of symbols, where some symbols are refused.

    The first of the ``planned`` capacities that hold the call and satisfy the guards is chosen;
    else the next step up.
    """
    padded = sorted(candidates(program) - set(refused))
    exact = {name: value for name, value in values.items() if name not in padded}
    conditions = _conditions(program, values)
    for caps in planned:
        holds = all(values[name] <= caps[name] for name in padded)
        if holds and all(caps.get(name, value) == value for name, value in exact.items()):
            chosen = {name: caps[name] for name in padded}
            if satisfies(conditions, {**exact, **chosen}):
                return Choice(exact, chosen)
    return Choice(exact, capacities(conditions, values, padded, step))


def _conditions(program: Program, values: Mapping[str, int]) -> list[Term]:
    """Return the guards and ranges of symbols that have a value before the program runs."""
    terms = [guard.term for guard in program.guards]
    for name, (low, high) in program.guards.ranges.items():
        symbol = arithmetic.symbol(name)
        terms += [] if low is None or low <= 0 else [boolean.ge(symbol, low)]
        terms += [] if high is None else [boolean.le(symbol, high)]
    return [term for term in terms if {symbol.name for symbol in term.symbols} <= values.keys()]


def plan(
    program: Program,
    values: Mapping[str, int],
    refusals: Mapping[str, Refusal] | None = None,
    planned: Sequence[Mapping[str, int]] = (),
    step: Callable[[int], int] = step_up,
    *,
    any_randomness: bool = False,
    blueprints: Blueprints | None = None,
    unpadded: bool = False,
) -> Plan:
    """Return the padded program with as many padded symbols as possible, for a call with these
    values of symbols.

    ``refusals`` are those of an earlier plan: their symbols are not tried again.  ``planned`` and
    ``step`` are as for :func:`choose`.  ``any_randomness``: the program may draw other random
    numbers than eager.  ``blueprints`` are those of the program, so that it is not derived for each
    plan.  ``unpadded``: there is a program even if every symbol is refused, for these sizes alone.
    """
    found = dict(refusals or {})
    terms = _conditions(program, values)
    blueprints = blueprints or blueprints_of(program, any_randomness=any_randomness, most=0)
    padded = candidates(program) - found.keys()
    while padded or unpadded:
        chosen = choose(program, values, found, planned, step)
        try:
            region = Region(terms, chosen.exact, chosen.caps)
            made = blueprints.padded(region)
            results = Results(program.graph, made.outputs, frozenset(padded), made.roots)
        except Refusal as refusal:
            if not padded:
                break
            found.update(dict.fromkeys(refusal.symbols & padded, refusal))
            padded -= refusal.symbols
            continue
        return Plan(made, results, chosen.exact, chosen.caps, found)
    return Plan(None, None, dict(values), {}, found)


def blueprints_of(
    program: Program, *, any_randomness: bool = False, most: int = MOST, compiled: bool = False
) -> Blueprints:
    """Return the empty blueprints of a program; ``most`` and ``compiled`` are as for
    :class:`Blueprints`.
    """
    graph = program.graph
    device, aliased = device_of(graph), aliased_storages(graph)

    def derive(region: Region) -> PaddedGraph:
        return aligned(pad(graph, region, device, aliased, any_randomness=any_randomness))

    return Blueprints(derive, most=most, compiled=compiled)


def left_out(refusals: Iterable[Refusal]) -> Left:
    """Return the ops to leave out of pieces so that the pieces can be padded, each with its
    fault.
    """
    return {
        (each.op, each.where): Fault(f"it cannot be padded ({each.reason})", each.remedy)
        for each in refusals
        if each.op
    }


def rows_of(made: Plan) -> tuple[Row, ...] | None:
    """Return how C++ makes each result; None if it cannot, or the program has effects."""
    assert made.padded is not None
    assert made.results is not None
    effects = made.padded.written or made.padded.rewrites or made.padded.stored
    return None if effects else made.results.rows()
