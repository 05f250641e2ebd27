"""Nodes that run parts: what eager's operators do, and their backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import generic_associative_scan

from symshape.graph.control_flow import (
    AssociativeScan,
    Captures,
    Cond,
    ControlFlow,
    Scan,
    WhileLoop,
)


def _choice(whole: bool) -> Cond:
    """``x * 2 * n`` or ``y`` of (condition, x, y, n)."""
    op = Cond("cond", Captures(2, 1), whole=whole, draws=False)
    op.parts = (
        lambda tensors, numbers: [tensors[0] * 2 * numbers[0]],
        lambda tensors, numbers: [tensors[1] * 1],
    )
    return op


def test_a_choice() -> None:
    x, y = torch.rand(3), torch.rand(3)
    op = _choice(True)
    assert torch.equal(op(torch.tensor(True), x, y, 3)[0], x * 6)
    assert torch.equal(op(torch.tensor([0.0]), x, y, 3)[0], y)
    assert (str(op), op._schema.name, op.tags) == ("cond", "opaque::cond", ())
    assert Cond("cond", Captures(0, 0), whole=True, draws=True).tags == (
        torch.Tag.nondeterministic_seeded,
    )


def test_what_autograd_sees() -> None:
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    for whole in (True, False):
        (found,) = _choice(whole)(torch.tensor(True), x, y, 3)
        gradients = torch.autograd.grad(found.sum(), (x, y), allow_unused=True)
        assert torch.equal(gradients[0], torch.full((3,), 6.0))
        assert gradients[1] is None if not whole else torch.equal(gradients[1], torch.zeros(3))
    (found,) = _choice(True)(torch.tensor(False), x, y.detach(), 3)
    assert found.requires_grad  # though only x does
    with torch.no_grad():
        assert not _choice(True)(torch.tensor(True), x, y, 3)[0].requires_grad


def test_gradients_under_autocast_are_of_what_ran() -> None:
    x = torch.rand(3, 3, requires_grad=True)
    op = Cond("cond", Captures(1, 0), whole=True, draws=False)
    op.parts = (lambda tensors, numbers: [tensors[0] @ tensors[0]],) * 2
    (found,) = op(torch.tensor(True), x)
    (expected,) = torch.autograd.grad(found.sum(), x, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.autograd.grad(found.sum(), x)[0], expected)


def test_gradients_of_gradients() -> None:
    x = torch.rand(3, requires_grad=True)
    op = Cond("cond", Captures(1, 0), whole=True, draws=False)
    op.parts = (lambda tensors, numbers: [tensors[0] ** 3],) * 2
    (first,) = torch.autograd.grad(op(torch.tensor(True), x)[0].sum(), x, create_graph=True)
    assert torch.allclose(torch.autograd.grad(first.sum(), x)[0], 6 * x)


def test_a_loop() -> None:
    op = WhileLoop("while_loop", Captures(1, 1), whole=True, draws=False)

    def goes_on(tensors: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        return [numbers[0] < numbers[1]]

    def body(tensors: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        return [numbers[0] + 1, tensors[0] + tensors[1]]

    op.parts = (goes_on, body)
    x, y = torch.rand(3), torch.rand(3)
    for rounds in range(4):
        count, found = op(0, x, y, rounds)
        assert int(count) == rounds
        assert torch.allclose(found, x + rounds * y)
        assert found.data_ptr() != x.data_ptr()


def test_rows() -> None:
    op = Scan("scan", Captures(1, 0), 1, whole=True, draws=False)
    op.parts = (lambda tensors, numbers: [tensors[0] + tensors[1] * tensors[2], tensors[1].t()],)
    init, rows, w = (
        torch.zeros(2, 3),
        torch.rand(4, 2, 3, requires_grad=True),
        torch.rand(3, requires_grad=True),
    )
    state, stacked = op(init, rows, w)
    assert torch.allclose(state, (rows * w).sum(0))
    assert torch.equal(stacked, rows.transpose(1, 2))
    assert stacked.is_contiguous()
    found = torch.autograd.grad(state.sum() + (stacked**2).sum(), (rows, w))
    expected = torch.autograd.grad((rows * w).sum() + (rows**2).sum(), (rows, w))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("length", range(1, 24))
def test_levels(length: int) -> None:
    """Each part is told how many rows its level has, and how many it gets; those of the first level
    are others.
    """
    told: list[tuple[str, int, int]] = []

    def part(name: str) -> Any:
        def run(tensors: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
            told.append((name, *numbers))
            return [tensors[0] * tensors[1]]

        return run

    names = [
        f"{kind}{few}" for kind, most in (("pairs", 4), ("rest", 5)) for few in range(2, most + 1)
    ]
    op = AssociativeScan("associative_scan", Captures(0, 0), generic_associative_scan, draws=False)
    op.parts = tuple(part(level + name) for level in ("top ", "") for name in names)
    rows = torch.rand(length, 2)
    assert torch.equal(op(rows)[0], generic_associative_scan(lambda a, b: a * b, [rows])[0])
    for name, level, given in told:
        is_top, kind = name.startswith("top "), name.removeprefix("top ")
        assert is_top == (level == length)
        pairs = kind.startswith("pairs")
        assert given == (level // 2 if pairs else (level - 1) // 2)
        assert int(kind[-1]) == min(level, 4 if pairs else 5)


def test_it_says_what_it_needs() -> None:
    with pytest.raises(NotImplementedError):
        ControlFlow("nothing", Captures(0, 0), whole=False, draws=False)()
