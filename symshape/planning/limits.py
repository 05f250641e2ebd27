"""Limits of a plan: graphs, memory, time to capture."""

from __future__ import annotations

import attrs

from symshape.cost.units import amount
from symshape.errors import InputError

MOST_GRAPHS = 32
"""The largest number of graphs of a plan without a limit, whose waste decides how many are taken."""

_MANY = 256
"""The largest number of graphs if only the time to capture is limited."""


@attrs.frozen
class Limits:
    """The largest number of graphs (``given``: the caller asked for it), and their peak memory in bytes."""

    graphs: int
    given: bool
    memory: int | None

    @classmethod
    def of(
        cls,
        max_graphs: int | None,
        memory: int | str | None,
        capture_seconds: float | None,
        seconds_a_graph: float,
    ) -> Limits:
        """Return the limits from the caller's arguments.

        Raises:
            InputError: one is malformed, or they leave no graph.
        """
        if max_graphs is not None and (type(max_graphs) is not int or max_graphs < 1):
            raise InputError(f"max_graphs={max_graphs!r} must be an integer, 1 or more")
        if not seconds_a_graph > 0:
            raise InputError(f"seconds_a_graph={seconds_a_graph!r} must be positive")
        graphs = MOST_GRAPHS if max_graphs is None else max_graphs
        if capture_seconds is not None:
            in_time = int(capture_seconds / seconds_a_graph)
            if in_time < 1:
                raise InputError(
                    f"capture_seconds={capture_seconds!r} leaves no graph: one takes {seconds_a_graph} s to capture"
                )
            graphs = min(graphs, in_time) if max_graphs is not None else min(in_time, _MANY)
        given = max_graphs is not None or capture_seconds is not None
        return cls(graphs, given, None if memory is None else amount(memory, "bytes"))
