"""Terms: what one costs to make and to keep, against SymPy's expressions and PyTorch's SymInts.

The same formulas are made by the same operators, once about symbols that are new each time, so that
nothing can be looked up, and once about the same symbols again and again, which is what a trace
mostly does. Memory is what Python's allocator holds while many formulas about different symbols are
alive, divided by their number.
"""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time_ns
from typing import Any

import attrs
import sympy
from torch.utils._sympy import functions as torch_functions

from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.term import Term, postorder
from tests.bench.peers import Torch, calls
from tests.bench.report import Report, bench_parser
from tests.bench.timing import Timing, measure_together

FORMULAS = (
    "s + t",
    "s * t",
    "2*s + 3*t - 5",
    "(s + 7) // 8 * 8",
    "(s + 2*1 - 3) // 2 + 1",
    "s*t % 8",
    "max(s, t)",
    "s*t // (s + 1)",
    "s + t > 2",
    "s*t == 0",
    "s <= 2*t",
)

OURS: dict[str, Any] = {
    "__builtins__": {},
    "eq": boolean.eq,
    "lte": boolean.le,
    "gt": boolean.gt,
    "floordiv": division.floordiv,
    "mod": division.mod,
    "maximum": extremes.maximum,
}
SYMPY: dict[str, Any] = {
    "__builtins__": {},
    "eq": sympy.Eq,
    "lte": sympy.Le,
    "gt": sympy.Gt,
    "floordiv": torch_functions.FloorDiv,
    "mod": torch_functions.Mod,
    "maximum": torch_functions.Max,
}


@attrs.frozen
class Maker:
    """One kind of formula: its operators, and how it makes a symbol."""

    name: str
    operators: dict[str, Any]
    symbol: Callable[[str], Any]


def makers() -> list[Maker]:
    """Ours, SymPy with the functions that PyTorch adds, and PyTorch's SymInts over them."""
    torch = Torch(backed=True)
    env = torch.environment()
    counter = itertools.count(2)
    return [
        Maker("guards", OURS, arithmetic.symbol),
        Maker("SymPy", SYMPY, lambda name: sympy.Symbol(name, integer=True, positive=True)),
        Maker(
            "torch.SymInt",
            torch.operators,
            lambda name: torch.symbol(env, name, 2 + next(counter) % 50),
        ),
    ]


def fresh(maker: Maker, code: Any, prefix: str, count: int) -> Callable[[], Any]:
    """A call that makes the formula about the next pair of symbols, all of which exist before."""
    pairs = itertools.cycle(
        [(maker.symbol(f"{prefix}s{i}"), maker.symbol(f"{prefix}t{i}")) for i in range(count)]
    )

    def make() -> Any:
        s, t = next(pairs)
        return eval(code, maker.operators, {"s": s, "t": t})

    return make


def again(maker: Maker, code: Any) -> Callable[[], Any]:
    """A call that makes the formula about the same symbols, while an earlier result is alive."""
    known = {"s": maker.symbol("again_s"), "t": maker.symbol("again_t")}
    kept = eval(code, maker.operators, known)

    def make(_kept: Any = kept) -> Any:
        return eval(code, maker.operators, known)

    return make


def held(maker: Maker, codes: Sequence[Any], count: int) -> float:
    """Bytes a formula, symbols included, while all are alive."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    alive = []
    for i in range(count):
        known = {"s": maker.symbol(f"held_s{i}"), "t": maker.symbol(f"held_t{i}")}
        alive.append([eval(code, maker.operators, known) for code in codes])
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / (count * len(codes))


def parts(formulas: Sequence[Term]) -> int:
    """The distinct terms in some formulas."""
    return len({part for formula in formulas for part in postorder(formula)})


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures in turn."""
    args = bench_parser(__doc__).parse_args(argv)
    report = Report("terms", device="cpu")
    codes = {text: compile(calls(text), "<formula>", "eval") for text in FORMULAS}
    everybody = makers()
    count = 20 if args.smoke else 300
    new: dict[str, list[float]] = {maker.name: [] for maker in everybody}
    table = report.table("making a formula, µs (median)", "formula", *_columns(everybody))
    for index, (text, code) in enumerate(codes.items()):
        calls_new = {maker.name: fresh(maker, code, f"f{index}_", count) for maker in everybody}
        times_new = measure_once(calls_new, count)
        times_again = measure_together(
            {maker.name: again(maker, code) for maker in everybody},
            samples=5 if args.smoke else 100,
            sample_us=100.0,
        )
        for maker in everybody:
            new[maker.name].append(times_new[maker.name].median)
        table.row(
            text,
            *[
                times[maker.name].median
                for maker in everybody
                for times in (times_new, times_again)
            ],
        )
    kept = {
        maker.name: held(maker, list(codes.values()), 20 if args.smoke else 300)
        for maker in everybody
    }
    s, t = arithmetic.symbol("s"), arithmetic.symbol("t")
    per = parts([eval(code, OURS, {"s": s, "t": t}) for code in codes.values()]) / len(codes)
    memory = report.table("memory, bytes", "who", "a formula", "a distinct term")
    for maker in everybody:
        memory.row(
            maker.name, kept[maker.name], kept[maker.name] / per if maker.name == "guards" else None
        )
    for peer in everybody[1:]:
        ratios = [theirs / ours for theirs, ours in zip(new[peer.name], new["guards"], strict=True)]
        report.goal(
            f"{peer.name} / guards, new symbols, median formula", median(ratios), at_least=10.0
        )
        report.goal(f"{peer.name} / guards, new symbols, worst formula", min(ratios), at_least=2.0)
        report.goal(
            f"{peer.name} / guards, memory a formula",
            kept[peer.name] / kept["guards"],
            at_least=2.0,
        )
    report.goal("bytes a distinct term", kept["guards"] / per, at_most=1024)
    return report


def _columns(everybody: Sequence[Maker]) -> list[str]:
    return [f"{maker.name}, {kind}" for maker in everybody for kind in ("new", "again")]


def measure_once(making: dict[str, Callable[[], Any]], count: int) -> dict[str, Timing]:
    """Times each call of each maker alone, in turn: no call comes twice with the same symbols."""
    taken: dict[str, list[float]] = {name: [] for name in making}
    gc.collect()
    gc.disable()
    try:
        for _ in range(count):
            for name, make in making.items():
                start = thread_time_ns()
                make()
                taken[name].append(float(thread_time_ns() - start))
    finally:
        gc.enable()
    return {name: Timing.of(values) for name, values in taken.items()}
