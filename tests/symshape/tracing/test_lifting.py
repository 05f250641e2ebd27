"""Real tensors that a program reads, and the constants that it writes down."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import agree, assert_same
from tests.symshape.frontends.calling import nested

R = torch.randn


def test_parameters_are_lifted_not_copied() -> None:
    module = nn.Linear(3, 2)
    traced = symshape.trace(module, R(4, 3))
    assert {each.name: each.tensor for each in traced.graph.lifted} == {
        "weight": module.weight,
        "bias": module.bias,
    }
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(7)
    assert torch.equal(traced(R(5, 3)), torch.full((5, 2), 7.0))


def test_tied_parameters() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, nn.ReLU(), second)
    traced = symshape.trace(model, R(2, 4))
    assert len(traced.graph.lifted) == 1
    assert_same(model, traced, R(5, 4))


def test_constants_start_afresh_in_each_run() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([1.0, 2.0])
        table += x.sum()
        return table

    traced, _ = agree(fn, (R(3),), (R(5),))
    x = torch.ones(2)
    assert torch.equal(traced(x), traced(x))


def test_known_constants_follow_writes() -> None:
    def through_a_view(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(1)
        number.view(1).add_(1)
        return x * number.item()

    def through_out(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(1)
        torch.add(number, 1, out=number)
        return x * number.item()

    for fn in (through_a_view, through_out):
        _, seen = agree(fn, (torch.ones(3),), (torch.ones(5),))
        assert seen == ["equal", "equal"]


def test_known_constants_are_plain_numbers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(2)
        if number.item() > 1 and int(number) == 2:
            return x * float(number)
        return x

    traced, _ = agree(fn, (R(3),), (R(5),))
    assert not traced.guards


def test_tensors_of_one_memory_share_a_storage_in_the_graph() -> None:
    base = R(4, 3)
    first, second, other = base[:2], base[2:], R(2, 3)
    traced = symshape.trace(lambda x: x + first + second + other, R(2, 3))
    storages = [each.value.storage for each in traced.graph.lifted]
    assert [
        each.tensor is real
        for each, real in zip(traced.graph.lifted, (first, second, other), strict=True)
    ]
    assert storages[0] is storages[1]
    assert storages[2] is not storages[0]


def test_a_known_constant_is_a_number_and_no_step() -> None:
    traced = symshape.trace(lambda x: x * torch.tensor(2.0).item(), R(3))
    assert all(each.backed for each in traced.symbols.values())
    assert [str(node.op) for node in traced.graph.nodes] == ["aten.mul.Tensor"]


def test_what_is_lifted_has_strides() -> None:
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(UnsupportedError, match=r"layout torch\.sparse_coo"):
        symshape.trace(lambda x: sparse @ x, R(3, 3))
    rows = nested()
    with pytest.raises(UnsupportedError, match="reads a nested tensor"):
        symshape.trace(lambda x: (rows * 2, x), R(3, 3))
    symshape.trace(lambda x: x * 2 if x is not rows else x, R(3, 3))  # looked at, not read
