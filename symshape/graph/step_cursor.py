"""A cursor over the steps of a growing trace, for observers that look at each step once."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.graph.steps import Node, Step


class StepCursor:
    """The nodes that were added to a trace since the last look.

    An op's node is put before the assertions that its rule made, so that those at the end are not
    looked at yet.

    Args:
        steps: the steps, which grow.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._done = 0
        self._last: Step | None = None

    def nodes(self) -> list[Node]:
        """Return the new nodes, in order.

        Raises:
            AssertionError: a step was put before one that was looked at.
        """
        steps, done = self._steps, self._done
        assert not done or steps[done - 1] is self._last, (
            "a step of the trace came before one that is known"
        )
        end = len(steps)
        while end > done and type(steps[end - 1]) is not Node:
            end -= 1
        if end > done:
            self._done, self._last = end, steps[end - 1]
        return [step for step in steps[done:end] if type(step) is Node]
