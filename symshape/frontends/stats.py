"""Counters of a compiled function."""

from __future__ import annotations

import attrs


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
        dispatch_us: median µs of the look-up of a warm hit, sampled at every 256th call; None before the first sample.
        trace_ms: milliseconds spent tracing, in all, refused traces included.
        fallbacks: calls that ran eagerly, since they could not be traced (or since the function raised while traced).
        refusals: traces that failed: at most a few for each structure of arguments, however many calls fell back.
        untraced: calls that ran eagerly, since tracing their sizes would not pay (``Options.free_traces``).
        plain: calls that ran eagerly, since that was measured to be faster or since saved-tensor hooks are
            around the call, or that ran Dynamo's own graph (``Options.plain_calls``).
        loaded: programs that came from a store instead of a trace.
        verified: calls that eager ran too and agreed with (``Options.verify``).
        saved_s: seconds that padded buckets and graphs of ``runner="auto"`` saved against eager, as estimated.
        spent_s: seconds spent on traces, and on making those buckets and graphs.
    """

    calls: int
    traces: int
    hits: int
    misses: int
    evictions: int
    entries: int
    cuda_graphs: int
    dispatch_us: float | None = attrs.field(repr=lambda found: "not sampled yet" if found is None else f"{found:.3g}")
    trace_ms: float
    fallbacks: int = 0
    refusals: int = 0
    loaded: int = 0
    verified: int = 0
    untraced: int = 0
    plain: int = 0
    saved_s: float = 0.0
    spent_s: float = 0.0
