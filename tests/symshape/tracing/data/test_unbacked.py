"""Unbacked symbols that rules of data-dependent ops make."""

from __future__ import annotations

from typing import Any

import torch

import symshape
from guards.terms import boolean
from meta_fns import TensorSpec
from symshape.graph.steps import Value
from symshape.tracing.data.unbacked import Counts, Unknowns
from symshape.tracing.symbolic.env import ShapeEnv

R = torch.randn


def test_what_is_made_is_remembered_with_its_bounds() -> None:
    env = ShapeEnv()
    unknowns = Unknowns(env, "aten::nonzero")
    size, number, flag = unknowns.new_size(0, 9), unknowns.new_int(None, None), unknowns.new_bool()
    assert [node.term.name for node in unknowns.made] == ["u0", "u1", "u2"]
    assert env.known(boolean.le(size.term, 9))
    assert not env.known(boolean.ge(number.term, 0))
    assert flag.term.symbols == {unknowns.made[2].term}
    assert env.known(boolean.le(unknowns.made[2].term, 1))
    assert [env.symbols[f"u{i}"].description for i in range(3)] == [
        "a size of the result of aten::nonzero",
        "the integer read by aten::nonzero",
        "the bool read by aten::nonzero (1 for True)",
    ]


def test_floats_are_no_integers() -> None:
    env = ShapeEnv()
    unknowns = Unknowns(env, "aten::_local_scalar_dense")
    assert str(unknowns.new_float().term) == "f0"
    assert unknowns.made == []
    assert not env.symbols


def test_one_mask_has_one_count_until_it_is_written_to() -> None:
    env, counts = ShapeEnv(), Counts()
    spec = TensorSpec.contiguous((4,), torch.bool, torch.device("cpu"))
    mask, other = Value(0, spec, object()), Value(1, spec.with_(dtype=torch.uint8), object())
    view = Value(2, spec, mask.storage)

    def count(value: Value) -> str:
        unknowns = Unknowns(env, "aten::index", counts, [None, [value.spec]], (None, (value,)))
        return str(unknowns.count_of(value.spec, 0, 4).term)

    assert [count(mask), count(other), count(mask)] == ["u0", "u1", "u0"]
    counts.forget([view], list)
    assert [count(mask), count(other)] == ["u2", "u1"]
    both = Unknowns(env, "aten::masked_select", counts, [spec, spec], (mask, view))
    assert str(both.count_of(spec, 0, 4).term) == "u3"  # which of the two it is cannot be told


def test_arguments_may_share_the_memory_of_a_mask() -> None:
    """A write to one argument may change a mask that is another one; what the call itself made is
    its own.
    """
    env, counts = ShapeEnv(), Counts()
    spec = TensorSpec.contiguous((4,), torch.bool, torch.device("cpu"))
    mask, argument, made, written = (Value(i, spec, object()) for i in range(4))

    def count(value: Value) -> str:
        unknowns = Unknowns(env, "aten::index", counts, [None, [value.spec]], (None, (value,)))
        return str(unknowns.count_of(value.spec, 0, 4).term)

    assert [count(mask), count(made)] == ["u0", "u1"]
    counts.forget([written], lambda: [mask, argument])
    assert [count(mask), count(made)] == ["u0", "u1"]
    counts.forget([argument], lambda: [mask, argument])
    assert [count(mask), count(made)] == ["u2", "u1"]


def test_a_mask_that_another_argument_shares_is_counted_again() -> None:
    def program(mask: torch.Tensor, other: torch.Tensor, x: torch.Tensor) -> Any:
        one = x[mask]
        other.logical_not_()
        two = x[mask]
        return one, two, one.shape[0] == two.shape[0]

    compiled = symshape.compile(program, dynamic=True, fullgraph=True)
    for n, together in ((4, False), (5, False), (4, True), (5, True)):
        mask = torch.arange(n) % 3 == 0
        one, two, same = compiled(mask, mask[:] if together else mask.clone(), torch.arange(n))
        assert same == (len(one) == len(two)) == (n == 4 or not together)
        assert two.tolist() == [i for i in range(n) if (i % 3 == 0) is not together]


def test_a_size_that_an_op_answers_is_not_born_there() -> None:
    """Kernels of attention answer the lengths: where those are counts of data, they were read
    before.
    """

    def attention(x: torch.Tensor) -> Any:
        q = x[x[:, 0] > 0].bfloat16().view(1, 1, -1, 4)
        return torch.ops.aten._scaled_dot_product_flash_attention.default(q, q, q)[0]

    nodes = symshape.trace(attention, torch.randn(5, 4), dynamic=True).program.graph.nodes
    bound = [(str(node.op), binding.symbol) for node in nodes for binding in node.bindings]
    assert bound == [("aten.index.Tensor", "u0")]
