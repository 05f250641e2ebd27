"""Warm calls with containers and objects as arguments and results: dictionaries, dataclasses, keys
and values in lists.

Against eager, in turn, both with arguments that are made anew. The programs do next to nothing, so
that what is left is what a call costs: the floor is the first row's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import symshape
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together

Tensor = torch.Tensor


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclasses.dataclass
class Batch:
    x: Tensor
    y: Tensor


@dataclasses.dataclass(frozen=True)
class Config:
    scale: int = 2
    name: str = "n"


@dataclasses.dataclass
class Whole:
    batch: Batch
    config: Config
    extra: dict[str, Tensor]


class Held:
    """Keys and values of four layers."""

    def __init__(self) -> None:
        self.k = [_t() for _ in range(4)]
        self.v = [_t() for _ in range(4)]


def _t() -> Tensor:
    return torch.ones(3, 4)


def _written(batch: dict[str, Tensor]) -> Tensor:
    batch["z"] = batch["x"] + batch["y"]
    return batch["z"]


def _decoded(held: Held) -> Tensor:
    for i in range(4):
        held.k[i] = held.k[i] + held.v[i]
    return held.k[0]


Row = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
_PAIRS = 12
ROWS: dict[str, Row] = {
    "two tensors": (lambda x, y: x + y, lambda: (_t(), _t())),
    "one tensor twice": (lambda x, y: x + y, lambda: (x := _t(), x)),
    "a dictionary of two": (lambda b: b["x"] + b["y"], lambda: ({"x": _t(), "y": _t()},)),
    "a named tuple of two, and one back": (
        lambda b: Pair(b.x + b.y, b.x),
        lambda: (Pair(_t(), _t()),),
    ),
    "a dataclass of two": (lambda b: b.x + b.y, lambda: (Batch(_t(), _t()),)),
    "a dataclass of two, and one back": (
        lambda b: Batch(b.x + b.y, b.x),
        lambda: (Batch(_t(), _t()),),
    ),
    "a tensor and a configuration": (lambda x, c: x * c.scale, lambda: (_t(), Config())),
    "a tensor and a function": (lambda x, f: f(x), lambda: (_t(), torch.relu)),
    "a dataclass of dataclasses": (
        lambda w: w.batch.x + w.batch.y * w.config.scale + w.extra["z"],
        lambda: (Whole(Batch(_t(), _t()), Config(), {"z": _t()}),),
    ),
    "a dictionary that is written": (_written, lambda: ({"x": _t(), "y": _t()},)),
    "an object of lists that is written": (_decoded, lambda: (Held(),)),
    f"{_PAIRS} pairs of keys and values": (
        lambda pairs: [(k + 1, v) for k, v in pairs],
        lambda: ([(_t(), _t()) for _ in range(_PAIRS)],),
    ),
}


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures each row, and holds its excess over eager to that of two plain tensors."""
    args = bench_parser(__doc__).parse_args(argv)
    torch.set_num_threads(1)
    report = Report("arguments")
    table = report.table("warm call, µs, medians", "arguments", "eager", "ours", "ours - eager")
    most = 0.0
    for name, (fn, make) in ROWS.items():
        compiled = symshape.compile(fn, options={"plain_calls": False})
        for _ in range(4):
            compiled(*make())
        calls = {"eager": lambda f=fn, m=make: f(*m()), "ours": lambda f=compiled, m=make: f(*m())}
        times = measure_together(calls, samples=5 if args.smoke else 500, sample_us=1.0)
        eager, ours = times["eager"].median, times["ours"].median
        table.row(name, eager, ours, ours - eager)
        most = max(most, ours - eager)
        if compiled.stats().fallbacks:
            raise RuntimeError(f"{name}: {compiled.explain_fallback()}")
    if not args.smoke:
        report.goal("the most that a warm call takes beside eager, µs", most, at_most=20.0)
    return report
