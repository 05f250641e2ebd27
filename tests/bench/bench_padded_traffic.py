"""Real traffic through one graph for a range: the Azure conversation trace as (batch, sequence),
and what graphs cost.

The requests of the trace, in their order, are put together in batches of one to four, each as long
as its longest prompt (at most 2,048 tokens), and run through the Llama-shaped model of
``padded_stream``: eager, ours with the steps it takes by itself, and ours warmed up with the
buckets that ``symshape.plan`` finds for this traffic.  Told: time on the device and on the clock,
how much of what was computed is padding, how many calls met a graph that was there, and captures.
Then a number of graphs are captured at warm-up, in one shared pool, against graphs by hand with a
pool each.

    python -m tests.bench padded_traffic --calls 600
"""

from __future__ import annotations

import csv
import gc
import random
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import attrs
import torch

import symshape
from symshape import Options, events
from tests.bench.bench_padded_stream import Ran, compare
from tests.bench.report import NotHere, Report, bench_parser
from tests.bench.streams import Sizes, Stream, Tensors, flat, make
from tests.bench.timing import Timing

LONGEST = 2048
Run = Callable[..., Any]


def batches(count: int, seed: int, longest: int) -> list[Sizes]:
    """``(batch, sequence)`` of calls: stretches of the trace, evenly spread over it, each in its
    own order.
    """
    text = (
        resources.files("symshape.data").joinpath("azure_llm_conversation_sample.csv").read_text()
    )
    prompts = [int(row["ContextTokens"]) for row in csv.DictReader(text.splitlines())]
    rng = random.Random(seed)
    found, at = [], 0
    while at < len(prompts):
        together = rng.randint(1, 4)
        part = prompts[at : at + together]
        found.append((len(part), min(max(2, *part), longest)))
        at += together
    return [found[i * len(found) // count] for i in range(min(count, len(found)))]


@attrs.define
class Seen:
    """What happened in a peer's calls."""

    ran: Ran
    device_ms: list[float] = attrs.field(factory=list)
    captures: list[float] = attrs.field(factory=list)
    computed: int = 0
    wanted: int = 0
    hits: int = 0


class Calls:
    """Runs the traffic through one peer and counts."""

    def __init__(self, run: Run, compiled: Any = None) -> None:
        self.seen = Seen(Ran(run))  # type: ignore[arg-type]
        self.run, self.compiled = run, compiled

    def __call__(self, sizes: Sizes, arguments: Tensors) -> Tensors:
        """One call, timed on the clock and, where there is one, on the device."""
        cuda = arguments[0].is_cuda
        made: list[events.GraphCaptured] = []
        stop = events.subscribe(
            lambda event: made.append(event) if isinstance(event, events.GraphCaptured) else None
        )
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for mark in marks[:1]:
            mark.record()
        results = flat(self.run(*arguments))
        for mark in marks[1:]:
            mark.record()
        if cuda:
            torch.cuda.synchronize()
        self.seen.ran.ms["warm"].append((time.perf_counter() - start) * 1e3)
        stop()
        self.seen.device_ms += [marks[0].elapsed_time(marks[1])] if cuda else []
        self.seen.captures += [each.milliseconds for each in made]
        self._padding(sizes, captured=bool(made))
        return tuple(each.clone() for each in results)

    def _padding(self, sizes: Sizes, *, captured: bool) -> None:
        cells = sizes[0] * sizes[1]
        self.seen.wanted += cells
        if self.compiled is None:
            self.seen.computed += cells
            return
        capacity = served_by(self.compiled, sizes)
        self.seen.computed += capacity or cells
        self.seen.hits += bool(capacity) and not captured


def served_by(compiled: Any, sizes: Sizes) -> int | None:
    """How many cells the bucket has that calls of these sizes go to; None where they are not
    padded.
    """
    for entry in compiled.entries:
        served = getattr(entry.runner, "served", dict)()
        for values, bucket in served.items():
            if values[-len(sizes) :] == sizes or values[: len(sizes)] == sizes:
                found = {**bucket.made.exact, **bucket.made.caps}
                product = 1
                for name in entry.program.positions:
                    product *= found.get(name, 1)
                return product
    return None


def traffic(report: Report, stream: Stream, calls: Sequence[Sizes], graphs: int) -> None:
    """All calls through all peers, in turn."""
    plain = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(max_cuda_graphs=graphs)
    )
    planned = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(max_cuda_graphs=graphs)
    )
    for sizes in ((2, 7), (1, 5)):  # a trace each for one row and for several
        planned(*stream.arguments(sizes))
    found = symshape.plan(
        None, symshape.Traffic.of(calls, ("batch", "length")), max_graphs=graphs - 2
    )
    start = time.perf_counter()
    warmed = planned.warm_up(found.caps, progress=False)
    report.note(
        f"plan: {found.graphs} graphs, expected waste {found.waste:.1%}; warm-up "
        f"{time.perf_counter() - start:.1f} s"
        f", {warmed.graphs} graphs, {len(warmed.failures)} refused"
    )
    peers = {
        "eager": Calls(stream.run),
        "ours, own steps": Calls(plain, plain),
        "ours, planned": Calls(planned, planned),
    }
    names = list(peers)
    for number, sizes in enumerate(calls):
        arguments = stream.arguments(sizes)
        order = names[number % 3 :] + names[: number % 3]
        results = {name: peers[name](sizes, arguments) for name in order}
        # only now: what the first to see a size prepares is its own time
        expected = flat(stream.run(*arguments))
        for name, result in results.items():
            compare(peers[name].seen.ran, result, expected)
    table = report.table(
        f"Azure conversation trace, {len(calls)} batches",
        *(
            "who",
            "clock s",
            "device s",
            "p50 ms",
            "p99 ms",
            "padding",
            "hit rate",
            "captures",
            "ms a capture",
        ),
        "mismatches",
    )
    for name, each in peers.items():
        seen = each.seen
        timing = Timing.of(ms * 1e6 for ms in seen.ran.ms["warm"])
        capture = sorted(seen.captures)[len(seen.captures) // 2] if seen.captures else None
        table.row(
            name,
            seen.ran.total_s("warm"),
            sum(seen.device_ms) / 1e3 if seen.device_ms else None,
            timing.median / 1e3,
            timing.p99 / 1e3,
            f"{1 - seen.wanted / seen.computed:.1%}",
            None if each.compiled is None else f"{seen.hits / len(calls):.1%}",
            len(seen.captures),
            capture,
            seen.ran.mismatches,
        )
        report.goal(f"{name}: mismatches", seen.ran.mismatches, at_most=0)
    for name in names[1:]:
        ours, eager = sum(peers[name].seen.ran.ms["warm"]), sum(peers["eager"].seen.ran.ms["warm"])
        report.goal(f"{name}, whole traffic / eager", ours / eager, at_most=1.0)


def capturing(report: Report, stream: Stream, count: int) -> None:
    """What graphs cost: ours in one pool, by hand with a pool each."""
    caps = [
        (batch, length)
        for length in (1024, 768, 512, 384, 256, 192, 128, 96)
        for batch in (8, 6, 4, 3)
    ][:count]
    rows = {}
    compiled = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(max_cuda_graphs=count + 1)
    )
    compiled(*stream.arguments((2, 7)))
    rows["ours, one pool"] = _taken(lambda: compiled.warm_up(caps, progress=False))
    kept: list[Any] = []
    rows["by hand, a pool each"] = _taken(
        lambda: kept.extend(_by_hand(stream, stream.arguments(cap)) for cap in caps)
    )
    table = report.table(f"{len(caps)} graphs", "who", "s", "ms a graph", "MiB", "MiB a graph")
    for name, (seconds, size) in rows.items():
        table.row(name, seconds, seconds * 1e3 / len(caps), size / 2**20, size / 2**20 / len(caps))
    report.goal(
        "memory of graphs, ours / a pool each",
        rows["ours, one pool"][1] / max(1, rows["by hand, a pool each"][1]),
        at_most=1.0,
    )


def _taken(work: Callable[[], object]) -> tuple[float, int]:
    """Seconds and the bytes by which the allocator's memory grew."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, start = torch.cuda.memory_reserved(), time.perf_counter()
    work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    torch.cuda.empty_cache()
    return seconds, torch.cuda.memory_reserved() - before


def _by_hand(stream: Stream, buffers: Tensors) -> Any:
    for _ in range(2):
        stream.run(*buffers)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = stream.run(*buffers)
    return graph, buffers, results


def main(argv: Sequence[str] | None = None) -> Report:
    """The traffic, and on a device the cost of graphs."""
    parser = bench_parser(__doc__, device="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=600, help="how many batches of the trace")
    parser.add_argument("--graphs", type=int, default=32, help="how many graphs may be kept")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    tiny = args.smoke or device.type == "cpu"
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NotHere("needs a CUDA device")
    stream = make("llama", device, tiny=tiny)
    report = Report("padded_traffic", device=args.device)
    with torch.no_grad():
        traffic(
            report,
            stream,
            batches(6 if args.smoke else args.calls, args.seed, 48 if tiny else LONGEST),
            args.graphs,
        )
        if device.type == "cuda":
            capturing(report, stream, 4 if args.smoke else args.graphs)
    return report


if __name__ == "__main__":
    print(main().text())
