"""Costs as formulas: sums, splits, growth, tables, and the time that a value takes."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.cost.cost import degree
from symshape.errors import GuardViolation, InputError


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.up(x))
        return y @ y.transpose(1, 2)


@pytest.fixture(scope="module")
def traced() -> symshape.Traced:
    return symshape.trace(Block(), torch.ones(3, 5, 8), dynamic={"x": {0: "batch", 1: "length"}})


def test_formulas(traced: symshape.Traced) -> None:
    cost = traced.cost()
    assert str(cost.flops) == "544*batch*length + 64*batch*length*length"
    at = cost.at(batch=2, length=7)
    assert (at.flops, at.bytes) == (544 * 14 + 64 * 98, at.read + at.written)
    assert at.intensity == at.flops / at.bytes == cost.intensity(batch=2, length=7)
    assert cost.bytes.at(batch=2, length=7) == at.bytes
    assert "$" in cost.flops._repr_latex_()


def test_splits_add_up(traced: symshape.Traced) -> None:
    cost = traced.cost()
    for what in ("op", "line", "module", "dtype", "family"):
        parts = cost.by(what)
        assert (
            sum(part.at(batch=4, length=9).flops for part in parts.values())
            == cost.at(batch=4, length=9).flops
        )
    assert str(cost.by("module")["up"].flops) == "512*batch*length"
    assert str(cost.by("op")["aten.bmm.default"].flops) == "64*batch*length*length"
    with pytest.raises(InputError, match="cannot be split by 'colour'; choose from op, line"):
        cost.by("colour")


def test_growth(traced: symshape.Traced) -> None:
    growth = traced.cost().growth("length")
    assert growth.degree == 2
    assert str(growth).startswith("grows with length**2 in aten.bmm.default at test_cost.py:")
    assert str(traced.cost().growth("batch")).startswith("grows with batch in aten.")
    with pytest.raises(InputError, match="no symbol 'depth'"):
        traced.cost().growth("depth")


def test_growth_of_nothing() -> None:
    x = torch.ones(3)
    traced = symshape.trace(lambda x: x.view(-1), x, dynamic={"x": {0: "n"}})
    assert str(traced.cost().growth("n")) == "does not grow with n"
    assert degree(traced.cost().flops.term, traced.symbols["n"].term) == 0


def test_shown(traced: symshape.Traced) -> None:
    cost = traced.cost()
    table = cost.table(by="module", batch=2, length=7)
    assert table.title == "cost of Block at batch=2, length=7"
    assert table.rows[-1][0] == "all"
    assert "aten.bmm.default" in str(cost)
    assert "grows with length**2" in cost._repr_html_()
    assert len(cost.table(limit=1).rows) == 3
    assert cost.table(limit=1).rows[1][0].endswith(" more")
    assert "FLOP" in str(cost.at(batch=2, length=7))


def test_an_op_without_a_rule_is_named() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 1]))

    cost = symshape.trace(fn, torch.ones(3)).cost()
    assert cost.unpriced == {"aten.segment_reduce.default": 1}
    assert "left out, because no cost rule knows them: aten.segment_reduce.default (1)" in str(cost)
    assert "unknown" in str(cost)


def test_in_place_and_out_variants_cost_what_their_functional_forms_do() -> None:
    def functional(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x + y)

    def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y, out=torch.empty_like(x)).sigmoid_()

    args = torch.ones(3, 5), torch.ones(5)
    one, other = (symshape.trace(fn, *args).cost() for fn in (functional, in_place))
    assert str(one.flops) == str(other.flops)
    assert str(one.bytes) == str(other.bytes)
    assert one.kernels == other.kernels == 2


@pytest.mark.parametrize("change", ["t_", "as_strided_"])
def test_what_is_viewed_in_place_costs_what_a_view_of_it_does(change: str) -> None:
    numbers: tuple[tuple[int, int], ...] = ((2, 2), (1, 2)) if change == "as_strided_" else ()

    def program(x: torch.Tensor, in_place: bool) -> torch.Tensor:
        y = x * 2
        return getattr(y, change if in_place else change.removesuffix("_"))(*numbers) + 1  # type: ignore[no-any-return]

    one, other = (symshape.trace(program, torch.ones(3, 5), in_place) for in_place in (False, True))
    at = dict(zip(one.symbols, (4, 7), strict=True))
    assert one.cost().at(**at).read == other.cost().at(**at).read > 0
    (changed,) = [node.leaves for node in other.program.graph.nodes if node.leaves is not None]
    value, spec = changed
    assert (spec.sizes, spec.strides) != (value.spec.sizes, value.spec.strides)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.cond(x.sum() > 0, lambda: x[x > 0].sum(), lambda: x.sum()),
        lambda x: x * torch.cond(x.sum() > 0, lambda: x[:2] * 1, lambda: x * 3).size(0),
    ],
)
def test_unbacked_symbols_that_no_cost_hangs_on(fn: Callable[..., Any]) -> None:
    cost = symshape.trace(fn, torch.ones(4, 3)).cost()
    assert "at s0=4, s1=3" in str(cost)
    assert "u0" not in str(cost.at(s0=4, s1=3))


def test_unbacked_symbols_are_asked_for() -> None:
    cost = symshape.trace(lambda x: x[x > 0] * 2, torch.ones(7)).cost()
    with pytest.raises(InputError, match="needs a value for u0"):
        cost.at(s0=7)
    assert cost.at(s0=7, u0=3).flops == 7 + 3


def test_outside_the_guards(traced: symshape.Traced) -> None:
    with pytest.raises(GuardViolation):
        symshape.trace(lambda x: x.view(-1, 4), torch.ones(8)).cost().at(s0=9)


def test_largest(traced: symshape.Traced) -> None:
    cost = traced.cost()
    best = cost.largest("length", batch=2, flops="1 M")
    assert cost.at(batch=2, length=best).flops <= 10**6 < cost.at(batch=2, length=best + 1).flops


def test_a_value_takes_microseconds(traced: symshape.Traced) -> None:
    cost, peak = traced.cost(), traced.peak_memory()
    for at in (cost.at, peak.at):
        at(batch=8, length=4096)
        best = min(timeit.repeat(lambda at=at: at(batch=8, length=4096), number=50, repeat=10)) / 50
        assert best < 50e-6, at
