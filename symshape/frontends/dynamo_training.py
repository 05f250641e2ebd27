"""A graph of Dynamo's that asks for gradients: AOTAutograd's forward and backward of it, or the graph as it came.

AOTAutograd decomposes such a graph, so that forward and backward can be recorded as CUDA graphs, padded or not.  That
costs: a Python function of autograd's around both, and a backward that Python runs where torch's own engine would.
Where nothing of the two is recorded the graph as Dynamo made it is faster, and serves after a few steps.  Where
something is, steps are timed both ways once the recording has come to rest, and the faster way serves.  (On the CPU
nothing is recorded, and AOTAutograd is not asked: see :mod:`symshape.frontends.dynamo`.)

Calls under saved-tensor hooks, a checkpoint's among them, run the graph as Dynamo made it from the first one on
(:class:`symshape.frontends.dynamo_aot.ProvenCalls`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.frontends.dynamo_aot import is_straight
from symshape.frontends.dynamo_graph import DynamoGraph, as_it_came
from symshape.runtime.runners.capture import is_capturing
from symshape.runtime.trials import EVERY, LONGEST, PAIRS, REST, Times, Verdict, elements

__all__ = ["TrainingGraph"]

_FEW = EVERY // 8  # graphs recorded in EVERY calls: recording has come to rest
_CALLS_OF_A_TRIAL = 16 * PAIRS  # at most, those included that do not count
_PATIENCE = 2
"""How often a trial waits for as many calls as it times, since graphs were recorded meanwhile."""


class TrainingGraph:
    """Calls AOTAutograd's forward of a graph, or the graph as Dynamo made it where that is faster.

    Args:
        module: the graph as Dynamo made it.
        compiled: AOTAutograd's forward of it; it brings its backward along.
        parts: what ``compiled`` consists of; a backward that is made later joins them.

    Attributes:
        calls: calls of all of them.
        verdict: what the last trial found; None before there was one, or if it found nothing.
    """

    calls = 0

    def __init__(
        self, module: torch.fx.GraphModule, compiled: Callable[..., Any], parts: Sequence[DynamoGraph]
    ) -> None:
        self._module, self._compiled, self._parts = as_it_came(module), compiled, parts
        self._wanted = is_straight(module)
        self._plainly: DynamoGraph | None = None  # the forward, while the graph as it came serves
        self._left, self._rest = EVERY, REST
        self._recorded, self._waited = 0, 0
        self._steps: _Steps | None = None
        self.verdict: Verdict | None = None

    def serve(self, *args: Any) -> Any:
        """The graph's results."""
        forward = self._plainly
        if forward is not None and not forward.entries:  # all was forgotten
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
        """Which way this call and those after it go."""
        parts = {each.origin.part: each for each in self._parts}
        self._left = EVERY
        if not self._wanted or parts.keys() != {"forward", "backward"} or not all(each.entries for each in self._parts):
            return
        if all(each.op_by_op for each in self._parts):
            self._plainly = parts["forward"]
            self._plainly.plain_because = "nothing of forward and backward is recorded"
        elif is_capturing():
            self._steps = None  # nobody may wait for the device
        elif self._steps is not None or self._has_come_to_rest():
            self._step(args, parts["forward"])

    def _has_come_to_rest(self) -> bool:
        """Whether few graphs were recorded meanwhile, or it has been waited for long enough."""
        recorded = sum(each.stats().cuda_graphs for each in self._parts)
        self._recorded, before = recorded, self._recorded
        self._waited += 1
        return recorded - before <= _FEW or self._waited > _PATIENCE

    def _step(self, args: Sequence[Any], forward: DynamoGraph) -> None:
        """One call of a trial: it goes one way or the other, and ends the step before it."""
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
    """What steps take, each from one call of the graph to the next: forward, loss, backward, and what the user does.

    Graphs of other sizes may serve steps in between, which says nothing of this one, and graphs of other parts of the
    same model are called in each step: what counts are the intervals with the fewest calls of others in them.

    Attributes:
        times: of those that are over.
        plainly: whether the step that was begun last runs the graph as Dynamo made it.
    """

    def __init__(self) -> None:
        self.times = Times()
        self.plainly = False
        self._fewest, self._left = _CALLS_OF_A_TRIAL, _CALLS_OF_A_TRIAL
        self._begun: tuple[int, float, int] | None = None

    @property
    def over(self) -> bool:
        """Whether enough were timed, or it took too long."""
        return self.times.over or self._left <= 0

    def begin(self, args: Sequence[Any], call: int) -> None:
        """A step begins, so the one before it is over; waits for what the device has to do.

        Args:
            args: the graph's arguments.
            call: how many calls there were, of all graphs.
        """
        _wait(args)
        now = time.perf_counter()
        self._left -= 1
        if self._begun is not None:
            size, start, before = self._begun
            if call - before < self._fewest:
                self._fewest, self.times = call - before, Times()
            if call - before == self._fewest:
                (self.times.plain if self.plainly else self.times.programs).append((size, now - start))
        self.plainly = self.times.next() is self.times.plain
        self._begun = elements(args, {}), now, call


def _wait(args: Sequence[Any]) -> None:
    """For what the devices of these arguments have to do."""
    for device in {each.device for each in args if isinstance(each, torch.Tensor) and each.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
