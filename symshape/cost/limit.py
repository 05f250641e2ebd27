"""A budget of memory and operations as a guard set: the sizes for which a program stays within
it.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from guards.sets.guard_set import GuardSet
from symshape.cost.cost import Cost
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.units import amount
from symshape.errors import InputError


class Priced(Protocol):
    """A traced program, as :class:`symshape.Traced` and :class:`symshape.TracedTraining` are."""

    @property
    def guards(self) -> GuardSet:
        """The guards under which the program is right."""

    def cost(self) -> Cost:
        """Return the cost of the program."""

    def peak_memory(self, *, schedule: str, alignment: int | None) -> PeakMemory:
        """Return the peak memory of the program."""


@attrs.frozen
class Limit:
    """A budget for a call.

    Attributes:
        memory: bytes at the peak (a number, or ``"80 GB"``); None for any.
        flops: operations (a number, or ``"2 T"``); None for any.
        schedule: who holds tensors, as for :meth:`symshape.Traced.peak_memory`.
        alignment: allocations are rounded up to a multiple of this.

    The guards of several programs under their limits go into one dispatch tree, which then returns
    the first program that serves a call within its budget:

    >>> import torch, symshape
    >>> from guards import Tree
    >>> def at_once(x, y):
    ...     return torch.exp(x[:, None] * y[None, :]).sum(1)
    >>> def in_turn(x, y):
    ...     return torch.mv(x[:, None], torch.ones(1)) * y.sum()
    >>> names = {"x": {0: "n"}, "y": {0: "m"}}
    >>> fast, slow = (
    ...     symshape.trace(fn, torch.ones(5), torch.ones(7), dynamic=names)
    ...     for fn in (at_once, in_turn)
    ... )
    >>> tree = Tree(["n", "m"])
    >>> tree.insert(symshape.Limit(memory="1 MB").guards(fast), "fast")
    >>> tree.insert(slow.guards, "slow")
    >>> tree.lookup((100, 200)), tree.lookup((1000, 2000))
    ('fast', 'slow')
    """

    memory: int | str | None = None
    flops: int | str | None = None
    schedule: str = "graph"
    alignment: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.memory is None and self.flops is None:
            raise InputError("a limit needs memory=… or flops=…, such as Limit(memory='80 GB')")
        for name in ("memory", "flops"):
            if getattr(self, name) is not None:
                amount(getattr(self, name), "bytes" if name == "memory" else name)

    def guards(self, traced: Priced) -> GuardSet:
        """Return the sizes for which a traced program is right and stays within the budget.

        Raises:
            InputError: the schedule or the alignment is malformed, or the cost of an op is not
                known.
        """
        found = traced.guards
        if self.memory is not None:
            peak = traced.peak_memory(schedule=self.schedule, alignment=self.alignment)
            found = found.intersect(peak.within(self.memory))
        if self.flops is not None:
            cost = traced.cost()
            if cost.unpriced:
                raise InputError(
                    f"the limit flops={self.flops!r} cannot be checked: the cost of "
                    f"{min(cost.unpriced)} is not known"
                )
            budget = amount(self.flops, "flops")
            found = found.intersect(cost.flops.within(budget, f"operations within {self.flops}"))
        return found
