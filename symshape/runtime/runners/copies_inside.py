"""A call's copies as nodes of its CUDA graph: to the graph's buffers before it computes, to the call's results after.

A copy of its own takes the host about as long as the launch of a graph, and torch's ways to it as long again; a node's
addresses are set in a microsecond, and the graph is launched with it.  The nodes are added to what was captured, before
it is made executable; they are off until C++ (``compiled_copies.h``) turns them on for a call, and whoever replays the
graph otherwise turns them off again.

The interface is the CUDA driver's own (cuda.h), asked by name in the library that torch has loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import CDLL, Structure, byref, c_size_t, c_ubyte, c_uint, c_void_p, cast
from functools import cache, partial
from typing import Any

import attrs
import torch

from symshape.runtime.runners import launching

__all__ = ["Added", "Copied", "add_copies"]

_DEVICE = 2  # CU_MEMORYTYPE_DEVICE


class _Extent(Structure):
    _fields_ = [
        *((name, c_size_t) for name in ("x", "y", "z", "lod")),
        ("kind", c_uint),
        *((name, c_void_p) for name in ("host", "address", "array", "reserved")),
        *((name, c_size_t) for name in ("pitch", "height")),
    ]


class Copied(Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("source", _Extent), ("target", _Extent), *((name, c_size_t) for name in ("width", "height", "depth"))]


class DriverRefused(RuntimeError):
    """A function of the driver answered with an error; where it leaves a graph half changed, no capture came of it."""


class Driver:
    """What is asked of the CUDA driver.

    Attributes:
        functions: the addresses of those that C++ calls.

    Raises:
        AttributeError: it is too old.
    """

    def __init__(self, library: CDLL) -> None:
        hot = (library.cuGraphExecMemcpyNodeSetParams, library.cuGraphNodeSetEnabled, library.cuGraphLaunch)
        self.functions = tuple([cast(each, c_void_p).value for each in hot])
        self._context, self._nodes = library.cuCtxGetCurrent, library.cuGraphGetNodes
        self._roots, self._depend = library.cuGraphGetRootNodes, library.cuGraphAddDependencies
        self._edges = library.cuGraphGetEdges_v2  # the one before refuses graphs where something is noted of an edge
        self._add, self._remove = library.cuGraphAddMemcpyNode, library.cuGraphDestroyNode

    def context(self) -> int:
        """The context of the calling thread."""
        found = c_void_p()
        _check(self._context(byref(found)))
        return found.value or 0

    def roots(self, graph: int) -> list[int]:
        """The nodes that wait for none."""
        return self._listed(self._roots, graph)

    def leaves(self, graph: int) -> list[int]:
        """The nodes that none waits for."""
        count = c_size_t()
        _check(self._edges(c_void_p(graph), None, None, None, byref(count)))
        before, after = (c_void_p * count.value)(), (c_void_p * count.value)()
        noted = (c_ubyte * (8 * count.value))()
        if count.value:
            _check(self._edges(c_void_p(graph), before, after, noted, byref(count)))
        followed = set(before)
        return [node for node in self._listed(self._nodes, graph) if node not in followed]

    def add_copy(self, graph: int, after: Sequence[int], address: int, size: int, context: int) -> int:
        """A new node that waits for others and copies so many bytes onto themselves."""
        copied = Copied(width=size, height=1, depth=1)
        for end in (copied.source, copied.target):
            end.kind, end.address, end.pitch, end.height = _DEVICE, address, size, 1
        node = c_void_p()
        waited = (c_void_p * len(after))(*after)
        _check(self._add(byref(node), c_void_p(graph), waited, c_size_t(len(after)), byref(copied), c_void_p(context)))
        assert node.value is not None
        return node.value

    def depend(self, graph: int, before: Sequence[int], after: Sequence[int]) -> None:
        """From now on each of the second waits for each of the first."""
        pairs = [(one, other) for one in before for other in after]
        if pairs:
            first, second = ((c_void_p * len(pairs))(*each) for each in zip(*pairs, strict=True))
            _check(self._depend(c_void_p(graph), first, second, c_size_t(len(pairs))))

    def remove(self, node: int) -> None:
        """Takes a node out of its graph."""
        _check(self._remove(c_void_p(node)))

    def _listed(self, ask: Any, graph: int) -> list[int]:
        count = c_size_t()
        _check(ask(c_void_p(graph), None, byref(count)))
        found = (c_void_p * count.value)()
        if count.value:
            _check(ask(c_void_p(graph), found, byref(count)))
        return [each for each in found if each is not None]


@attrs.frozen(eq=False)
class Added:
    """Nodes that were added to a graph that is not executable yet.

    Attributes:
        addresses: the graph's own memory that each copies to, or from.
    """

    driver: Any
    graph: Any
    context: int
    nodes: list[int] = attrs.field(factory=list)
    addresses: list[int] = attrs.field(factory=list)

    def remove(self) -> None:
        """The graph is what it was.

        Raises:
            DriverRefused: it is not.
        """
        while self.nodes:
            self.driver.remove(self.nodes[-1])
            self.nodes.pop()

    def bind(self, device: int) -> Any:
        """What C++ sets the copies by, once the graph is executable; all are off.

        Args:
            device: where it may be launched from C++; -1 where only torch's replay does all that is to be done.

        Raises:
            RuntimeError: the driver refuses to turn them off.
        """
        where = (self.graph.raw_cuda_graph_exec(), self.context, tuple(self.nodes), tuple(self.addresses))
        return launching.COPIES(self.graph, *self.driver.functions, *where, device)


def add_copies(graph: Any, buffers: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Added | None:
    """Adds a node for each buffer, which is copied to first, and for each result, which is copied from last.

    None where that cannot be: the graph is as it was then, and copies are launched on their own.

    Args:
        graph: a ``torch.cuda.CUDAGraph`` that keeps its graph, captured and not instantiated.
        buffers: what inputs are copied to.
        results: what it computes, each in memory that stays.
    """
    driver = _driver() if launching.COPIES is not None else None
    if driver is None:
        return None
    try:
        added = Added(driver, graph, driver.context())
    except DriverRefused:
        return None
    try:
        _add(added, [each for each in buffers if each.nbytes], [each for each in results if each.nbytes])
    except DriverRefused:
        added.remove()
        return None
    return added


def _add(added: Added, buffers: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    driver, graph = added.driver, added.graph.raw_cuda_graph()
    roots, leaves = driver.roots(graph), driver.leaves(graph)

    def one(after: Sequence[int], tensor: torch.Tensor) -> int:
        node: int = driver.add_copy(graph, after, tensor.data_ptr(), tensor.nbytes, added.context)
        added.nodes.append(node)
        added.addresses.append(tensor.data_ptr())
        return node

    first = list(map(partial(one, ()), buffers))
    driver.depend(graph, first, roots)
    for each in results:
        one(leaves or first, each)


@cache
def _driver() -> Driver | None:
    """The driver that torch has loaded; None where there is none like that."""
    loaded = getattr(os, "RTLD_NOLOAD", None)
    if loaded is None or torch.version.cuda is None:
        return None
    try:
        return Driver(CDLL("libcuda.so.1", mode=loaded | os.RTLD_NOW))
    except (OSError, AttributeError):
        return None


def _check(code: Any) -> None:
    if code:
        raise DriverRefused(f"the CUDA driver answers with error {code}")
