"""The order of sizes that were merged into one dimension of an argument."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from guards import parse
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import pad

CPU = torch.device("cpu")


def _graph(length: str) -> Graph:
    """Return a graph that is given rows of a batch of sequences, and views them as such."""
    rows, batch, each = parse(f"s0*{length}"), parse("s0"), parse(length)
    given, made = (
        Value(number, TensorSpec(sizes, contiguous_strides(sizes), 0, torch.float32, CPU), object())
        for number, sizes in enumerate([(rows, 4), (batch, each, 4)])
    )
    view = Node(torch.ops.aten.view.default, (given, [batch, each, 4]), {}, (made,), True)
    return Graph((Input(0, "rows", given),), (), (view,), (made,), pytree.tree_flatten([0])[1])


@pytest.mark.parametrize(
    "length", ["s1", "min(s1, 512)", "max(s1, 1)", "min(512, s1, 600)", "max(min(s1, 512), 1)"]
)
@pytest.mark.parametrize("exact", [{}, {"s0": 3}])
def test_a_length_below_a_bound_is_that_length(length: str, exact: dict[str, int]) -> None:
    caps = {name: cap for name, cap in {"s0": 3, "s1": 8}.items() if name not in exact}
    bounds = [parse("s1 <= 512"), parse("s1 >= 1"), parse("s0 >= 1")]
    padded = pad(_graph(length), Region(bounds, exact, caps), CPU)
    assert [[str(size).split(" ")[0] for size in axis] for axis in padded.axes[0]] == [
        ["3" if exact else "s0", "s1"],
        ["4"],
    ]
