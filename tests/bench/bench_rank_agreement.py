"""Ranks that agree before they compile, simulated up to 4,096: traffic of the group's store, and
time to agree.

The scheme of :mod:`symshape.store.ranks` is flat: every rank writes what it has, the first reads
all, and every rank polls for the verdict, the entry and the end.  Beside it a tree: each rank reads
its ``fan`` children, tells its parent what they have in common and who is odd, and hands down what
its parent wrote for it.

Assumptions (flags change them): one server answers one request after the other (`TCPStore` has one
thread), 15 us each and 1 GB/s of payload; a round trip of 100 us; ranks arrive within 1 s of each
other, evenly; what a rank has is 2 kB, an entry 128 kB; a rank looks for a key after 1, 2, 4 ...
ms, at most 50 ms or 0.1 ms a rank apart, as ours does (``--late`` gives another bound).  The
tracing itself is not counted.  This is a model of the protocol, driven by events; no process group
is measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count

import attrs

from tests.bench.report import Report, bench_parser

SOON, LATE, LATE_A_RANK = 0.001, 0.05, 1e-4


@attrs.define
class Server:
    """A key-value store with one thread; times in seconds."""

    service: float
    bandwidth: float
    free: float = 0.0
    requests: int = 0
    sent: int = 0
    keys: dict[str, int] = attrs.field(factory=dict)

    def serve(self, now: float, payload: int) -> float:
        """When a request that came now is answered."""
        self.requests += 1
        self.sent += payload
        self.free = max(self.free, now) + self.service + payload / self.bandwidth
        return self.free


Rank = Iterator[tuple[str, str, int]]
"""Writes (``"set"``, key, bytes) and waits for keys (``"get"``, key, 0)."""


def flat_rank(rank: int, ranks: int, has: int, entry: int) -> Rank:
    """What one rank does today."""
    yield "set", f"has/{rank}", has
    if rank == 0:
        for other in range(ranks):
            yield "get", f"has/{other}", 0
        yield "set", "verdict", 200
    yield "get", "verdict", 0
    if rank == 0:
        yield "set", "entry", entry
    else:
        yield "get", "entry", 0
    yield "set", f"outcome/{rank}", 10
    if rank == 0:
        for other in range(ranks):
            yield "get", f"outcome/{other}", 0
        yield "set", "end", 20
    yield "get", "end", 0


def tree_rank(rank: int, ranks: int, has: int, entry: int, fan: int) -> Rank:
    """What one rank does in a tree: the children of rank r are r * fan + 1 up to r * fan + fan."""
    children = range(rank * fan + 1, min(rank * fan + fan + 1, ranks))
    for up, down, size in (("has", "verdict", 200), ("", "entry", entry), ("outcome", "end", 20)):
        if up:
            for child in children:
                yield "get", f"{up}/{child}", 0
            if rank:
                yield "set", f"{up}/{rank}", has if up == "has" else 10
        if rank:
            yield "get", f"{down}/{(rank - 1) // fan}", 0
        if children:
            yield "set", f"{down}/{rank}", size


def simulate(
    programs: Sequence[Rank], server: Server, trip: float, spread: float, late: float | None = None
) -> float:
    """Runs all ranks, which look for a key at most ``late`` seconds apart.

    Answers how long after the last came all were done, in seconds.
    """
    order = count()
    most = max(LATE, LATE_A_RANK * len(programs)) if late is None else late
    events: list[tuple[float, int, int, str, str, int, float]] = []

    def then(at: float, rank: int) -> float:
        step = next(programs[rank], None)
        if step is not None:
            heapq.heappush(events, (at + trip / 2, next(order), rank, *step, SOON))
        return at

    for rank in range(len(programs)):
        then(spread * rank / max(1, len(programs) - 1), rank)
    last = 0.0
    while events:
        now, _, rank, kind, key, size, pause = heapq.heappop(events)
        if kind == "set":
            server.keys[key] = size
            last = max(last, then(server.serve(now, size) + trip / 2, rank))
        elif key not in server.keys:
            again = server.serve(now, 0) + trip / 2 + pause + trip / 2
            heapq.heappush(
                events, (again, next(order), rank, kind, key, size, min(2 * pause, most))
            )
        else:
            server.serve(now, 0)  # the look that finds it, then the reading
            last = max(last, then(server.serve(now + trip, server.keys[key]) + trip / 2, rank))
    return last - spread


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the simulation."""
    parser = bench_parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument(
        "--fan", type=int, nargs="+", default=[8, 16, 64], help="children of a rank in a tree"
    )
    parser.add_argument("--service-us", type=float, default=15.0, help="of the server, a request")
    parser.add_argument("--trip-us", type=float, default=100.0, help="there and back")
    parser.add_argument(
        "--spread", type=float, default=1.0, help="seconds between the first rank and the last"
    )
    parser.add_argument("--has", type=int, default=2_000, help="bytes that a rank has to say")
    parser.add_argument("--entry", type=int, default=128_000, help="bytes of an entry")
    parser.add_argument("--late", type=float, help="seconds, at most, between two looks for a key")
    args = parser.parse_args(argv)
    report = Report("rank_agreement", device=args.device)
    columns = (
        "ranks",
        "scheme",
        "requests",
        "requests a rank",
        "MB",
        "most of one rank's requests",
        "seconds",
    )
    table = report.table(
        "agreeing, simulated: requests and bytes at the server, seconds after the last came",
        *columns,
    )
    for ranks in [16] if args.smoke else args.ranks:
        schemes = {"flat": lambda rank, n=ranks: flat_rank(rank, n, args.has, args.entry)}
        for fan in args.fan[:1] if args.smoke else args.fan:
            schemes[f"tree of {fan}"] = lambda rank, n=ranks, f=fan: tree_rank(
                rank, n, args.has, args.entry, f
            )
        for name, program in schemes.items():
            server = Server(args.service_us / 1e6, 1e9)
            steps = [sum(1 for _ in program(rank)) for rank in range(ranks)]
            seconds = simulate(
                [program(rank) for rank in range(ranks)],
                server,
                args.trip_us / 1e6,
                args.spread,
                args.late,
            )
            table.row(
                ranks,
                name,
                server.requests,
                server.requests / ranks,
                server.sent / 1e6,
                max(steps),
                seconds,
            )
    return report
