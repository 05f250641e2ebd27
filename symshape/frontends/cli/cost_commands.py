"""``symshape cost`` and ``symshape plan``: arguments, options and exit codes; the library does the
work.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from symshape.cost.cost import GROUPS, Cost
from symshape.cost.optimizers import OPTIMIZERS
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.units import shown
from symshape.errors import InputError, SymShapeError
from symshape.exploring.tables import Table
from symshape.exploring.terminal import terminal_table
from symshape.exploring.traffic import ATTRIBUTION
from symshape.frontends.cli.example_programs import traced_program
from symshape.frontends.cli.ranges import read_ranges
from symshape.frontends.cli.traffic import bundled_traffic, read_traffic
from symshape.planning.planner import plan as make_plan

_PROGRAM = (
    "gpt2 or llama (the demo's models), or MODULE:FACTORY, which answers (fn, args[, "
    "kwargs[, dynamic]])."
)
_USAGE = 2


def cost(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=_PROGRAM)],
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
    train: Annotated[
        str, typer.Option(metavar="OPTIMIZER", help=f"A step of training: {', '.join(OPTIMIZERS)}.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
) -> None:
    """Show operations, bytes and peak memory of a program as formulas.

    With --largest also the largest size within a budget.

    Example: symshape cost gpt2 --dim batch=2:64 --dim length=128
    """
    console = Console()
    try:
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
        if as_json:
            typer.echo(json.dumps(report.as_json(largest, answer), indent=1))
        else:
            report.show(console, by, limit)
            if answer is not None:
                console.print(Text(f"largest {largest} within {memory or flops}: {answer}", "bold"))
    except (SymShapeError, ValueError) as error:
        typer.echo(f"symshape cost: {error}", err=True)
        raise typer.Exit(_USAGE) from None


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
        others = {other: value for other, value in self.points[-1].items() if other != name}
        found = []
        if memory:
            found.append(self.peak.largest(name, bytes=memory, **others))
        if flops:
            found.append(self.cost.largest(name, flops=flops, **others))
        return min(found)

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
            console.print(Text(f"{name}: {formula}"))
        for note in self.cost.notes():
            console.print(Text(note, "dim"))

    def as_json(self, largest: str, answer: int | None) -> dict[str, Any]:
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
        return found


def plan(
    traffic: Annotated[
        Path | None,
        typer.Option(
            help="CSV with a header, or JSONL. Default: the bundled sample of Azure's trace."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            "-c",
            metavar="NAME=COLUMN",
            help="The column of the file that holds a size.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--fixed", metavar="NAME=SIZE", help="A size that is always the same."),
    ] = None,
    program: Annotated[
        str, typer.Option(metavar="PROGRAM", help=f"Whose formulas price a call: {_PROGRAM}")
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
    try:
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
    except (SymShapeError, ValueError, OSError) as error:
        typer.echo(f"symshape plan: {error}", err=True)
        raise typer.Exit(_USAGE) from None
    if as_json:
        typer.echo(found.to_json())
        return
    console.print(terminal_table(found.table()))
    caps = tuple(tuple(map(str, cap)) for cap in found.caps)
    console.print(
        terminal_table(Table("caps", found.symbols, caps, numbers=frozenset(found.symbols)))
    )
    if traffic is None:
        console.print(Text(f"traffic: {ATTRIBUTION}", "dim"))
