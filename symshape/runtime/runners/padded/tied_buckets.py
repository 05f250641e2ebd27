"""The buckets of a program that runs after another one, in a bucket of the same capacities.

Backward of attention with dropout has to drop what forward dropped.  Its kernels do so only at the
sizes of forward, and some of them only if both are captured or neither is.  So each bucket of
forward is made together with one for backward, and a call that forward runs op by op has its
backward op by op.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from symshape.graph.codegen import Run
from symshape.graph.program import Program
from symshape.runtime.runners.cuda.capture import CaptureFailed
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.bucket_finder import BucketFinder

__all__ = ["TiedBuckets"]


class TiedBuckets:
    """The buckets of a second program, one for each bucket of a first program.

    Both programs have the same symbols, and two buckets of the same capacities are worth the same.

    Args:
        program: the second program.
        finder: makes its buckets.
        store: stores the buckets of both.
        eager: runs it op by op.

    Attributes:
        finder: makes its buckets.
    """

    def __init__(
        self, program: Program, finder: BucketFinder, store: GraphStore, eager: Run
    ) -> None:
        self.finder = finder
        self._store, self._eager, self._released = store, eager, False
        self._symbols = list(program.positions.items())
        self._positions = [each.position for each in program.graph.inputs]
        self._known: weakref.WeakKeyDictionary[Bucket, Bucket] = weakref.WeakKeyDictionary()
        finder.on_forget = self._forget

    def run(self, bucket: Bucket | None, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of a call of the second program.

        Args:
            bucket: the bucket that the first program ran in; None if it ran op by op.
            leaves: the tensors of the call.
            values: its integers.

        Raises:
            CaptureFailed: there is no such bucket any more.
            torch.OutOfMemoryError: there is no memory for it.
        """
        if bucket is None:
            return self._eager(leaves, values)
        with self._store.lock:
            found = self.like(bucket)
            found.lease.credit.use(self._store.clock)
            placement = found.place({name: values[place] for name, place in self._symbols})
            results = found.launched(leaves, placement)
            if results is None:
                results = found.call(leaves, [leaves[at] for at in self._positions], placement)
            if self._released:
                self.finder.clear()
        return results

    def like(self, bucket: Bucket) -> Bucket:
        """Return the captured bucket for the same capacities, made now if need be.  Callers hold
        the store's lock.

        Raises:
            CaptureFailed: the second program cannot be padded like that, or not be captured.
            torch.OutOfMemoryError: there is no room or no memory for it.
        """
        found, stream = self._known.get(bucket), self.finder.stream()
        if found is None or found.lease.pool != stream:
            found = self._known[bucket] = self._made(bucket, stream)
        if not found.captures:
            try:
                found.warm_up()
            except torch.OutOfMemoryError as error:
                self.finder.give_up(found, f"out of memory: {error}")
                raise
            except (IndexError, RuntimeError) as error:
                raise CaptureFailed(str(error)) from error
        return found

    def _made(self, bucket: Bucket, stream: int) -> Bucket:
        caps, credit = bucket.made.caps, bucket.lease.credit
        every = {**bucket.made.exact, **caps}
        sizes = {name: every[name] for name, _ in self._symbols}
        found = self.finder.make(sizes, stream, sizes, credit.now(self._store.clock))
        refused = caps.keys() & self.finder.refusals.keys()
        if refused:
            why = "; ".join(f"{name}: {self.finder.refusals[name]}" for name in refused)
            raise CaptureFailed(why)
        if found is None:
            raise torch.OutOfMemoryError(f"no room in the budget of {self._store.limit} graphs")
        here = {**found.made.exact, **found.made.caps}
        if here != sizes or caps.keys() & found.made.exact.keys():
            raise CaptureFailed(f"it is padded to {here}, and not to {sizes}")
        found.lease.credit = credit
        return found

    def _forget(self, bucket: Bucket) -> None:
        """Handle the removal of a bucket from the store."""
        for first in [first for first, found in self._known.items() if found is bucket]:
            del self._known[first]

    def release(self) -> None:
        """Drop the buckets; a call whose first program ran in one has its own made again."""
        self._released = True
        self.finder.clear()
