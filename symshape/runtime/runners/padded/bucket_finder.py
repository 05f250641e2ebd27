"""The choice of a bucket for a call's sizes: their own, a new one if there is room, a larger one,
or none.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any

import attrs
import torch

from symshape import events
from symshape.graph.program import Program, size_names
from symshape.runtime.padding.buckets import step_up
from symshape.runtime.padding.planning import Choice, Plan, blueprints_of, candidates, choose, plan
from symshape.runtime.padding.results import Lend
from symshape.runtime.padding.transform import Refusal
from symshape.runtime.padding.true_layouts import TrueLayouts
from symshape.runtime.runners.cuda.capture import loads_for_sizes
from symshape.runtime.runners.graph_store import GraphStore, Weight
from symshape.runtime.runners.inductor.padded_kernels import Kernels
from symshape.runtime.runners.padded.bound_inputs import BoundInputs
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.fusion import FUSED
from symshape.runtime.runners.padded.placement import Placement
from symshape.runtime.runners.protocol import Note, silent
from symshape.torch_internals.cuda import current_stream
from symshape.tracing.garbage import seldom_collected

Found = tuple[Bucket, Placement]
Step = Callable[[int], int]
Sizes = Mapping[str, int]

_REMEMBERED = 4096  # calls remembered, by their sizes
# calls per storable bucket after which sizes without a bucket of their own ask for one again
_AGAIN = 4
_NONE: Mapping[str, Refusal] = {}
_ON_CPU = "DefaultCPUAllocator: "  # begins the message of torch's RuntimeError there
# calls after which a bucket that did not fit into memory is tried again; doubled each time
_PATIENCE = 512


class BucketFinder:
    """The finder and maker of one program's buckets, which the store keeps.  Callers hold the
    store's lock.

    Args:
        lend: lends results instead of copying them.
        kernels: compiles padded programs; None for eager's kernels alone.
        timed: whether padded programs are timed.
        note: records events in the history of the compiled function.

    Attributes:
        refusals: why a symbol is not padded, by symbol.
        failures: the number of buckets that were given up for lack of memory.
        new: the bucket found last, until :meth:`keep` stores it.
        on_forget: called with each bucket that is removed.
        has_plan: whether the user has chosen capacities.
        places: the places in the store that a new bucket needs, with those that are made for it.
        blueprints: the padded programs that were derived so far.
    """

    def __init__(
        self,
        program: Program,
        store: GraphStore,
        device: torch.device,
        lend: Lend | None = None,
        kernels: Kernels | None = None,
        *,
        timed: bool = False,
        any_randomness: bool = False,
        note: Note = silent,
    ) -> None:
        self._program = program
        self._note = note
        self._store = store
        self._device = device
        self._on_cuda = device.type == "cuda"
        self._lend = lend
        self._kernels = kernels
        self._timed = timed
        self.blueprints = blueprints_of(
            program,
            any_randomness=any_randomness,
            # a program that is recorded runs once or twice, node by node
            compiled=device.type not in FUSED,
        )
        # lent results may return as inputs
        self._bound = None if lend is not None else BoundInputs(program.graph)
        self.refusals: dict[str, Refusal] = {}
        self._number = store.number()
        self._symbols = list(program.positions.items())
        self._sources = size_names(program)
        self._calls: OrderedDict[Any, Found] = OrderedDict()
        self._guests: OrderedDict[Any, tuple[int, Found | None]] = OrderedDict()
        self._waited: Counter[Any] = Counter()  # calls since sizes asked for a bucket of their own
        self._wanting = 1
        self._planned: list[dict[str, int]] = []
        self._failed: OrderedDict[Any, tuple[int, int]] = OrderedDict()
        self._weights: OrderedDict[Any, Weight] = OrderedDict()
        self._choices: OrderedDict[Any, Choice] = OrderedDict()
        self._by_steps: dict[
            Any, Bucket
        ] = {}  # by stream, and the steps and exact sizes of the bucket
        self._stepped = _Steps()
        self._padded = sorted(candidates(program))
        self._layouts = TrueLayouts(program.graph, program.handed_over)
        self._index = device.index or 0
        self._note_padded()
        self.new: tuple[tuple[tuple[int, ...], int], Found] | None = None
        self.has_plan, self.places = False, 1
        self.on_forget: Callable[[Bucket], None] | None = None
        self.failures = 0

    def find(self, values: tuple[int, ...]) -> Found | None:
        """Return the bucket for a call and the call's placement in it; None if the call runs op by
        op.
        """
        key = (values, current_stream(self._index) if self._on_cuda else 0)
        found = self._calls.get(key)
        if found is not None:
            return found
        if not self._by_steps or self.new is not None or 0 in values:
            return self._find(key)
        steps = self._stepped
        rounded = [
            steps[values[place]] if pads else values[place] for _, place, pads in self._rounding
        ]
        bucket = self._by_steps.get((key[1], *rounded))
        sizes = {name: values[place] for name, place, _ in self._rounding}
        if bucket is None or (
            min(sizes.values(), default=0) < self._layouts.exact_from
            and self._layouts.differ(sizes)
        ):
            return self._find(key)
        self.new = key, (bucket, bucket.place(sizes, self._lend))
        return self.new[1]

    def _note_padded(self) -> None:
        """Record which sizes are rounded up, as far as known."""
        padded = self.padded
        self._rounding = [(name, place, name in padded) for name, place in self._symbols]
        self._by_steps.clear()

    def bucket_for(self, sizes: Mapping[str, int]) -> Bucket | None:
        """Return the bucket made for these sizes on the current stream, made now if there is room;
        else None.
        """
        return self._own(sizes, self.stream())

    def stream(self) -> int:
        """Return the current stream of the device; 0 on the CPU."""
        return current_stream(self._index) if self._on_cuda else 0

    def keep(self) -> None:
        """Store the bucket found last for its sizes; best called while the device is busy."""
        if self.new is not None:
            key, found = self.new
            self.new = None
            _remember(self._calls, key, found)
            self._guests.pop(key, None)
            self._note(
                "bucket chosen", values=key[0], sizes=found[0].words, text="their own bucket"
            )

    def _find(self, key: tuple[tuple[int, ...], int]) -> Found | None:
        values, stream = key
        if self.new is not None:  # left by a call that failed, or that eager served
            self.keep()
            if key in self._calls:
                return self._calls[key]
        until, guest = self._guests.get(key, (0, None))
        if self._store.clock < until:
            self._waited[key] += 1
            return guest
        self._wanting = self._waited.pop(key, 0) + 1
        sizes = {name: values[place] for name, place in self._symbols}
        if not all(sizes[name] for name in self._padded) or self._layouts.differ(sizes):
            return None  # sizes of 0 gain nothing, and eager then checks fewer of its arguments
        bucket, self._wanting = self._own(sizes, stream), 1
        if bucket is not None:
            self.new = key, (bucket, bucket.place(sizes, self._lend))
            return self.new[1]
        covering = [
            (prod(each.made.caps.values()), each)
            for each in self.buckets(stream)
            if each.covers(sizes)
        ]
        _, bucket = min(covering, key=itemgetter(0), default=(0, None))
        found = None if bucket is None else (bucket, bucket.place(sizes, self._lend))
        if until == 0 or (None if guest is None else guest[0]) is not bucket:
            said = (
                ("no bucket, they run op by op", "")
                if bucket is None
                else ("a larger bucket", bucket.words)
            )
            self._note("bucket chosen", values=values, text=said[0], sizes=said[1])
        _remember(self._guests, key, (self._store.clock + _AGAIN * self._store.limit, found))
        return found

    def _own(self, sizes: Mapping[str, int], stream: int) -> Bucket | None:
        """Return the bucket made for these sizes, made now if there is room; else None."""
        chosen = self._choose(sizes, step_up)
        if not chosen.caps:
            return None
        found: Bucket | None = self._store.peek(self._key(stream, chosen))
        if found is None:
            found = self._made_now(sizes, stream, chosen, self._planned)
        if found is not None:
            self._note_steps(sizes, stream, found)
        return found

    def _note_steps(self, sizes: Mapping[str, int], stream: int, bucket: Bucket) -> None:
        """Index a bucket by its rounded sizes, if its capacities depend on nothing else: no plan
        and no guard.
        """
        steps = {name: self._stepped[sizes[name]] for name, _, pads in self._rounding if pads}
        if not self._planned and bucket.made.caps == steps:
            self._by_steps[
                (stream, *[steps.get(name, sizes[name]) for name, _, _ in self._rounding])
            ] = bucket

    def _made_now(
        self,
        sizes: Sizes,
        stream: int,
        chosen: Choice,
        planned: Sequence[Sizes],
        credit: float | None = None,
        exact: Mapping[str, Refusal] = _NONE,
    ) -> Bucket | None:
        """Return a new bucket for these sizes, or None if there is no room; the symbols ``exact``
        are not padded in it.
        """
        key = self._key(stream, chosen)
        start = time.perf_counter()
        # known before the work of planning it, if it was planned before
        weight = self._weights.get(key)
        if not self._may_try(key) or not self._store.admits(
            key, stream, weight, credit, self._wanting, self.places
        ):
            return None
        with seldom_collected():
            refusals = {**self.refusals, **exact}
            made = plan(
                self._program,
                sizes,
                refusals,
                planned,
                blueprints=self.blueprints,
                unpadded=bool(exact),
            )
            self.refuse({k: why for k, why in made.refusals.items() if k not in exact})
            return None if made.padded is None else self._made(made, stream, start, credit)

    # -- for the policy that decides which buckets exist
    def make(
        self,
        sizes: Mapping[str, int],
        stream: int,
        caps: Mapping[str, int],
        credit: float,
        exact: Mapping[str, Refusal] = _NONE,
    ) -> Bucket | None:
        """Return a new bucket of these capacities for calls of these sizes; None if there is no
        room.

        Args:
            sizes: the sizes of a call, by symbol.
            stream: the stream that the call runs on.
            caps: the capacities of padded symbols and values of exact ones; others where an op
                refuses a symbol.
            credit: the ms that the bucket would have saved.
            exact: the symbols that are not padded in this bucket, and why.
        """
        names = self.padded - exact.keys()
        padded = {name: cap for name, cap in caps.items() if name in names}
        others = {name: value for name, value in caps.items() if name not in names}
        return self._made_now(sizes, stream, Choice(others, padded), [caps], credit, exact)

    def chosen(self, sizes: Mapping[str, int], step: Step) -> dict[str, int] | None:
        """Return the capacities for these sizes by these steps, and exact symbols' values; None if
        none is padded.
        """
        found = self._choose(sizes, step)
        return {**found.exact, **found.caps} if found.caps else None

    def planned(self, sizes: Mapping[str, int], stream: int) -> Bucket | None:
        """Return the bucket that the user has planned for these sizes, made now if need be; else
        None.
        """
        if not self._planned:
            return None
        caps = self._choose(sizes, step_up).caps
        if not any(
            all(each.get(name) == cap for name, cap in caps.items()) for each in self._planned
        ):
            return None
        return self._own(sizes, stream)

    def may_pad(self, values: Sequence[int]) -> bool:
        """Return whether a call may use a bucket: not with sizes of 0, nor with layouts that
        padding changes.
        """
        sizes = {name: values[place] for name, place in self._symbols}
        return (
            bool(self.padded)
            and all(sizes[name] for name in self._padded)
            and not self._layouts.differ(sizes)
        )

    @property
    def padded(self) -> set[str]:
        """The symbols that are padded, as far as known."""
        return set(self._padded) - self.refusals.keys()

    def _choose(self, sizes: Mapping[str, int], step: Step) -> Choice:
        """Return the capacities for these sizes; plain steps are remembered for all sizes that they
        hold.
        """
        if self._planned:
            return choose(self._program, sizes, self.refusals, self._planned, step)
        padded = [name for name in self._padded if name not in self.refusals]
        steps = {name: step(sizes[name]) for name in padded}
        key, own = (
            (step, *[steps.get(name, value) for name, value in sizes.items()]),
            (step, "", *sizes.values()),
        )
        found = self._choices.get(key) or self._choices.get(own)
        if found is None or len(found.caps) != len(steps):
            found = choose(self._program, sizes, self.refusals, (), step)
            # If no guard changed these steps, they are the choice for all sizes below them.
            _remember(self._choices, key if found.caps == steps else own, found)
        return found

    def _made(self, made: Plan, stream: int, start: float, credit: float | None) -> Bucket | None:
        key = self._key(stream, made)  # differs from the first key if the plan found a new refusal
        found: Bucket | None = self._store.peek(key)
        weight = Bucket.weight_of(made, lent=self._lend is not None)
        _remember(self._weights, key, weight)
        if (
            found is not None
            or not self._may_try(key)
            or not self._store.admits(key, stream, weight, credit, places=self.places)
        ):
            return found
        pool = self._store.pool(stream) if self._device.type == "cuda" else None
        try:
            bucket = Bucket(
                self._program,
                made,
                self._device,
                pool,
                self._kernels,
                timed=self._timed,
                bound=self._bound,
                share=None
                if self._lend is not None
                else partial(self._store.share, stream, self._device),
                loaded=self._is_loaded if self._on_cuda else bool,
                note=self._note,
            )
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and _ON_CPU not in str(error):
                raise
            self._failed_for_now(key, f"out of memory: {error}")
            return None
        weight = attrs.evolve(weight, buffers=weight.buffers + bucket.memory.extra)
        _remember(self._weights, key, weight)
        bucket.words, bucket.drop = self._words(made), partial(self._store.remove, key)
        bucket.lease = self._store.put(
            key,
            bucket,
            program=self._number,
            pool=stream,
            weight=weight,
            buffers=bucket.memory.shared,
            leave=partial(self._forget, bucket),
            evicted=partial(
                self._note, "dropped", sizes=bucket.words, text="others were wanted more"
            ),
        )
        bucket.planned_ms = milliseconds = (time.perf_counter() - start) * 1e3
        events.emit(events.BucketMade(dict(made.caps), dict(made.exact), milliseconds))
        self._note("bucket made", sizes=bucket.words, milliseconds=milliseconds)
        return bucket

    def prefer(self, caps: Sequence[Mapping[str, int]]) -> None:
        """Prefer the smallest of these capacities that holds a call, and steps where none does,
        from now on.

        Buckets with other capacities are removed: their calls have a better bucket now, or get one
        when they come again.
        """
        planned = {tuple(sorted(each.items())): dict(each) for each in (*self._planned, *caps)}
        self._planned = sorted(planned.values(), key=lambda each: prod(each.values()))
        self.has_plan = bool(planned)
        kept = [{**each.made.exact, **each.made.caps} for each in self.buckets()]
        for bucket, sizes in zip(self.buckets(), kept, strict=True):
            if sizes not in self._planned:
                self._store.remove(self._key(bucket.lease.pool, bucket.made))
        self.new = None
        for known in (self._by_steps, self._calls, self._guests, self._waited):
            known.clear()

    def give_up(self, bucket: Bucket, reason: str) -> None:
        """Remove a bucket that there is no memory for; it is tried again after a while."""
        key = self._key(bucket.lease.pool, bucket.made)
        self._store.remove(key)
        self._failed_for_now(key, reason)

    def buckets(self, stream: int | None = None) -> list[Bucket]:
        """Return the buckets, oldest first; with ``stream``, only that stream's."""
        kept: list[Bucket] = self._store.of(self._number)
        return [each for each in kept if stream is None or each.lease.pool == stream]

    def _is_loaded(self) -> bool:
        """Return whether the program can be captured at any sizes without a run before.

        It was captured on this stream (libraries prepare themselves for streams and threads too),
        and no library prepares itself for sizes.
        """
        captured = [each for each in self.buckets(self.stream()) if each.captures]
        if not captured or any(each.prepares for each in captured):
            return False
        return not loads_for_sizes(self._program.graph)

    def served(self) -> dict[tuple[int, ...], Bucket]:
        """Return the bucket found last for each tuple of integers."""
        self.keep()
        guests = {
            values: found[0]
            for (values, _), (_, found) in self._guests.items()
            if found is not None
        }
        return guests | {values: bucket for (values, _), (bucket, _) in self._calls.items()}

    def clear(self) -> None:
        """Remove all buckets."""
        self._store.drop(self._number)
        self.new = None
        for known in (self._by_steps, self._calls, self._guests, self._waited):
            known.clear()
        self._failed.clear()

    def _key(self, stream: int, chosen: Choice | Plan) -> Any:
        return (
            self._number,
            stream,
            tuple(sorted(chosen.exact.items())),
            tuple(sorted(chosen.caps.items())),
        )

    def _may_try(self, key: Any) -> bool:
        until, _ = self._failed.get(key, (0, 0))
        return self._store.clock >= until

    def _failed_for_now(self, key: Any, reason: str) -> None:
        _, tries = self._failed.get(key, (0, 0))
        _remember(self._failed, key, (self._store.clock + _PATIENCE * 2**tries, tries + 1))
        self.failures += 1
        events.emit(events.RunnerFallback("padded", "eager", reason))
        self._note("ran op by op", text=reason)

    def refuse(self, refusals: Mapping[str, Refusal]) -> None:
        """Pad these symbols no more, for these reasons."""
        new = {name: why for name, why in refusals.items() if name not in self.refusals}
        for name, refusal in new.items():
            events.emit(events.PaddingRefused(name, str(refusal)))
            self._note("padding refused", sizes=self._sources[name], text=str(refusal))
        if new:
            self.refusals.update(new)
            self._note_padded()

    def _words(self, made: Plan) -> str:
        """Return the sizes that a bucket serves, in the caller's words."""
        parts = [f"{self._sources[name]} up to {cap}" for name, cap in made.caps.items()]
        parts += [f"{self._sources[name]} = {value}" for name, value in made.exact.items()]
        return ", ".join(parts)

    def _forget(self, bucket: Bucket) -> None:
        for each in bucket.on_leave:
            each(bucket)
        if self.on_forget is not None:
            self.on_forget(bucket)
        if self.new is not None and self.new[1][0] is bucket:
            self.new = None
        for key in [key for key, found in self._by_steps.copy().items() if found is bucket]:
            self._by_steps.pop(key, None)
        for key in [key for key, found in self._calls.copy().items() if found[0] is bucket]:
            self._calls.pop(key, None)
        for key in [
            key
            for key, (_, found) in self._guests.copy().items()
            if found is not None and found[0] is bucket
        ]:
            self._guests.pop(key, None)


class _Steps(dict[int, int]):
    """The next step up from each number that was looked up, computed on first use."""

    def __missing__(self, value: int) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        found = self[value] = step_up(value)
        return found


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    if key not in known and len(known) >= _REMEMBERED:
        known.popitem(last=False)
    known[key] = value
