"""``symshape cost``, ``symshape plan`` and ``symshape fits``: arguments, options and exit codes;
the library does the work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from symshape.cost.cost import GROUPS, Cost
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.solving import limiting
from symshape.cost.units import shown
from symshape.errors import InputError
from symshape.exploring.tables import Table
from symshape.exploring.terminal import terminal_table, terminal_text
from symshape.exploring.traffic import ATTRIBUTION
from symshape.fitting.fits import Fits, budget_of, fits_of
from symshape.frontends.cli.arguments import (
    Column,
    Dynamic,
    Fixed,
    Program,
    Train,
    bundled_traffic,
    json_instead_of,
    read_dynamic,
    read_ranges,
    read_traffic,
    usage_errors,
)
from symshape.frontends.cli.example_programs import traced_program
from symshape.planning.bucket_plan import BucketPlan
from symshape.planning.planner import plan as make_plan


def cost(
    program: Program,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            "-d",
            metavar="NAME=LOW:HIGH",
            help="Sizes to show values at. Default: the example's.",
        ),
    ] = None,
    by: Annotated[str, typer.Option(help=f"Split by {', '.join(GROUPS)}.")] = "op",
    limit: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 12,
    largest: Annotated[
        str, typer.Option(metavar="NAME", help="Solve for the largest such size.")
    ] = "",
    memory: Annotated[
        str, typer.Option(help="Budget for the peak memory, such as '80 GB'; with --largest.")
    ] = "",
    flops: Annotated[
        str, typer.Option(help="Budget for the operations, such as '2 T'; with --largest.")
    ] = "",
    schedule: Annotated[
        str,
        typer.Option(
            help="The holder of tensors: graph or eager. Default: graph; eager with --train."
        ),
    ] = "",
    train: Train = "",
    as_json: Annotated[bool, json_instead_of("tables")] = False,
) -> None:
    """Show operations, bytes and peak memory of a program as formulas.

    With --largest also the largest size within a budget.

    Example: symshape cost gpt2 --dim batch=2:64 --dim length=128
    """
    console = Console()
    with usage_errors("cost"):
        ranges = read_ranges(dim or [])
        if bool(largest) != bool(memory or flops):
            raise InputError(
                "--largest NAME needs a budget, --memory or --flops, and the other way round"
            )
        with console.status("tracing", spinner="dots"):
            traced = traced_program(program, train=train)
            found, peak = (
                traced.cost(),
                traced.peak_memory(schedule=schedule or ("eager" if train else "graph")),
            )
        report = _Report(found, peak, ranges)
        answer = report.solve(largest, memory, flops) if largest else None
        limits = () if answer is None else report.limits(largest, answer)
        if as_json:
            typer.echo(json.dumps(report.as_json(largest, answer, limits), indent=1))
        else:
            report.show(console, by, limit)
            if answer is not None:
                console.print(
                    terminal_text(f"largest {largest} within {memory or flops}: {answer}", "bold"),
                    soft_wrap=True,
                )
            if limits:
                many = "guards bound" if len(limits) > 1 else "guard bounds"
                console.print(
                    terminal_text(f"not the budget, but the {many} {largest}: {', '.join(limits)}"),
                    soft_wrap=True,
                )


class _Report:
    """The formulas of a program, and the points at which they are shown: the ends of the given
    ranges.
    """

    def __init__(
        self, cost: Cost, peak: PeakMemory, ranges: dict[str, tuple[int | None, int | None]]
    ) -> None:
        self.cost = cost
        self.peak = peak
        for name, (low, high) in ranges.items():
            cost.domain.require(name)
            if low is None or high is None:
                raise InputError(f"--dim {name}=… needs both bounds, or one value")
        known = {name: (hint, hint) for name, hint in cost.hints.items()}
        known |= {
            name: (low, high)
            for name, (low, high) in ranges.items()
            if low is not None and high is not None
        }
        missing = [name for name in cost.domain.symbols if name not in known]
        if missing:
            raise InputError(f"a value for {missing[0]} is needed: --dim {missing[0]}=VALUE")
        ends = [{name: known[name][end] for name in cost.domain.symbols} for end in (0, 1)]
        self.given = set(ranges)
        self.points = ends if ends[0] != ends[1] else ends[:1]

    def solve(self, name: str, memory: str, flops: str) -> int:
        """Return the largest size within both budgets, with the other sizes at the upper ends of
        their ranges.
        """
        others = self._others(name)
        found = []
        if memory:
            found.append(self.peak.largest(name, bytes=memory, **others))
        if flops:
            found.append(self.cost.largest(name, flops=flops, **others))
        return min(found)

    def _others(self, name: str) -> dict[str, int]:
        return {other: value for other, value in self.points[-1].items() if other != name}

    def limits(self, name: str, answer: int) -> tuple[str, ...]:
        """Return the guards that allow no size above the answer, so that the budget is not the
        limit.
        """
        return limiting(self.cost.domain, name, answer, self._others(name))

    def show(self, console: Console, by: str, limit: int) -> None:
        """Print tables and sentences."""
        console.print(terminal_table(self.cost.table(by, limit=limit, **self.points[-1])))
        rows = []
        for point in self.points:
            at, memory = self.cost.at(**point), self.peak.at(**point)
            sizes = ", ".join(f"{name}={value}" for name, value in point.items()) or "always"
            amounts = (
                shown(at.flops),
                shown(at.bytes, "B"),
                f"{at.intensity:.3g}",
                shown(memory.total, "B"),
            )
            rows.append((sizes, *amounts, memory.place))
        columns = ("at", "FLOP", "moved", "FLOP a byte", "peak memory", "peak while this runs")
        console.print(
            terminal_table(Table("in all", columns, tuple(rows), numbers=frozenset(columns[1:5])))
        )
        for name, formula in (
            ("FLOPs", self.cost.flops),
            ("bytes", self.cost.bytes),
            ("peak", self.peak.total),
        ):
            console.print(terminal_text(f"{name}: {formula}"))
        for note in self.cost.notes():
            console.print(terminal_text(note, "dim"))

    def as_json(self, largest: str, answer: int | None, limits: Sequence[str]) -> dict[str, Any]:
        """Return the report as plain data."""
        points = []
        for point in self.points:
            at, memory = self.cost.at(**point), self.peak.at(**point)
            values = {
                "flops": at.flops,
                "read": at.read,
                "written": at.written,
                "kernels": at.kernels,
            }
            points.append(
                {"sizes": point, **values, "peak_memory": memory.total, "peak_at": memory.place}
            )
        found: dict[str, Any] = {
            "program": self.cost.domain.name,
            "formulas": {
                "flops": str(self.cost.flops),
                "bytes": str(self.cost.bytes),
                "peak_memory": str(self.peak.total),
            },
            "points": points,
            "unpriced": self.cost.unpriced,
        }
        if answer is not None:
            found["largest"] = {largest: answer}
            found["limits"] = list(limits)
        return found


def plan(
    traffic: Annotated[
        Path | None,
        typer.Option(
            help="CSV with a header, or JSONL. Default: the bundled sample of Azure's trace."
        ),
    ] = None,
    column: Column = None,
    fixed: Fixed = None,
    program: Annotated[
        str,
        typer.Option(metavar="PROGRAM", help="Whose formulas price a call, as for symshape cost."),
    ] = "",
    max_graphs: Annotated[int | None, typer.Option(help="At most so many graphs.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="No graph above this peak memory, such as '80 GB'.")
    ] = None,
    graph_memory: Annotated[
        str | None,
        typer.Option(help="No more graphs than fit into this memory together, such as '2 GB'."),
    ] = None,
    capture_seconds: Annotated[
        float | None, typer.Option(help="No more graphs than are captured in this time.")
    ] = None,
    objective: Annotated[str, typer.Option(help="cost or latency_p99.")] = "cost",
    price: Annotated[str, typer.Option(help="flops or bytes of the program.")] = "flops",
    output: Annotated[Path | None, typer.Option(help="Write the plan here, as JSON.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON instead of a table.")
    ] = False,
) -> None:
    """Choose the sizes to compile and capture for recorded traffic.

    Example: symshape plan --traffic trace.csv -c length=tokens --max-graphs 16
    """
    console = Console()
    with usage_errors("plan"):
        seen = read_traffic(traffic, column or [], fixed or []) or bundled_traffic(fixed or [])
        with console.status("planning", spinner="dots"):
            traced = traced_program(program) if program else None
            found = make_plan(
                traced,
                seen,
                max_graphs=max_graphs,
                memory=memory,
                graph_memory=graph_memory,
                capture_seconds=capture_seconds,
                objective=objective,
                price=price,
            )
        if output is not None:
            output.write_text(found.to_json(), encoding="utf-8")
    if as_json:
        typer.echo(found.to_json())
        return
    show_plan(console, found)
    if traffic is None:
        console.print(terminal_text(f"traffic: {ATTRIBUTION}", "dim"))


def show_plan(console: Console, found: BucketPlan, limit: int | None = None) -> None:
    """Print the tables of a plan: its cost beside other lists of caps, and its caps."""
    caps = tuple(tuple(map(str, cap)) for cap in found.caps)
    for each in (
        found.table(),
        Table("caps", found.symbols, caps, numbers=frozenset(found.symbols)),
    ):
        console.print(terminal_table(each, limit=limit))


def fits_command(
    program: Program,
    memory: Annotated[
        str,
        typer.Option(
            "--memory", "-m", help="The budget, such as 80GB. Default: the current CUDA device's."
        ),
    ] = "",
    train: Train = "",
    dynamic: Dynamic = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at", metavar="NAME=SIZE", help="A size at which the others are solved for."
        ),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Print pairs of sizes that fit, too.")
    ] = False,
    as_json: Annotated[bool, json_instead_of("a sentence")] = False,
) -> None:
    """Say which sizes of a program fit into the memory of a device.

    Exit code: 0 where some size fits, 1 where not even the smallest does.

    Example: symshape fits my_model:example --memory 80GB --train adamw
    """
    console = Console(soft_wrap=True)
    with usage_errors("fits"):
        budget = budget_of(memory or None)
        sizes = {name: _one(name, each) for name, each in read_ranges(at or []).items()}
        with console.status("tracing", spinner="dots"):
            traced = traced_program(program, read_dynamic(dynamic or []), train)
            found = fits_of(traced, budget, train=train, at=sizes)
            fitting = found.fits or bool(found.sizes)
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=1, ensure_ascii=False))
    else:
        console.print(terminal_text(str(found), "green" if fitting else "red"))
        if table:
            console.print(terminal_table(found.table()))
    raise typer.Exit(0 if fitting else 1)


def _one(name: str, bounds: tuple[int | None, int | None]) -> int:
    low, high = bounds
    if low is None or low != high:
        raise InputError(f"--at {name} needs one size, such as --at {name}=1024")
    return low


def _plain(found: Fits) -> dict[str, Any]:
    """Return an answer as plain data."""
    return {
        "program": found.name,
        "budget": found.budget,
        "train": found.train,
        "formula": str(found.peak.total),
        "in_words": found.formula,
        "largest": found.sizes,
        "pairs": list(found.pairs),
        "answer": found.answer,
        "limits": list(found.limits),
        "unknown": list(found.unknown),
    }
