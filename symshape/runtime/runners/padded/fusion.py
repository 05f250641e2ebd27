"""The function that runs a padded program: on devices the graph that is captured, with appends
fused.

Appends to padded tensors become one pass over memory
(:mod:`symshape.runtime.runners.padded.cache_append`).  A ``relu`` stays apart from the product
before it: the epilogues of some kernels of cuBLASLt (``_addmm_activation``) turn NaN into 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.graph.codegen import compile_graph
from symshape.graph.interpreter import interpreter
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.runners.padded.attention_states import with_states_where_read
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
    return extended(with_states_where_read(append(padded)), padded, own)
