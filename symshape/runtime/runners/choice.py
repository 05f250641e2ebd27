"""Which runner serves a program: a table of runners, one row each, and the choice among them.

A runner that cannot serve a program raises ``Unfit`` when it is made; ``eager`` serves then, and an event says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, get_args

import attrs
import torch

from symshape import events
from symshape.errors import RunnerError
from symshape.graph.program import Program
from symshape.native.building import build_missing
from symshape.options import Options
from symshape.runtime.pieces.faults import Left
from symshape.runtime.runners.cuda_graph import CudaGraphRunner
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.inductor import InductorRunner
from symshape.runtime.runners.notes import Note, silent
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.runners.piecewise import PiecewiseRunner
from symshape.runtime.runners.protocol import Cut, Runner, Unfit

RunnerName = Literal["auto", "eager", "inductor", "padded", "cudagraph"]
"""The rows of ``RUNNERS``, and ``auto``."""


@attrs.frozen(kw_only=True)
class Order:
    """What is to be made.

    Attributes:
        program: what is to be run.
        eager: runs it op by op.
        graphs: where the CUDA graphs of the compiled function are kept.
        patient: nobody asked for this very runner: what it prepares has to be worth it.
        options: the compiled function's.
        note: tells the history of the compiled function what happens to the program.
        left: what is left out where it runs in pieces.
    """

    program: Program
    eager: Runner
    graphs: GraphStore
    patient: bool
    options: Options = attrs.field(factory=Options)
    note: Note = silent
    left: Left = attrs.field(factory=dict)


@attrs.frozen
class Row:
    """A runner that can be asked for.

    Attributes:
        make: makes it, or raises ``Unfit``.
        auto: whether ``auto`` tries it for a program; the first row that says so and is fit wins.
    """

    make: Callable[[Order], Runner]
    auto: Callable[[Program], bool] = lambda program: False


def _on_cuda(program: Program) -> bool:
    return any(each.value.spec.device.type == "cuda" for each in program.graph.inputs)


def _padded(order: Order) -> Runner:
    """Return the padded runner; under ``auto`` it serves only where it is faster, and exact graphs serve the rest."""
    cut = _cutter("padded", order)
    if not order.patient:
        return PaddedRunner(order.program, order.eager, order.graphs, order.options, note=order.note, cut=cut)
    graph = order.program.graph
    trains = _trains(order.program)
    draws = graph.uses_randomness and order.options.randomness != "any"  # else a call may draw a few times over
    if draws or (graph.mutates_inputs and not trains):
        raise Unfit("it has effects, which cannot be timed")
    exact = CudaGraphRunner(order.program, order.eager, order.graphs, patient=True, note=order.note)
    return PaddedRunner(
        *(order.program, order.eager, order.graphs, order.options, exact, order.note, cut), where_it_pays=True
    )


def _trains(program: Program) -> bool:
    """Whether a program is a step of training: it changes parameters, so each call of it is made once."""
    changed = {id(value.storage) for value in program.graph.mutated}
    return any(id(each.value.storage) in changed and each.tensor.requires_grad for each in program.graph.lifted)


def _exact(order: Order) -> Runner:
    cut = _cutter("cudagraph", order)
    return CudaGraphRunner(order.program, order.eager, order.graphs, patient=order.patient, note=order.note, cut=cut)


def _in_pieces(name: RunnerName, order: Order) -> Runner:
    """Runs the program in pieces, each with the runner of this name where it is fit.

    Raises:
        Unfit: there is nothing to be gained by that.
    """

    def make(piece: Program) -> Runner:
        number, options = piece.name.rpartition(", ")[2], attrs.evolve(order.options, outputs="copy")

        def note(kind: str, *, values: tuple[int, ...] = (), text: str = "", **what: Any) -> None:
            order.note(kind, text=f"{number}: {text}" if text else number, **what)  # its integers are not the call's

        own = attrs.evolve(order, program=piece, eager=EagerRunner(piece), options=options, note=note)
        return RUNNERS[name].make(own) if name != "auto" else _first_fit(own)[1]

    draws = order.options.randomness == "any" or name == "cudagraph"
    made = PiecewiseRunner(order.program, make, draws=draws, left=order.left)
    more = sum(stage.runner is not None for stage in made.stages) - 1
    order.graphs.widen(more)
    made.on_release = partial(order.graphs.widen, -more)
    return made


def _cutter(name: RunnerName, order: Order) -> Cut:
    """What takes a program to pieces around ops that cannot be recorded."""

    def cut(left: Left) -> Runner | None:
        asked: RunnerName = "auto" if order.patient else name
        try:
            return _in_pieces(asked, attrs.evolve(order, left={**order.left, **left}))
        except Unfit:
            return None

    return cut


def _first_fit(order: Order) -> tuple[str, Runner]:
    """The first runner that ``auto`` tries and that is fit.

    Raises:
        Unfit: none is.
    """
    for name, row in RUNNERS.items():
        if row.auto(order.program):
            try:
                return name, row.make(order)
            except Unfit:  # nobody asked for it
                continue
    raise Unfit("no runner is better than eager")


RUNNERS: Mapping[str, Row] = {
    "eager": Row(lambda order: order.eager),
    "inductor": Row(lambda order: InductorRunner(order.program, order.eager)),
    "padded": Row(_padded, auto=_on_cuda),
    "cudagraph": Row(_exact, auto=_on_cuda),
}
"""By name.  A new runner is a file and a row here (and its name above, for type checkers)."""
_IN_PIECES = ("padded", "cudagraph")
"""Those that record; they serve the pieces of a program that cannot be recorded whole."""


def check_name(name: str) -> RunnerName:
    """``name`` if it names a runner.

    Raises:
        RunnerError: it names none.
    """
    if name not in get_args(RunnerName):
        raise RunnerError(f"there is no runner {name!r}; choose one of {', '.join(get_args(RunnerName))}")
    return name  # type: ignore[return-value]


def constants_for(name: RunnerName) -> int:
    """How many values of a float argument are constants before programs read it when they run.

    Only ``eager`` runs a program that reads a number on the host; what others prepare is worth more traces.
    """
    return 1 if name == "eager" or (name == "auto" and not torch.cuda.is_available()) else 4


def make_runner(
    name: RunnerName, program: Program, graphs: GraphStore, options: Options | None = None, note: Note = silent
) -> tuple[str, Runner]:
    """The runner for a program, and the name of the one that serves it."""
    build_missing()
    eager = EagerRunner(program)
    patient, options = name == "auto", options or Options()
    order = Order(program=program, eager=eager, graphs=graphs, patient=patient, options=options, note=note)
    if name != "auto":
        try:
            return name, RUNNERS[name].make(order)
        except Unfit as reason:
            unfit = str(reason)
        if name in _IN_PIECES:
            with suppress(Unfit):
                return name, _in_pieces(name, order)
        events.emit(events.RunnerFallback(name, "eager", unfit))
        note("ran op by op", text=f"{name}: {unfit}")
        eager.instead = f"{name}: {unfit}"
        return "eager", eager
    with suppress(Unfit):
        return _first_fit(order)
    if _on_cuda(program):
        with suppress(Unfit):
            return "padded", _in_pieces("auto", order)
    return "eager", eager
