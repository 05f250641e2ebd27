"""What graphs are made of, and the walks over it."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import nn

import symshape
from guards.terms import arithmetic
from meta_fns import TensorSpec
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import (
    Node,
    Value,
    draws_random_numbers,
    map_argument,
    moves_nothing,
    values_in,
    written_values,
)

R = torch.ones


def nodes(fn: Any, *args: Any) -> tuple[Node, ...]:
    return symshape.trace(fn, *args).graph.nodes


def value(index: int) -> Value:
    return Value(index, TensorSpec.of(R(2)), object())


def test_origins_of_nodes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x)

    (node,) = nodes(fn, R(3))
    assert node.origin.text == "return nn.functional.gelu(x)"
    assert node.origin.file == __file__
    assert "fn" in node.origin.function
    assert not list(written_values(node))


def test_values_in_nested_arguments() -> None:
    a, b, c = (value(index) for index in range(3))
    assert list(values_in((a, [b, 3, None], {"out": (c, a)}))) == [a, b, c, a]
    assert list(values_in("v0")) == []
    assert repr(b) == b.name == "v1"


def test_a_node_knows_what_it_reads() -> None:
    a, b, size = value(0), value(1), arithmetic.symbol("s0")
    ratio = FloatTerm("from_int", (size,))
    node = Node(
        torch.ops.aten.cat.default,
        ([b, a], 1, (size, 2)),
        {"out": a, "alpha": ratio},
        (None,),
        True,
    )
    assert node.reads == (b, a, a)
    assert node.numbers == (size, ratio)
    changed = attrs.evolve(node, args=(b,), kwargs={})
    assert (changed.reads, changed.numbers) == ((b,), ())


def test_a_node_again_is_as_one_made_of_the_same() -> None:
    """But for its outputs, which it is given later."""
    spec = TensorSpec((2,), (1,), 0, torch.float32, torch.device("cpu"))
    one, other, out = (Value(i, spec, object()) for i in range(3))
    size = arithmetic.symbol("s0")
    aten = torch.ops.aten
    first = Node(aten.add.Tensor, (one, size), {"alpha": 2}, (out,), True)
    again = first.again((other, size), (other,), ("file.py", 3, "f"))
    made = Node(
        aten.add.Tensor, (other, size), {"alpha": 2}, (), True, location=("file.py", 3, "f")
    )
    for field in attrs.fields(Node):
        assert getattr(again, field.name) == getattr(made, field.name), field.name


def test_arguments_are_mapped_where_they_stand() -> None:
    a, size, ratio = (
        value(0),
        arithmetic.symbol("s0"),
        FloatTerm("from_int", (arithmetic.symbol("s0"),)),
    )
    seen: list[Any] = []

    def leaf(each: Any) -> str:
        seen.append(each)
        return "leaf"

    assert map_argument((a, [size, 2], ratio, "v0"), leaf) == ("leaf", ["leaf", 2], "leaf", "v0")
    assert seen == [a, size, ratio]


def test_what_a_node_writes_to() -> None:
    (node,) = nodes(lambda x, y: torch.add(x, 1, out=y), R(3), R(3))
    (written,) = written_values(node)
    assert written.index == 1
    for training, expected in ((True, 2), (False, 0)):
        norm = nn.BatchNorm1d(3, momentum=0.1).train(training)
        found = [
            each
            for node in nodes(norm, R(4, 3))
            if "norm" in str(node.op)
            for each in written_values(node)
        ]
        assert len(found) == expected


def test_a_dropout_of_nothing_draws_nothing() -> None:
    def attention(p: float) -> bool:
        scaled = nn.functional.scaled_dot_product_attention
        with torch.no_grad():
            found = nodes(lambda q: scaled(q, q, q, dropout_p=p), R(1, 2, 4, 8))
        return any(draws_random_numbers(node) for node in found)

    assert not attention(0.0)
    assert attention(0.5)
    assert draws_random_numbers(nodes(lambda x: x.bernoulli(), R(3))[0])
    assert not draws_random_numbers(nodes(lambda x: x + 1, R(3))[0])


def test_strides_of_dimensions_of_one_element_move_nothing() -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

    x = torch.rand(3, 4, 5, 6).to(memory_format=torch.channels_last)
    (changed,) = [
        each
        for each in symshape.trace(pooled, x, dynamic=True).graph.nodes
        if each.leaves is not None
    ]
    assert "as_strided_" in str(changed.op)
    assert moves_nothing(changed)

    def turned(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.t_()
        return y * 2

    (changed,) = [each for each in nodes(turned, torch.rand(3, 4)) if each.leaves is not None]
    assert not moves_nothing(changed)
    assert not moves_nothing(nodes(lambda x: x * 2, torch.rand(3))[0])
