"""Memory that has views unknown to autograd: a trace made them by repeating earlier calls without
torch's C++.

Such views are made only in functions that are called without gradients.  If such a function turns
gradients on, autograd must notice writes to memory that it has saved, and refuse them.  It would
not notice a write through an unknown view.
"""

from __future__ import annotations

from collections.abc import Iterable

from symshape.errors import Reason, UnsupportedError
from symshape.graph.steps import Value
from symshape.tracing.symbolic.env import ShapeEnv


class UntrackedViews:
    """The memory in one trace that has views unknown to autograd.

    Attributes:
        gradients: whether an op of the trace ran with gradients.
    """

    def __init__(self, env: ShapeEnv) -> None:
        self.gradients = False
        self._env = env
        self._memory: set[object] = set()

    def add(self, viewed: Value) -> None:
        """Note that a view of this value was made without autograd."""
        self._memory.add(viewed.storage)

    def of(self, value: Value) -> bool:
        """Return whether a value's memory has such views."""
        return value.storage in self._memory

    def check(self, op: object, written: Iterable[Value]) -> None:
        """Check a write of an op to these values.

        Raises:
            UnsupportedError: autograd might have to notice the write.
        """
        if self.gradients and self._memory and any(map(self.of, written)):
            raise UnsupportedError(
                f"{op} writes to memory of a view made without gradients (at "
                f"{self._env.origin()}); the function "
                "is called without gradients and turns them on itself; call the function with "
                "gradients on",
                reason=Reason.MEMORY,
            )
