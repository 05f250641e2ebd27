"""Whether a run that stops here could be begun anew: by the function itself, in eager, as if nothing had happened.

Then a trace may presume what is nearly always so and only data tell (two sizes are equal, rather than one of them 1):
it is asserted when the graph runs, and where it does not hold, the function runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Step, Value, drawn_from, draws_random_numbers, written_values
from symshape.tracing.lifting import Lifting

_PLAIN = ("aten", "prims")
_presumes: ContextVar[bool] = ContextVar("presumes", default=True)


@contextmanager
def presuming(presumes: bool) -> Iterator[None]:
    """Inside, traces presume what is nearly always so, or nothing."""
    token = _presumes.set(presumes)
    try:
        yield
    finally:
        _presumes.reset(token)


class WatchedTrace(Protocol):
    """What is needed of a tracer here."""

    steps: list[Step]
    arguments: set[Value]
    lifting: Lifting
    writes: tuple[Value, ...]


class WorldAsItWas:
    """Follows the steps of one trace: what they write to, draw and call.

    Args:
        trace: what is traced.
    """

    def __init__(self, trace: WatchedTrace) -> None:
        self._trace = trace
        self._new = StepCursor(trace.steps)
        self._written: set[int] = set()  # ids of storages, which steps keep alive
        self._changed = False

    def __call__(self) -> bool:
        """Whether nothing that was there before has been written to, nor been drawn from but on the CPU."""
        self._look(self._new.nodes())
        if self._changed or not _presumes.get():
            return False
        written = self._written | {id(value.storage) for value in self._trace.writes}
        lifted = self._trace.lifting.lifted.values()
        roots = (*self._trace.arguments, *(each.value for each in lifted if not each.constant))
        return not written or written.isdisjoint(id(each.storage) for each in roots)

    def _look(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            # a custom op, a collective, a function of autograd's
            others = getattr(node.op, "namespace", "") not in _PLAIN
            drawn = not others and draws_random_numbers(node)
            self._changed |= others or (drawn and drawn_from(node) is None)
            if not self._changed:
                self._written.update(id(value.storage) for value in written_values(node))
