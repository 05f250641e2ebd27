"""A program in pieces: recordable pieces are recorded, and the ops between them run eagerly.

An op that reads data on the host, draws random numbers, computes elsewhere or cannot be captured
keeps only itself from being recorded.  Each piece is a program with its own runner.  Sizes that
come from data are arguments to the pieces after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from symshape.graph.codegen import compiled
from symshape.graph.program import Program
from symshape.graph.steps import Value
from symshape.runtime.padding.transform import device_of
from symshape.runtime.pieces.cutting import Part, cut
from symshape.runtime.pieces.faults import Left, name_of_step
from symshape.runtime.pieces.partition import Piece
from symshape.runtime.pieces.subgraphs import fresh_constants
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.exact.cuda_graph import CudaGraphRunner
from symshape.runtime.runners.gradients.runner import GradientsRunner
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.recordable import check_without_gradients
from symshape.runtime.runners.protocol import Runner, Unfit
from symshape.tracing.traced_modes import lines_of

__all__ = ["PiecewiseRunner", "Stage", "padded_parts", "parts_of"]

Make = Callable[[Program], Runner]
"""Makes the runner of a piece that is to be recorded.  Raises ``Unfit`` if the piece cannot be."""


@attrs.frozen(eq=False)
class Stage:
    """A piece in its place among the others.

    Attributes:
        piece: the steps of the program.
        program: the piece as a program.
        runner: the piece's runner; None if the piece runs eagerly.
        reasons: why the piece runs eagerly, with the user's lines; empty for the last stage, which
            makes the results.
        run: runs the piece.
        leaves, values: where its tensor and integer arguments are held.
        gives: where its results are held.
        drops: where values are held that no later stage needs.
    """

    piece: Piece
    program: Program
    runner: Runner | None
    reasons: tuple[str, ...]
    run: Callable[[Sequence[Any], Sequence[int]], list[Any]]
    leaves: tuple[int, ...]
    values: tuple[int, ...]
    gives: tuple[int, ...]
    drops: tuple[int, ...]


class PiecewiseRunner:
    """A runner that executes a program piece by piece.

    Args:
        program: the program to run.
        make: makes the runners of the pieces that are recorded.
        draws: whether recorded pieces may draw random numbers.
        left: the ops to leave out of recorded pieces, besides ops that can never be recorded.

    Attributes:
        stages: the pieces in order; the last has no steps and makes the results.
        on_release: called once, when the pieces are released.

    Raises:
        Unfit: nothing in the program can be recorded.
    """

    def __init__(
        self, program: Program, make: Make, *, draws: bool = False, left: Left | None = None
    ) -> None:
        check_without_gradients(program)
        graph = program.graph
        parts = cut(program, device_of(graph), left, draws=draws)
        self._program = program
        self._constants = fresh_constants(graph)
        self._inputs = [each.position for each in graph.inputs]
        self._numbers = list(program.positions.values())
        self._places = self._held(parts)
        self.on_release: Callable[[], object] | None = None
        self.stages = tuple(self._stages(parts, make))
        if all(each.runner is None for each in self.stages):
            raise Unfit("none of its pieces can be recorded")

    def _held(self, parts: Sequence[Part]) -> dict[Value | str, int]:
        """Return the index at which each value of a call is held: inputs, integers, constants,
        results of pieces.
        """
        held: list[Value | str] = [each.value for each in self._program.graph.inputs]
        held += self._program.positions
        held += [each.value for each in self._constants]
        for part in parts:
            held += part.subgraph.gives
        # two pieces may give the same count
        return {each: place for place, each in enumerate(dict.fromkeys(held))}

    def _stages(self, parts: Sequence[Part], make: Make) -> Iterator[Stage]:
        places = self._places
        last: dict[int, int] = {}
        for number, part in enumerate(parts):
            found = part.subgraph
            last.update(
                (places[each], number) for each in (*found.takes, *found.names, *found.gives)
            )
        for number, part in enumerate(parts):
            program, runner, reasons = part.program, None, part.reasons
            if part.piece.recorded:
                try:
                    runner = make(program)
                except Unfit as reason:
                    reasons = (f"{len(part.piece.numbers)} ops: {reason}",)
            yield Stage(
                part.piece,
                program,
                runner,
                reasons,
                compiled(program.run) if runner is None else runner.run,
                tuple(places[each] for each in part.subgraph.takes),
                tuple(places[each] for each in part.subgraph.names),
                tuple(places[each] for each in part.subgraph.gives),
                tuple(place for place, at in last.items() if at == number),
            )

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        held: list[Any] = [leaves[place] for place in self._inputs]
        held += [values[place] for place in self._numbers]
        held += [each.tensor.clone() for each in self._constants]
        held += [None] * (len(self._places) - len(held))
        results: list[Any] = []
        for stage in self.stages:
            try:
                results = stage.run(
                    [held[i] for i in stage.leaves], [held[i] for i in stage.values]
                )
            except Exception as error:
                self._tell(error, stage)
                raise
            # the last stage's are the call's results
            for place, result in zip(stage.gives, results, strict=False):
                held[place] = result
            for place in stage.drops:
                held[place] = None
        return results

    def _tell(self, error: Exception, stage: Stage) -> None:
        """Attribute an error of a stage to the step of the whole program."""
        failed = lines_of(stage.program.run).failed(error)
        if failed is not None:
            lines_of(self._program.run).tell(error, stage.piece.numbers[failed])

    def release(self) -> None:
        """Release the pieces' runners."""
        for stage in self.stages:
            if stage.runner is not None:
                stage.runner.release()
        done, self.on_release = self.on_release, None
        if done is not None:
            done()

    def describe(self) -> str:
        """Return the number of pieces, their runners, and what runs eagerly between them."""
        recorded = [stage for stage in self.stages if stage.runner is not None]
        between = [self._why(stage) for stage in self.stages if stage.reasons]
        served = "; ".join(
            stage.runner.describe() for stage in recorded if stage.runner is not None
        )
        return (
            f"in {len(recorded) + len(between)} pieces ({served}; run eagerly: "
            f"{', '.join(between)})"
        )

    def _why(self, stage: Stage) -> str:
        """Return the ops of a stage that run eagerly, and why, each op and reason once."""
        steps = self._program.graph.steps
        said = dict.fromkeys(
            f"{name_of_step(steps[number])}, since {fault.reason}"
            for number, fault in stage.piece.faults
        )
        return "; ".join(said or stage.reasons)


def parts_of(
    runner: Runner, program: Program
) -> Iterator[tuple[Program, PaddedRunner | tuple[str, ...]]]:
    """Yield each part of a program with its padded runner, or with the reasons why it is not
    padded.
    """
    instead = runner.instead if isinstance(runner, (PaddedRunner, CudaGraphRunner)) else None
    if instead is not None:
        yield from parts_of(instead, program)
    elif isinstance(runner, GradientsRunner):
        for half, each in runner.halves:
            yield from parts_of(each, half)
    elif isinstance(runner, PaddedRunner):
        yield program, runner
    elif isinstance(runner, PiecewiseRunner):
        for stage in runner.stages:
            if stage.runner is not None:
                yield from parts_of(stage.runner, stage.program)
            elif stage.reasons:
                yield stage.program, stage.reasons


def padded_parts(runner: Runner, program: Program) -> Iterator[tuple[Program, PaddedRunner]]:
    """Yield each padded part of a program, the whole or pieces, with its runner."""
    for part, found in parts_of(runner, program):
        if isinstance(found, PaddedRunner):
            yield part, found


def records(runner: Runner) -> bool:
    """Return whether a runner has a bucket or a graph, of its program or of a piece of it."""
    if isinstance(runner, (PaddedRunner, CudaGraphRunner)) and runner.instead is not None:
        return records(runner.instead)
    if isinstance(runner, PaddedRunner):
        return bool(runner.buckets) or records(runner.otherwise)
    if isinstance(runner, CudaGraphRunner):
        return bool(runner.graphs)
    if isinstance(runner, PiecewiseRunner):
        return any(each.runner is not None and records(each.runner) for each in runner.stages)
    return not isinstance(runner, EagerRunner)
