"""A call's copies as nodes of its CUDA graph: to the graph's buffers before it computes, to the
call's results after.

A separate copy takes the host about as long as the launch of a graph, and torch's overhead takes as
long again. Setting a node's addresses takes a microsecond, and the graph is launched with it.  The
nodes are added to a captured graph before it is instantiated.  They are disabled until C++
(``compiled_copies.h``) enables them for a call; any other replay of the graph disables them again.

The interface is the CUDA driver's own (cuda.h), looked up by name in the library that torch has
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import CDLL, Structure, byref, c_size_t, c_ubyte, c_uint, c_void_p, cast
from functools import cache, partial
from typing import Any

import attrs
import torch

from symshape.runtime.runners.cuda import launch

__all__ = ["Added", "Copied", "add_copies"]

_DEVICE = 2  # CU_MEMORYTYPE_DEVICE
_MOST = 8
"""The most copies to buffers, or of results, that a graph makes itself; one launch makes more.

Measured (H200): as copies of the graph, the 78 gradients of GPT-2's step take .44 ms of 7.4, 5 µs
and more each.
"""


class _Extent(Structure):
    _fields_ = [
        *((name, c_size_t) for name in ("x", "y", "z", "lod")),
        ("kind", c_uint),
        *((name, c_void_p) for name in ("host", "address", "array", "reserved")),
        *((name, c_size_t) for name in ("pitch", "height")),
    ]


class Copied(Structure):
    """The driver's CUDA_MEMCPY3D."""

    _fields_ = [
        ("source", _Extent),
        ("target", _Extent),
        *((name, c_size_t) for name in ("width", "height", "depth")),
    ]


class DriverRefused(RuntimeError):
    """Raised if a driver function returns an error; if a graph is then half changed, its capture
    has failed.
    """


class Driver:
    """The functions of the CUDA driver that are used here.

    Attributes:
        functions: the addresses of the functions that C++ calls.

    Raises:
        AttributeError: the driver is too old.
    """

    def __init__(self, library: CDLL) -> None:
        hot = (
            library.cuGraphExecMemcpyNodeSetParams,
            library.cuGraphNodeSetEnabled,
            library.cuGraphLaunch,
        )
        self.functions = tuple([cast(each, c_void_p).value for each in hot])
        self._context, self._nodes = library.cuCtxGetCurrent, library.cuGraphGetNodes
        self._roots, self._depend = library.cuGraphGetRootNodes, library.cuGraphAddDependencies
        self._edges = library.cuGraphGetEdges_v2  # version 1 refuses graphs with edge data
        self._add, self._remove = library.cuGraphAddMemcpyNode, library.cuGraphDestroyNode

    def context(self) -> int:
        """Return the context of the calling thread."""
        found = c_void_p()
        _check(self._context(byref(found)))
        return found.value or 0

    def roots(self, graph: int) -> list[int]:
        """Return the nodes that depend on no other node."""
        return self._listed(self._roots, graph)

    def leaves(self, graph: int) -> list[int]:
        """Return the nodes on which no other node depends."""
        count = c_size_t()
        _check(self._edges(c_void_p(graph), None, None, None, byref(count)))
        before, after = (c_void_p * count.value)(), (c_void_p * count.value)()
        noted = (c_ubyte * (8 * count.value))()
        if count.value:
            _check(self._edges(c_void_p(graph), before, after, noted, byref(count)))
        followed = set(before)
        return [node for node in self._listed(self._nodes, graph) if node not in followed]

    def add_copy(
        self, graph: int, after: Sequence[int], address: int, size: int, context: int
    ) -> int:
        """Add and return a node that depends on ``after`` and copies ``size`` bytes onto
        themselves.
        """
        copied = Copied(width=size, height=1, depth=1)
        for end in (copied.source, copied.target):
            end.kind, end.address, end.pitch, end.height = _DEVICE, address, size, 1
        node = c_void_p()
        waited = (c_void_p * len(after))(*after)
        _check(
            self._add(
                byref(node),
                c_void_p(graph),
                waited,
                c_size_t(len(after)),
                byref(copied),
                c_void_p(context),
            )
        )
        assert node.value is not None
        return node.value

    def depend(self, graph: int, before: Sequence[int], after: Sequence[int]) -> None:
        """Make each node of ``after`` depend on each node of ``before``."""
        pairs = [(one, other) for one in before for other in after]
        if pairs:
            first, second = ((c_void_p * len(pairs))(*each) for each in zip(*pairs, strict=True))
            _check(self._depend(c_void_p(graph), first, second, c_size_t(len(pairs))))

    def remove(self, node: int) -> None:
        """Remove a node from its graph."""
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
    """The copy nodes that were added to a graph before its instantiation.

    Attributes:
        addresses: the address in the graph's memory that each node copies to or from.
    """

    driver: Any
    graph: Any
    context: int
    nodes: list[int] = attrs.field(factory=list)
    addresses: list[int] = attrs.field(factory=list)

    def remove(self) -> None:
        """Remove the added nodes from the graph.

        Raises:
            DriverRefused: a node could not be removed.
        """
        while self.nodes:
            self.driver.remove(self.nodes[-1])
            self.nodes.pop()

    def bind(self, device: int) -> Any:
        """Return the object by which C++ sets the copies of the instantiated graph; all nodes are
        disabled.

        Args:
            device: the device to launch the graph on from C++; -1 if only torch's replay does all
                that is needed.

        Raises:
            RuntimeError: the driver cannot disable the nodes.
        """
        where = (
            self.graph.raw_cuda_graph_exec(),
            self.context,
            tuple(self.nodes),
            tuple(self.addresses),
        )
        return launch.COPIES(self.graph, *self.driver.functions, *where, device)


def add_copies(
    graph: Any, buffers: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> Added | None:
    """Add a node for each buffer, copied to first, and for each result, copied from last; return
    the added nodes.

    Many buffers, or many results, get no nodes: C++ copies them all in one launch.  Return None if
    that is not possible: the graph is unchanged then, and copies are launched separately.

    Args:
        graph: a ``torch.cuda.CUDAGraph`` that keeps its graph, captured and not instantiated.
        buffers: the tensors that inputs are copied to.
        results: the tensors that the graph computes, each in memory that stays.
    """
    driver = _driver() if launch.COPIES is not None else None
    if driver is None:
        return None
    try:
        added = Added(driver, graph, driver.context())
    except DriverRefused:
        return None
    try:
        _add(added, _few(buffers), _few(results))
    except DriverRefused:
        added.remove()
        return None
    return added


def _few(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors with elements; none if they are many."""
    found = [each for each in tensors if each.nbytes]
    return found if len(found) <= _MOST else []


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
    """Return the driver that torch has loaded; None if there is none, or it is too old."""
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
