"""Fused attention with dropout as single ops: results and gradients, and which calls stay fused."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from guards import parse
from guards.terms.arithmetic import symbol
from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from symshape.graph.codegen import compile_graph
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Node, Value
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.transform import PaddedGraph, pad
from symshape.runtime.pieces.faults import Faults
from symshape.runtime.pieces.unfused_attention import fuses_dropout, without_fused_dropout

aten = torch.ops.aten
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
FLASH = aten._scaled_dot_product_flash_attention.default
CUDNN = aten._scaled_dot_product_cudnn_attention.default
BACKWARD = {
    EFFICIENT: aten._scaled_dot_product_efficient_attention_backward.default,
    FLASH: aten._scaled_dot_product_flash_attention_backward.default,
    CUDNN: aten._scaled_dot_product_cudnn_attention_backward.default,
}
CPU = torch.device("cpu")
SIZES = [(2, 5), (3, 1), (1, 9)]
SHARE = 0.5


class _Made:
    """A graph of one call of fused attention, and of its backward."""

    def __init__(
        self,
        op: Any,
        *,
        causal: bool = False,
        bias: bool = False,
        share: float = SHARE,
        scale: float | None = None,
        width: Any = 8,
        order: tuple[int, ...] = (0, 2, 1, 3),
    ) -> None:
        self.order = order
        self.batch, self.length, self.number, self.width = symbol("s0"), symbol("s1"), 0, width
        query, key, value, gradient = (self.tensor(self.length) for _ in range(4))
        mask = self.made((self.batch, 1, self.length, self.length)) if bias else None
        self.inputs = [query, key, value, gradient, *([mask] if bias else [])]
        self.out = self.tensor(self.length)
        self.kept = {
            each.name: self.made((self.batch, 4, self.length) if "sum" in each.name else ())
            for each in op._schema.returns[1:]
            if each.name in ("logsumexp", "log_sumexp", "philox_seed", "philox_offset", "rng_state", "unused")
        }
        outputs = [self.out, *(self.kept.get(each.name) for each in op._schema.returns[1:])]
        given = {"query": query, "key": key, "value": value, "dropout_p": share, "is_causal": causal, "scale": scale}
        given |= {"attn_bias": mask, "compute_log_sumexp": True, "return_debug_mask": False}
        self.forward = Node(op, *self.arguments(op, given), tuple(outputs), False)
        logarithms, *states = self.kept.values()
        given |= {"grad_out": gradient, "grad_out_": gradient, "out": self.out, "logsumexp": logarithms}
        given |= {"philox_seed": states[0], "philox_offset": states[1], "grad_input_mask": [True, True, True, False]}
        given |= {"max_q": self.length, "max_k": self.length, "cum_seq_q": None, "cum_seq_k": None}
        back = BACKWARD[op]
        self.gradients = [self.tensor(self.length) for _ in range(3)]
        made = [*self.gradients, *[None] * (len(back._schema.returns) - 3)]
        self.backward = Node(back, *self.arguments(back, given), tuple(made), False)

    def made(self, sizes: Any, strides: Any = None) -> Value:
        self.number += 1
        strides = contiguous_strides(sizes) if strides is None else strides
        return Value(self.number, TensorSpec(tuple(sizes), tuple(strides), 0, torch.float64, CPU), object())

    def tensor(self, n: Any) -> Value:
        """``(b, h, s, d)``, in the order ``self.order`` in memory."""
        sizes = (self.batch, 4, n, self.width)
        strides = contiguous_strides([sizes[dim] for dim in self.order])
        return self.made(sizes, [strides[self.order.index(dim)] for dim in range(4)])

    def arguments(self, op: Any, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        plain = [each for each in op._schema.arguments if not each.kwarg_only]
        return tuple(given[each.name] for each in plain), {"scale": given["scale"]}

    def graph(self, *outputs: Value, backward: bool = True) -> Graph:
        steps = (self.forward, self.backward) if backward else (self.forward,)
        inputs = tuple(Input(place, f"x{place}", value) for place, value in enumerate(self.inputs))
        return Graph(inputs, (), steps, outputs, pytree.tree_flatten([0] * len(outputs))[1])


def _tensors(batch: int, length: int, bias: bool) -> list[torch.Tensor]:
    """The arguments of a call; with a mask, the first query attends to no key."""
    found = [torch.randn(batch, length, 4, 8, dtype=torch.float64).transpose(1, 2) for _ in range(4)]
    mask = torch.randn(batch, 1, length, length, dtype=torch.float64)
    mask[:, :, 0] = -math.inf
    return [*found, mask] if bias else found


def _expected(given: list[torch.Tensor], causal: bool, share: float, scale: float | None) -> list[torch.Tensor]:
    """Attention by autograd; ``F.dropout`` draws what one op over as many elements draws."""
    query, key, value = (each.clone().requires_grad_() for each in given[:3])
    batch, heads, length, width = query.shape
    scores = query @ key.mT * (1 / math.sqrt(width) if scale is None else scale)
    if len(given) > 4:
        scores = scores + given[4]
    if causal:
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
    none = (scores == -math.inf).all(-1, keepdim=True)
    softmax = scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    weights = F.dropout(softmax.reshape(batch * heads, length, length), share)
    out = weights.reshape(batch, heads, length, length) @ value
    return [out.detach(), *torch.autograd.grad(out, (query, key, value), given[3])]


@pytest.mark.parametrize("op", BACKWARD, ids=str)
@pytest.mark.parametrize(("causal", "bias"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("share", "scale"), [(SHARE, None), (0.1, 0.3), (1.0, None)])
def test_results_and_gradients_are_those_of_attention(
    op: Any, causal: bool, bias: bool, share: float, scale: float | None
) -> None:
    if bias and op is FLASH:
        pytest.skip("flash attention takes no mask")
    made = _Made(op, causal=causal, bias=bias, share=share, scale=scale)
    graph = without_fused_dropout(made.graph(made.out, *made.gradients))
    assert not {node.op for node in graph.nodes} & {*BACKWARD, *BACKWARD.values()}
    run = compile_graph(graph, {"s0": 0, "s1": 1})
    for sizes in SIZES:
        given = _tensors(*sizes, bias)
        torch.manual_seed(3)
        found = run(given, sizes)
        torch.manual_seed(3)
        for mine, its in zip(found, _expected(given, causal, share, scale), strict=True):
            torch.testing.assert_close(mine, its)
            assert mine.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 1, 3), (1, 0, 3, 2)])
def test_results_keep_their_order_in_memory(order: tuple[int, ...]) -> None:
    """The order (2, 0, 1, 3) is that of ``nn.MultiheadAttention``."""
    made = _Made(CUDNN, order=order)
    graph = without_fused_dropout(made.graph(made.out, *made.gradients))
    run = compile_graph(graph, {"s0": 0, "s1": 1})
    given = [
        each.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])
        for each in _tensors(2, 5, False)
    ]
    torch.manual_seed(3)
    found = run(given, (2, 5))
    torch.manual_seed(3)
    for mine, its in zip(found, _expected(given, False, SHARE, None), strict=True):
        torch.testing.assert_close(mine, its)
        assert mine.permute(order).is_contiguous()


def test_heads_of_a_symbolic_size() -> None:
    made = _Made(EFFICIENT, width=symbol("s2"))
    graph = without_fused_dropout(made.graph(made.out, *made.gradients))
    run = compile_graph(graph, {"s0": 0, "s1": 1, "s2": 2})
    given = _tensors(2, 5, False)
    torch.manual_seed(3)
    found = run(given, (2, 5, 8))
    torch.manual_seed(3)
    for mine, its in zip(found, _expected(given, False, SHARE, None), strict=True):
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("op", BACKWARD, ids=str)
def test_forward_alone(op: Any) -> None:
    made = _Made(op)
    graph = without_fused_dropout(made.graph(made.out, backward=False))
    assert op not in {node.op for node in graph.nodes}


def test_what_stays_fused() -> None:
    made = _Made(EFFICIENT)
    for outputs in ((made.kept["log_sumexp"],), (made.out, made.kept["philox_seed"])):
        graph = made.graph(*outputs)
        assert without_fused_dropout(graph) is graph
    without = _Made(EFFICIENT, share=0.0)
    graph = without.graph(without.out)
    assert without_fused_dropout(graph) is graph


@pytest.mark.parametrize("how", [{}, {"causal": True}, {"bias": True}])
def test_the_whole_is_padded_at_both_sizes(how: dict[str, bool]) -> None:
    made = _Made(EFFICIENT, **how)
    graph = without_fused_dropout(made.graph(made.out, *made.gradients))
    padded = pad(graph, Region([parse("s1 >= 1"), parse("s0 >= 1")], {}, {"s0": 4, "s1": 12}), CPU, any_randomness=True)
    assert isinstance(padded, PaddedGraph), padded
    assert without_fused_dropout(graph) is graph


def test_a_piece_may_hold_it_where_forward_and_backward_are_together() -> None:
    made = _Made(EFFICIENT)
    graph = made.graph(made.out, *made.gradients)
    assert all(Faults(graph, CPU, draws=True, unfuses=True).of(node) is None for node in graph.nodes)
    assert all(Faults(graph, CPU, draws=True).of(node) for node in graph.nodes)
    assert all(map(fuses_dropout, graph.nodes))
    assert not any(map(fuses_dropout, without_fused_dropout(graph).nodes))


def test_backward_alone_stays_fused() -> None:
    """As in a piece that has the backward of another piece's forward: such pieces are cut again."""
    made = _Made(EFFICIENT)
    graph = attrs.evolve(made.graph(*made.gradients), steps=(made.backward,))
    assert without_fused_dropout(graph) is graph
    assert any(map(fuses_dropout, without_fused_dropout(graph).nodes))


@pytest.mark.parametrize("place", range(3))
def test_it_stays_fused_where_backward_would_read_what_was_written_after_forward(place: int) -> None:
    """Writes through ``Tensor.data``, which autograd does not see: backward reads the new numbers."""
    made = _Made(EFFICIENT)
    target = made.inputs[place]
    write = Node(aten.mul_.Scalar, (target, 2), {}, (target,), True)
    graph = made.graph(made.out, *made.gradients)
    between = attrs.evolve(graph, steps=(made.forward, write, made.backward))
    assert without_fused_dropout(between) is between
    before = attrs.evolve(graph, steps=(write, made.forward, made.backward))
    assert without_fused_dropout(before) is not before
