"""The buckets of a program that runs after another one, in a bucket of the same capacities.

Backward of attention with dropout has to drop what forward dropped.  Which elements are dropped
depends on the state that forward kept, on the kernel, and on the place of an element among all: on
the capacities, and on where the padding is.  Some kernels also read the state on the device only if
they are captured.  So each bucket of forward is made together with one for backward, and a call
that forward runs op by op has its backward op by op.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from meta_fns.padding.axes import Axis, agree, capacity_of
from symshape.calls.questions import is_transformed
from symshape.graph.codegen import Run
from symshape.graph.graph import Graph
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates, states_of
from symshape.graph.steps import Value, arguments_by_name, drops
from symshape.runtime.padding.padded_graph import PaddedGraph, Refusal
from symshape.runtime.padding.planning import Plan, plan
from symshape.runtime.runners.cuda.capture import CaptureFailed, is_capturing
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.bucket_finder import BucketFinder

__all__ = ["DropsOthers", "RefusesSizes", "TiedBuckets", "attention_agrees"]

_OWN = ("query", "key", "value", "out", "logsumexp")
"""The arguments of a backward of attention that are forward's, by their names in its schema."""


class DropsOthers(CaptureFailed):
    """Raised for capacities at which attention in backward would drop other elements than in
    forward.
    """


class RefusesSizes(CaptureFailed):
    """Raised if the second program refuses sizes that the first one pads.

    Attributes:
        refusals: why, by symbol.
    """

    def __init__(self, refusals: Mapping[str, Refusal]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in refusals.items()))
        self.refusals = refusals


class TiedBuckets:
    """The buckets of a second program, one for each bucket of a first program.

    Two such buckets are worth the same, since both serve the same calls, and leave the store
    together.

    Args:
        program: the second program.
        finder: makes its buckets.
        store: stores the buckets of both.
        eager: runs it op by op.

    Attributes:
        finder: makes its buckets.
        others: the buckets of other programs that may run in its place after the first one.
        agreed: whether a bucket was found to drop what the first program drops in its bucket.
    """

    def __init__(
        self, program: Program, finder: BucketFinder, store: GraphStore, eager: Run
    ) -> None:
        self.finder = finder
        self.others: list[TiedBuckets] = []
        self.agreed = False
        self._program, self._store, self._eager = program, store, eager
        self._symbols = list(program.positions.items())
        self._positions = [each.position for each in program.graph.inputs]
        self._known: weakref.WeakKeyDictionary[Bucket, Bucket] = weakref.WeakKeyDictionary()
        # how often a call of the first program's bucket found none here
        self._missed: weakref.WeakKeyDictionary[Bucket, int] = weakref.WeakKeyDictionary()
        finder.on_forget = self._forget

    def run(self, bucket: Bucket | None, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of a call of the second program.

        A call whose bucket has left the store meanwhile runs on buffers of its own, op by op: it
        has to drop what the first program dropped.

        Args:
            bucket: the bucket that the first program ran in; None if it ran op by op.
            leaves: the tensors of the call.
            values: its integers.

        Raises:
            CaptureFailed: the second program cannot be padded like that, or cannot run so: the call
                is part of a capture or under a transform.
            torch.OutOfMemoryError: there is not enough memory.
        """
        if bucket is None:
            return self._eager(leaves, values)
        if is_transformed() or (leaves and leaves[0].is_cuda and is_capturing()):
            raise CaptureFailed("the call is under a transform or part of another capture")
        with self._store.lock:
            found = self._there(bucket) or self._late(bucket) or self._aside(bucket)
            placement = found.place({name: values[place] for name, place in self._symbols})
            results = found.launched(leaves, placement)
            if results is not None:
                return results
            try:
                return found.call(leaves, [leaves[at] for at in self._positions], placement)
            except torch.OutOfMemoryError:
                raise
            except (IndexError, RuntimeError) as error:
                raise CaptureFailed(str(error)) from error

    def has(self, bucket: Bucket) -> bool:
        """Return whether there is a captured bucket for the same capacities on this stream."""
        return self._there(bucket) is not None

    def _there(self, bucket: Bucket) -> Bucket | None:
        found = self._known.get(bucket)
        if found is None or not found.captures or found.lease.pool != self.finder.stream():
            return None
        return found

    def prepare(self, bucket: Bucket) -> float:
        """Make and capture the bucket for the same capacities, unless it is there; return the ms
        of loading kernels for it.  Callers hold the store's lock.

        Raises:
            DropsOthers: its attention would drop other elements than that of the first one.
            RefusesSizes: one of them refuses sizes that the first program pads.
            CaptureFailed: the second program, or one of the others, cannot be padded like that; or
                the second program cannot be captured.
            torch.OutOfMemoryError: there is no room or no memory for it.
        """
        if self.has(bucket):
            return 0.0
        for each in self.others:
            each._planned(bucket)
        found = self._known[bucket] = self._stored(bucket)
        bucket.on_leave.append(self._follow)
        if found.captures:
            return 0.0
        try:
            found.warm_up()
        except torch.OutOfMemoryError as error:
            self.finder.give_up(found, f"out of memory: {error}")
            raise
        except (IndexError, RuntimeError) as error:
            raise CaptureFailed(str(error)) from error
        return found.loading

    def _sizes(self, bucket: Bucket) -> dict[str, int]:
        every = {**bucket.made.exact, **bucket.made.caps}
        return {name: every[name] for name, _ in self._symbols}

    def _exact(self, bucket: Bucket) -> dict[str, Refusal]:
        """Return the symbols that a bucket of the first program does not pad, and why."""
        names = [name for name, _ in self._symbols if name in bucket.made.exact]
        refusals = bucket.made.refusals
        return {
            name: refusals[name]
            if name in refusals
            else Refusal("", "", "it has one value in forward's bucket", "", frozenset((name,)))
            for name in names
        }

    def _stored(self, bucket: Bucket) -> Bucket:
        """Return the stored bucket for the same capacities, made now if need be."""
        sizes, stream = self._sizes(bucket), self.finder.stream()
        there = (
            each
            for each in self.finder.buckets(stream)
            if {**each.made.exact, **each.made.caps} == sizes
        )
        found, credit = next(there, None), bucket.lease.credit
        if found is None:
            found = self.finder.make(
                sizes, stream, sizes, credit.now(self._store.clock), self._exact(bucket)
            )
            if found is None:
                self._planned(bucket)  # raises if room is not what is missing
                raise torch.OutOfMemoryError("there is no room for a bucket of backward")
            found.lease.credit = credit
        try:
            self._check(bucket, found.made, sizes)
        except CaptureFailed:
            found.drop()
            raise
        return found

    def _late(self, bucket: Bucket) -> Bucket | None:
        """Return the bucket for the same capacities, made for a call whose first program has run
        already; None if that happens for the first time, or it cannot be kept.

        The first program's bucket is made together with that of the backward that ran last.
        Where a call has two, this is the other one.
        """
        self._missed[bucket] = missed = self._missed.get(bucket, 0) + 1
        lease = bucket.lease
        if missed == 1 or lease.gone or lease.pool != self.finder.stream():
            return None
        try:
            self.prepare(bucket)
        except (CaptureFailed, torch.OutOfMemoryError):
            return None
        found = self._there(bucket)
        if found is not None and bucket.lease.gone:  # it made room for this one
            found.drop()
            return None
        return found

    def _aside(self, bucket: Bucket) -> Bucket:
        """Return a bucket for the same capacities that is neither stored nor captured."""
        return Bucket(self._program, self._planned(bucket), bucket.sizes.device, None)

    def _planned(self, bucket: Bucket) -> Plan:
        """Return the plan of a bucket for the same capacities.

        Raises:
            CaptureFailed: the second program cannot be padded like that.
        """
        sizes = self._sizes(bucket)
        exact = self._exact(bucket)
        made = plan(
            self._program,
            sizes,
            {**self.finder.refusals, **exact},
            [sizes],
            blueprints=self.finder.blueprints,
            unpadded=bool(exact),
        )
        self._check(bucket, made, sizes)
        return made

    def _check(self, bucket: Bucket, second: Plan, sizes: Mapping[str, int]) -> None:
        """Raise unless attention drops the same elements in both buckets.

        Raises:
            DropsOthers: it does not.
            RefusesSizes: the second program does not pad what the first one does.
            CaptureFailed: it cannot be padded.
        """
        first, refusals = bucket.made, {**self.finder.refusals, **second.refusals}
        refused = {name: refusals[name] for name in first.caps if name in refusals}
        if refused:
            raise RefusesSizes(refused)
        if second.padded is None:
            why = "; ".join(f"{name}: {refusal}" for name, refusal in refusals.items())
            raise CaptureFailed(why or "it has no size that could be padded")
        assert first.padded is not None
        if {**second.exact, **second.caps} != sizes or not attention_agrees(
            (bucket.program.graph, first.padded), (self._program.graph, second.padded)
        ):
            raise DropsOthers("its attention would drop other elements than that of forward")
        self.agreed = True

    def _forget(self, bucket: Bucket) -> None:
        """Handle the removal of a bucket from the store: those of the first program follow."""
        for first in [first for first, found in self._known.items() if found is bucket]:
            del self._known[first]
            first.drop()

    def _follow(self, first: Bucket) -> None:
        """Remove what was made for a bucket of the first program that has left the store."""
        found = self._known.pop(first, None)
        if found is not None and not any(each is found for each in self._known.values()):
            found.drop()

    def release(self) -> None:
        """Drop the buckets; calls whose first program ran in one can still be finished."""
        self.finder.clear()


def attention_agrees(
    forward: tuple[Graph, PaddedGraph], backward: tuple[Graph, PaddedGraph]
) -> bool:
    """Return whether attention in backward drops the elements that it dropped in forward.

    What it has from forward has its padding where forward has it, at the same capacities, and the
    same kernels run.

    Args:
        forward: the program, and what it is in a bucket.
        backward: likewise.
    """
    there: dict[Value, Sequence[Axis]] = {
        each.value: axes for each, axes in zip(forward[0].inputs, forward[1].axes, strict=True)
    }
    there |= {value: padded.axes for value, (_, padded) in forward[1].outputs.items()}
    placed = _of_attention(backward[0])
    for each, axes in zip(backward[0].inputs, backward[1].axes, strict=True):
        before = there.get(each.value, axes) if each.value in placed else axes
        if len(before) != len(axes) or not all(map(agree, before, axes)):
            return False
        if list(map(capacity_of, before)) != list(map(capacity_of, axes)):
            return False
    dropped = _kernels(forward[1])
    again = _kernels(backward[1])
    return again.keys() == RandomStates.of(backward[0]).dropping and all(
        dropped.get(state) == kernel for state, kernel in again.items()
    )


def _kernels(padded: PaddedGraph) -> dict[Value, str]:
    """Return the kernel by which a padded program drops elements, for each random state of the
    traced program.
    """
    found: dict[Value, str] = {}
    for node in padded.graph.nodes:
        name = getattr(getattr(node.op, "_schema", None), "name", "")
        source = padded.sources.get(node.outputs[0]) if node.outputs and node.outputs[0] else None
        if "attention" in name and drops(node) and source is not None:
            found.update(dict.fromkeys(states_of(source), name.removesuffix("_backward")))
    return found


def _of_attention(backward: Graph) -> set[Value]:
    """Return the tensors from which backward makes forward's part of its attention, with all
    between.

    Backward repeats views and cheap ops of forward; what they read was handed over.
    """
    made = {value: node for node in backward.nodes for value in node.outputs if value is not None}
    left: list[Any] = []
    for node in backward.nodes:
        if "attention" in getattr(getattr(node.op, "_schema", None), "name", ""):
            given = arguments_by_name(node)
            left += [given[name] for name in _OWN if isinstance(given.get(name), Value)]
    found = set[Value]()
    while left:
        value = left.pop()
        if value not in found:
            found.add(value)
            left += made[value].reads if value in made else ()
    return found
