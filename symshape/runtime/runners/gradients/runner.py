"""A program whose gradients the caller asks for: forward and backward, each with its own runner.

Autograd sees one function, whose backward is the second program.  Calls for which that would not do
run op by op, with torch's own backward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import attrs
import torch

from guards.sets.codegen import compile_check
from guards.sets.sources import spelled
from symshape import forks
from symshape.calls.arguments import is_canonical
from symshape.calls.questions import is_transformed
from symshape.errors import RunnerError, SymShapeError
from symshape.forks import cached_property
from symshape.graph.codegen import LateRun, Run
from symshape.graph.program import Program, slot_names
from symshape.graph.steps import Input, Value
from symshape.options import Options
from symshape.runtime.padding.transform import device_of
from symshape.runtime.policy.ledger import Offer
from symshape.runtime.policy.programs import HOPED
from symshape.runtime.runners.cuda.capture import CaptureFailed, is_capturing
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.gradients.halves import (
    Half,
    Halves,
    backward_of,
    check_divisible,
    halves_of,
    share,
)
from symshape.runtime.runners.gradients.loop_time import LoopTime
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.protocol import Note, Runner, Unfit
from symshape.torch_internals.autograd import keeps_graph, top_saving_hooks
from symshape.tracing.traced_modes import without_autocast

__all__ = ["STEP", "GradientsRunner"]

Make = Callable[[Program, Runner | None], Runner]
"""Makes the runner of backward, or of forward, given that of its backward.  Raises ``Unfit`` if it
cannot be recorded.
"""
_TRACE = 2.0
"""The expected time of tracing and dividing forward and backward, as a multiple of the program's
trace: 1.4 to 1.9 were measured on a CPU, 2.1 and 2.4 on an H200.
"""
STEP = 3.0
"""The host's time for forward and backward, as a multiple of forward's: 2.5 to 4.2 were measured on
an H200.  Where forward decides for both, the device's times are taken to have the same ratio, which
was not measured.
"""
_PATIENCE = 256
"""The calls, again and again, after which forward and backward are given up if they have no bucket:
torch's own backward is faster than the second program op by op.  Streams whose buckets pay had the
first ones after 50 to 60 calls.
"""

_PAIRS = 3
"""The most traces of forward and backward that are kept.  A trace may hold for fewer calls than the
program: one of a batch of 1 may hold for that batch alone.  A further trace takes the place of the
one with the fewest calls, and is twice as dear as the one before.
"""


class GradientsRunner:
    """A runner of a program whose gradients the caller asks for.

    Args:
        program: the program to run.
        eager: runs the program op by op, while autograd records it.
        make: makes the runners of forward and backward.
        store: stores the graphs of the compiled function.
        options: of the trace of forward and backward.
        note: records events in the history of the compiled function.
        records: returns whether any of these halves has a bucket or a graph.
        patient: whether the trace of forward and backward has to be worth its time.

    Raises:
        Unfit: forward and backward of the program cannot be two programs.
    """

    def __init__(
        self,
        program: Program,
        eager: EagerRunner,
        make: Make,
        store: GraphStore,
        options: Options,
        note: Note,
        records: Callable[[Sequence[tuple[Program, Runner]]], bool],
        *,
        patient: bool,
    ) -> None:
        check_divisible(program)
        self._program, self._eager, self._make = program, eager, make
        self._store, self._options, self._note = store, options, note
        self._records, self._patient = records, patient
        self._on_cuda = any(each.value.spec.device.type == "cuda" for each in program.graph.inputs)
        # not the store's: a trace waits for another, in which objects that die want the store's
        self._lock = forks.lock()
        self._price = _TRACE * program.milliseconds if patient else 0.0
        self._offer: Offer | None = Offer("forward and backward", self._price)
        self._pairs: tuple[_Served, ...] = ()
        self._refused, self._released = "", False

    @property
    def halves(self) -> tuple[tuple[Program, Runner], ...]:
        """Each forward and backward with its runner; empty before they are traced, or where it was
        not worth it.
        """
        return tuple(half for pair in self._pairs if not pair.given_up for half in pair.made)

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        if _is_unusual() or (self._on_cuda and is_capturing()):
            return self._eager.run(leaves, values)
        served = self._serving(values)
        if served is None:
            offer = self._offer
            if offer is None or not self._is_due(offer):
                return self._timed(leaves, values)
            with self._lock:
                self._divide(leaves, values)
                served = self._serving(values)
        if served is None or served.given_up:
            return self._eager.run(leaves, values)
        served.calls += 1
        if self._patient and served.calls % _PATIENCE == 0 and not self._records(served.made):
            self._give_up(served)
            return self._eager.run(leaves, values)
        return served.run(leaves, values)

    def _serving(self, values: Sequence[int]) -> _Served | None:
        """Return the forward and backward that hold for a call with these integers."""
        if not self._released:
            for each in self._pairs:
                if each.check(values):
                    return each
        return None

    def _give_up(self, served: _Served) -> None:
        """Run these calls op by op from now on; those whose backward is still to come keep it."""
        served.given_up = True
        self._refused = "no bucket of forward or backward was worth its price"
        self._note("ran op by op", text=f"forward and backward: {self._refused}")

    def _is_due(self, offer: Offer) -> bool:
        if not offer.price:
            return True
        return offer.credit >= offer.due and offer.price <= self._store.promise.room

    def _timed(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Run one call op by op, and credit forward and backward with what they may have saved."""
        start = time.perf_counter()
        results = self._eager.run(leaves, values)
        taken = (time.perf_counter() - start) * 1e3
        self._store.promise.call(taken, taken)
        offer = self._offer
        if offer is not None:
            offer.add(HOPED * STEP * taken, 0)
        return results

    def _divide(self, leaves: Sequence[Any], values: Sequence[int]) -> None:
        """Trace forward and backward, and make their runners; or find out why that cannot be.

        Another thread may have done it meanwhile.
        """
        if self._offer is None or self._serving(values) is not None:
            return
        start = time.perf_counter()
        self._offer = None
        try:
            halves = halves_of(self._program, leaves, self._options)
            programs = halves.forward.program, halves.backward.program
            with self._store.lock:
                runners = self._both(programs)
        except Exception as error:  # any error of code that sees symbolic tensors: eager serves
            sure = isinstance(error, (Unfit, SymShapeError))
            self._refused = str(error) if sure else f"{type(error).__name__}: {error}"
            self._note("ran op by op", text=f"forward and backward: {self._refused}")
        else:
            made = _Served(self._program, self._eager, halves, runners, self._make_more)
            self._make_room()
            self._pairs = (*self._pairs, made)
            if len(self._pairs) == _PAIRS:
                self._price = 2 * max(self._price, (time.perf_counter() - start) * 1e3)
            self._offer = Offer("another forward and backward", self._price)
            if self._released:  # by another thread, meanwhile
                self.release()
        taken = (time.perf_counter() - start) * 1e3
        self._store.promise.spend(taken)

    def _make_room(self) -> None:
        """Release forward and backward with the fewest calls if there are as many as may be."""
        if len(self._pairs) < _PAIRS:
            return
        least = min(self._pairs, key=lambda each: each.calls)
        self._pairs = tuple(each for each in self._pairs if each is not least)
        least.given_up = True
        for _, runner in least.made:
            runner.release()

    def _both(self, programs: Sequence[Program]) -> tuple[Runner, ...]:
        """Return the runners of forward and backward; if forward has none, backward's is released.

        Raises:
            Unfit: one of them cannot be recorded.
        """
        backward = self._make(programs[1], None)
        try:
            return self._make(programs[0], backward), backward
        except Unfit:
            backward.release()
            raise

    def _make_more(self, served: _Served, backward: Program) -> Runner:
        """Return the runner of a backward for the gradients of other results.

        Raises:
            Unfit: it cannot be recorded.
        """
        with self._store.lock:
            late = served.given_up or self._released  # a late backward of a call
            if late and not backward.graph.tied:
                return EagerRunner(backward)
            try:
                made = self._make(backward, None)
            except Unfit:
                if backward.graph.tied:
                    raise
                made = EagerRunner(backward)
            if late:
                made.release()
            else:
                served.made = (*served.made, (backward, made))
        return made

    def release(self) -> None:
        """Release the runners of forward and backward."""
        self._released = True
        self._offer = None
        for pair in self._pairs:
            for _, runner in pair.made:
                runner.release()

    def describe(self) -> str:
        """Return how forward and backward are run, or why the program runs op by op."""
        served = [pair for pair in self._pairs if not pair.given_up]
        if served:
            return "; ".join(f"{pair.describe()}{self._where(pair)}" for pair in served)
        if self._refused:
            return f"eager, not forward and backward: {self._refused}"
        return "eager, forward and backward not yet worth a trace"

    def where(self, half: Program) -> str:
        """Return for which calls a half holds if there are others; else an empty text."""
        pairs = [pair for pair in self._pairs if any(each is half for each, _ in pair.made)]
        return self._where(pairs[0]) if pairs else ""

    def _where(self, pair: _Served) -> str:
        return f" where {pair.where}" if len(self._pairs) > 1 and pair.where else ""


def _is_unusual() -> bool:
    """Return whether a call needs torch's own autograd: transforms and hooks see each op of it."""
    return (
        is_transformed()
        or not torch.is_grad_enabled()
        or torch.is_anomaly_enabled()
        or top_saving_hooks(True) is not None
    )


class _Backward:
    """Backward for the gradients of some results, with its runner.

    Args:
        half: backward.
        gradients: what it makes for each tensor with a gradient.
        served: forward and backward of the program.
        runner: runs it.

    Attributes:
        tied: its buckets, if they have the capacities of forward's.
    """

    def __init__(
        self, half: Half, gradients: Sequence[Value | None], served: _Served, runner: Runner
    ) -> None:
        self._runner, self._name = runner, half.program.name
        self.tied = runner.tied if isinstance(runner, PaddedRunner) else None
        self._values = half.values
        stand_ins = {value: place for place, value in served.halves.tangents.items()}
        self._takes = tuple(
            (True, stand_ins[each]) if each in stand_ins else (False, served.saved[each])
            for each in half.takes
        )
        gives = {value: place for place, value in enumerate(half.gives)}
        self._gradients = tuple(
            None
            if each is None
            else (True, stand_ins[each])
            if each in stand_ins
            else (False, gives[each])
            for each in gradients
        )

    def run(
        self,
        saved: Sequence[torch.Tensor],
        tangents: Mapping[int, torch.Tensor],
        values: Sequence[int],
        bucket: Bucket | None,
    ) -> list[torch.Tensor | None]:
        """Return the gradients, from the saved tensors and those of the results, by place.

        ``bucket``: that of forward.

        Raises:
            RunnerError: backward has to run in such a bucket too, and cannot.
        """
        leaves = [tangents[place] if tangent else saved[place] for tangent, place in self._takes]
        own = [values[place] for place in self._values]
        if self.tied is None:
            made = self._runner.run(leaves, own)
        else:
            try:
                made = self.tied.run(bucket, leaves, own)
            except CaptureFailed as error:
                raise RunnerError(
                    f"{self._name}, has to drop the elements that forward dropped in a bucket, "
                    f"and cannot run in such a bucket: {error}; compile it with "
                    'symshape.compile(..., runner="eager")'
                ) from error
        return [
            None if each is None else tangents[each[1]] if each[0] else made[each[1]]
            for each in self._gradients
        ]


class _Served:
    """Forward and backward of a program with their runners.

    Attributes:
        program: the program.
        eager: runs it op by op.
        halves: forward and backward.
        check: returns whether they serve a call with these integers.
        results: the place of each result among what forward makes; None for a constant.
        kept: what is saved for backward: whether it is an argument, and its place.
        read: the parameters and buffers that backward reads.
        inputs: the places of the arguments that are tensors.
        marked_kept: the place of the mark of each tensor that is saved.
        marked_read: the place of the mark of each parameter and buffer that backward reads.
        saved: the place of each value among what is saved.
        made: each half with its runner, forward first.
        calls: the number of calls.
        given_up: whether these calls run op by op, since no bucket was worth its price.
    """

    def __init__(
        self,
        program: Program,
        eager: EagerRunner,
        halves: Halves,
        runners: Sequence[Runner],
        make: Callable[[_Served, Program], Runner],
    ) -> None:
        self.made: tuple[tuple[Program, Runner], ...] = tuple(
            zip((halves.forward.program, halves.backward.program), runners, strict=True)
        )
        self.calls, self.given_up = 0, False
        self.program, self.eager, self.halves = program, eager, halves
        names = slot_names(len(halves.whole.slots))
        self.check = compile_check(halves.whole.slot_guards(), names).check
        self._runners = list(runners)
        self._loop = LoopTime(device_of(halves.whole.graph))
        inputs, forward, backward = halves.inputs, halves.forward, halves.backward
        made = {value: place for place, value in enumerate(forward.gives)}
        self._forward = runners[0]
        self._given = tuple(inputs[each] for each in forward.takes)
        self.results = tuple(
            made[each] if isinstance(each, Value) else None for each in halves.results
        )
        kept = [each for each in backward.takes if each not in halves.tangents.values()]
        self.kept = tuple(
            (True, inputs[each]) if each in inputs else (False, made[each]) for each in kept
        )
        self.saved = {value: place for place, value in enumerate(kept)}
        lifted = backward.program.graph.lifted
        self.read = tuple(each.tensor for each in lifted if not each.constant)
        self.inputs = tuple(each.position for each in program.graph.inputs)
        lifted = program.graph.lifted
        outside = [*(e.tensor for e in lifted if not e.constant), *halves.parameters, *self.read]
        self._outside = tuple({id(each): each for each in outside}.values())
        places = {place: number for number, place in enumerate(self.inputs)}
        others = {id(each): number for number, each in enumerate(self._outside, len(places))}
        first = count(len(places) + len(others))
        self.marked_kept = tuple(
            places[place] if given else next(first) for given, place in self.kept
        )
        self.marked_read = tuple(others[id(each)] for each in self.read)
        self._make = make
        whole = _Backward(backward, halves.gradients, self, runners[1])
        self._backwards: dict[frozenset[int], _Backward | None] = {
            frozenset(halves.tangents): whole
        }
        self._needs: dict[frozenset[int], _Needs | None] = {}
        self._apart: dict[tuple[frozenset[int], frozenset[int]], frozenset[int]] = {}
        self._all = frozenset(halves.tangents)
        # saved without the history that results get, which would hold the call in a cycle
        self._aliased = {each for each in self.results if each is not None}

    @cached_property
    def with_parameters(self) -> Run:
        """The program op by op, as a function whose last leaves are the parameters with a
        gradient.
        """
        program, graph = self.program, self.program.graph
        parameters = set(map(id, self.halves.parameters))
        asking = [each for each in graph.lifted if id(each.tensor) in parameters]
        given = [
            Input(len(program.call.keys) + number, each.name, each.value)
            for number, each in enumerate(asking)
        ]
        graph = attrs.evolve(
            graph,
            inputs=(*graph.inputs, *given),
            lifted=tuple(each for each in graph.lifted if each not in asking),
        )
        return without_autocast(LateRun(graph, program.positions), program.modes)

    @cached_property
    def where(self) -> str:
        """The conditions for a call beside the program's guards, in the caller's words."""
        whole, given = self.halves.whole, self.program.guards
        words = spelled(whole.sources)
        return " and ".join(
            each.text(words) for each in whole.guards if given.implies(each.term) is not True
        )

    def describe(self) -> str:
        """Return how forward and backward are run."""
        forward, *backward = (runner.describe() for _, runner in self.made)
        return f"forward ({forward}) and backward ({'; '.join(backward)})"

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        halves, spare = self.halves, self._loop.forward_begins()
        if spare is not None:
            self._share(spare)
        differentiable = [leaves[place] for place in halves.asking]
        made: Any = CompiledProgram.apply(
            _Called(self, leaves, values), *differentiable, *halves.parameters
        )
        tensors = iter(made)
        return [
            each if place is None else next(tensors)
            for each, place in zip(halves.results, self.results, strict=True)
        ]

    def forward(
        self,
        leaves: Sequence[Any],
        values: Sequence[int],
        served: Callable[[Bucket], object],
    ) -> list[Any]:
        """Return what forward makes; if backward depends on its bucket, ``served`` is called with
        it.
        """
        half, runner = self.halves.forward, self._forward
        given = [leaves[place] for place in self._given]
        own = [values[place] for place in half.values]
        if half.program.graph.tied:
            assert isinstance(runner, PaddedRunner)
            return runner.run(given, own, served)
        return runner.run(given, own)

    def backward(self, used: frozenset[int]) -> _Backward | None:
        """Return backward where these results have a gradient; None if it runs op by op."""
        if used not in self._backwards:
            try:
                half, gradients = backward_of(self.halves, used)
                runner = self._make(self, half.program)
            except Unfit:
                self._backwards[used] = None
            else:
                self._runners.append(runner)
                made = self._backwards[used] = _Backward(half, gradients, self, runner)
                self._introduce(made)
        return self._backwards[used]

    def saved_of(self, leaves: Sequence[Any], made: Sequence[torch.Tensor]) -> _Saved:
        """Return what a call saves, from its arguments and what forward made."""
        kept: list[torch.Tensor | None] = [
            leaves[place]
            if given
            else made[place].detach()
            if place in self._aliased
            else made[place]
            for given, place in self.kept
        ]
        return _Saved(self._all, kept)

    def marks(self, leaves: Sequence[Any], kept: Sequence[torch.Tensor | None] = ()) -> list[_Mark]:
        """Return the marks of the arguments, of all parameters and buffers that the program reads,
        and of what forward made and is saved.
        """
        made = [each for (given, _), each in zip(self.kept, kept, strict=False) if not given]
        return _marks((*(leaves[place] for place in self.inputs), *self._outside, *made))

    def needs(self, used: frozenset[int]) -> _Needs | None:
        """Return what backward of these results reads; None if it runs op by op, from the
        arguments.
        """
        if used not in self._needs:
            try:
                half, _ = backward_of(self.halves, used)
            except Unfit:
                self._needs[used] = None
            else:
                kept = {self.saved[each] for each in half.takes if each in self.saved}
                lifted = {id(each.tensor) for each in half.program.graph.lifted}
                read = [place for place, each in enumerate(self.read) if id(each) in lifted]
                self._needs[used] = _Needs(tuple(sorted(kept)), tuple(read))
        return self._needs[used]

    def apart(self, used: frozenset[int], others: frozenset[int]) -> frozenset[int]:
        """Return which of the ``others`` can have a backward after that of the results ``used``."""
        found = self._apart.get((used, others))
        if found is None:
            found = frozenset(each for each in others if not share(self.halves, used, (each,)))
            self._apart[used, others] = found
        return found

    def _introduce(self, made: _Backward) -> None:
        """Tell backwards of each other: a bucket of forward has to do for all of them."""
        tied = [e.tied for e in self._backwards.values() if e is not None and e.tied is not None]
        for each in tied if made.tied is not None else ():
            each.others = [other for other in tied if other is not each]

    def ended(self, backward: _Backward) -> None:
        """Note the end of a backward; forward's buckets are made together with its buckets."""
        self._loop.backward_ends()
        if backward.tied is not None and isinstance(self._forward, PaddedRunner):
            self._forward.twin = backward.tied

    def _share(self, spare: float) -> None:
        """Divide the spare time of the caller's loop between forward and backward, by the host's
        time for each; a backward that no call has used has none.
        """
        padded = [each for each in self._runners if isinstance(each, PaddedRunner)]
        estimates = [each.estimates for each in padded if each.estimates is not None]
        hosts = [each.eager_host() or 0.0 for each in estimates]
        for each, host in zip(estimates, hosts, strict=True):
            each.beside = spare * host / max(sum(hosts), 1e-9)


@attrs.define(eq=False)
class _Called:
    """One call, with what its backward needs.

    Attributes:
        served: forward and backward.
        leaves: of the call; empty once backward has freed what is saved.
        values: its integers.
        marks: of the tensors at the call.
        bucket: that forward ran in, if backward depends on it.
        saved: the tensors that backward takes and reads.
    """

    served: _Served
    leaves: Sequence[Any]
    values: Sequence[int]
    marks: list[_Mark] = attrs.field(factory=list)
    bucket: Bucket | None = None
    saved: _Saved | None = None

    def forward(self, ctx: Any) -> tuple[torch.Tensor, ...]:
        """Return the results that are tensors, and save what backward needs."""
        served, leaves = self.served, self.leaves
        made = served.forward(leaves, self.values, partial(setattr, self, "bucket"))
        results: list[torch.Tensor] = []
        plain: list[torch.Tensor] = []
        for place, at in enumerate(served.results):
            if at is not None:
                tensor = made[at] = _without_base(made[at])
                results.append(tensor)
                if place not in served.halves.tangents:
                    plain.append(tensor)
        ctx.mark_non_differentiable(*plain)
        ctx.set_materialize_grads(False)
        if served.kept or served.read:  # else a second backward is allowed, as in eager
            self.saved = served.saved_of(leaves, made)
            ctx.save_for_backward(_PLACEHOLDER)
        self.marks = served.marks(leaves, () if self.saved is None else self.saved.kept)
        return tuple(results)

    def backward(self, ctx: Any, given: Sequence[torch.Tensor | None]) -> list[Any]:
        """Return the gradients of the arguments and parameters that have one."""
        served = self.served
        places = (place for place, each in enumerate(served.results) if each is not None)
        tangents = {
            place: each
            for place, each in zip(places, given, strict=True)
            if each is not None and place in served.halves.tangents
        }
        used = frozenset(tangents)
        saved = () if self.saved is None else self.saved.of(ctx, self, used)
        plain = all(
            type(each) is torch.Tensor and each.layout is torch.strided
            for each in tangents.values()
        )
        backward = None if torch.is_grad_enabled() or not plain else served.backward(used)
        if backward is None:
            gradients = self._again(tangents)
        else:
            tangents = {place: _canonical(each) for place, each in tangents.items()}
            gradients = backward.run(saved, tangents, self.values, self.bucket)
            served.ended(backward)
        if self.saved is not None and not keeps_graph():
            self.saved.free(served, used)
            if not self.saved.results:
                self.leaves, self.bucket = (), None
        return gradients

    def _again(self, tangents: Mapping[int, torch.Tensor]) -> list[Any]:
        """Return the gradients by running the program op by op again, with torch's own backward.

        Raises:
            RunnerError: the program draws random numbers, which would be others.
            RuntimeError: an argument, a parameter or a buffer was written to since the call.
        """
        served, halves = self.served, self.served.halves
        name = served.program.name
        if halves.forward.program.graph.uses_randomness:
            raise RunnerError(
                f"the gradients of {name} are to be made by torch's own backward, as for gradients "
                "of gradients; but it drew random numbers, which a second forward would not draw "
                'again; compile it with symshape.compile(..., runner="eager")'
            )
        now = served.marks(self.leaves)
        if self.marks[: len(now)] != now:
            raise RuntimeError(_written(name))
        create, wanted = torch.is_grad_enabled(), list(tangents)
        with torch.enable_grad():
            # views: hooks of the caller's tensors run once, in the backward in progress
            leaves, parameters = list(self.leaves), halves.parameters
            for place in halves.asking:
                leaves[place] = _view(leaves[place])
            if any(each._backward_hooks or not each.requires_grad for each in parameters):
                parameters = tuple(map(_view, parameters))
                results = served.with_parameters([*leaves, *parameters], self.values)
            else:
                results = served.eager.run(leaves, self.values)
            return list(
                torch.autograd.grad(
                    [results[place] for place in wanted],
                    [*(leaves[place] for place in halves.asking), *parameters],
                    [tangents[place] for place in wanted],
                    create_graph=create,
                    allow_unused=True,
                )
            )


@attrs.frozen
class _Needs:
    """The tensors that backward of some results reads.

    Attributes:
        kept: places among what is saved.
        read: places among the parameters and buffers that backward reads.
    """

    kept: tuple[int, ...]
    read: tuple[int, ...]


@attrs.define(eq=False)
class _Saved:
    """The tensors of a call that are saved for backward.

    Torch's own record of them would tell of writes to any of them, also to one that backward of
    these results does not read.  And it would free all at once, also what backward of others needs.

    Attributes:
        results: the places of the results that can have a backward still.
        kept: the tensors, by place; None for one that is freed.
    """

    results: frozenset[int]
    kept: list[torch.Tensor | None]

    def of(self, ctx: Any, called: _Called, used: frozenset[int]) -> Sequence[Any]:
        """Return what is saved for backward of these results, by place.

        Raises:
            RuntimeError: it was freed, or written to.
        """
        if not used <= self.results:
            return tuple(ctx.saved_tensors)  # raises
        served = called.served
        needs = served.needs(used)
        if needs is not None:
            tensors = [*(self.kept[e] for e in needs.kept), *(served.read[e] for e in needs.read)]
            marked = [served.marked_kept[each] for each in needs.kept]
            marked += [served.marked_read[each] for each in needs.read]
            if _marks(tensors) != [called.marks[each] for each in marked]:
                raise RuntimeError(_written(served.program.name))
        return self.kept

    def free(self, served: _Served, used: frozenset[int]) -> None:
        """Let go of all but what backward can still be asked for, as in eager: of results that
        share nothing with these, and of those for which nothing was saved.
        """
        again = {each for each in used if served.needs(frozenset((each,))) == _Needs((), ())}
        self.results = served.apart(used, self.results - used) | again
        needed = set[int]()
        for each in self.results:
            needs = served.needs(frozenset((each,)))
            needed.update(() if needs is None else needs.kept)
        self.kept = [each if place in needed else None for place, each in enumerate(self.kept)]


_Mark = tuple[int, int]
"""The version of a tensor, and the address of its elements: one of them changes if it is written
to, except through ``.data`` in place.
"""


def _marks(tensors: Sequence[torch.Tensor | None]) -> list[_Mark]:
    """Return a mark of each tensor; None stands for one that is freed."""
    try:
        return [(each._version, each.data_ptr()) for each in tensors]  # type: ignore[union-attr]
    except (AttributeError, RuntimeError, NotImplementedError):  # one has no version or no address
        return [(0, 0) if each is None else _mark(each) for each in tensors]


def _mark(tensor: torch.Tensor) -> _Mark:
    version = 0 if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr() if tensor.layout is torch.strided else 0


def _view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with a gradient, also of a tensor that has none any more."""
    if tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_()


_PLACEHOLDER = torch.empty(0)
"""The tensor that torch saves in place of a call's: once a backward has freed it, torch raises its
own error.
"""


def _written(name: str) -> str:
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: an argument, a parameter or a buffer of {name} was written to, or was given "
        "other memory, between its call and its backward"
    )


def _canonical(gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a result as backward takes it: contiguous."""
    if is_canonical(gradient) and not (gradient.is_conj() or gradient.is_neg()):
        return gradient
    return gradient.clone(memory_format=torch.contiguous_format)


def _without_base(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is no view, on the same memory: the caller may write to it in place."""
    if not tensor._is_view():
        return tensor
    return tensor.new_empty(0).set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


class CompiledProgram(torch.autograd.Function):
    """Forward and backward of one call as autograd sees them: ``CompiledProgramBackward``."""

    @staticmethod
    def forward(ctx: Any, called: _Called, *tensors: torch.Tensor) -> Any:
        ctx.called = called
        return called.forward(ctx)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        return None, *ctx.called.backward(ctx, given)
