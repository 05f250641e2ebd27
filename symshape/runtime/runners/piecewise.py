"""A program in pieces: what can be recorded is, and what cannot be runs as it is, in between.

An op that reads data on the host, draws random numbers, computes elsewhere or cannot be captured keeps nothing but
itself from being recorded.  Each piece is a program of its own, with a runner of its own: where sizes come from data
they are arguments to the pieces behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from symshape.graph.program import Program
from symshape.graph.steps import Value
from symshape.runtime.padding.transform import device_of
from symshape.runtime.pieces.cutting import Part, cut
from symshape.runtime.pieces.faults import Left, name_of_step
from symshape.runtime.pieces.partition import Piece
from symshape.runtime.pieces.subgraphs import fresh_constants
from symshape.runtime.runners.cuda_graph import CudaGraphRunner
from symshape.runtime.runners.fitness import check_without_gradients
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.runners.protocol import Runner, Unfit
from symshape.tracing.traced_modes import lines_of

__all__ = ["PiecewiseRunner", "Stage", "padded_parts", "parts_of"]

Make = Callable[[Program], Runner]
"""Makes the runner of a piece that is to be recorded.  Raises ``Unfit`` where it cannot be."""


@attrs.frozen(eq=False)
class Stage:
    """A piece in its place.

    Attributes:
        piece: which steps.
        program: the piece as a program.
        runner: what serves it; None where it runs as it is.
        reasons: why it runs as it is, with the user's lines; nothing for what makes the results.
        run: runs it.
        leaves, values: where the tensors and the integers that it is given are held.
        gives: where its results are held.
        drops: what nobody needs after it.
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
    """Runs a program piece by piece.

    Args:
        program: what is to be run.
        make: makes the runners of the pieces that are recorded.
        draws: whether these may draw random numbers.
        left: what is left out of them besides what can never be recorded.

    Attributes:
        stages: the pieces in order; the last has no steps and makes the results.
        on_release: called once, when it lets go of them.

    Raises:
        Unfit: there is nothing in it that can be recorded.
    """

    def __init__(
        self,
        program: Program,
        make: Make,
        *,
        draws: bool = False,
        left: Left | None = None,
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
        """Where what is known in the course of a call is held: inputs, integers, constants, results of pieces."""
        held: list[Value | str] = [each.value for each in self._program.graph.inputs]
        held += self._program.positions
        held += [each.value for each in self._constants]
        for part in parts:
            held += part.subgraph.gives
        return {each: place for place, each in enumerate(dict.fromkeys(held))}  # a count may be given twice

    def _stages(self, parts: Sequence[Part], make: Make) -> Iterator[Stage]:
        places = self._places
        last: dict[int, int] = {}
        for number, part in enumerate(parts):
            found = part.subgraph
            last.update((places[each], number) for each in (*found.takes, *found.names, *found.gives))
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
                program.run if runner is None else runner.run,
                tuple(places[each] for each in part.subgraph.takes),
                tuple(places[each] for each in part.subgraph.names),
                tuple(places[each] for each in part.subgraph.gives),
                tuple(place for place, at in last.items() if at == number),
            )

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """The flat outputs of one call."""
        held: list[Any] = [leaves[place] for place in self._inputs]
        held += [values[place] for place in self._numbers]
        held += [each.tensor.clone() for each in self._constants]
        held += [None] * (len(self._places) - len(held))
        results: list[Any] = []
        for stage in self.stages:
            try:
                results = stage.run([held[i] for i in stage.leaves], [held[i] for i in stage.values])
            except Exception as error:
                self._tell(error, stage)
                raise
            for place, result in zip(stage.gives, results, strict=False):  # of the last stage they are the call's
                held[place] = result
            for place in stage.drops:
                held[place] = None
        return results

    def _tell(self, error: Exception, stage: Stage) -> None:
        """Has an error be known as that of the program's own step."""
        failed = lines_of(stage.program.run).failed(error)
        if failed is not None:
            lines_of(self._program.run).tell(error, stage.piece.numbers[failed])

    def release(self) -> None:
        """Lets go of what the pieces hold."""
        for stage in self.stages:
            if stage.runner is not None:
                stage.runner.release()
        done, self.on_release = self.on_release, None
        if done is not None:
            done()

    def describe(self) -> str:
        """How many pieces there are, what serves them, and what is in between."""
        recorded = [stage for stage in self.stages if stage.runner is not None]
        between = [self._why(stage) for stage in self.stages if stage.reasons]
        served = "; ".join(stage.runner.describe() for stage in recorded if stage.runner is not None)
        return f"in {len(recorded) + len(between)} pieces ({served}; as they are: {', '.join(between)})"

    def _why(self, stage: Stage) -> str:
        """What runs as it is in a piece, and why, in short: each op and reason once."""
        steps = self._program.graph.steps
        said = dict.fromkeys(
            f"{name_of_step(steps[number])}, since {fault.reason}" for number, fault in stage.piece.faults
        )
        return "; ".join(said or stage.reasons)


def parts_of(runner: Runner, program: Program) -> Iterator[tuple[Program, PaddedRunner | tuple[str, ...]]]:
    """What is padded of a program, all of it or pieces, each with its runner; and what is not, with the reasons."""
    instead = runner.instead if isinstance(runner, (PaddedRunner, CudaGraphRunner)) else None
    if instead is not None:
        yield from parts_of(instead, program)
    elif isinstance(runner, PaddedRunner):
        yield program, runner
    elif isinstance(runner, PiecewiseRunner):
        for stage in runner.stages:
            if stage.runner is not None:
                yield from parts_of(stage.runner, stage.program)
            elif stage.reasons:
                yield stage.program, stage.reasons


def padded_parts(runner: Runner, program: Program) -> Iterator[tuple[Program, PaddedRunner]]:
    """What is padded of a program: all of it, or pieces, each as a program with its runner."""
    for part, found in parts_of(runner, program):
        if isinstance(found, PaddedRunner):
            yield part, found
