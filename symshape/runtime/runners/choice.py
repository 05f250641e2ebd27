"""The choice of the runner that serves a program, from a table of runners.

A runner that cannot serve a program raises ``Unfit`` when it is made; ``eager`` serves then, and an
event says why. The module of each runner but ``eager`` is imported when the runner is first made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs
import torch

from symshape import events
from symshape.errors import RunnerError
from symshape.graph.program import Program
from symshape.native.building import build_missing
from symshape.options import Options
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.pieces.recordable import records_gradients
from symshape.runtime.runners.protocol import Cut, Note, Runner, Unfit, silent
from symshape.runtime.runners.randomness import draws_any

if TYPE_CHECKING:
    from symshape.runtime.pieces.faults import Left

RunnerName = Literal["auto", "eager", "inductor", "padded", "cudagraph"]
"""The names of the rows of ``RUNNERS``, and ``auto``."""


@attrs.frozen(kw_only=True)
class Order:
    """The order for a runner.

    Attributes:
        program: the program to run.
        eager: the runner that runs the program op by op.
        graphs: the store of the compiled function's CUDA graphs.
        patient: whether the user named no runner, so that preparations must pay.
        options: the compiled function's options.
        note: records events of the program in the history of the compiled function.
        left: the ops that run outside the pieces if the program runs in pieces.
    """

    program: Program
    eager: EagerRunner
    graphs: GraphStore
    patient: bool
    options: Options = attrs.field(factory=Options)
    note: Note = silent
    left: Left = attrs.field(factory=dict)


@attrs.frozen
class Row:
    """A row of the table: a runner that the user can ask for.

    The texts are Markdown, of which ``docs/reference/runners.md`` is made.

    Attributes:
        make: makes the runner, or raises ``Unfit``.
        auto: returns whether ``auto`` tries the runner for a program; the first fit row wins.
        does: the way in which it serves calls.
        chosen: the programs for which ``auto`` chooses it.
        needs: the things without which it is not fit.
    """

    make: Callable[[Order], Runner]
    auto: Callable[[Program], bool] = lambda program: False
    does: str = attrs.field(default="", kw_only=True)
    chosen: str = attrs.field(default="", kw_only=True)
    needs: str = attrs.field(default="", kw_only=True)


def _on_cuda(program: Program) -> bool:
    return any(each.value.spec.device.type == "cuda" for each in program.graph.inputs)


def _padded(order: Order) -> Runner:
    """Return the padded runner; under ``auto`` it serves only where it is faster, and exact graphs
    serve the rest.
    """
    from symshape.runtime.runners.exact.cuda_graph import CudaGraphRunner
    from symshape.runtime.runners.padded.runner import PaddedRunner

    cut = _cutter("padded", order)
    if not order.patient:
        return PaddedRunner(
            order.program, order.eager, order.graphs, order.options, note=order.note, cut=cut
        )
    graph = order.program.graph
    trains = _trains(order.program)
    # If a padded program draws its own numbers, a trial may draw several times.
    draws = graph.uses_randomness and not draws_any(order.program, order.options)
    if draws or (graph.mutates_inputs and not trains):
        raise Unfit("it has effects, which cannot be timed")
    exact = CudaGraphRunner(order.program, order.eager, order.graphs, patient=True, note=order.note)
    return PaddedRunner(
        *(order.program, order.eager, order.graphs, order.options, exact, order.note, cut),
        where_it_pays=True,
    )


def _trains(program: Program) -> bool:
    """Return whether a program is a training step: it changes parameters, so each call runs it
    exactly once.
    """
    changed = {id(value.storage) for value in program.graph.mutated}
    return any(
        id(each.value.storage) in changed and each.tensor.requires_grad
        for each in program.graph.lifted
    )


def _inductor(order: Order) -> Runner:
    from symshape.runtime.runners.inductor.runner import InductorRunner

    return InductorRunner(order.program, order.eager)


def _exact(order: Order) -> Runner:
    from symshape.runtime.runners.exact.cuda_graph import CudaGraphRunner

    cut = _cutter("cudagraph", order)
    return CudaGraphRunner(
        order.program, order.eager, order.graphs, patient=order.patient, note=order.note, cut=cut
    )


def _in_pieces(name: RunnerName, order: Order) -> Runner:
    """Return a runner of the program in pieces, each with the runner of this name where that is
    fit.

    Raises:
        Unfit: nothing is gained by pieces.
    """
    from symshape.runtime.runners.pieces.runner import PiecewiseRunner

    def make(piece: Program) -> Runner:
        number, options = (
            piece.name.rpartition(", ")[2],
            attrs.evolve(order.options, outputs="copy"),
        )

        def note(kind: str, *, values: tuple[int, ...] = (), text: str = "", **what: Any) -> None:
            # ``values`` are the piece's
            order.note(kind, text=f"{number}: {text}" if text else number, **what)

        own = attrs.evolve(
            order, program=piece, eager=EagerRunner(piece), options=options, note=note
        )
        return RUNNERS[name].make(own) if name != "auto" else _first_fit(own)[1]

    draws = name == "cudagraph" or draws_any(order.program, order.options)
    made = PiecewiseRunner(order.program, make, draws=draws, left=order.left)
    more = sum(stage.runner is not None for stage in made.stages) - 1
    order.graphs.widen(more)
    made.on_release = partial(order.graphs.widen, -more)
    return made


class _Undivided(Unfit):
    """Raised for a program that records gradients and cannot be divided, with the reason."""


def _with_gradients(name: RunnerName, order: Order) -> Runner:
    """Return a runner of a program whose gradients the caller asks for: forward and backward, each
    with the runner of this name.

    Raises:
        _Undivided: forward and backward cannot be two programs.
    """
    from symshape.runtime.runners.gradients.runner import GradientsRunner
    from symshape.runtime.runners.pieces.runner import records

    def make(half: Program, backward: Runner | None) -> Runner:
        part, options = half.name.rpartition(", ")[2], attrs.evolve(order.options, outputs="copy")

        def note(kind: str, *, values: tuple[int, ...] = (), text: str = "", **what: Any) -> None:
            # ``values`` are the half's
            order.note(kind, text=f"{part}: {text}" if text else part, **what)

        own = attrs.evolve(order, program=half, eager=EagerRunner(half), options=options, note=note)
        if half.graph.tied:
            return _tied(name, own, backward)
        try:
            return RUNNERS[name].make(own) if name != "auto" else _first_fit(own)[1]
        except Unfit:
            return _in_pieces(name, own)

    try:
        return GradientsRunner(
            *(order.program, order.eager, make, order.graphs, order.options, order.note),
            lambda halves: any(records(runner) for _, runner in halves),
            patient=order.patient,
        )
    except Unfit as reason:
        raise _Undivided(f"gradients are recorded, and {reason}") from None


def _tied(name: RunnerName, order: Order, backward: Runner | None) -> Runner:
    """Return the runner of a forward or backward whose attention drops elements: both run in
    buckets of the same capacities, or both op by op.

    ``backward``: the runner of forward's backward; None for backward itself.

    Raises:
        Unfit: it cannot be padded.
    """
    from symshape.runtime.runners.gradients.runner import STEP
    from symshape.runtime.runners.padded.runner import PaddedRunner

    if name == "cudagraph":
        raise Unfit("its attention drops elements; in its backward only buckets drop the same ones")
    made = partial(
        PaddedRunner,
        order.program,
        order.eager,
        order.graphs,
        order.options,
        note=order.note,
    )
    if backward is None:
        return made()
    assert isinstance(backward, PaddedRunner)
    return made(where_it_pays=order.patient, twin=backward.tied, times=STEP)


def _cutter(name: RunnerName, order: Order) -> Cut:
    """Return the function that splits a program into pieces around ops that cannot be recorded."""

    def cut(left: Left) -> Runner | None:
        asked: RunnerName = "auto" if order.patient else name
        try:
            return _in_pieces(asked, attrs.evolve(order, left={**order.left, **left}))
        except Unfit:
            return None

    return cut


def _first_fit(order: Order) -> tuple[str, Runner]:
    """Return the first fit runner that ``auto`` tries, with its name.

    Raises:
        Unfit: no runner is fit.
    """
    for name, row in RUNNERS.items():
        if row.auto(order.program):
            try:
                return name, row.make(order)
            except Unfit:  # the user did not name this runner
                continue
    raise Unfit("no runner is better than eager")


RUNNERS: Mapping[str, Row] = {
    "eager": Row(
        lambda order: order.eager,
        does="runs the graph op by op, with eager's kernels",
        chosen="every program on the CPU; on CUDA, every program that no other runner takes",
        needs="nothing: it takes every program, and serves where another runner is not fit",
    ),
    "inductor": Row(
        _inductor,
        does="runs the graph compiled by Inductor, once for as many sizes as Inductor's "
        "assumptions allow",
        chosen="never; `Options(kernels=...)` brings Inductor's kernels into padded programs",
        needs="a C++ compiler, on CUDA Triton; a program that reads no data on the host, returns "
        "no sizes, has no `torch.cond` or loop, and does not switch gradients inside",
    ),
    "padded": Row(
        _padded,
        does="runs one program for a range of sizes on buffers of a fixed size, the bucket; on "
        "CUDA, one CUDA graph for each bucket",
        chosen="on CUDA, where a bucket is worth its price",
        needs="a size that can be padded; all tensors on one device; if the caller runs the "
        "backward, forward and backward that can be [two programs](../guides/train.md#forward-and-"
        "backward-on-a-gpu)",
        auto=_on_cuda,
    ),
    "cudagraph": Row(
        _exact,
        does="captures one CUDA graph for each exact set of sizes, when it is first met",
        chosen="on CUDA, for sizes that repeat so often that a graph of their own is worth its "
        "price",
        needs="a CUDA device, with all tensors on it; forward and backward as for `padded`",
        auto=_on_cuda,
    ),
}
"""The runners by name.  A new runner is a file and a row here (and its name above, for type
checkers).
"""
_IN_PIECES = ("padded", "cudagraph")
"""The runners that record; they can also serve the pieces of a program that cannot be recorded
whole.
"""


def check_name(name: str) -> RunnerName:
    """Return ``name`` if it names a runner.

    Raises:
        RunnerError: there is no such runner.
    """
    if name not in get_args(RunnerName):
        raise RunnerError(
            f"there is no runner {name!r}; choose one of {', '.join(get_args(RunnerName))}"
        )
    return name  # type: ignore[return-value]


def constants_for(name: RunnerName) -> int:
    """Return how many values of a float argument are traced as constants before programs read it at
    run time.

    Only ``eager`` runs a program that reads a number on the host; other runners are worth more
    traces.
    """
    return 1 if name == "eager" or (name == "auto" and not torch.cuda.is_available()) else 4


def make_runner(
    name: RunnerName,
    program: Program,
    graphs: GraphStore,
    options: Options | None = None,
    note: Note = silent,
) -> tuple[str, Runner]:
    """Return the runner for a program, and its name."""
    build_missing()
    eager = EagerRunner(program)
    patient, options = name == "auto", options or Options()
    order = Order(
        program=program, eager=eager, graphs=graphs, patient=patient, options=options, note=note
    )
    if name != "auto":
        try:
            return name, RUNNERS[name].make(order)
        except Unfit as reason:
            unfit = str(reason)
        if name in _IN_PIECES:
            try:
                return name, _in_parts(name, order)
            except _Undivided as reason:
                unfit = str(reason)
            except Unfit:
                pass  # the row's own reason says more
        events.emit(events.RunnerFallback(name, "eager", unfit))
        note("ran op by op", text=f"{name}: {unfit}")
        eager.instead = f"{name}: {unfit}"
        return "eager", eager
    with suppress(Unfit):
        return _first_fit(order)
    if _on_cuda(program):
        try:
            return "padded", _in_parts("auto", order)
        except _Undivided as reason:
            eager.instead = f"padded: {reason}"
        except Unfit:
            pass  # nothing was asked for
    return "eager", eager


def _in_parts(name: RunnerName, order: Order) -> Runner:
    """Return a runner of a program that cannot be recorded whole: of its forward and backward, or
    in pieces.

    Raises:
        Unfit: nothing is gained by either.
    """
    if records_gradients(order.program):
        return _with_gradients(name, order)
    return _in_pieces(name, order)
