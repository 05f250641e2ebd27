"""The dispatch tree of guards against a scan of the same compiled checks in order of priority, in
one run.

For families of guard sets that entries of a cache form (static sizes, buckets, caps, multiples,
sums, mixtures): the cost of a look-up that hits, at growing numbers of entries, and the time to
insert 1,000 entries one by one.  Both answer the same entry for every value looked up, which is
asserted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from guards.dispatch.tree import Tree
from guards.sets.codegen import compile_check
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together
from tests.guards.making import Family, families

Find = Callable[[tuple[int, ...]], Any]


def scanner(family: Family, count: int) -> Find:
    """A scan over compiled checks, the first that holds wins: what a list of guarded entries
    does.
    """
    pairs = tuple((compile_check(family.guard_set(i), family.slots).check, i) for i in range(count))

    def find(values: tuple[int, ...]) -> int | None:
        for check, index in pairs:
            if check(values):
                return index
        return None

    return find


def planted(family: Family, count: int) -> tuple[Tree[int], float]:
    """A tree of ``count`` entries inserted one by one, and the seconds of the insertions alone."""
    tree: Tree[int] = Tree(family.slots)
    sets = [family.guard_set(i) for i in range(count)]
    start = perf_counter()
    for index, guards in enumerate(sets):
        tree.insert(guards, index)
    return tree, perf_counter() - start


def through(find: Find, values: Sequence[tuple[int, ...]]) -> Callable[[], None]:
    """A call that looks up all values."""

    def run() -> None:
        for each in values:
            find(each)

    return run


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures, and asserts that tree and scan agree."""
    args = bench_parser(__doc__).parse_args(argv)
    rng = random.Random(args.seed)
    report = Report("dispatch_tree", device=args.device)
    counts = (1, 8, 64) if args.smoke else (1, 8, 64, 256, 1000)
    most, batch, samples = counts[-1], 64, 10 if args.smoke else 100
    columns = [f"tree µs at {n}" for n in counts]
    table = report.table(
        "look-up that hits", "family", *columns, f"scan µs at {counts[-2]}", f"scan µs at {most}"
    )
    builds = report.table(
        "building, entry by entry", "family", f"s for {most}", "worst insertion ms"
    )
    worst_growth = worst_build = worst_lookup = 0.0
    gains = []
    for family in families():
        calls: dict[str, Callable[[], None]] = {}
        for count in counts:
            tree, seconds = planted(family, count)
            scan = scanner(family, count)
            values = [family.values(rng.randrange(count)) for _ in range(batch)]
            for each in values:
                assert tree.lookup(each) == scan(each) is not None, (family.name, each)
            calls[f"tree {count}"] = through(tree.lookup, values)
            if count >= counts[-2]:
                calls[f"scan {count}"] = through(scan, values)
        times = {
            name: t.median / batch for name, t in measure_together(calls, samples=samples).items()
        }
        tree_times = [times[f"tree {count}"] for count in counts]
        table.row(family.name, *tree_times, times[f"scan {counts[-2]}"], times[f"scan {most}"])
        builds.row(family.name, seconds, worst_insertion(family, most) * 1e3)
        worst_growth = max(worst_growth, tree_times[-1] / tree_times[1])
        worst_lookup = max(worst_lookup, *tree_times)
        worst_build = max(worst_build, seconds)
        gains.append(times[f"scan {most}"] / tree_times[-1])
    report.goal(f"building {most} entries, slowest family, s", worst_build, at_most=2.0)
    report.goal("look-up, slowest family and count, µs", worst_lookup, at_most=2.0)
    report.goal(
        f"look-up at {most} entries over that at 8, slowest family (log n: 7)",
        worst_growth,
        at_most=7.0,
    )
    report.goal(
        f"scan over tree at {most} entries, worst family",
        min(gains),
        at_least=5.0 if most > 64 else 1.0,
    )
    report.note("times include the loop over 64 different values, about 0.02 µs a look-up")
    return report


def worst_insertion(family: Family, count: int) -> float:
    """The longest single insertion, in seconds (some insertions make the tree anew)."""
    tree: Tree[int] = Tree(family.slots)
    worst = 0.0
    for index in range(count):
        guards = family.guard_set(index)
        start = perf_counter()
        tree.insert(guards, index)
        worst = max(worst, perf_counter() - start)
    return worst
