"""The memory that an eager call or step of training reserves: its requests replayed on a simulated
allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import attrs

from symshape.cost.allocator import Allocator, Block, OutOfMemory
from symshape.cost.domain import Domain
from symshape.cost.graph_memory import DeviceMemory, with_own_memory, workspace_users
from symshape.cost.graph_requests import change
from symshape.cost.liveness import OUTPUTS, PARAMETERS, Storage, storages_of
from symshape.cost.optimizers import OptimizerMemory
from symshape.cost.workspaces.column_sums import Multiprocessors, partial_sums
from symshape.cost.workspaces.op_requests import HERE, OpRequests, Workspaces
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

    Parameters, then arguments are there first, each in a block of its own. The workspaces of cuBLAS
    are allocated by the first product of matrices. In training the first step makes the optimizer's
    state, and gradients are freed after each step. Ops of cuDNN ask for what they were seen to ask
    for on the device.

    Args:
        program: the forward pass, or a program that returns a loss and gradients.
        schedule: who holds tensors, as for :class:`PeakMemory`.
        optimizer: the memory of the optimizer; None for none.
        trains: whether results after the first are gradients.
        device: the memory of libraries.
        workspaces: what ops ask for beyond their results, measured on the program's device.
        beside: the bytes of what is there and not read, each in a block of its own.
    """

    def __init__(
        self,
        program: Program,
        schedule: str = "eager",
        optimizer: OptimizerMemory | None = None,
        *,
        trains: bool = False,
        device: DeviceMemory | None = None,
        workspaces: Workspaces = HERE,
        beside: Sequence[int] = (),
    ) -> None:
        self._beside = tuple(beside)
        self._graph = graph = program.graph
        self._workspaces = workspaces
        self.domain = Domain.of(program)
        self._device = device or DeviceMemory.here()
        self._optimizer = optimizer
        gradients = list(values_in(graph.outputs))[1:] if trains else []
        self._storages: Sequence[Storage] = storages_of(
            graph, schedule=schedule, gradients=gradients
        )
        self._sizes: Callable[[Sequence[int]], tuple[int, ...]] = self.domain.compiled(
            [s.size for s in self._storages]
        )
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
            OutOfMemory: more than ``limit`` bytes would be reserved, even after cached memory is
                given back.
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        return self._at(limit, sizes, self._measured(sizes))

    def unknown(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """Return the names of the ops whose kernels allocate an unknown amount for themselves at
        these sizes.

        At sizes for which the trace does not hold nothing is measured.
        """
        owners = with_own_memory(self._graph.nodes)
        if not owners or not self.domain.guards.holds(sizes):
            return owners
        measured = self._measured(sizes)
        born = self._born(self._sizes(self.domain.values(sizes)))
        known = [
            place for place, each in measured.items() if len(each.kept) == len(born[place + 1])
        ]
        return with_own_memory(self._graph.nodes, known)

    def _at(
        self, limit: int | None, sizes: Mapping[str, int], measured: Mapping[int, OpRequests]
    ) -> ReservedAt:
        """Return the most memory at these sizes, with these requests of ops."""
        integers = self.domain.values(sizes)
        values = self._sizes(integers)
        asked = self._partial_sums(dict(zip(self.domain.symbols, integers, strict=True)))
        allocator = Allocator(limit, expandable=self._device.expandable)
        run = _Run(allocator, self._device)
        run.begin(list(enumerate(self._beside)))
        kept = run.begin(
            [(place, values[place]) for place in self._steps[0][0] if self._is(place, PARAMETERS)]
        )
        inputs = run.begin(
            [
                (place, values[place])
                for place in self._steps[0][0]
                if not self._is(place, PARAMETERS)
            ]
        )
        held = {**kept, **inputs}
        for requests in (
            (None,) if self._optimizer is None else (self._optimizer.first, self._optimizer.later)
        ):
            made = self._run(run, dict(held), values, measured, asked)
            if requests is not None:
                run.changes(requests)
            for place in made.keys() - held.keys():
                allocator.free(made[place])
        return ReservedAt(allocator.most_reserved, allocator.most_allocated)

    def _partial_sums(self, values: Mapping[str, int]) -> Mapping[int, tuple[int, ...]]:
        """Return the bytes that sums over rows ask for besides their results, by the position of
        the node.
        """
        device = Multiprocessors.here()
        found = {
            place: partial_sums(node, values, device)
            for place, node in enumerate(self._graph.nodes)
        }
        return {place: each for place, each in found.items() if each}

    def fits(self, limit: int, sizes: Mapping[str, int]) -> bool:
        """Return whether a call of these sizes runs with ``limit`` bytes.

        Ops are measured only where their results alone fit.
        """
        try:
            self._at(limit, sizes, {})
            self.at(limit, **sizes)
        except OutOfMemory:
            return False
        return True

    def _measured(self, sizes: Mapping[str, int]) -> Mapping[int, OpRequests]:
        """Return what ops ask for at these sizes, by the position of the node.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        values = self.domain.values(sizes)
        return self._workspaces.of(self._graph, dict(zip(self.domain.symbols, values, strict=True)))

    def _is(self, place: int, part: int) -> bool:
        return self._storages[place].part == part

    def _born(self, values: Sequence[int]) -> list[list[int]]:
        """Return for each moment the storages that need memory then."""
        return [[place for place in born if values[place]] for born, _ in self._steps]

    def _run(
        self,
        run: _Run,
        held: dict[int, Block],
        values: Sequence[int],
        measured: Mapping[int, OpRequests],
        asked: Mapping[int, tuple[int, ...]],
    ) -> dict[int, Block]:
        """Run the program once; return the blocks that are left.

        Args:
            run: the simulated process.
            held: the blocks that are there, by storage.
            values: the bytes of storages.
            measured: all requests of some ops, by the position of the node.
            asked: the bytes that others ask for besides their results.
        """
        allocator = run.allocator
        fresh = count(len(values)).__next__
        born = self._born(values)
        for index, (_, gone) in enumerate(self._steps):
            seen = (
                measured[index - 1].holding(born[index], fresh) if index - 1 in measured else None
            )
            if index:
                change(
                    allocator,
                    held,
                    [(place, values[place]) for place in born[index]] if seen is None else seen,
                )
            for block in [allocator.allocate(size) for size in asked.get(index - 1, ())]:
                allocator.free(block)
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

        Autograd runs backward in a thread of its own, which has handles of cuBLAS and workspaces of
        its own.
        """
        for kind, size in (
            (False, self._device.workspace),
            (True, self._device.lt_workspace if lt else 0),
        ):
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
