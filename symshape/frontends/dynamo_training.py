"""A graph of Dynamo's that needs gradients: AOTAutograd's forward and backward of it, or Dynamo's
own graph.

AOTAutograd decomposes such a graph, so that forward and backward can be recorded as CUDA graphs,
padded or not. That costs an ``autograd.Function`` around both, and a backward that Python runs in
place of torch's engine. Where neither is recorded, Dynamo's graph is faster, and serves after a few
steps. Where one is recorded, steps are timed both ways once the recording has settled, and the
faster way serves. (On the CPU nothing is recorded, and AOTAutograd is not asked: see
:mod:`symshape.frontends.dynamo`.)

Calls under saved-tensor hooks, such as a checkpoint's, run Dynamo's graph from the first one on
(:class:`symshape.frontends.dynamo_aot.ProvenCalls`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontends.dynamo_aot import is_straight
from symshape.frontends.dynamo_graph import DynamoGraph, as_it_came
from symshape.runtime.runners.cuda.capture import is_capturing
from symshape.runtime.trials import EVERY, LONGEST, PAIRS, REST, Times, Verdict, elements

_FEW = EVERY // 8  # graphs recorded in EVERY calls: recording has settled
_CALLS_OF_A_TRIAL = 16 * PAIRS  # at most, including calls that do not count
_PATIENCE = 2
"""The number of waits, EVERY calls each, after which a trial starts though graphs are still being
recorded.
"""


class TrainingGraph:
    """A dispatcher of calls to AOTAutograd's forward of a graph, or to Dynamo's graph where that is
    faster.

    Args:
        module: the graph as Dynamo made it.
        compiled: AOTAutograd's forward of it, whose results have its backward.
        parts: the graphs of ``compiled``; a backward made later is added to them.

    Attributes:
        calls: calls of all of them.
        verdict: what the last trial found; None before there was one, or if it found nothing.
    """

    calls = 0

    def __init__(
        self,
        module: torch.fx.GraphModule,
        compiled: Callable[..., Any],
        parts: Sequence[DynamoGraph],
    ) -> None:
        self._module, self._compiled, self._parts = as_it_came(module), compiled, parts
        self._wanted = is_straight(module)
        self._plainly: DynamoGraph | None = None  # the forward, while Dynamo's graph serves
        self._left, self._rest = EVERY, REST
        self._recorded, self._waited = 0, 0
        self._steps: _Steps | None = None
        self.verdict: Verdict | None = None

    def serve(self, *args: Any) -> Any:
        """Return the graph's results."""
        forward = self._plainly
        if forward is not None and not forward.entries:  # the program was forgotten
            self._plainly, self._steps, self._left = None, None, EVERY
        TrainingGraph.calls += 1
        self._left -= 1
        if self._left <= 0:
            self._decide(args)
        forward = self._plainly
        if forward is None:
            return self._compiled(*args)
        forward.plain += 1
        return self._module(*args)

    def _decide(self, args: Sequence[Any]) -> None:
        """Choose the way that this call and those after it run."""
        parts = {each.origin.part: each for each in self._parts}
        self._left = EVERY
        if (
            not self._wanted
            or parts.keys() != {"forward", "backward"}
            or not all(each.entries for each in self._parts)
        ):
            return
        if all(each.op_by_op for each in self._parts):
            self._plainly = parts["forward"]
            self._plainly.plain_because = "nothing of forward and backward is recorded"
        elif is_capturing():
            self._steps = None  # a capture must not wait for the device
        elif self._steps is not None or self._has_come_to_rest():
            self._step(args, parts["forward"])

    def _has_come_to_rest(self) -> bool:
        """Return whether few graphs were recorded since the last time, or enough time has
        passed.
        """
        recorded = sum(each.stats().cuda_graphs for each in self._parts)
        self._recorded, before = recorded, self._recorded
        self._waited += 1
        return recorded - before <= _FEW or self._waited > _PATIENCE

    def _step(self, args: Sequence[Any], forward: DynamoGraph) -> None:
        """Begin a trial step on one of the two ways, which ends the step before it; at the end
        choose the faster.
        """
        steps = self._steps = self._steps or _Steps()
        steps.begin(args, TrainingGraph.calls)
        if not steps.over:
            self._left = 1
            self._plainly = forward if steps.plainly else None
            return
        self._steps, self.verdict = None, steps.times.verdict()
        faster = self.verdict is not None and self.verdict.faster
        self._plainly = forward if faster else None
        if faster:
            forward.plain_because = f"steps are faster so ({self.verdict})"
        self._left, self._rest = self._rest, min(4 * self._rest, LONGEST)


class _Steps:
    """The times of steps, each from one call of the graph to the next: forward, loss, backward, and
    the user's code.

    Graphs of other sizes may serve steps in between, which says nothing of this one. Graphs of
    other parts of the same model are called in each step. So only the intervals with the fewest
    other calls in them count.

    Attributes:
        times: the times of finished steps.
        plainly: whether the step that was begun last runs the graph as Dynamo made it.
    """

    def __init__(self) -> None:
        self.times = Times()
        self.plainly = False
        self._fewest, self._left = _CALLS_OF_A_TRIAL, _CALLS_OF_A_TRIAL
        self._begun: tuple[int, float, int] | None = None

    @property
    def over(self) -> bool:
        """Return whether enough steps were timed, or the trial took too many calls."""
        return self.times.over or self._left <= 0

    def begin(self, args: Sequence[Any], call: int) -> None:
        """Begin a step, which ends the one before it; wait for the device first.

        Args:
            args: the graph's arguments.
            call: the number of calls so far, of all graphs.
        """
        _wait(args)
        now = time.perf_counter()
        self._left -= 1
        if self._begun is not None:
            size, start, before = self._begun
            if call - before < self._fewest:
                self._fewest, self.times = call - before, Times()
            if call - before == self._fewest:
                (self.times.plain if self.plainly else self.times.programs).append(
                    (size, now - start)
                )
        self.plainly = self.times.next() is self.times.plain
        self._begun = elements(args, {}), now, call


def _wait(args: Sequence[Any]) -> None:
    """Wait for the devices of these arguments."""
    for device in {each.device for each in args if isinstance(each, torch.Tensor) and each.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
