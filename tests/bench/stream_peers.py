"""Those who run a stream: ours by each runner, eager, torch.compile's modes, and buckets written by
hand.

A peer is made from a stream and answers results for a call's arguments; what it prepares, it
prepares when it meets a size, so that the first pass shows what it costs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import torch

import symshape
from symshape import Options, events
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.bench.report import NotHere
from tests.bench.streams import Buckets, Call, Sizes, Stream, Tensors

__all__ = ["PEERS", "Peer"]


class Peer:
    """Somebody who runs a stream; this one runs eager."""

    def __init__(self, stream: Stream) -> None:
        self.run: Call = stream.around(stream.run)

    def __call__(self, sizes: Sizes, arguments: Tensors) -> Tensors:
        """The results of one call; a later call may overwrite them."""
        return self.run(*arguments)

    def settle(self) -> float | None:
        """Between two passes: waits for what it does beside calls; seconds, None where it does
        nothing.
        """
        return None

    def buckets(self) -> int | None:
        """How many programs or graphs it keeps for ranges of sizes; None where that means
        nothing.
        """
        return None

    def remarks(self) -> list[str]:
        """What a reader should know of how it ran."""
        return []


class Ours(Peer):
    """Ours: every size dynamic from the first call on."""

    def __init__(self, stream: Stream, runner: Any, **options: Any) -> None:
        known = {each.name for each in attrs.fields(Options)}
        if options.keys() - known:
            raise NotHere(f"Options has no {', '.join(sorted(options.keys() - known))}")
        self.compiled: Any = symshape.compile(
            stream.run, dynamic=True, runner=runner, options=Options(**options)
        )
        self.run = stream.around(self.compiled)
        self.fallbacks: Counter[str] = Counter()
        self.beside = options.get("kernels") == "background"
        events.subscribe(self._note)

    def settle(self) -> float | None:
        if not self.beside:
            return None
        start = time.perf_counter()
        self.compiled.settle()
        return time.perf_counter() - start

    def _note(self, event: events.Event) -> None:
        if isinstance(event, events.RunnerFallback):
            self.fallbacks[f"{event.used} instead of {event.wanted}: {event.reason}"[:200]] += 1

    def buckets(self) -> int | None:
        parts = [
            part
            for each in self.compiled.entries
            for part in padded_parts(each.runner, each.program)
        ]
        return sum(len(runner.buckets) for _, runner in parts)

    def remarks(self) -> list[str]:
        names = "; ".join(
            f"{each.runner_name} ({each.runner.describe()})" for each in self.compiled.entries
        )
        fallen = [f"{count} times {reason}" for reason, count in self.fallbacks.most_common(4)]
        refused = [line[:300] for line in self.compiled.report().splitlines() if "refused" in line]
        return [
            f"{self.compiled.stats().traces} traces, runners {names}",
            *fallen,
            *dict.fromkeys(refused),
        ]


class TorchCompile(Peer):
    """torch.compile in a mode, dynamic as it chooses itself."""

    def __init__(self, stream: Stream, mode: str | None) -> None:
        self.run = stream.around(torch.compile(_fresh(stream.run), mode=mode))

    def __call__(self, sizes: Sizes, arguments: Tensors) -> Tensors:
        torch.compiler.cudagraph_mark_step_begin()
        return self.run(*arguments)


def _fresh(function: Call) -> Call:
    """The same function with code of its own, so that peers do not share Dynamo's cache."""

    def run(*arguments: torch.Tensor) -> Tensors:
        return function(*arguments)

    run.__code__ = run.__code__.replace(co_name=f"run_{id(run)}")
    return run


class Bucketed(Peer):
    """Buckets written by hand: buffers, one CUDA graph for each bucket in one pool, sliced and
    cloned results.

    ``compiled``: the graphs hold torch.compile(dynamic=True)'s kernels instead of eager's.

    All warm-ups are on one stream.  With a new one for each bucket, one in 32 is the stream that
    torch captures on: a warm-up there leaves cuBLAS' workspace outside the pool of the graphs, and
    when reduce-overhead has all workspaces given back, a replay is an illegal memory access.
    """

    def __init__(self, stream: Stream, compiled: bool) -> None:
        if stream.buckets is None:
            raise NotHere("nobody could write buckets by hand: data decides on sizes")
        self.hand: Buckets = stream.buckets
        self.run = torch.compile(_fresh(self.hand.run), dynamic=True) if compiled else self.hand.run
        self.pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None
        self.side = torch.cuda.Stream() if torch.cuda.is_available() else None
        self.made: dict[Sizes, tuple[Tensors, Callable[[], Tensors]]] = {}

    def __call__(self, sizes: Sizes, arguments: Tensors) -> Tensors:
        caps = self.hand.capped(sizes)
        found = self.made.get(caps)
        if found is None:
            buffers = self.hand.arguments(caps)
            found = self.made[caps] = buffers, self._recorded(buffers)
        buffers, replay = found
        torch._foreach_copy_(list(self.hand.place(buffers, sizes)), list(arguments))
        self.hand.finish(buffers, sizes)
        return tuple(each.clone() for each in self.hand.cut(replay(), sizes))

    def _recorded(self, buffers: Tensors) -> Callable[[], Tensors]:
        if self.pool is None or self.side is None:  # no device: run again
            return lambda: self.run(*buffers)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for _ in range(2):
                self.run(*buffers)
        torch.cuda.current_stream().wait_stream(self.side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            results = self.run(*buffers)

        def replay() -> Tensors:
            graph.replay()
            return results

        return replay

    def buckets(self) -> int | None:
        return len(self.made)


PEERS: dict[str, Callable[[Stream], Peer]] = {
    "eager": Peer,
    "ours-auto": lambda stream: Ours(stream, "auto"),
    "ours-padded": lambda stream: Ours(stream, "padded"),
    "ours-padded-inductor": lambda stream: Ours(stream, "padded", kernels="inductor"),
    "ours-padded-background": lambda stream: Ours(stream, "padded", kernels="background"),
    "ours-inductor": lambda stream: Ours(stream, "inductor"),
    "ours-cudagraph": lambda stream: Ours(stream, "cudagraph"),
    "compile": lambda stream: TorchCompile(stream, None),
    "reduce-overhead": lambda stream: TorchCompile(stream, "reduce-overhead"),
    "buckets": lambda stream: Bucketed(stream, compiled=False),
    "buckets-compile": lambda stream: Bucketed(stream, compiled=True),
}
"""By the name on the command line."""
