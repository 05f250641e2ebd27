"""A stream of sizes, many never seen before: ours, torch.compile's modes and buckets written by
hand, in one process.

Three passes: *first* (sizes as they come; compiling and recording are part of it), *warm* (the
same, shuffled), *never* (sizes that nobody has seen).  Peers take turns at each call, the order
rotating; each call is synchronised before and after.  Who compiles beside its calls is waited for
between two passes (the seconds are among the notes).  In the last pass every peer gets sizes of its
own, near the others' and in turn the largest of them: kernels of eager and torch.compile share
plans (cuDNN attention) that the first to see a size pays for.  Every result is compared with eager
at the exact size.

    python -m tests.bench padded_stream --stream llama --peers eager,ours-padded,buckets --quick

Streams: llama, bert, bert_mask, vit, speech, decode, and detect, where data decide on sizes.  A
result is a mismatch beyond atol = rtol = 5e-2 in bfloat16 (1e-3 in float32), measured against the
largest number of the expected result.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch

from tests.bench.report import NotHere, Report, bench_parser
from tests.bench.stream_peers import PEERS, Peer
from tests.bench.streams import STREAMS, Sizes, Stream, Tensors, flat, make
from tests.bench.timing import Timing

SMOKE_PEERS = "eager,ours-padded,buckets"
TOLERANCES = {torch.bfloat16: 5e-2, torch.float32: 1e-3}


@attrs.define
class Ran:
    """What one peer did. Units: ms a call, by pass."""

    peer: Peer
    name: str = ""
    ms: dict[str, list[float]] = attrs.field(factory=lambda: {"first": [], "warm": [], "never": []})
    mismatches: int = 0
    equal: int = 0
    failed: str = ""
    beside_s: dict[str, float] = attrs.field(factory=dict)

    def total_s(self, phase: str) -> float:
        """The time of a whole pass."""
        return sum(self.ms[phase]) / 1e3

    def timing(self, phase: str) -> Timing:
        """Median and 99th percentile of a pass."""
        return Timing.of(each * 1e6 for each in self.ms[phase])


def timed(ran: Ran, sizes: Sizes, arguments: Tensors, phase: str) -> Tensors | None:
    """One call, and its results as nobody overwrites them."""
    _synchronise()
    start = time.perf_counter_ns()
    try:
        result = ran.peer(sizes, arguments)
        _synchronise()
    except torch.AcceleratorError as error:  # the device is of no use to anybody from now on
        raise RuntimeError(f"{ran.name} at {sizes}, {phase}: {error}") from error
    except Exception as error:  # whatever a peer breaks off with is part of its result
        ran.failed = (
            f"{type(error).__name__} at {sizes}: {str(error).splitlines()[0] if str(error) else ''}"
        )
        return None
    ran.ms[phase].append((time.perf_counter_ns() - start) / 1e6)
    return tuple(each.clone() for each in flat(result))


def settle(ran: dict[str, Ran], phase: str) -> None:
    """After a pass, who works beside calls is waited for."""
    for each in ran.values():
        if not each.failed and (seconds := each.peer.settle()) is not None:
            each.beside_s[phase] = seconds


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compare(ran: Ran, mine: Tensors, expected: Sequence[torch.Tensor]) -> None:
    """Counts a mismatch beyond the dtype's tolerance, or equality of every bit."""
    pairs = list(zip(mine, expected, strict=True))
    ran.equal += all(torch.equal(a, b) for a, b in pairs)
    ran.mismatches += not all(a.shape == b.shape and _close(a, b) for a, b in pairs)


def _close(mine: torch.Tensor, expected: torch.Tensor) -> bool:
    if not expected.numel():
        return True
    tolerance = TOLERANCES.get(expected.dtype, 1e-3)
    largest = expected.float().abs().max().clamp(min=1.0)
    off = (mine.float() - expected.float()).abs()
    return bool((off <= tolerance * (largest + expected.float().abs())).all())


def passes(
    stream: Stream, count: int, unseen: int, peers: Sequence[str], seed: int
) -> Iterator[tuple[str, Any]]:
    """``(pass, sizes by peer)`` for each call."""
    rng = random.Random(seed)
    seen: set[Sizes] = set()
    first = [stream.sizes(rng) for _ in range(count)]
    seen.update(first)
    warm = list(first)
    random.Random(seed + 1).shuffle(warm)
    for phase, found in (("first", first), ("warm", warm)):
        for sizes in found:
            yield phase, dict.fromkeys(peers, sizes)
    for number, sizes in enumerate(stream.draw(unseen, rng, seen)):
        # whose sizes are the largest: a step up from them may be a whole bucket's
        at = number % len(peers)
        turns = [*peers[at:], *peers[:at]]
        yield (
            "never",
            {
                name: sizes if not i else _beside(stream, sizes, seen)
                for i, name in enumerate(turns)
            },
        )


def _beside(stream: Stream, sizes: Sizes, seen: set[Sizes]) -> Sizes:
    """Sizes near these that nobody has seen, smaller ones if possible."""
    for step in (*range(-1, -sizes[stream.near] // 4, -1), *range(1, 10_000)):
        moved = list(sizes)
        moved[stream.near] += step
        found = tuple(moved)
        if found[stream.near] > 1 and found not in seen:
            seen.add(found)
            return found
    raise AssertionError("sizes are endless")


def run(
    stream: Stream,
    ran: dict[str, Ran],
    count: int,
    unseen: int,
    seed: int,
    show: bool = False,
    patience: float = float("inf"),
) -> None:
    """All passes, peers in turn, a different one first each time; with ``show``, time so far on
    stderr now and then.

    Who has taken more than ``patience`` seconds in a pass takes part no more.
    """
    names = list(ran)
    before = "first"
    for number, (phase, by_peer) in enumerate(passes(stream, count, unseen, names, seed)):
        if phase != before:
            settle(ran, before)
            before = phase
        if show and number % 20 == 0:
            spent = ", ".join(
                f"{name} {sum(sum(ms) for ms in each.ms.values()) / 1e3:.1f}"
                for name, each in ran.items()
            )
            print(f"{phase}, call {number}; s so far: {spent}", file=sys.stderr, flush=True)
        arguments = {sizes: stream.arguments(sizes) for sizes in dict.fromkeys(by_peer.values())}
        results: dict[str, Tensors | None] = {}
        at = number % len(names)
        for name in names[at:] + names[:at]:
            if not ran[name].failed:
                results[name] = timed(ran[name], by_peer[name], arguments[by_peer[name]], phase)
                if ran[name].total_s(phase) > patience:
                    done = len(ran[name].ms[phase])
                    ran[
                        name
                    ].failed = (
                        f"{done} calls of the {phase} pass took {ran[name].total_s(phase):.0f} s"
                    )
        expected = {sizes: flat(stream.run(*given)) for sizes, given in arguments.items()}
        for name, result in results.items():
            if result is not None:
                compare(ran[name], result, expected[by_peer[name]])


def tell(report: Report, stream: str, ran: dict[str, Ran]) -> None:
    """The table of a stream, what peers remark, and every call's time."""
    table = report.table(
        f"{stream}: ms a call, synchronised",
        *(
            "who",
            "first total s",
            "warm total s",
            "warm p50",
            "warm p99",
            "never p50",
            "never p99",
            "never total s",
        ),
        *("mismatches", "bit-equal calls", "buckets"),
    )
    for name, each in ran.items():
        if each.failed or not each.ms["never"]:
            report.note(f"{name} broke off: {each.failed}")
            table.row(name, *[None] * 7, each.mismatches, each.equal, each.peer.buckets())
            continue
        warm, never = each.timing("warm"), each.timing("never")
        figures = (
            warm.median / 1e3,
            warm.p99 / 1e3,
            never.median / 1e3,
            never.p99 / 1e3,
            each.total_s("never"),
        )
        totals = each.total_s("first"), each.total_s("warm")
        table.row(name, *totals, *figures, each.mismatches, each.equal, each.peer.buckets())
        for phase, seconds in each.beside_s.items():
            report.note(
                f"{name}: waited {seconds:.1f} s after the {phase} pass for what was compiled "
                "beside its calls"
            )
        for remark in each.peer.remarks()[:8]:
            report.note(f"{name}: {remark}")
    for name, each in ran.items():
        for phase, taken in each.ms.items():
            report.series[f"{name}, {phase}, ms"] = [round(ms, 4) for ms in taken]


def goals(report: Report, stream: str, ran: dict[str, Ran]) -> None:
    """What the project set itself, as far as the peers ran."""
    done = {name: each for name, each in ran.items() if each.ms["never"] and not each.failed}
    ours = [name for name in done if name.startswith("ours-padded")]
    for name in ours:
        report.goal(f"{name}: mismatches", done[name].mismatches, at_most=0)
    if not ours:
        return
    best = min(ours, key=lambda name: done[name].timing("never").median)
    never, warm = done[best].timing("never").median, done[best].total_s("warm")
    modes = [done[name] for name in ("compile", "reduce-overhead") if name in done]
    if modes:
        fastest = min(each.timing("never").median for each in modes)
        report.goal(
            f"never-seen p50, best torch.compile mode / {best}", fastest / never, at_least=3.0
        )
        report.goal(
            f"warm total, best mode / {best}",
            min(e.total_s("warm") for e in modes) / warm,
            at_least=2.0,
        )
    if stream == "llama" and "buckets" in done:
        report.goal(
            f"never-seen p50, {best} / buckets",
            never / done["buckets"].timing("never").median,
            at_most=0.6,
        )
        report.goal(
            f"warm total, {best} / buckets", warm / done["buckets"].total_s("warm"), at_most=0.6
        )
    if stream == "llama" and "buckets-compile" in done:
        other = done["buckets-compile"].timing("never").median
        report.goal(f"never-seen p50, {best} / buckets-compile", never / other, at_most=1.1)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_parser(__doc__, device="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--stream", choices=list(STREAMS), default=None, help="which stream (default: llama)"
    )
    parser.add_argument("--peers", default=None, help=f"of {','.join(PEERS)} (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="60 calls and 30 never seen instead of 150 and 60"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=float("inf"),
        help="seconds that a peer may take for a pass",
    )
    parser.add_argument("--unseen", type=int, default=None, help="how many sizes never seen")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs a stream (all of them, in small, for a smoke run)."""
    args = _arguments(argv)
    device = torch.device(args.device)
    tiny = args.smoke or device.type == "cpu"
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NotHere("needs a CUDA device")
    names = (args.peers or (SMOKE_PEERS if tiny else ",".join(PEERS))).split(",")
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise SystemExit(f"no peer called {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    streams = [args.stream] if args.stream else list(STREAMS) if args.smoke else ["llama"]
    report = Report(
        "padded_stream", device=args.device, part=args.stream or ("" if args.smoke else "llama")
    )
    count, unseen = (3, 2) if args.smoke else (60, 30) if args.quick else (150, 60)
    unseen = args.unseen or unseen
    torch._dynamo.config.recompile_limit = 64
    with torch.no_grad():
        for name in streams:
            _stream(report, name, names, device, tiny, count, unseen, args.seed, args.patience)
    report.note(
        f"{count} calls, the same shuffled, {unseen} never seen; first includes compiling and "
        "recording"
    )
    return report


def _stream(
    report: Report,
    name: str,
    peers: Sequence[str],
    device: torch.device,
    tiny: bool,
    count: int,
    unseen: int,
    seed: int,
    patience: float,
) -> None:
    stream = make(name, device, tiny=tiny)
    ran: dict[str, Ran] = {}
    for peer in peers:
        try:
            ran[peer] = Ran(PEERS[peer](stream), peer)
        except NotHere as reason:
            report.note(f"{peer} not run: {reason}")
    torch.manual_seed(seed)
    run(stream, ran, count, unseen, seed, show=not tiny, patience=patience)
    tell(report, name, ran)
    goals(report, name, ran)


if __name__ == "__main__":
    print(main().text())
