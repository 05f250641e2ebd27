"""Counters of a compiled function, or of a graph of Dynamo's."""

from __future__ import annotations

from typing import Any

import attrs

from symshape.runtime.eager_calls import EagerCalls
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.verify import Verifier

__all__ = ["Stats", "stats_of"]


@attrs.frozen
class Stats:
    """Counters of one compiled function.

    Attributes:
        calls: calls so far.
        traces: programs traced.
        hits: calls served by an existing entry.
        misses: calls that needed a trace.
        evictions: entries evicted because the cache was full.
        entries: entries now.
        cuda_graphs: CUDA graphs and padded buckets now.
        dispatch_us: median µs of the look-up of a warm hit, sampled at every 256th call; None
            before the first sample.
        trace_ms: milliseconds spent tracing, in all, refused traces included.
        fallbacks: calls that ran eagerly, since they could not be traced (or since the function
            raised while traced).
        refusals: traces that failed: at most a few for each structure of arguments, however many
            calls fell back.
        untraced: calls that ran eagerly, since tracing their sizes would not pay
            (``Options.free_traces``).
        plain: calls that ran eagerly, since that was measured to be faster or since saved-tensor
            hooks are around the call, or that ran Dynamo's own graph (``Options.plain_calls``).
        loaded: programs that came from a store instead of a trace.
        verified: calls that eager ran too and agreed with (``Options.verify``).
        saved_s: seconds that padded buckets and graphs of ``runner="auto"`` saved against eager, as
            estimated.
        spent_s: seconds spent on traces, and on making those buckets and graphs.
    """

    calls: int
    traces: int
    hits: int
    misses: int
    evictions: int
    entries: int
    cuda_graphs: int
    dispatch_us: float | None = attrs.field(
        repr=lambda found: "not sampled yet" if found is None else f"{found:.3g}"
    )
    trace_ms: float
    fallbacks: int = 0
    refusals: int = 0
    loaded: int = 0
    verified: int = 0
    untraced: int = 0
    plain: int = 0
    saved_s: float = 0.0
    spent_s: float = 0.0


def stats_of(
    eager: EagerCalls, graphs: GraphStore, verifier: Verifier | None, trace_ms: float, **counts: Any
) -> Stats:
    """Return the counters of a function, read from its parts.

    Args:
        eager: its calls that ran eagerly.
        graphs: its CUDA graphs and padded buckets.
        verifier: verifies its calls, if any are verified.
        trace_ms: the milliseconds that its programs took to trace; refused traces are added here.
        counts: the other fields of :class:`Stats`.
    """
    return Stats(
        cuda_graphs=len(graphs),
        trace_ms=trace_ms + eager.seconds * 1e3,
        fallbacks=eager.fallbacks,
        refusals=eager.attempts,
        untraced=eager.untraced,
        verified=0 if verifier is None else verifier.verified,
        saved_s=graphs.promise.saved / 1e3,
        spent_s=graphs.promise.spent / 1e3,
        **counts,
    )
