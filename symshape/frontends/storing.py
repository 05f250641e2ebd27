"""Compiled functions whose programs are stored between processes: see :mod:`symshape.store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from guards.sets.coverage import Certificate
from guards.sets.sources import Source
from symshape import events
from symshape.calls.arguments import Call, values_of
from symshape.dims import Dim, Policy
from symshape.errors import InputError, MissError, Reason, UnsupportedError
from symshape.frontends.compiled import Compiled
from symshape.frontends.stats import Stats
from symshape.frontends.trace import check_call
from symshape.graph.program import Program
from symshape.options import Options
from symshape.runtime.eager_calls import EagerCall
from symshape.runtime.entry import Entry
from symshape.runtime.runners.inductor.runner import InductorRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from symshape.store.certificates import CertificateRecord
from symshape.store.entry_stores import NoStore, store_of
from symshape.store.function_entries import FunctionEntries
from symshape.store.ranks import Ranks
from symshape.tracing.capture import capture
from symshape.tracing.symbolic_arguments import Policies
from symshape.user_code import name_of


class Storing(Compiled):
    """A compiled function that looks for a stored program before it traces, and stores what it traced."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = self._options.store
        self._ranks: Ranks | None = given if isinstance(given, Ranks) else None
        if self._ranks and self._options.on_miss == "error":
            raise InputError('on_miss="error" is not for ranks, which trace together: give their store itself')
        store = NoStore() if self._ranks and self._ranks.store is None else store_of(getattr(given, "store", given))
        self._keeper = FunctionEntries(self.fn, store, self._options, self._dynamic)
        if self._ranks is None:
            self._keeper.prepare()
        if self._options.on_miss == "error":
            self._keeper.certificates()
        self._capture = self._find_or_trace
        self._waits = False  # a stored program serves the first call, or is traced to be stored
        self._check = lambda *_: None  # a stored program is for correct calls only
        self._loaded = 0
        self._layout.foresees = False  # programs that read changing values are not stored

    def _find_or_trace(
        self, fn: Callable[..., Any], call: Call, wanted: Policies, options: Options, *others: Any, variables: Any
    ) -> Program:
        """Return the program for a call: a stored one, or else a new one, which is stored."""
        if variables:  # places that programs write are among the leaves
            reason = f"a program that reads what changes from call to call ({variables[0].name})"
            if options.on_miss == "error":
                raise MissError(f"{name_of(self.fn)} is {reason}, which is not stored, and nothing is traced here")
            events.emit(events.NotStored(name_of(self.fn), reason))
            check_call(fn, *call.nest(call.leaves)[:2])
            return capture(fn, call, wanted, options, *others, variables=variables)
        values = values_of(call.leaves, call.keys)
        ranks, self._ranks = self._ranks, None
        if ranks is not None:  # the first call of all ranks
            return self._with_ranks(ranks, call, values, lambda more: self._trace(fn, call, wanted, more, *others))
        found = self._keeper.find(call, values)
        if found is not None:
            self._loaded += 1
            return found
        self._layout.vary(call, self._keeper.varying_floats(call))
        if self._options.on_miss == "error":
            raise self._keeper.miss(call, values)
        return self._trace(fn, call, wanted, self._keeper.changing(call, values), *others)

    def _trace(
        self, fn: Callable[..., Any], call: Call, wanted: Policies, changing: Sequence[Source], *others: Any
    ) -> Program:
        if self._dynamic is None:
            wanted = {**dict.fromkeys(changing, Policy.AUTO), **wanted}
        check_call(fn, *call.nest(call.leaves)[:2])
        program = capture(fn, call, wanted, self._options, *others)
        self._keeper.keep(program, call)
        return program

    def _entry(self, program: Program) -> Entry:
        entry = super()._entry(program)
        if isinstance(entry.runner, InductorRunner):
            entry.runner.artefacts.shelf = self._keeper.shelf(program)
        for _, runner in padded_parts(entry.runner, program):
            runner.keep(self._keeper.shelf(program))
        return entry

    def _with_ranks(
        self, ranks: Ranks, call: Call, values: Sequence[int], trace: Callable[[Sequence[Source]], Program]
    ) -> Program:
        """Return the program that all ranks compile together."""
        traced: list[Program] = []

        def get(sources: Sequence[Source], others: Sequence[Sequence[int]]) -> Program:
            found = self._keeper.find(call, values, others)
            if found is None:
                traced.append(trace([*self._keeper.changing(call, values), *sources]))
            return traced[0] if found is None else found

        program = ranks.meeting(name_of(self.fn)).program(self._keeper, call, values, get)
        self._loaded += not traced
        return program

    def ensure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make sure that a program serves a call, loaded or else traced and stored; the function does not run.

        Raises:
            SymShapeError: there can be none; what tracing raises with ``fullgraph=True``.
        """
        found = self._dispatcher.find(args, kwargs)
        if isinstance(found, EagerCall):
            kind = None if found.refusal is None else found.refusal.kind
            raise UnsupportedError(found.reason, reason=kind or Reason.RUNS_EAGERLY)

    def certify(self, call: Call, policies: Mapping[Source, Dim | Policy]) -> tuple[CertificateRecord, Certificate]:
        """Prove whether the store serves all declared sizes.

        See :meth:`symshape.store.function_entries.FunctionEntries.certify`.
        """
        return self._keeper.certify(call, policies)

    def stats(self) -> Stats:
        """Return counters and times so far."""
        found = super().stats()
        return attrs.evolve(found, traces=max(0, found.traces - self._loaded), loaded=self._loaded)

    def reset(self) -> None:
        """Forget all entries of this process; stored programs stay."""
        self._loaded = 0  # first: loaded programs are among the traces, which are never fewer
        super().reset()
