"""The random states of attention whose forward is in another recorded graph.

The memory-efficient kernel reads the state in its backward on the host, or on the device while it
is captured.  A state from another recorded graph is on the device; so the run before a capture
copies it to the host.
"""

from __future__ import annotations

import attrs
import torch

from symshape.graph.graph import Graph
from symshape.graph.random_states import keeps_random_state_on_host
from symshape.graph.steps import Node, Step, Value, drops
from symshape.runtime.runners.cuda.capture import is_capturing

__all__ = ["with_states_where_read"]

_library = torch.library.Library("symshape", "FRAGMENT")
_library.define("random_state(Tensor(a) state) -> Tensor(a)")
_STATES = ("philox_seed", "philox_offset")


@torch.library.impl(_library, "random_state", "CompositeExplicitAutograd")
def _random_state(state: torch.Tensor) -> torch.Tensor:
    """Return a random state where the memory-efficient kernel reads it."""
    return state if not state.is_cuda or is_capturing() else state.cpu()


def with_states_where_read(graph: Graph) -> Graph:
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
