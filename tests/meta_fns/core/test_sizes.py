"""Sizes that are ints, symbols of ours, or torch's own SymInts, behind the same functions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from meta_fns import ShapeError, TensorSpec, infer
from meta_fns.core import sizes
from symshape.errors import SymShapeError
from tests.meta_fns.symbolic import at, guards_at, symbols


def torch_sizes(*hints: int) -> tuple[ShapeEnv, list[torch.SymInt]]:
    env = ShapeEnv()
    made = []
    for number, hint in enumerate(hints):
        source = ConstantSource(f"s{number}")
        symbol = env.create_symbol(hint, source, DimDynamic.DYNAMIC)
        made.append(env.create_symintnode(symbol, hint=hint, source=source))
    return env, made


def test_kinds() -> None:
    _, (a,) = symbols(3)
    assert sizes.static((1, 2))
    assert sizes.static(())
    assert not sizes.static((1, a))
    assert not sizes.static((1, True))


def test_known_never_asks() -> None:
    env, (a, b) = symbols(3, 3)
    assert sizes.known(True)
    assert not sizes.known(False)
    assert sizes.known(a + 1 > a)
    assert not sizes.known(a == b)  # equal in the example, and not always
    assert sizes.same(a, a + 0)
    assert sizes.same(2, 2)
    assert not sizes.same(a, b)
    assert not sizes.same(2, 3)
    assert sizes.same_shape((a, 2), (a, 2))
    assert not sizes.same_shape((a,), (a, 1))
    assert not sizes.same_shape((a,), (b,))
    assert not env.guards


def test_decide_asks() -> None:
    env, (a, b) = symbols(3, 4)
    assert sizes.decide(True) is True
    assert sizes.decide(False) is False
    assert not sizes.decide(a == b)
    assert not guards_at(env, 4, 4)
    assert guards_at(env, 4, 5)


def test_check_requires() -> None:
    env, (a,) = symbols(3)
    sizes.check(True, "fine")
    with pytest.raises(ShapeError, match=r"^why$"):
        sizes.check(False, "why")
    with pytest.raises(ShapeError, match=r"^later$"):
        sizes.check(False, lambda: "later")
    sizes.check(a >= 2, "a is small")
    assert guards_at(env, 2)
    assert not guards_at(env, 1)
    with pytest.raises((ShapeError, SymShapeError), match="a is small"):
        sizes.check(a >= 4, "a is small")


def test_torch_symints() -> None:
    _, (a, b) = torch_sizes(3, 4)
    assert sizes.known(a + 1 > a)
    assert not sizes.known(a == b)
    assert sizes.same(a, a)
    assert not sizes.same(a, b)
    assert sizes.at_least_one(a) is a or sizes.known(sizes.at_least_one(a) >= 1)
    assert int(sizes.sym_max(a, 7)) == 7
    assert int(sizes.sym_max(7, a)) == 7
    assert int(sizes.sym_min(b, 9)) == 4
    assert int(sizes.sym_min(9, b)) == 4
    with pytest.raises(ShapeError, match="too few"):
        sizes.check(a > 5, "too few")
    asked, (c,) = torch_sizes(5)
    assert not sizes.known(c > 2)
    assert not asked.guards
    sizes.check(c > 2, "too few")
    assert [str(guard.expr) for guard in asked.guards] == [f"{c} > 2"]


def test_a_rule_runs_on_torch_symints() -> None:
    _, (n, k, m) = torch_sizes(3, 4, 5)
    found = infer("aten.mm.default", (TensorSpec.contiguous((n, k)), TensorSpec.contiguous((k, m))))
    assert found.sizes[0] is n
    assert found.sizes[1] is m
    assert int(found.strides[0]) == 5


def test_extremes_and_products() -> None:
    env, (a, b) = symbols(3, 5)
    named = {"s0": 3, "s1": 5}
    assert sizes.sym_max(2, 7) == 7
    assert sizes.sym_min(2, 7) == 2
    assert at(sizes.sym_max(a, b), named) == 5
    assert at(sizes.sym_min(a, b), named) == 3
    assert at(sizes.sym_max(4, a), named) == 4
    assert at(sizes.sym_min(4, a), named) == 3
    assert sizes.at_least_one(0) == 1
    assert sizes.at_least_one(4) == 4
    assert at(sizes.at_least_one(a), {"s0": 0}) == 1
    assert sizes.product(()) == 1
    assert sizes.product((2, 3, 0)) == 0
    assert sizes.product((1, a)) is a
    assert at(sizes.product((2, a, 3, b)), named) == 90
    for n, d in itertools.product((0, 1, 7, 8, 9), (1, 2, 4)):
        assert sizes.ceil_div(n, d) == -(-n // d)
        assert at(sizes.ceil_div(a, d), {"s0": n}) == -(-n // d)
    assert not env.guards


@pytest.mark.parametrize("index", [0, 1, 2, 3, 4, 9, -1, -2, -3, -4, -9, 2**63 - 1, -(2**63)])
def test_clamp_index_is_pythons(index: int) -> None:
    for size in range(5):
        expected = slice(index, None).indices(size)[0]
        assert sizes.clamp_index(index, size) == expected
        env, (n,) = symbols(size)
        found = sizes.clamp_index(index, n)
        assert not env.guards
        for other in range(6):
            assert at(found, {"s0": other}) == slice(index, None).indices(other)[0]


def test_clamp_index_asks_the_sign_of_a_symbol() -> None:
    for hint in (3, 0):
        env, (index, n) = symbols(hint, 5)
        found: Any = sizes.clamp_index(index - 1, n)
        for i, size in itertools.product(range(6), range(6)):
            if guards_at(env, i, size):
                assert at(found, {"s0": i, "s1": size}) == slice(i - 1, None).indices(size)[0]
    assert sizes.clamp_index(n, n) is n


def test_empty_and_show() -> None:
    _, (a,) = symbols(0)
    assert sizes.empty((2, 0))
    assert not sizes.empty((2, 3))
    assert not sizes.empty(())
    assert not sizes.empty((a, 2))  # a 0 in the example is not a 0
    assert sizes.show(()) == "()"
    assert sizes.show((2,)) == "(2,)"
    assert sizes.show((a, 3)) == "(s0, 3)"
