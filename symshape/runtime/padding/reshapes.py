"""Calls whose results lie in memory as ``reshape`` has it, which makes a view here and a copy there.

Where nothing but the strides of results hangs on that, a trace does not ask (see ``graph/reshape_copies.py``): the
graph calls ``reshape`` itself.  A padded program answers the strides of the copy, so it serves no call in which eager's
result is a view.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from meta_fns import TensorSpec
from symshape.graph.graph import Graph
from symshape.runtime.padding.results import amount

__all__ = ["Reshapes"]

_RESHAPE = torch.ops.aten.reshape.default
_REMEMBERED = 4096
"""Sizes whose answer is kept."""


class Reshapes:
    """The calls of ``reshape`` in a graph."""

    def __init__(self, graph: Graph) -> None:
        self._pairs = [
            (node.args[0].spec, node.outputs[0].spec)
            for node in graph.nodes
            if node.op is _RESHAPE and node.outputs[0] is not None
        ]
        self._said: dict[tuple[tuple[str, int], ...], bool] = {}

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def any_view(self, values: Mapping[str, int]) -> bool:
        """Whether one of them makes a view at these sizes, which lies in memory as no copy does."""
        if not self._pairs:
            return False
        key = tuple(values.items())
        said = self._said.get(key)
        if said is None:
            if len(self._said) >= _REMEMBERED:
                self._said.clear()
            said = self._said[key] = any(_is_view(source, made, values) for source, made in self._pairs)
        return said


def _is_view(source: TensorSpec, made: TensorSpec, values: Mapping[str, int]) -> bool:
    sizes, strides, wanted = (
        [amount(each, values) for each in numbers] for numbers in (source.sizes, source.strides, made.sizes)
    )
    copied = torch.empty(wanted, device="meta").stride()
    return torch.empty_strided(sizes, strides, device="meta").reshape(wanted).stride() != copied
