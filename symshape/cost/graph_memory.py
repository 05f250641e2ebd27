"""The memory of CUDA graphs on a device, foretold before the first of them is captured.

Each bucket's program is replayed on a simulator of the allocator: once on the stream of the runs
before a capture, and once into the pool that all graphs share. Workspaces of cuBLAS are allocated
where it first asks for them. On a device, ops of cuDNN are run once each, alone, to see what they
ask for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import attrs
import torch

from symshape.cost.allocator import Allocator, Block
from symshape.cost.graph_requests import Requests, change, requests_of
from symshape.cost.units import shown
from symshape.cost.workspaces.op_requests import HERE, Workspaces, has_own_memory
from symshape.errors import InputError
from symshape.exploring.tables import Table, table_html, table_text
from symshape.graph.program import Program
from symshape.graph.steps import Node
from symshape.options import Options
from symshape.runtime.padding.planning import Plan, blueprints_of, plan
from symshape.runtime.runners.cuda.graph_bytes import integer_at
from symshape.runtime.runners.padded.bound_inputs import BoundInputs
from symshape.runtime.runners.padded.buffers import aligned_bytes
from symshape.runtime.runners.padded.fusion import captured_graph
from symshape.runtime.runners.randomness import draws_any

_HOPPER = 9  # the compute capability from which torch gives cuBLAS 32 MiB
_LIBRARY_WORKSPACE = 32 * 2**20  # bytes for each stream, from Hopper on (torch 2.11 to 2.14)
_OLDER_WORKSPACE = (2 * 4096 + 8 * 16) * 2**10  # bytes: ":4096:2:16:8", before Hopper
_LT_WORKSPACE = 2**20  # bytes for each stream
_CONTEXT = 757 * 2**20  # bytes: measured on an H100 with torch 2.11; others differ
# bytes of the driver for each op of a graph: at most so many on an H100 (1.9 to 2.6 KiB)
_GRAPH_NODE = 5 * 2**9
_CONFIGURED = re.compile(r":(\d+):(\d+)")  # KiB and count, in CUBLAS_WORKSPACE_CONFIG

_aten = torch.ops.aten
_PRODUCTS = frozenset(
    {
        _aten.mm.default,
        _aten.bmm.default,
        _aten.addmm.default,
        _aten.baddbmm.default,
        _aten._addmm_activation.default,
    }
)
_LT_PRODUCTS = frozenset({_aten.addmm.default, _aten._addmm_activation.default})


@attrs.frozen
class DeviceMemory:
    """The memory that libraries and the driver take on a device, in bytes.

    Attributes:
        workspace: cuBLAS', for each stream.
        lt_workspace: cuBLASLt's, for each stream.
        context: of the process, with the code of loaded kernels; outside of the allocator.
        graph_node: the driver's, for each kernel of a captured graph; outside of the allocator.
        expandable: whether the allocator's segments grow (``expandable_segments:True``).
    """

    workspace: int = _LIBRARY_WORKSPACE
    lt_workspace: int = _LT_WORKSPACE
    context: int = _CONTEXT
    graph_node: int = _GRAPH_NODE
    expandable: bool = False

    @classmethod
    def here(cls) -> DeviceMemory:
        """Return that of the current CUDA device and of the environment; of a Hopper device if
        there is none.
        """
        major = torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else _HOPPER
        return cls.configured(os.environ, major)

    @classmethod
    def configured(cls, environment: Mapping[str, str], major: int) -> DeviceMemory:
        """Return the memory for these environment variables, on a device of this major compute
        capability.

        >>> DeviceMemory.configured({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, 9).workspace
        131072
        """
        parts = _CONFIGURED.findall(environment.get("CUBLAS_WORKSPACE_CONFIG", ""))
        default = _LIBRARY_WORKSPACE if major >= _HOPPER else _OLDER_WORKSPACE
        workspace = (
            sum(int(size) * int(count) for size, count in parts) * 2**10 if parts else default
        )
        lt = environment.get("CUBLASLT_WORKSPACE_SIZE", "")
        config = environment.get("PYTORCH_ALLOC_CONF") or environment.get(
            "PYTORCH_CUDA_ALLOC_CONF", ""
        )
        return cls(
            workspace,
            int(lt) * 2**10 if lt.isdigit() else _LT_WORKSPACE,
            expandable=re.search(r"expandable_segments\s*:\s*True", config, re.IGNORECASE)
            is not None,
        )


@attrs.frozen
class BucketMemory:
    """The memory of one bucket.

    Attributes:
        sizes: up to which it serves.
        pool: the bytes by which the pool grows when it is captured after those before it.
        buffers: the bytes of its inputs' buffers.
        kernels: the number of ops that are captured.
    """

    sizes: Mapping[str, int]
    pool: int
    buffers: int
    kernels: int


@attrs.frozen
class GraphMemory:
    """The memory that captured graphs take on a device, in bytes.

    ``pool``, ``buffers`` and ``workspaces`` are the allocator's (``torch.cuda.memory_reserved``),
    ``graphs`` and ``context`` are not. The pool follows torch's allocator exactly for the ops' own
    tensors. What cuDNN's kernels allocate for themselves is measured on the device; without one it
    is not known.

    Attributes:
        buckets: of each graph, in the order of their captures.
        pool: the segments of the pool that the graphs share.
        buffers: the segments with the buffers of inputs.
        workspaces: cuBLAS' on the streams of the captures and of the runs before them.
        reserved: what the allocator holds for all graphs once ``torch.cuda.empty_cache()`` has run.
        most: the most that the allocator holds while they are captured: each program runs once
            before.
        graphs: an estimate of what the driver keeps for the graphs.
        context: an estimate of what the process takes on the device before any tensor is there.
        unknown: the ops whose kernels allocate an unknown amount for themselves: the pool may be
            much greater then.
    """

    buckets: tuple[BucketMemory, ...]
    pool: int
    buffers: int
    workspaces: int
    reserved: int
    most: int
    graphs: int
    context: int
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The bytes that stay on the device for the graphs: the allocator's and the driver's."""
        return self.reserved + self.graphs

    def table(self) -> Table:
        """Return a table: each bucket with the growth of the pool."""
        rows = [
            (
                ", ".join(f"{name}={size}" for name, size in each.sizes.items()),
                *map(_mib, (each.pool, each.buffers)),
            )
            for each in self.buckets
        ]
        return Table(
            str(self),
            ("up to", "pool grows by MiB", "buffers MiB"),
            tuple(rows),
            numbers=frozenset({"MiB"}),
        )

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {shown(getattr(self, name), 'B')}"
            for name in ("pool", "buffers", "workspaces")
        )
        least = "at least " if self.unknown else ""
        more = (
            f"; {', '.join(self.unknown)} take more for themselves, which is not known"
            if self.unknown
            else ""
        )
        return (
            f"{len(self.buckets)} graphs take {least}{shown(self.total, 'B')} on the device "
            f"({parts}, graphs about {shown(self.graphs, 'B')}), "
            f"{least or 'at most '}{shown(self.most, 'B')} while they are captured{more}"
        )

    def __repr__(self) -> str:
        return f"<GraphMemory: {self}>"

    def _repr_html_(self) -> str:
        return table_html(self.table())

    def text(self) -> str:
        """Return the table as text."""
        return table_text(self.table())


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f}"


@attrs.frozen
class BucketGraph:
    """A bucket that is not made yet: its program's requests, and its buffers.

    Attributes:
        sizes: up to which it serves.
        requests: of one run.
        shared: the bytes of the buffers that it shares with other buckets.
        own: the bytes of each buffer of its own.
        products: the positions of steps that use cuBLAS, and whether cuBLASLt.
        kernels: the number of ops that compute something.
        lent: whether its results stay in the pool.
        unknown: the ops whose kernels allocate an unknown amount for themselves.
    """

    sizes: Mapping[str, int]
    requests: Requests
    shared: int
    own: tuple[int, ...]
    products: Mapping[int, bool]
    kernels: int
    lent: bool = False
    unknown: tuple[str, ...] = ()


def bucket_graph(
    program: Program, made: Plan, *, lent: bool = False, workspaces: Workspaces = HERE
) -> BucketGraph:
    """Return the bucket that a plan would make on a CUDA device.

    Args:
        program: the program.
        made: the plan of the bucket.
        lent: whether results are lent.
        workspaces: what ops ask for beyond their results, measured on the program's device.
    """
    assert made.padded is not None
    padded = made.padded
    places = range(len(padded.axes))
    steady = () if lent else BoundInputs(program.graph).steady
    moving = [place for place in places if place not in steady]
    found = captured_graph(padded, moving)
    values = {**made.exact, **made.caps}

    def size_of(place: int) -> int:
        spec = padded.inputs[place].value.spec
        sizes = [integer_at(each, values) for each in spec.sizes]
        if place in found.more:
            dim, more = found.more[place]
            sizes[dim] += more
        return (
            aligned_bytes(sizes, spec.dtype)
            if not lent and place in moving
            else prod(sizes) * spec.dtype.itemsize
        )

    own = list(places) if lent else steady
    nodes = found.graph.nodes
    requests = requests_of(found.graph, values, workspaces.of(found.graph, values))
    return BucketGraph(
        values,
        requests,
        0 if lent else sum(map(size_of, moving)),
        (8 * len(padded.sizes), *map(size_of, own)),
        workspace_users(nodes),
        sum(map(_computes, nodes)),
        lent,
        with_own_memory(nodes, requests.measured),
    )


def workspace_users(nodes: Sequence[Node]) -> dict[int, bool]:
    """Return the positions of the nodes that multiply matrices by cuBLAS, and whether it may be
    cuBLASLt.
    """
    return {
        position: node.op in _LT_PRODUCTS
        for position, node in enumerate(nodes)
        if node.op in _PRODUCTS
    }


def with_own_memory(nodes: Sequence[Node], measured: Container[int] = ()) -> tuple[str, ...]:
    """Return the names of the ops whose kernels allocate an unknown amount for themselves, each
    once.

    Nodes at the positions in ``measured`` are left out.
    """
    unknown = [
        node for place, node in enumerate(nodes) if has_own_memory(node) and place not in measured
    ]
    return tuple(dict.fromkeys(str(node.op) for node in unknown))


def _computes(node: Node) -> bool:
    """Return whether an op launches a kernel: not a view."""
    return any(each.alias_info is None for each in node.op._schema.returns)


def planned_buckets(
    program: Program, capacities: Iterable[Mapping[str, int]]
) -> Iterator[BucketGraph]:
    """Yield the buckets of a program for these capacities, the largest first, as ``warm_up``
    captures them.

    The program is padded as by default: it draws its own random numbers (``Options.randomness``).

    Raises:
        InputError: the program cannot be padded to one of them.
    """
    draws = draws_any(program, Options())
    blueprints = blueprints_of(program, any_randomness=draws)
    for caps in sorted(capacities, key=lambda each: prod(each.values()), reverse=True):
        made = plan(program, caps, planned=[caps], any_randomness=draws, blueprints=blueprints)
        if made.padded is None:
            why = (
                "; ".join(dict.fromkeys(map(str, made.refusals.values())))
                or "it has no size that could be padded"
            )
            raise InputError(f"{program.name} has no bucket for {dict(caps)}: {why}")
        yield bucket_graph(program, made)


def graph_memory(buckets: Sequence[BucketGraph], device: DeviceMemory | None = None) -> GraphMemory:
    """Return the memory that these buckets take when they are captured in this order on one
    stream.
    """
    return _Captures(device or DeviceMemory.here()).of(buckets)


def check_budget(
    buckets: Sequence[BucketGraph], budget: int, device: DeviceMemory | None = None
) -> GraphMemory:
    """Return the memory of buckets in the order of their captures, the largest first.

    Raises:
        InputError: they take more than ``budget`` bytes; it says which of them would fit.
    """
    device = device or DeviceMemory.here()
    found = graph_memory(buckets, device)
    if found.total <= budget:
        return found
    low, high = 1, len(buckets)  # the number of largest ones to leave out
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if graph_memory(buckets[middle:], device).total <= budget
            else (middle + 1, high)
        )
    said = f"{found}, which is more than memory={shown(budget, 'B')}"
    if low == len(buckets):
        raise InputError(f"{said}; not even the smallest, {_words(buckets[-1])}, fits")
    fitting = graph_memory(buckets[low:], device)
    raise InputError(
        f"{said}; the {len(fitting.buckets)} up to {_words(buckets[low])} fit, in "
        f"{shown(fitting.total, 'B')}"
    )


def _words(bucket: BucketGraph) -> str:
    return ", ".join(f"{name}={size}" for name, size in bucket.sizes.items())


class _Captures:
    """The captures of buckets, one after the other, on a simulated allocator."""

    def __init__(self, device: DeviceMemory) -> None:
        self._device = device
        self._allocator = Allocator(expandable=device.expandable)
        self._worked: set[tuple[Any, bool]] = set()

    def of(self, buckets: Sequence[BucketGraph]) -> GraphMemory:
        allocator, device = self._allocator, self._device
        found: list[BucketMemory] = []
        shared = 0
        for each in buckets:
            if each.shared > shared:
                shared = each.shared
                allocator.allocate(shared, pool="buffers")
            for size in each.own:
                if size:
                    allocator.allocate(size, pool="buffers")
            self._warm_up(each)
            self._workspace("workspaces", "capture", lt=True)
            before = allocator.reserved_in("graphs")
            results = each.requests.run(allocator, pool="graphs", stream="capture")
            if not each.lent:
                for block in results:
                    allocator.free(block)
            grown = allocator.reserved_in("graphs") - before
            found.append(BucketMemory(each.sizes, grown, each.shared + sum(each.own), each.kernels))
        most = allocator.most_reserved
        allocator.release_cached()
        return GraphMemory(
            tuple(found),
            allocator.reserved_in("graphs"),
            allocator.reserved_in("buffers"),
            allocator.reserved_in("workspaces") + allocator.reserved_in(None),
            allocator.reserved,
            most,
            sum(each.kernels for each in found) * device.graph_node,
            device.context,
            tuple(dict.fromkeys(op for each in buckets for op in each.unknown)),
        )

    def _warm_up(self, bucket: BucketGraph) -> None:
        """Run a bucket's program before its capture; the first product on the stream allocates a
        workspace.
        """
        held: dict[int, Block] = {}
        for position, (born, gone) in enumerate(bucket.requests.steps):
            change(self._allocator, held, born, stream="warm-up")
            if position in bucket.products:
                self._workspace(None, "warm-up", lt=bucket.products[position])
            for number in gone:
                self._allocator.free(held.pop(number))
        for block in held.values():
            self._allocator.free(block)

    def _workspace(self, pool: str | None, stream: str, *, lt: bool) -> None:
        """Allocate the workspaces of a stream that are not there yet; they stay."""
        wanted = [(False, self._device.workspace)] + (
            [(True, self._device.lt_workspace)] if lt else []
        )
        for kind, size in wanted:
            if (stream, kind) not in self._worked and size:
                self._worked.add((stream, kind))
                self._allocator.allocate(size, pool=pool, stream=stream)
