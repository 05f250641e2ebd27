"""Memory of which autograd does not know all views: those of calls that were repeated without C++.

Only where a function is called without gradients.  It may turn them on itself, and then autograd would see that memory
which it saved is written to, and refuse; through a view that it does not know it would not.
"""

from __future__ import annotations

from collections.abc import Iterable

from symshape.errors import UnsupportedError
from symshape.graph.steps import Value
from symshape.tracing.symbolic.env import ShapeEnv


class UntrackedViews:
    """Those of one trace.

    Attributes:
        gradients: whether an op of the trace ran with gradients.
    """

    def __init__(self, env: ShapeEnv) -> None:
        self.gradients = False
        self._env = env
        self._memory: set[object] = set()

    def add(self, viewed: Value) -> None:
        """A view of this value is made that autograd does not know."""
        self._memory.add(viewed.storage)

    def of(self, value: Value) -> bool:
        """Whether there are such views of a value's memory."""
        return value.storage in self._memory

    def check(self, op: object, written: Iterable[Value]) -> None:
        """An op writes to these values.

        Raises:
            UnsupportedError: autograd might have to see that.
        """
        if self.gradients and self._memory and any(map(self.of, written)):
            raise UnsupportedError(
                f"{op} writes to memory that was viewed without gradients (at {self._env.origin()}), in a function "
                "that is called without and turns them on itself, which cannot be traced; call it with gradients on"
            )
