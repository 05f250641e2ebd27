"""What is said of padding: symbols, repairs at the user's lines, refusals."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

import symshape
from meta_fns.core import registry
from meta_fns.errors import ShapeError


def test_repairs_are_named_with_their_lines() -> None:
    padding = symshape.trace(lambda x: x.mean(1).softmax(0), torch.ones(3, 4)).padding()
    assert padding.padded == ("s0", "s1")
    whats = [each.what for each in padding.symbols["s1"].repairs]
    assert "divisor: s1" in whats
    assert any(each.startswith("mask: 0 beyond s1") for each in whats)
    mask = next(
        each for each in padding.symbols["s0"].repairs if each.op == "aten._softmax.default"
    )
    assert (mask.what, mask.op) == ("mask: -inf beyond s0", "aten._softmax.default")
    assert "test_report.py" in mask.where
    assert "divisor: s1 for aten.mean.dim" in str(padding)


def test_no_repair_needed() -> None:
    padding = symshape.trace(lambda x: (x * 2).relu().cumsum(0), torch.ones(3)).padding()
    assert str(padding) == "s0: padded to 3, no repair needed"


def test_what_is_fixed_is_not_padded() -> None:
    padding = symshape.trace(lambda x: x @ torch.ones(4, 2), torch.ones(3, 4)).padding()
    assert padding.padded == ("s0",)
    assert "fixed" in str(padding.symbols["s1"])


def test_integer_arguments_that_size_nothing_are_exact() -> None:
    padding = symshape.trace(lambda x, n: x * n, torch.ones(3), 5, dynamic=True).padding()
    assert padding.padded == ("s0",)
    assert "sizes no tensor by itself" in str(padding)


def test_nothing_to_say() -> None:
    assert str(symshape.trace(lambda x: x, torch.ones(3), dynamic=False).padding()) == "no symbols"


def test_data_dependent_programs_say_so() -> None:
    padding = symshape.trace(lambda x: x.nonzero().sum(0), torch.ones(3, 4)).padding()
    assert padding.padded == ()
    refusal = padding.symbols["s0"].refusal
    assert refusal is not None
    assert refusal.op == "aten.nonzero.default"
    assert "data" in refusal.reason


def test_checks_of_data_are_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        n = x.sum().int().item()
        torch._check(n >= 1)
        return x * n

    assert symshape.trace(program, torch.ones(3)).padding().padded == ()


def test_a_rule_that_takes_a_call_for_wrong_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager has taken the call: the rule is wrong, and nobody who asks for a report is to blame."""

    def padding(emit: Any, *args: Any) -> Any:
        raise ShapeError("a dimension appears twice")

    rule = attrs.evolve(registry._rules["aten.flip.default"], padding=padding)
    monkeypatch.setitem(registry._rules, "aten.flip.default", rule)
    registry._by_op.clear()
    try:
        made = symshape.trace(lambda x: x.flip(1), torch.ones(3, 4)).padding()
    finally:
        monkeypatch.undo()
        registry._by_op.clear()
    refusal = made.symbols["s1"].refusal
    assert refusal is not None
    assert "ShapeError: a dimension appears twice" in refusal.reason
    compiled = symshape.compile(lambda x: x.roll((1, 2), (1, 1)), dynamic=True, runner="padded")
    for n in (5, 6, 7):
        x = torch.randn(n, n + 1)
        assert torch.equal(compiled(x), x.roll(3, 1))
    assert "turned by 2 of s1" in str(compiled.report())
