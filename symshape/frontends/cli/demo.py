"""The demo: two models are traced and shown, then serve recorded traffic by symshape.compile and
torch.compile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import torch
import torch._dynamo as torch_dynamo
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from symshape import events
from symshape.exploring.metering import (
    Arguments,
    Lane,
    Meter,
    MeteredRunner,
    Summary,
    closing,
    run_stream,
)
from symshape.exploring.tables import (
    Table,
    inputs_table,
    outputs_table,
    short_guards_table,
    symbols_table,
)
from symshape.exploring.terminal import terminal_table
from symshape.exploring.traffic import ATTRIBUTION, batches, bundled_requests
from symshape.frontends import compile as frontend
from symshape.frontends.cli.doctor import versions_table
from symshape.frontends.cli.example_programs import (
    MODELS,
    POSITIONS,
    find_model,
    make_inputs,
    make_model,
)
from symshape.frontends.trace import trace
from symshape.options import Options
from symshape.runtime.runners.choice import RunnerName


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of the demo.

    Attributes:
        models: names from ``models.MODELS``.
        requests: the number of requests from the bundled trace.
        window_s: the time in seconds within which requests form a batch.
        max_batch: the largest batch.
        device: the device of the models.
        seed: the seed of weights and tokens.
    """

    models: tuple[str, ...] = tuple(MODELS)
    requests: int = 300
    window_s: float = 0.25
    max_batch: int = 8
    device: torch.device = attrs.field(factory=lambda: torch.device("cpu"))
    seed: int = 0


def run_demo(console: Console, settings: Settings) -> int:
    """Run the demo; return how many of symshape's results differ from eager's."""
    titles = {name: find_model(name)[0] for name in settings.models}
    with _one_thread(settings.device):
        return _run(console, settings, titles)


def _run(console: Console, settings: Settings, titles: Mapping[str, str]) -> int:
    start = time.perf_counter()
    console.print(terminal_table(versions_table(settings.device)))
    calls, stream_text = _stream(settings)
    mismatches = 0
    for name, shown in titles.items():
        console.rule(f"[bold]{shown} transformers model[/]", align="left")
        model = make_model(name, settings.device, settings.seed)
        with console.status(f"tracing the {shown} model"), torch.no_grad():
            _show_trace(console, model, calls)
        console.print(Text(f"Streaming {stream_text}; twice."))
        lanes = _lanes(model)
        with closing(lanes), _progress(console, shown, 2 * len(calls)) as progress, _quiet_dynamo():
            run_stream(model, lanes, calls, tick=partial(progress.advance, progress.task_ids[0]))
        summaries = [Summary.of(lane, len(calls)) for lane in lanes]
        console.print(
            terminal_table(comparison(f"{shown} model: {len(calls)} calls, twice", summaries))
        )
        _show_notes(console, lanes)
        ours = [
            each
            for lane, each in zip(lanes, summaries, strict=True)
            if isinstance(lane, SymShapeLane)
        ]
        mismatches += sum(each.mismatches for each in ours)
    colour = "red" if mismatches else "green"
    verdict = (
        "every result of symshape equals eager's"
        if not mismatches
        else f"{mismatches} results differ from eager's"
    )
    console.print(Text(f"{verdict} ({time.perf_counter() - start:.0f} s in all)", f"bold {colour}"))
    return mismatches


def _stream(settings: Settings) -> tuple[list[Arguments], str]:
    """Return the calls, and a description of them."""
    requests = bundled_requests(settings.requests)
    found = batches(
        requests, window_s=settings.window_s, max_batch=settings.max_batch, longest=POSITIONS
    )
    generator = torch.Generator().manual_seed(settings.seed)
    calls: list[Arguments] = [
        make_inputs(batch, generator, settings.device).arguments for batch in found
    ]
    sizes = {(batch.size, batch.longest) for batch in found}
    minutes = requests[-1].arrival_s / 60
    words = (
        f"{len(requests)} requests in {minutes:.1f} min of the {ATTRIBUTION}; "
        f"within {settings.window_s * 1e3:.0f} ms = one batch, lengths scaled to {POSITIONS} "
        "tokens: "
        f"{len(calls)} calls of {len(sizes)} different sizes"
    )
    return calls, words


def _show_trace(console: Console, model: torch.nn.Module, calls: Sequence[Arguments]) -> None:
    """Trace one call with batch and length as symbols, and print the program."""
    example = max(calls[:8], key=lambda arguments: arguments["input_ids"].numel())
    ids, mask = example["input_ids"], example["attention_mask"]
    sizes_of = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
    traced = trace(model, input_ids=ids, attention_mask=mask, dynamic=sizes_of)
    program = traced.program
    sizes = " x ".join(map(str, example["input_ids"].shape))
    words = (
        f"One call of {sizes} tokens, traced in {program.milliseconds:.0f} ms with batch and "
        "length "
        f"as symbols: {len(traced.graph.nodes)} ops, {len(traced.guards)} guards."
    )
    console.print(Text(words))
    for table in (
        symbols_table(program),
        inputs_table(program),
        short_guards_table(program),
        outputs_table(program),
    ):
        console.print(terminal_table(table, limit=12))


def _lanes(model: torch.nn.Module) -> list[Lane]:
    lanes: list[Lane] = [SymShapeLane(model, "eager"), DynamoLane(model)]
    if next(model.parameters()).device.type == "cuda":
        lanes.append(SymShapeLane(model, "cudagraph"))
    return lanes


def comparison(title: str, summaries: Sequence[Summary]) -> Table:
    """Return a table that compares the lanes."""
    rows = [
        ("graphs compiled", *(str(each.compiles) for each in summaries)),
        ("seconds in calls that compiled", *(f"{each.compiling_s:.2f}" for each in summaries)),
        ("fallbacks to eager", *(str(each.fallbacks) for each in summaries)),
        ("dispatch of new sizes, µs a call", *(_figure(each.new_us) for each in summaries)),
        ("dispatch of known sizes, µs a call", *(_figure(each.seen_us) for each in summaries)),
        ("first pass, s", *(f"{each.first_s:.2f}" for each in summaries)),
        ("second pass, s", *(f"{each.again_s:.2f}" for each in summaries)),
        ("results that differ from eager's", *(str(each.mismatches) for each in summaries)),
    ]
    if any(each.problem for each in summaries):
        rows.append(("the first that differs", *(each.problem for each in summaries)))
    names = tuple(each.name for each in summaries)
    return Table(title, ("", *names), tuple(rows), numbers=frozenset(names))


NOTES = (
    "Dispatch is the host's time of a call outside the compiled graph: the median over the stream, "
    "without the calls "
    "that compiled. It is measured in the same way for all. Both run their graph op by op "
    '(backend="eager", runner="eager"); Dynamo\'s is one of torch functions, symshape\'s one of '
    "ATen ops. A fallback is a call that no compiled graph served."
)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _show_notes(console: Console, lanes: Sequence[Lane]) -> None:
    """Print what the figures mean, the cache's fallbacks and its last miss."""
    console.print(Text(NOTES, "dim"))
    ours = [lane for lane in lanes if isinstance(lane, SymShapeLane)]
    for lane in ours:
        graphs = lane.compiled.stats().cuda_graphs
        if graphs:
            console.print(Text(f"{lane.name}: {graphs} CUDA graphs, one for each size that came"))
        for reason in dict.fromkeys(event.reason for event in lane.fallbacks):
            console.print(Text(f"{lane.name} fell back to eager: {reason}"))
    miss = Text(ours[0].compiled.explain_miss())
    console.print(Panel(miss, title="why symshape traced the last time", title_align="left"))


def _progress(console: Console, name: str, total: int) -> Progress:
    progress = Progress(
        TextColumn("streaming"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    progress.add_task(name, total=total)
    return progress


@contextmanager
def _one_thread(device: torch.device) -> Iterator[None]:
    """Run with one CPU thread: on a busy machine, small models would mostly measure threads that
    wait.
    """
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet_dynamo() -> Iterator[None]:
    """Silence Dynamo's warnings (the recompile limit), which would break the progress bar; the
    table counts these.
    """
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


# -- The two ways of compiling that the demo compares, as metered lanes.
class DynamoLane(Lane):
    """The lane of ``torch.compile``, with a backend that runs Dynamo's graph directly, like
    ``eager``, but metered.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        meter = Meter()

        def eager_metered(
            gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
        ) -> Callable[..., Any]:
            meter.compiles += 1
            return meter.metered(gm.forward)

        torch_dynamo.reset()
        super().__init__("torch.compile", torch.compile(model, backend=eager_metered), meter)

    def close(self) -> None:
        """Forget Dynamo's compiled programs."""
        torch_dynamo.reset()


class SymShapeLane(Lane):
    """The lane of ``symshape.compile``."""

    def __init__(self, model: torch.nn.Module, runner: RunnerName) -> None:
        options = Options(max_cuda_graphs=1024)
        compiled: frontend.Compiled = frontend.compile(model, runner=runner, options=options)
        super().__init__(
            "symshape" if runner == "eager" else f"symshape, {runner}", compiled, Meter()
        )
        self.compiled = compiled
        self._metered: set[int] = set()
        self._fallbacks: list[events.RunnerFallback] = []
        self._calling = False
        self._unsubscribe = events.subscribe(self._hear)

    def _hear(self, event: events.Event) -> None:
        if self._calling and isinstance(event, events.RunnerFallback):
            self._fallbacks.append(event)

    def call(self, arguments: Arguments) -> Any:
        """Return the result of one call."""
        self._calling = True
        try:
            return self.compiled(**arguments)
        finally:
            self._calling = False

    def settle(self) -> None:
        """Meter the runners of new entries (the call that made an entry is not a hit, so its run is
        not missed).
        """
        for entry in self.compiled.entries:
            if entry.number not in self._metered:
                self._metered.add(entry.number)
                self.meter.compiles += 1
                entry.use(MeteredRunner(entry.runner, self.meter))

    @property
    def fallbacks(self) -> list[events.RunnerFallback]:
        """Return the events of entries that could not use the requested runner."""
        return self._fallbacks

    def close(self) -> None:
        """Stop listening to events."""
        self._unsubscribe()
