"""The test whether a trace could still be abandoned and its function run in eager, as if nothing
had happened.

If so, a trace may assume what nearly always holds but only data decide (two sizes are equal, rather
than one of them 1). The graph asserts it when it runs; where it fails, the function runs eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, drawn_from, draws_random_numbers, written_values
from symshape.tracing.trace_state import TraceState

_PLAIN = ("aten", "prims")
_presumes: ContextVar[bool] = ContextVar("presumes", default=True)


@contextmanager
def presuming(presumes: bool) -> Iterator[None]:
    """Let traces assume what nearly always holds inside, or forbid that."""
    token = _presumes.set(presumes)
    try:
        yield
    finally:
        _presumes.reset(token)


class Abandonable:
    """A watcher of one trace's steps: the storages that they write to, random draws, and calls.

    Args:
        trace: the trace.
    """

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._new = StepCursor(trace.steps)
        self._written: set[int] = set()  # ids of storages, which steps keep alive
        self._changed = False

    def __call__(self) -> bool:
        """Return whether no earlier tensor was written to, and no generator drawn from except on
        the CPU.
        """
        self._look(self._new.nodes())
        if self._changed or not _presumes.get():
            return False
        written = self._written | {id(value.storage) for value in self._trace.writes}
        lifted = self._trace.lifting.lifted.values()
        roots = (*self._trace.arguments, *(each.value for each in lifted if not each.constant))
        return not written or written.isdisjoint(id(each.storage) for each in roots)

    def _look(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            # a custom op, a collective, an `autograd.Function`
            others = getattr(node.op, "namespace", "") not in _PLAIN
            drawn = not others and draws_random_numbers(node)
            self._changed |= others or (drawn and drawn_from(node) is None)
            if not self._changed:
                self._written.update(id(value.storage) for value in written_values(node))
