"""A compiled function whose programs are kept between processes: see :mod:`symshape.store`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from symshape.calls.arguments import Call, values_of
from symshape.dims import Policy
from symshape.frontends.compiled import Compiled
from symshape.frontends.stats import Stats
from symshape.graph.program import Program
from symshape.options import Options
from symshape.store.keeping import Keeper, store_of
from symshape.tracing.capture import capture
from symshape.tracing.symbolic_arguments import Policies


class Storing(Compiled):
    """A compiled function that looks for a stored program before it traces, and keeps what it traced."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keeper = Keeper(self.fn, store_of(self._options.store), self._options, self._dynamic)
        self._capture = self._find_or_trace
        self._loaded = 0

    def _find_or_trace(
        self, fn: Callable[..., Any], call: Call, wanted: Policies, options: Options, *others: Any, variables: Any
    ) -> Program:
        """The program for a call: one that was stored, or else a new one, which is kept."""
        if variables:  # places that programs write are among the leaves
            return capture(fn, call, wanted, options, *others, variables=variables)
        values = values_of(call.leaves, call.keys)
        found = self._keeper.find(call, values)
        if found is not None:
            self._loaded += 1
            return found
        if self._dynamic is None:
            wanted = {**dict.fromkeys(self._keeper.changing(call, values), Policy.AUTO), **wanted}
        program = capture(fn, call, wanted, options, *others)
        self._keeper.keep(program, call)
        return program

    def stats(self) -> Stats:
        """Counters and times so far."""
        found = super().stats()
        return attrs.evolve(found, traces=found.traces - self._loaded, loaded=self._loaded)

    def reset(self) -> None:
        """Forgets all entries of this process; what is stored stays."""
        super().reset()
        self._loaded = 0
