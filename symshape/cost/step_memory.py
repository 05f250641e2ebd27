"""The memory that an eager call or step of training reserves: its requests replayed on a simulated allocator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from symshape.cost.allocator import Allocator, Block, OutOfMemory
from symshape.cost.domain import Domain
from symshape.cost.graph_memory import DeviceMemory, workspace_users
from symshape.cost.liveness import OUTPUTS, PARAMETERS, Storage, storages_of
from symshape.cost.optimizers import OptimizerMemory
from symshape.graph.program import Program
from symshape.graph.steps import values_in

__all__ = ["ReservedAt", "StepMemory"]


@attrs.frozen
class ReservedAt:
    """The most memory of a call at given sizes, in bytes.

    Attributes:
        reserved: by the allocator (``torch.cuda.max_memory_reserved``).
        allocated: handed out by the allocator (``torch.cuda.max_memory_allocated``).
    """

    reserved: int
    allocated: int


class StepMemory:
    """The requests of a call that runs op by op, or of two steps of training, at any sizes.

    Parameters, then arguments are there first, each in a block of its own. The workspaces of cuBLAS are allocated by
    the first product of matrices. In training the first step makes the optimizer's state, and gradients are freed
    after each step.

    Args:
        program: the forward pass, or a program that returns a loss and gradients.
        schedule: who holds tensors, as for :class:`PeakMemory`.
        optimizer: the memory of the optimizer; None for none.
        trains: whether results after the first are gradients.
        device: the memory of libraries.
    """

    def __init__(
        self,
        program: Program,
        schedule: str = "eager",
        optimizer: OptimizerMemory | None = None,
        *,
        trains: bool = False,
        device: DeviceMemory | None = None,
    ) -> None:
        graph = program.graph
        self.domain = Domain.of(program)
        self._device = device or DeviceMemory.here()
        self._optimizer = optimizer
        gradients = list(values_in(graph.outputs))[1:] if trains else []
        self._storages: Sequence[Storage] = storages_of(graph, schedule=schedule, gradients=gradients)
        self._sizes: Callable[[Sequence[int]], tuple[int, ...]] = self.domain.compiled([s.size for s in self._storages])
        self._users = workspace_users(graph.nodes)
        self._end = len(graph.nodes)
        made = [each.born for each in self._storages if each.part == OUTPUTS and each.born >= 0]
        self._loss = made[0] if trains and made else self._end  # what comes after it is backward
        self._steps: list[tuple[list[int], list[int]]] = [([], []) for _ in range(self._end + 1)]
        for place, each in enumerate(self._storages):
            self._steps[each.born + 1][0].append(place)
            if each.last < self._end:
                self._steps[each.last + 1][1].append(place)

    def assume(self, device: DeviceMemory) -> None:
        """Use another device's memory of libraries."""
        self._device = device

    def at(self, limit: int | None = None, **sizes: int) -> ReservedAt:
        """Return the most memory at these sizes.

        Raises:
            OutOfMemory: more than ``limit`` bytes would be reserved, even after cached memory is given back.
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        values = self._sizes(self.domain.values(sizes))
        allocator = Allocator(limit, expandable=self._device.expandable)
        run = _Run(allocator, self._device)
        kept = run.begin([(place, values[place]) for place in self._steps[0][0] if self._is(place, PARAMETERS)])
        inputs = run.begin([(place, values[place]) for place in self._steps[0][0] if not self._is(place, PARAMETERS)])
        held = {**kept, **inputs}
        for requests in (None,) if self._optimizer is None else (self._optimizer.first, self._optimizer.later):
            made = self._run(run, dict(held), values)
            if requests is not None:
                run.changes(requests)
            for place in made.keys() - held.keys():
                allocator.free(made[place])
        return ReservedAt(allocator.most_reserved, allocator.most_allocated)

    def fits(self, limit: int, sizes: Mapping[str, int]) -> bool:
        """Return whether a call of these sizes runs with ``limit`` bytes."""
        try:
            self.at(limit, **sizes)
        except OutOfMemory:
            return False
        return True

    def _is(self, place: int, part: int) -> bool:
        return self._storages[place].part == part

    def _run(self, run: _Run, held: dict[int, Block], values: Sequence[int]) -> dict[int, Block]:
        """Run the program once; return the blocks that are left."""
        allocator = run.allocator
        for index, (born, gone) in enumerate(self._steps):
            for place in born if index else ():
                if values[place]:
                    held[place] = allocator.allocate(values[place])
            if index - 1 in self._users:
                run.work(lt=self._users[index - 1], backward=index - 1 > self._loss)
            for place in gone:
                if place in held and self._storages[place].born >= 0:
                    allocator.free(held.pop(place))
        return held


class _Run:
    """The allocator of one simulated process, with the workspaces of its stream."""

    def __init__(self, allocator: Allocator, device: DeviceMemory) -> None:
        self.allocator = allocator
        self._device = device
        self._there: set[tuple[bool, bool]] = set()

    def begin(self, sizes: Sequence[tuple[int, int]]) -> dict[int, Block]:
        """Allocate a block for each size; return them by number."""
        return {number: self.allocator.allocate(size) for number, size in sizes if size}

    def work(self, *, lt: bool, backward: bool) -> None:
        """Allocate the workspaces of a product of matrices, if they are not there.

        Autograd runs backward in a thread of its own, which has handles of cuBLAS and workspaces of its own.
        """
        for kind, size in ((False, self._device.workspace), (True, self._device.lt_workspace if lt else 0)):
            if size and (kind, backward) not in self._there:
                self._there.add((kind, backward))
                self.allocator.allocate(size)

    def changes(self, requests: Sequence[tuple[int, int]]) -> None:
        """Make the requests of an optimizer's step; what it does not free stays."""
        held: dict[int, Block] = {}
        for number, size in requests:
            if size:
                held[number] = self.allocator.allocate(size)
            elif number in held:
                self.allocator.free(held.pop(number))
