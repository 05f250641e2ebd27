"""Programs from a store, and those that the ranks of a group make together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from guards.sets.sources import Source
from symshape import events
from symshape.calls.arguments import values_of
from symshape.calls.policies import Dynamic
from symshape.dims import Policy
from symshape.errors import InputError, MissError
from symshape.frontends.program_sources import ProgramRequest, ProgramSource, TracedPrograms
from symshape.frontends.trace import check_call
from symshape.graph.program import Program
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.runtime.runners.inductor.runner import InductorRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from symshape.runtime.variables import Layout
from symshape.store.entry_stores import NoStore, store_of
from symshape.store.function_entries import FunctionEntries
from symshape.store.ranks import Ranks
from symshape.tracing.state.compare import torch_functions
from symshape.user_code import name_of


class StoredPrograms:
    """The source of stored programs; a program that is missing is traced, and then stored.

    Args:
        fn: the function.
        traced: traces programs that read changing values, which are not stored.
        entries: the function's entries in the store.
        options: of the trace.
        dynamic: the user's declaration of sizes.
        layout: told which floats other processes saw change.

    Attributes:
        entries: see above.
        loaded: the number of programs that came from the store.
    """

    stores = True

    def __init__(
        self,
        fn: Callable[..., Any],
        traced: TracedPrograms,
        entries: FunctionEntries,
        options: Options,
        dynamic: Dynamic,
        layout: Layout,
    ) -> None:
        self.entries, self.loaded = entries, 0
        self._fn, self._traced, self._options, self._dynamic, self._layout = (
            fn,
            traced,
            options,
            dynamic,
            layout,
        )
        layout.foresees = False  # programs that read changing values are not stored
        if options.on_miss == "error":
            entries.certificates()

    def program(self, request: ProgramRequest) -> Program:
        """Return a stored program for a call, or else a new one, which is stored."""
        torch_functions.begin()
        if request.variables:  # places that programs write are among the leaves
            return self._not_stored(request)
        call, values = request.call, values_of(request.call.leaves, request.call.keys)
        found = self.entries.find(call, values)
        if found is not None:
            self.loaded += 1
            return found
        self._layout.vary(call, self.entries.varying_floats(call))
        if self._options.on_miss == "error":
            raise self.entries.miss(call, values)
        return self.trace(request, self.entries.changing(call, values))

    def _not_stored(self, request: ProgramRequest) -> Program:
        reason = (
            f"a program that reads what changes from call to call ({request.variables[0].name})"
        )
        if self._options.on_miss == "error":
            raise MissError(
                f"{name_of(self._fn)} is {reason}, which is not stored, and nothing is traced here"
            )
        events.emit(events.NotStored(name_of(self._fn), reason))
        return self._new(request)

    def trace(self, request: ProgramRequest, changing: Sequence[Source]) -> Program:
        """Trace and store a program; with ``dynamic=None``, sizes that other processes saw change
        are symbols.
        """
        wanted: Mapping[Source, Any] = request.wanted
        if self._dynamic is None:
            wanted = {**dict.fromkeys(changing, Policy.AUTO), **wanted}
        program = self._new(attrs.evolve(request, wanted=wanted))
        self.entries.keep(program, request.call)
        return program

    def _new(self, request: ProgramRequest) -> Program:
        check_call(self._fn, *request.call.nest(request.call.leaves)[:2])
        return self._traced.program(attrs.evolve(request, asks=False))

    def equip(self, entry: Entry) -> None:
        """Have an entry's runners store the kernels that they compile."""
        program = entry.program
        if isinstance(entry.runner, InductorRunner):
            entry.runner.artefacts.shelf = self.entries.shelf(program)
        for _, runner in padded_parts(entry.runner, program):
            runner.keep(self.entries.shelf(program))

    def clear(self) -> None:
        """Count loaded programs from 0 again; stored programs stay."""
        self.loaded = 0


class RankPrograms:
    """The source that makes a function's first program together with the other ranks, and later
    ones alone.

    Args:
        fn: the function.
        ranks: the ranks.
        stored: the source of later programs.
    """

    stores = True

    def __init__(self, fn: Callable[..., Any], ranks: Ranks, stored: StoredPrograms) -> None:
        self._fn, self._stored = fn, stored
        self._ranks: Ranks | None = ranks

    @property
    def loaded(self) -> int:
        """The number of programs that came from the store or from another rank."""
        return self._stored.loaded

    def program(self, request: ProgramRequest) -> Program:
        """Return the program that all ranks compile together, for the first call that needs one;
        then a stored one.
        """
        if request.variables or self._ranks is None:
            return self._stored.program(request)
        ranks, self._ranks = self._ranks, None
        entries, call, traced = self._stored.entries, request.call, list[Program]()
        values = values_of(call.leaves, call.keys)

        def get(sources: Sequence[Source], others: Sequence[Sequence[int]]) -> Program:
            found = entries.find(call, values, others)
            if found is None:
                traced.append(
                    self._stored.trace(request, [*entries.changing(call, values), *sources])
                )
            return traced[0] if found is None else found

        program = ranks.meeting(name_of(self._fn)).program(entries, call, values, get)
        self._stored.loaded += not traced
        return program

    def equip(self, entry: Entry) -> None:
        """Have an entry's runners store the kernels that they compile."""
        self._stored.equip(entry)

    def clear(self) -> None:
        """Count loaded programs from 0 again; stored programs stay."""
        self._stored.clear()


def stored_programs(
    fn: Callable[..., Any],
    traced: TracedPrograms,
    options: Options,
    dynamic: Dynamic,
    layout: Layout,
) -> ProgramSource:
    """Return the source of a function's programs for options with a store, or with ranks.

    Raises:
        InputError: ``on_miss="error"`` with ranks.
    """
    given = options.store
    ranks = given if isinstance(given, Ranks) else None
    if ranks is not None and options.on_miss == "error":
        raise InputError(
            'on_miss="error" is not for ranks, which trace together: give their store itself'
        )
    store = (
        NoStore()
        if ranks is not None and ranks.store is None
        else store_of(getattr(given, "store", given))
    )
    entries = FunctionEntries(fn, store, options, dynamic)
    if ranks is None:
        entries.prepare()
    stored = StoredPrograms(fn, traced, entries, options, dynamic, layout)
    return stored if ranks is None else RankPrograms(fn, ranks, stored)
