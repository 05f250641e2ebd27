"""The function that runs a padded program: on devices the graph that is captured, with appends
fused.

Appends to padded tensors become one pass over memory
(:mod:`symshape.runtime.runners.padded.cache_append`).  A ``relu`` stays apart from the product
before it: the epilogues of some kernels of cuBLASLt (``_addmm_activation``) turn NaN into 0.
Random states of attention are put where its backward reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.graph.codegen import compile_graph
from symshape.graph.graph import Graph
from symshape.graph.interpreter import interpreter
from symshape.graph.random_states import keeps_random_state_on_host
from symshape.graph.steps import Node, Step, Value, drops
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.runners.cuda.capture import is_capturing
from symshape.runtime.runners.padded.cache_append import append
from symshape.runtime.runners.padded.growing_buffers import Extended, extended

Run = Callable[[Sequence[Any]], list[Any]]
"""Runs a program on its inputs and true sizes."""
FUSED = frozenset({"cuda"})
"""The device types where appends are fused and in place: devices that replay a recording."""


def running(
    padded: PaddedGraph, device: torch.device, own: Sequence[int]
) -> tuple[Run, Mapping[int, tuple[int, int]]]:
    """Return the function that runs a padded program, and the dimension and amount by which buffers
    must be longer.

    Args:
        padded: the program.
        device: the device that the program computes on.
        own: the indices of inputs that may be appended to in place.
    """
    if device.type not in FUSED:
        if padded.run is not None:
            return padded.run, {}
        run = compile_graph(padded.graph, {})
        return lambda arguments: run(arguments, ()), {}
    found = captured_graph(padded, own)
    return interpreter(found.graph), found.more


def captured_graph(padded: PaddedGraph, own: Sequence[int]) -> Extended:
    """Return the graph of a padded program that is captured on a device, and the lengths that its
    buffers need.
    """
    return extended(_with_states_where_read(append(padded)), padded, own)


# -- random states of attention --------------------------------------------------------------------
#
# The memory-efficient kernel reads the state in its backward on the host, or on the device while it
# is captured.  A state from another recorded graph is on the device; so the run before a capture
# copies it to the host.


_library = torch.library.Library("symshape", "FRAGMENT")
_library.define("random_state(Tensor(a) state) -> Tensor(a)")
_STATES = ("philox_seed", "philox_offset")


@torch.library.impl(_library, "random_state", "CompositeExplicitAutograd")
def _random_state(state: torch.Tensor) -> torch.Tensor:
    """Return a random state where the memory-efficient kernel reads it."""
    return state if not state.is_cuda or is_capturing() else state.cpu()


def _with_states_where_read(graph: Graph) -> Graph:
    """Return a graph whose memory-efficient attention gets its random states where it reads
    them.
    """
    steps: list[Step] = []
    for step in graph.steps:
        if isinstance(step, Node) and keeps_random_state_on_host(step) and drops(step):
            args = list(step.args)
            for place, argument in enumerate(step.op._schema.arguments[: len(args)]):
                state = args[place]
                if argument.name in _STATES and isinstance(state, Value):
                    read = args[place] = Value(state.index, state.spec, state.storage)
                    op = torch.ops.symshape.random_state.default
                    steps.append(Node(op, (state,), {}, (read,), single=True))
            step = attrs.evolve(step, args=tuple(args))
        steps.append(step)
    return attrs.evolve(graph, steps=tuple(steps)) if len(steps) > len(graph.steps) else graph
