"""Roofline: the least time of a program on a device, op by op, by operations or by memory traffic.

Products of matrices, convolutions and attention take at least their operations at the device's peak
for their dtype. Every op takes at least its bytes at the device's bandwidth. A fused kernel moves
fewer bytes than its ops do one by one, so a compiled program may be faster than this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from symshape.cost.cost import Cost
from symshape.cost.devices import DevicePeaks
from symshape.cost.op_costs import OpCost
from symshape.cost.units import shown
from symshape.forks import cached_property

PRODUCTS = ("contraction", "convolution", "attention", "recurrent")
"""The families of ops to which the peak rates of operations apply."""


@attrs.frozen
class RooflineAt:
    """The least time of a program at given sizes, its ops run one by one.

    Attributes:
        flops: operations.
        bytes: memory traffic.
        computing: seconds of the ops that the device's operations bound.
        moving: seconds of the ops that its memory bounds.
    """

    flops: int
    bytes: int
    computing: float
    moving: float

    @property
    def seconds(self) -> float:
        """The least time."""
        return self.computing + self.moving

    def share(self, seconds: float) -> float:
        """Return the least time as a share of a measured time: 1 is the best."""
        return self.seconds / seconds

    def achieved(self, seconds: float) -> str:
        """Return the rates of a measured time, and their share of the attainable, in words."""
        rates = f"{shown(self.flops / seconds, 'FLOP/s')}, {shown(self.bytes / seconds, 'B/s')}"
        return f"{rates}, {self.share(seconds):.0%} of attainable"

    def __str__(self) -> str:
        bound = "operations" if self.computing > self.moving else "memory"
        part = max(self.computing, self.moving) / self.seconds if self.seconds else 0.0
        return f"at least {self.seconds * 1e3:.3g} ms, {part:.0%} of it bound by {bound}"


class Roofline:
    """The least time of a program on a device, at any sizes.

    >>> import torch, symshape
    >>> traced = symshape.trace(
    ...     lambda a, b: a @ b, torch.ones(3, 4), torch.ones(4, 5), dynamic={"a": {0: "n"}}
    ... )
    >>> peaks = symshape.DevicePeaks("slow", {"float32": 1000.0}, 1e6)
    >>> print(Roofline(traced.cost(), peaks).at(n=100))
    at least 4e+03 ms, 100% of it bound by operations
    """

    def __init__(self, cost: Cost, peaks: DevicePeaks) -> None:
        self.cost = cost
        self.peaks = peaks

    @cached_property
    def _evaluate(self) -> Callable[[Sequence[int]], tuple[int, ...]]:
        terms = [term for each in self.cost.ops for term in (each.flops, each.read + each.written)]
        return self.cost.domain.compiled(terms)

    @cached_property
    def _needed(self) -> frozenset[str]:
        cost = self.cost
        return frozenset((*cost.flops.symbols, *cost.bytes.symbols))

    def _rate(self, each: OpCost) -> float | None:
        return self.peaks.flops.get(each.dtype) if each.family in PRODUCTS else None

    def at(self, **sizes: int) -> RooflineAt:
        """Return the least time at these sizes.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        values = self._evaluate(self.cost.domain.values(sizes, self._needed))
        computing = moving = 0.0
        for each, flops, moved in zip(self.cost.ops, values[::2], values[1::2], strict=True):
            rate = self._rate(each)
            to_compute, to_move = flops / rate if rate else 0.0, moved / self.peaks.bandwidth
            if to_compute > to_move:
                computing += to_compute
            else:
                moving += to_move
        return RooflineAt(sum(values[::2]), sum(values[1::2]), computing, moving)
