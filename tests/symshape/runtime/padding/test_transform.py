"""The walk over a graph: what is emitted, and graphs that are made by hand where no device is at hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from guards import parse
from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import PaddedGraph, Refusal, pad

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


def _attention(op: Any, *args: Any, keys: Any = None) -> Graph:
    """Fused attention on a device, over padded batch and sequence."""
    batch, length = symbol("s0"), symbol("s1")

    def value(index: int, n: Any) -> Value:
        return Value(index, TensorSpec((batch, 4, n, 64), (256, 64, 256, 1), 0, torch.bfloat16, CUDA), object())

    query, key, result = value(0, length), value(1, keys or length), value(2, length)
    number = len(op._schema.returns)
    node = Node(op, (query, key, key, *args), {}, (result, *[None] * (number - 1)), False)
    _, tree = pytree.tree_flatten([0])
    inputs = (Input(0, "q", query), Input(1, "k", key))
    return Graph(inputs, (), (node,), (result,), tree)


def _padded(graph: Graph) -> PaddedGraph:
    return pad(graph, Region([parse("s1 >= 1")], {}, {"s0": 4, "s1": 12}), CUDA)


def _ops(padded: PaddedGraph) -> list[str]:
    return [str(node.op) for node in padded.graph.nodes]


FLASH = aten._scaled_dot_product_flash_attention.default
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
CUDNN = aten._scaled_dot_product_cudnn_attention.default


@pytest.mark.parametrize(
    ("op", "args"), [(FLASH, (0.0, True)), (EFFICIENT, (None, False, 0.0, True)), (CUDNN, (None, False, 0.0, True))]
)
def test_causal_attention_on_a_device_keeps_its_kernel(op: Any, args: tuple[Any, ...]) -> None:
    padded = _padded(_attention(op, *args))
    assert _ops(padded)[-1] == str(op)
    assert {repair.what for repair in padded.repairs} == {"mask: 0 beyond s1"}


@pytest.mark.parametrize(("op", "args"), [(FLASH, ()), (EFFICIENT, (None, False)), (CUDNN, (None, False))])
def test_attention_on_a_device_gets_a_mask(op: Any, args: tuple[Any, ...]) -> None:
    padded = _padded(_attention(op, *args))
    last = padded.graph.nodes[-1]
    assert last.op is EFFICIENT
    bias = last.args[3].spec
    assert bias.sizes == (4, 4, 12, 12)
    assert bias.strides == (0, 0, 0, 1)
    assert bias.dtype is torch.bfloat16
    assert "attention mask: keys beyond s1" in {repair.what for repair in padded.repairs}


def test_a_causal_mask_for_other_keys_is_refused() -> None:
    graph = _attention(FLASH, 0.0, True, keys=symbol("s1") + 1)
    with pytest.raises(Refusal, match="padded alike"):
        _padded(graph)


def test_sizes_are_inputs_and_no_constant_depends_on_them() -> None:
    traced = symshape.trace(lambda x: x.mean(1) * x.shape[0], torch.ones(3, 4))
    for caps in ({"s0": 4, "s1": 8}, {"s0": 40, "s1": 80}):
        padded = pad(traced.graph, Region([], {}, caps), CPU)
        assert {str(term) for term in padded.sizes} == {"s0", "s1"}
        inputs = [each.value.spec for each in padded.graph.inputs]
        assert [spec.sizes for spec in inputs[1:]] == [(), ()]
        assert all(spec.dtype is torch.int64 for spec in inputs[1:])
        assert inputs[0].sizes == tuple(caps.values())


def test_equal_repairs_are_made_once() -> None:
    traced = symshape.trace(lambda x: (x.sum(1), x.cumsum(1).sum(1), x.mean(1)), torch.ones(3, 4))
    padded = pad(traced.graph, Region([], {}, {"s0": 4, "s1": 8}), CPU)
    ops = _ops(padded)
    assert ops.count("aten.lt.Tensor") == 1
    assert ops.count("aten.where.self") == 2, "x for the sum and the mean, its running sum"


def test_capacities_outside_of_the_guards_are_an_error() -> None:
    with pytest.raises(ValueError, match="outside"):
        Region([parse("s0 <= 7")], {}, {"s0": 8})


def test_a_size_that_shrinks_is_refused() -> None:
    graph = symshape.trace(lambda x, y: x[y.shape[0] :] * 1, torch.ones(9), torch.ones(3)).graph
    with pytest.raises(Refusal, match="largest"):
        pad(graph, Region([], {}, {"s0": 16, "s1": 4}), CPU)
