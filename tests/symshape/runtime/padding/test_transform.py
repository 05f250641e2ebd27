"""The walk over a graph: what is emitted, and graphs that are made by hand where no device is at
hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from guards import parse
from guards.terms import fold
from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value, map_argument
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.results import amount
from symshape.runtime.padding.transform import PaddedGraph, Refusal, pad
from tests.meta_fns.padding.poison import poison

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


def _attention(op: Any, *args: Any, keys: Any = None) -> Graph:
    """Fused attention on a device, over padded batch and sequence."""
    batch, length = symbol("s0"), symbol("s1")

    def value(index: int, n: Any) -> Value:
        return Value(
            index,
            TensorSpec((batch, 4, n, 64), (256, 64, 256, 1), 0, torch.bfloat16, CUDA),
            object(),
        )

    query, key, result = (
        value(0, length),
        value(1, length if keys is None else keys),
        value(2, length),
    )
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
OVERRIDEABLE = aten._scaled_dot_product_fused_attention_overrideable.default
CUDNN = aten._scaled_dot_product_cudnn_attention.default


@pytest.mark.parametrize(
    ("op", "args"), [(FLASH, (0.0, True)), (EFFICIENT, (None, False, 0.0, True))]
)
def test_causal_attention_on_a_device_keeps_its_kernel(op: Any, args: tuple[Any, ...]) -> None:
    padded = _padded(_attention(op, *args))
    assert _ops(padded)[-1] == str(op)
    assert {repair.what for repair in padded.repairs} == {"mask: 0 beyond s1"}


def test_attention_that_cudnn_would_plan_for_each_capacity_is_flash_attention() -> None:
    padded = _padded(_attention(CUDNN, None, False, 0.0, True))
    assert padded.graph.nodes[-1].op is FLASH
    assert padded.graph.nodes[-1].args[3:] == (0.0, True, False)
    assert {repair.what for repair in padded.repairs} == {"mask: 0 beyond s1"}


def test_attention_over_many_keys_keeps_the_kernel_of_cudnn() -> None:
    graph = _attention(CUDNN, None, False, 0.0, True)
    padded = pad(graph, Region([parse("s1 >= 1")], {}, {"s0": 4, "s1": 1500}), CUDA)
    assert padded.graph.nodes[-1].op is CUDNN
    assert {repair.what for repair in padded.repairs} == {"mask: 0 beyond s1"}


@pytest.mark.parametrize(
    ("op", "args"), [(FLASH, ()), (EFFICIENT, (None, False)), (CUDNN, (None, False))]
)
def test_attention_on_a_device_gets_a_mask(op: Any, args: tuple[Any, ...]) -> None:
    padded = _padded(_attention(op, *args))
    last = padded.graph.nodes[-1]
    assert last.op is EFFICIENT
    bias = last.args[3].spec
    assert bias.sizes == (4, 4, 12, 12)
    assert bias.strides == (0, 0, 0, 1)
    assert bias.dtype is torch.bfloat16
    assert "attention mask: keys beyond s1" in {repair.what for repair in padded.repairs}


def _masked_as_on_cuda(op: Any, keep: torch.dtype, rows: Any) -> Graph:
    """Attention with the user's mask as torch's CUDA sdpa prepares it: minus infinities, a margin
    to 8, a slice of it, and the mask of one head (and of ``rows`` queries) repeated.
    """
    batch, length = symbol("s0"), symbol("s1")

    def value(index: int, *sizes: Any, dtype: torch.dtype = torch.float32) -> Value:
        # no strides: padding asks for none
        return Value(index, TensorSpec(sizes, (), 0, dtype, CPU), object())

    query, key, out = (value(i, batch, 2, length, 4) for i in (0, 1, 2))
    mask = value(3, batch, 1, rows, length, dtype=keep)
    nodes: list[Node] = []

    def call(op: Any, result: Value, *args: Any) -> Value:
        nodes.append(Node(op, args, {}, (result,), True))
        return result

    bias = mask
    if keep is torch.bool:
        zero, never = value(4), value(5)
        call(aten.scalar_tensor.default, zero, 0.0)
        call(aten.scalar_tensor.default, never, -math.inf)
        bias = call(aten.where.self, value(6, batch, 1, rows, length), mask, zero, never)
    margin, widened = parse("8 - s1 % 8"), parse("s1 + 8 - s1 % 8")
    wide = call(aten.constant_pad_nd.default, value(7, batch, 1, rows, widened), bias, [0, margin])
    cut = call(aten.slice.Tensor, value(8, batch, 1, rows, length), wide, 3, 0, length)
    sizes = (batch, 2, length, length)
    repeated = call(aten.expand.default, value(9, *sizes), cut, list(sizes))
    number = len(op._schema.returns)
    nodes.append(
        Node(op, (query, key, key, repeated, False), {}, (out, *[None] * (number - 1)), False)
    )
    _, tree = pytree.tree_flatten([0])
    inputs = tuple(
        Input(i, name, each)
        for i, (name, each) in enumerate((("q", query), ("k", key), ("m", mask)))
    )
    return Graph(inputs, (), tuple(nodes), (out,), tree)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: Any, *rest: Any, **kwargs: Any
) -> torch.Tensor:
    """What the kernels on a device compute; it has to be given keys and values without NaN, like
    them.
    """
    return (q @ k.transpose(2, 3) / math.sqrt(q.shape[3]) + bias).softmax(3) @ v


def _run(graph: Graph, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A padded graph op by op, attention by its formula."""
    known = dict(zip((each.value for each in graph.inputs), inputs, strict=True))
    for node in graph.nodes:
        args, kwargs = (map_argument(each, known.__getitem__) for each in (node.args, node.kwargs))
        if "attention" in str(node.op):
            assert args[3].stride()[2] % 16 == 0, "rows lie as the kernel wants them"
            made: Any = _attend(*args, **kwargs)
        else:
            made = node.op(*args, **kwargs)
        known[node.outputs[0]] = made
    return known[graph.outputs[0]]


@pytest.mark.parametrize("op", [EFFICIENT, CUDNN, OVERRIDEABLE], ids=str)
@pytest.mark.parametrize(
    ("keep", "rows"), [(torch.bool, 1), (torch.bool, symbol("s1")), (torch.float32, symbol("s1"))]
)
def test_a_users_mask_as_torch_prepares_it_on_cuda(op: Any, keep: torch.dtype, rows: Any) -> None:
    graph = _masked_as_on_cuda(op, keep, rows)
    caps = {"s0": 4, "s1": 21}
    padded = pad(graph, Region([parse("s1 >= 1")], {}, caps), CPU)
    assert "attention mask: keys beyond s1" in {repair.what for repair in padded.repairs}
    torch.manual_seed(0)
    for batch, length in ((4, 21), (1, 1), (3, 8), (2, 16), (4, 7), (1, 20)):
        query, key = torch.randn(2, batch, 2, length, 4).unbind()
        mask = torch.rand(batch, 1, 1 if isinstance(rows, int) else length, length) < 0.5
        mask[..., 0] = True
        given = mask if keep is torch.bool else torch.randn(mask.shape)
        bias = (
            torch.zeros(mask.shape).masked_fill(~mask, -math.inf) if keep is torch.bool else given
        )
        buffers = [
            torch.empty(each.value.spec.sizes, dtype=each.value.spec.dtype)
            for each in padded.graph.inputs[:3]
        ]
        for number, (buffer, part) in enumerate(zip(buffers, (query, key, given), strict=True)):
            poison(buffer, number + length)
            buffer[tuple(slice(0, size) for size in part.shape)] = part
        sizes = [
            torch.tensor(fold.evaluate(term, {"s0": batch, "s1": length})) for term in padded.sizes
        ]
        made = _run(padded.graph, [*buffers, *sizes])[:batch, :, :length]
        torch.testing.assert_close(made, _attend(query, key, key, bias), rtol=1e-5, atol=1e-5)


RNN = aten._cudnn_rnn.default
GRU = 3  # cuDNN's number of it


def _recurrent(layers: int, first: bool, both: bool = False) -> Graph:
    """A GRU as a program on CUDA calls it."""
    batch, time = symbol("s0"), symbol("s1")

    def value(index: int, *sizes: Any) -> Value:
        return Value(index, TensorSpec(sizes, (), 0, torch.float32, CPU), object())

    ways = 2 if both else 1
    sound = value(0, *((batch, time, 6) if first else (time, batch, 6)))
    state = value(1, layers * ways, batch, 5)
    wide = [6 if i < ways else 5 * ways for i in range(layers * ways)]
    weights = [
        value(2 + i, *size)
        for i, size in enumerate(s for n in wide for s in ((15, n), (15, 5), (15,), (15,)))
    ]
    out = value(90, *((batch, time, 5 * ways) if first else (time, batch, 5 * ways)))
    last = value(91, layers * ways, batch, 5)
    args = (
        sound,
        weights,
        4,
        None,
        state,
        None,
        GRU,
        5,
        0,
        layers,
        first,
        0.0,
        False,
        both,
        [],
        None,
    )
    node = Node(RNN, args, {}, (out, last, None, None, None), False)
    results = (out, last) if layers == 1 else (out,)
    _, tree = pytree.tree_flatten([0] * len(results))
    return Graph(
        tuple(Input(i, f"input{i}", each) for i, each in enumerate((sound, state, *weights))),
        (),
        (node,),
        results,
        tree,
    )


def _gru(
    sound: torch.Tensor, weights: Any, stride: int, buffer: Any, state: torch.Tensor, *rest: Any
) -> Any:
    """What cuDNN computes."""
    layers, first, both = rest[4], rest[5], rest[8]
    return (
        *torch.gru(sound, state, list(weights), True, layers, 0.0, False, both, first),
        None,
        None,
        None,
    )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers_run_over_padding_behind(layers: int, first: bool) -> None:
    graph = _recurrent(layers, first)
    padded = pad(graph, Region([parse("s1 >= 1")], {}, {"s0": 4, "s1": 12}), CPU)
    torch.manual_seed(0)
    for batch, time in ((4, 12), (1, 1), (3, 5), (4, 2)):
        sizes = {"s0": batch, "s1": time}
        inputs = [
            torch.randn([amount(size, sizes) for size in each.value.spec.sizes])
            for each in graph.inputs
        ]
        buffers = [
            torch.empty(each.value.spec.sizes) for each in padded.graph.inputs[: len(inputs)]
        ]
        for number, (buffer, part) in enumerate(zip(buffers, inputs, strict=True)):
            poison(buffer, number + time)
            buffer[tuple(slice(0, size) for size in part.shape)] = part
        written = [torch.tensor(fold.evaluate(term, sizes)) for term in padded.sizes]
        known = dict(
            zip((each.value for each in padded.graph.inputs), (*buffers, *written), strict=True)
        )
        for node in padded.graph.nodes:
            made = (_gru if node.op is RNN else node.op)(
                *map_argument(node.args, known.__getitem__), **node.kwargs
            )
            known.update(
                zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True)
            )
        expected = _gru(inputs[0], inputs[2:], 4, None, inputs[1], *graph.nodes[0].args[5:])
        for place, value in enumerate(graph.outputs):
            mine = known[padded.graph.outputs[padded.outputs[value][0]]]
            part = mine[tuple(slice(0, size) for size in expected[place].shape)]
            torch.testing.assert_close(part, expected[place])


def test_a_recurrent_layer_that_goes_back_is_refused() -> None:
    with pytest.raises(Refusal, match="the way back begins in the padding") as caught:
        pad(
            _recurrent(1, True, both=True), Region([parse("s1 >= 1")], {}, {"s0": 4, "s1": 12}), CPU
        )
    assert caught.value.symbols == {"s1"}
    assert "one direction" in caught.value.remedy


def test_a_causal_mask_for_other_keys_is_refused() -> None:
    graph = _attention(FLASH, 0.0, True, keys=symbol("s1") + 1)
    with pytest.raises(Refusal, match="the same padding"):
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


@pytest.mark.parametrize(
    ("fn", "check"),
    [
        (lambda x, y: x @ torch.linalg.inv(y), "aten._linalg_check_errors.default"),
        (lambda x, y: x @ torch.linalg.solve(y, y), "aten._linalg_check_errors.default"),
        (lambda x, y: (x * 2, torch.linalg.cholesky(y)), "aten._linalg_check_errors.default"),
        (lambda x, y: (x * 2, torch._assert_async(y.sum() > 0)), "aten._assert_async.default"),
    ],
)
def test_a_check_of_what_has_no_padding_is_emitted(fn: Any, check: str) -> None:
    """It has no result."""
    arguments = torch.ones(3, 4), torch.eye(4)
    graph = symshape.trace(fn, *arguments, dynamic={"x": {0: "s0"}}).graph
    padded = pad(graph, Region([], {}, {"s0": 8}), CPU)
    assert _ops(padded).count(check) == 1
