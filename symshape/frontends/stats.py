"""Counters of a compiled function, or of a graph of Dynamo's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from symshape.runtime.eager_calls import EagerCalls
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.verify import Verifier


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


# -- The counters of compiled functions in Prometheus' text format, for any server: there is no
# server of ours.
#
# Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
_COUNTERS = {
    "calls": "Calls of the function.",
    "hits": "Calls served by an entry that was there.",
    "misses": "Calls that needed a trace.",
    "traces": "Programs traced.",
    "evictions": "Entries that left because the cache was full.",
    "fallbacks": "Calls that ran eagerly.",
    "refusals": "Traces that failed.",
    "untraced": "Calls that ran eagerly because tracing their sizes would not pay.",
    "plain": "Calls that ran eagerly because eager is faster.",
    "verified": "Calls that eager ran too and agreed with.",
}
_GAUGES = {
    "entries": "Entries in the cache.",
    "cuda_graphs": "CUDA graphs and padded buckets that are kept.",
}


@attrs.frozen
class Sample:
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float


@attrs.frozen
class Metric:
    """One metric with its samples.

    Attributes:
        name: its name, with the prefix of the package; a counter's ends in ``_total``.
        kind: counter or gauge.
        help: its description, in a sentence.
        samples: the values.
    """

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


def metrics_of(
    function: str, stats: Stats, calls: Mapping[int, int], graph_bytes: int
) -> list[Metric]:
    """Return the metrics of one compiled function.

    Args:
        function: its name, the label of all samples.
        stats: its counters.
        calls: how many calls each present entry has served, by its number.
        graph_bytes: bytes that its graphs and buckets hold.
    """

    def one(name: str, kind: str, text: str, value: float) -> Metric:
        return Metric(f"symshape_{name}", kind, text, [Sample({"function": function}, value)])

    found = [
        one(f"{name}_total", "counter", text, getattr(stats, name))
        for name, text in _COUNTERS.items()
    ]
    found.append(
        one(
            "trace_seconds_total",
            "counter",
            "Time spent tracing, in seconds.",
            stats.trace_ms / 1e3,
        )
    )
    found.append(
        one(
            "spent_seconds_total",
            "counter",
            "Time spent on traces, buckets and graphs.",
            stats.spent_s,
        )
    )
    found += [one(name, "gauge", text, getattr(stats, name)) for name, text in _GAUGES.items()]
    found.append(
        one(
            "graph_bytes",
            "gauge",
            "Memory of CUDA graphs and padded buckets, in bytes.",
            graph_bytes,
        )
    )
    if stats.dispatch_us is not None:
        text = "Median time of the look-up of a warm call, in seconds."
        found.append(one("dispatch_seconds", "gauge", text, stats.dispatch_us / 1e6))
    samples = [
        Sample({"function": function, "entry": str(number)}, count)
        for number, count in calls.items()
    ]
    if samples:
        found.append(
            Metric(
                "symshape_entry_calls",
                "gauge",
                "Calls that each entry of the cache has served.",
                samples,
            )
        )
    return found


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format; metrics of one name (of several functions) are merged.

    >>> entries = Metric("symshape_entries", "gauge", "Entries.", [Sample({"function": "f"}, 2)])
    >>> print(prometheus_text([entries]), end="")
    # HELP symshape_entries Entries.
    # TYPE symshape_entries gauge
    symshape_entries{function="f"} 2
    """
    together: dict[str, Metric] = {}
    for each in metrics:
        known = together.get(each.name)
        together[each.name] = (
            each if known is None else attrs.evolve(known, samples=[*known.samples, *each.samples])
        )
    return "".join(f"{line}\n" for each in together.values() for line in _lines(each))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{metric.name}{{{labels}}} {sample.value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
