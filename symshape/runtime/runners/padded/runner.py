"""The padded runner: one program for a range of sizes, on buffers with the inputs at their
capacities and true sizes.

Each call runs the same padded program on the same buffers and copies the valid part of its results
out: on the CPU op by op, on CUDA as one CUDA graph for each bucket, all of them from one memory
pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

from symshape import events
from symshape.calls.questions import interpreters
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import values_in
from symshape.options import Options
from symshape.runtime.padding.planning import Plan, candidates, left_out, plan
from symshape.runtime.padding.report import PaddingReport, padding_of, report_of
from symshape.runtime.padding.results import aliased_storages
from symshape.runtime.padding.transform import Refusal, device_of, pad
from symshape.runtime.policy.eviction import FADES
from symshape.runtime.policy.ledger import Ledger
from symshape.runtime.runners.cuda.capture import CaptureFailed, is_capturing
from symshape.runtime.runners.cuda.capture_faults import around_uncaptured
from symshape.runtime.runners.cuda.overlaps import overlap, overlaps_itself
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.inductor.artefacts import Shelf
from symshape.runtime.runners.inductor.compile_process import shared
from symshape.runtime.runners.inductor.padded_kernels import Kernels
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.bucket_finder import BucketFinder
from symshape.runtime.runners.padded.chosen_buckets import ChosenBuckets
from symshape.runtime.runners.padded.lent_results import lend
from symshape.runtime.runners.padded.placement import Placement
from symshape.runtime.runners.padded.tied_buckets import DropsOthers, RefusesSizes, TiedBuckets
from symshape.runtime.runners.pieces.recordable import check_recordable
from symshape.runtime.runners.protocol import Cut, Note, Runner, Unfit, silent
from symshape.runtime.runners.randomness import draws_any, repeats_draws


@attrs.frozen
class Warmed:
    """The result of making a bucket before it is needed.

    Attributes:
        sizes: the sizes up to which the bucket serves; symbols that an op refuses have exactly this
            value.
        milliseconds: how long making and capturing took.
        bytes: the bucket's bytes: measured on a device, else counted.
        reason: why there is no bucket; empty if there is one.
    """

    sizes: Mapping[str, int]
    milliseconds: float = 0.0
    bytes: int = 0
    reason: str = ""

    @property
    def ready(self) -> bool:
        """Return whether there is a bucket."""
        return not self.reason


class PaddedRunner:
    """A runner with one padded program for each bucket of sizes.

    Args:
        program: the program to run.
        eager: serves calls that no bucket can.
        store: stores the buckets of the compiled function.
        options: the options, for example whether results are lent.
        where_it_pays: whether buckets are made and used as the ledger decides; else each call has
            one.
        otherwise: serves if no size can be padded; eager by default.
        note: records events in the history of the compiled function.
        cut: splits the program into pieces around an op that cannot be captured; None for a program
            that is never split.
        twin: the buckets of a program that runs after each call of this one, at the same
            capacities.
        times: the time of both programs as a multiple of this one's.

    Attributes:
        store: stores the buckets of the compiled function.
        device: the device that the program computes on.
        lends: whether results are lent instead of copied.
        otherwise: serves if no size can be padded.
        estimates: the estimated times of calls and buckets; None where each call has a bucket.
        tied: the buckets of a program that runs after another one; None for other programs.
        twin: the buckets of a program that runs after each call of this one; None if none does.

    Raises:
        Unfit: the program cannot be replayed on buffers, or has no size that can be padded.
    """

    def __init__(
        self,
        program: Program,
        eager: EagerRunner,
        store: GraphStore,
        options: Options,
        otherwise: Runner | None = None,
        note: Note = silent,
        cut: Cut | None = None,
        *,
        where_it_pays: bool = False,
        twin: TiedBuckets | None = None,
        times: float = 1.0,
    ) -> None:
        self._program = program
        self._eager = eager.fallback
        self.otherwise = otherwise or eager
        self._note = note
        self.store = store
        self._positions = [each.position for each in program.graph.inputs]
        self._draws = draws_any(program, options)
        # ``bool()`` is False
        self._repeats = repeats_draws if program.graph.uses_randomness else bool
        self.device = _check_fit(program, draws=self._draws)
        self._splitting = _Splitting(program, self.device, cut)
        self._on_cpu = self.device.type == "cpu"
        self._writes = program.graph.mutates_inputs
        mutated = set(program.graph.mutated)
        self._writing = [(each.position, each.value in mutated) for each in program.graph.inputs]
        self._told = False
        self._lifted = program.lifted_tensors
        borrow = options.outputs == "borrow"
        self.lends = borrow
        self._lender = store.lender if borrow and options.check_borrowed else None
        self._kernels = _kernels(program, self.device, options)
        lending = self._lender.lend if self._lender else lend if borrow else None
        self._finder = BucketFinder(
            program,
            store,
            self.device,
            lending,
            self._kernels,
            timed=where_it_pays,
            any_randomness=self._draws,
            note=note,
        )
        self.twin = twin
        self._finder.places = 1 if twin is None else 2
        self._chosen: ChosenBuckets | None = None
        if where_it_pays:
            self._chosen = ChosenBuckets(
                program,
                self._finder,
                Ledger(store.promise),
                self.device,
                lending,
                twin=lambda: self.twin,
            )
            self._chosen.estimates.times = times
        self.tied = (
            TiedBuckets(program, self._finder, store, self._eager)
            if program.graph.tied and twin is None
            else None
        )
        self.estimates = None if self._chosen is None else self._chosen.estimates
        self._released = False
        self._lock = store.lock

    def run(
        self,
        leaves: Sequence[Any],
        values: Sequence[int],
        served: Callable[[Bucket], object] | None = None,
    ) -> list[Any]:
        """Return the flat outputs of one call.

        ``served``: is called with the bucket of a call that runs in one.
        """
        splitting, serves = self._splitting, self._eager
        # ``is_transformed``
        if interpreters() is not None or forward_ad._current_level >= 0 or self._repeats():
            return serves(leaves, values)
        # finding the failed op needs a capture
        if splitting.spoilt and (self._on_cpu or not is_capturing()):
            with self._lock:
                splitting.without_uncaptured(leaves, values)
        if splitting.instead is not None:
            return splitting.instead.run(leaves, values)
        if self._on_cpu or not is_capturing():
            with self._lock:
                if self._lender is not None:
                    self._lender.spoil()
                self.store.clock = now = self.store.clock + 1
                chosen = self._chosen
                found = None if self._released else (chosen or self._finder).find(tuple(values))
                if not splitting.whole and (
                    found is None or self._finder.new is not None or (chosen and chosen.changed)
                ):
                    instead = splitting.without_refused(self._finder)
                    if instead is not None:
                        return instead.run(leaves, values)
                # perhaps just now: the objects of an entry may die at any moment
                if self._released:
                    self._finder.clear()
                elif found is None and chosen is not None and self._finder.padded:
                    serves = partial(chosen.run_eagerly, self._eager)
                elif found is None:
                    serves = self.otherwise.run
                elif not (self._writes and self._overlap(leaves)):
                    bucket, placement = found
                    credit = bucket.lease.credit  # ``use``, without a call of Python's
                    credit.amount = credit.amount * FADES ** (now - credit.last_used) + credit.gain
                    credit.last_used = now
                    try:
                        results = (
                            bucket.launched(leaves, placement)
                            if (chosen is None or chosen.settled)
                            and (self.twin is None or self.twin.has(bucket))
                            else None
                        )
                        if results is None:
                            results = self._called(bucket, placement, leaves)
                        if self._finder.new is not None:
                            self._finder.keep()
                        if served is not None:
                            served(bucket)
                        return results
                    except torch.OutOfMemoryError as error:
                        self._finder.give_up(bucket, f"out of memory: {error}")
                        if bucket.wrote:
                            raise
                    except CaptureFailed as error:
                        self._spoil(error, bucket)
                    except (IndexError, RuntimeError) as error:
                        if bucket.wrote:
                            raise
                        # eager raises its own error for the data, or accepts it: it ignores data of
                        # empty results
                        self._fell_back(f"for one call: {error}")
                    if chosen is not None:
                        chosen.broke_off()
        return serves(leaves, values)

    def _called(self, bucket: Bucket, placement: Placement, leaves: Sequence[Any]) -> list[Any]:
        """Return the results of a padded call; the first few calls without a capture are timed for
        the ledger.
        """
        inputs = [leaves[position] for position in self._positions]
        chosen = self._chosen
        loading = 0.0
        if self.twin is not None:
            start = time.perf_counter()
            loading = self.twin.prepare(bucket)
            if bucket.captures:  # no purchase of this call's
                self.store.promise.spend((time.perf_counter() - start) * 1e3)
        if chosen is None or chosen.settled:
            return bucket.call(leaves, inputs, placement)
        if not bucket.variants:  # it is captured now
            results = bucket.call(leaves, inputs, placement)
            chosen.bought(bucket, loading)
            return results
        chosen.bought(bucket)
        if bucket.timing:
            return bucket.call(leaves, inputs, placement)
        start = time.perf_counter()
        launched = bucket.launched(leaves, placement)  # as later calls are served
        results = bucket.call(leaves, inputs, placement) if launched is None else launched
        chosen.timed(start)
        return results

    def _overlap(self, leaves: Sequence[Any]) -> bool:
        """Return whether memory that the program writes is shared with another tensor of this
        call.
        """
        found = overlap(
            ((leaves[position], written) for position, written in self._writing), self._lifted
        )
        if found and not self._told:
            self._told = True
            self._fell_back("what it writes overlaps another tensor of the call")
        return found

    def _fell_back(self, reason: str) -> None:
        events.emit(events.RunnerFallback("padded", "eager", reason))
        self._note("ran op by op", text=reason)

    def _spoil(self, error: CaptureFailed, bucket: Bucket) -> None:
        """Give up capturing: the program runs op by op, and from the next call on in pieces if
        possible.

        If it is for its capacities alone that a bucket cannot be had, only that one is given up.
        Sizes that backward refuses are padded no more.
        """
        if isinstance(error, RefusesSizes):
            self._finder.refuse(error.refusals)
            bucket.drop()
            if self._chosen is not None:
                self._chosen.broke_off()
                self._chosen.clear()
            return
        if isinstance(error, DropsOthers) and self.twin is not None and self.twin.agreed:
            self._finder.give_up(bucket, str(error))
            return
        self.release()
        self._splitting.spoil()
        self._fell_back(f"capture failed: {error}")

    @property
    def instead(self) -> Runner | None:
        """The runner of the pieces, if the whole program cannot be captured or padded; else
        None.
        """
        return self._splitting.instead

    def prefer(self, caps: Sequence[Mapping[str, int]]) -> None:
        """Prefer the smallest of these capacities that holds a call, and steps where none does,
        from now on.
        """
        with self._lock:
            self._finder.prefer(caps)
            if self._chosen is not None:
                self._chosen.clear()

    def plan_for(self, sizes: Mapping[str, int]) -> Plan | None:
        """Return the plan of the bucket that :meth:`warm_up` would make for these sizes; None if it
        makes none.
        """
        with self._lock:
            if self._released:
                return None
            made = plan(
                self._program, sizes, self.refusals, [sizes], blueprints=self._finder.blueprints
            )
            return None if made.padded is None else made

    def warm_up(self, sizes: Mapping[str, int]) -> Warmed:
        """Make and capture the bucket for calls of these sizes, if there is room for it."""
        with self._lock:
            if self._released:
                return Warmed(sizes, reason="the entry has left the cache")
            start = time.perf_counter()
            bucket = self._finder.bucket_for(sizes)
            if bucket is None:
                return Warmed(sizes, reason=self._why_not())
            try:
                if self.twin is not None:
                    self.twin.prepare(bucket)
                with nullcontext() if self._kernels is None else self._kernels.waiting():
                    bucket.warm_up()
            except torch.OutOfMemoryError as error:
                self._finder.give_up(bucket, f"out of memory: {error}")
                return Warmed(sizes, reason="out of memory")
            except CaptureFailed as error:
                self._spoil(error, bucket)
                return Warmed(sizes, reason=f"capture failed: {error}")
            except (
                IndexError,
                RuntimeError,
            ) as error:  # an op refuses the zeros: a call captures instead
                return Warmed(sizes, reason=f"left to the first call: {error}")
            caps = {**sizes, **bucket.made.caps}
            return Warmed(caps, (time.perf_counter() - start) * 1e3, bucket.bytes)

    def keep(self, shelf: Shelf | None) -> None:
        """Store compilations for other processes from now on."""
        if self._kernels is not None:
            self._kernels.shelf = shelf

    def settle(self, until: float | None = None) -> bool:
        """Wait until no other process compiles, and capture its code; return whether that was done
        in time.

        Args:
            until: how long to wait, as a time of ``time.monotonic``; None for as long as it takes.
        """
        kernels = self._kernels
        while kernels is not None and not self._released:
            with self._lock, kernels.settling():
                for bucket in self.buckets:
                    try:
                        bucket.settle()
                    except torch.OutOfMemoryError as error:
                        self._finder.give_up(bucket, f"out of memory: {error}")
                    except CaptureFailed as error:
                        self._fell_back(f"capture failed: {error}")
                    except (IndexError, RuntimeError):
                        continue  # an op refuses the zeros: a call captures instead
            if not kernels.pending:
                return True
            if not kernels.wait(None if until is None else max(0.0, until - time.monotonic())):
                return False
        return True

    def _why_not(self) -> str:
        refused = [f"{name}: {refusal}" for name, refusal in self.refusals.items()]
        if refused and not self._finder.padded:
            return "; ".join(refused)
        memory = "" if self.store.memory is None else f" and {self.store.memory} bytes"
        return f"no room in the budget of {self.store.limit} graphs{memory}, or no memory"

    def release(self) -> None:
        """Drop the buckets and make no more."""
        with self._lock:
            self._released = True
            self._finder.clear()
            if self._chosen is not None:
                self._chosen.clear()
            if self.twin is not None:
                self.twin.release()
            self.otherwise.release()
            self._splitting.release()
            if self._kernels is not None:
                self._kernels.release()

    def describe(self) -> str:
        """Return the number of buckets, and whose kernels they run."""
        if self.instead is not None:
            return self.instead.describe()
        kinds = [each.variants[0].kernels for each in self.buckets if each.variants]
        compiled = (
            f", {kinds.count('inductor')} of them run Inductor's kernels"
            if "inductor" in kinds
            else ""
        )
        said = "" if self._kernels is None else self._kernels.reason
        if self._kernels is not None and self._kernels.pending:
            said = "; ".join(filter(None, ("Inductor's are being compiled", said)))
        return f"padded, {len(self.buckets)} buckets{compiled}{f' ({said})' if said else ''}"

    def accounts(self) -> list[str]:
        """Return the ledger's contents for a report; empty if each call has a bucket."""
        with self._lock:
            return [] if self._chosen is None else self._chosen.lines()

    def padding(self) -> PaddingReport:
        """Return how each symbol is padded in the bucket with the most repairs, or why it is
        not.
        """
        with self._lock:
            buckets = self.buckets
            if not buckets:
                return padding_of(self._program, any_randomness=self._draws)
            return report_of(self._program, max((each.made for each in buckets), key=_repairs))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets, oldest first."""
        return tuple(self._finder.buckets())

    @property
    def failures(self) -> int:
        """The number of buckets that were given up for lack of memory."""
        return self._finder.failures

    def served(self) -> dict[tuple[int, ...], Bucket]:
        """Return the bucket found last for each tuple of integers; other calls run op by op."""
        with self._lock:
            return (self._chosen or self._finder).served()

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """The reasons why symbols keep their exact value, as far as known."""
        return self._finder.refusals


def _kernels(program: Program, device: torch.device, options: Options) -> Kernels | None:
    graph = program.graph
    # a program with effects must not be run repeatedly for timing
    has_effects = graph.mutates_inputs or graph.uses_randomness
    # Inductor's code reads random states where eager keeps them
    if options.kernels == "eager" or has_effects or graph.tied:
        return None
    aliased = aliased_storages(graph)
    process = shared if options.kernels == "background" else None
    return Kernels(
        lambda region: pad(graph, region, device, aliased, apart=True),
        options.kernels == "inductor",
        process,
    )


def _repairs(made: Plan) -> int:
    return len(made.padded.repairs) if made.padded is not None else 0


def _check_fit(program: Program, *, draws: bool) -> torch.device:
    graph = program.graph
    check_recordable(program, draws=draws)
    mutated = set(graph.mutated)
    memory = [
        each.tensor.untyped_storage().data_ptr() for each in graph.lifted if each.tensor.numel()
    ]
    if any(overlaps_itself(each.tensor) for each in graph.lifted if each.value in mutated):
        raise Unfit("it writes to a parameter or a buffer whose elements share memory")
    if any(
        memory.count(each.tensor.untyped_storage().data_ptr()) > 1
        for each in graph.lifted
        if each.value in mutated
    ):
        raise Unfit("it writes to a parameter or a buffer that shares memory with another one")
    if program.modes.device:
        raise Unfit("it runs under a default device")
    device = device_of(graph)
    read = {
        value for node in graph.nodes for value in (*values_in(node.args), *values_in(node.kwargs))
    }
    read.update(values_in(graph.outputs), (each.value for each in graph.inputs))
    read.update(
        node.outputs[0] for node in graph.nodes if node.outputs and node.outputs[0] is not None
    )
    devices = {value.spec.device for value in read - RandomStates.of(graph).inside}
    if len(devices) > 1:
        raise Unfit(f"it computes on {', '.join(sorted(map(str, devices)))}, not on one device")
    if not candidates(program):
        raise Unfit("it has no size that could be padded")
    return device


# -- pieces, which leave out ops that cannot be captured or that refuse padding --------------------


_FEW = 8
"""The number of exact-size tuples up to which a bucket for each costs less than splitting the
program.
"""


class _Splitting:
    """The decision whether pieces replace a padded program, and the pieces.

    Args:
        program: the program.
        device: the device that the program computes on.
        cut: splits the program around the given ops; None for a program that is never split.

    Attributes:
        instead: the runner of the pieces; None as long as the program is not split.
        spoilt: whether a capture has failed, so that the next call is to find out which op failed.
        whole: whether refusals of padding no longer lead to a split.
    """

    def __init__(self, program: Program, device: torch.device, cut: Cut | None) -> None:
        self._program, self._device, self._cut = program, device, cut
        self.instead: Runner | None = None
        self.spoilt = False
        self.whole = cut is None

    def spoil(self) -> None:
        """Record that a capture of the program has failed."""
        self.spoilt = self._cut is not None

    def without_uncaptured(self, leaves: Sequence[Any], values: Sequence[int]) -> None:
        """After a failed capture, split the program around the op that cannot be captured, if one
        is found.
        """
        if self.spoilt:
            self.spoilt = False
            self.instead = around_uncaptured(self._cut, self._program, self._device, leaves, values)

    def without_refused(self, finder: BucketFinder) -> Runner | None:
        """Split the program around the ops that refuse padding, if no symbol is padded or too many
        sizes are exact.
        """
        refused = finder.refusals
        if not refused:
            return None
        values = {
            tuple(each.made.exact.get(name, 0) for name in refused) for each in finder.buckets()
        }
        if finder.padded and len(values) <= _FEW:
            return None
        self.whole = True
        left = left_out(refused.values())
        self.instead = self._cut(left) if left and self._cut is not None else None
        if self.instead is not None:
            finder.clear()
        return self.instead

    def release(self) -> None:
        """Release the pieces."""
        self.spoilt = False
        if self.instead is not None:
            self.instead.release()
