"""Programs cut to pieces: which are worth being recorded where nothing is replayed, and how much
work a cut is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from guards import parse
from guards.sets.guard import Guard
from symshape.runtime.pieces import cutting, partition, step_order
from symshape.runtime.pieces.cutting import cut
from symshape.runtime.pieces.faults import Faults

CPU = torch.device("cpu")


def _program(fn: Callable[..., Any], *args: Any, dynamic: bool = True) -> Any:
    with torch.no_grad():
        return symshape.trace(fn, *args, dynamic=dynamic).program


def _updates(number: int) -> Callable[..., Any]:
    """Work on a batch, and then updates of parameters by numbers that are read from tensors, as an
    optimizer does.
    """
    weights = [torch.ones(4, 4) for _ in range(number)]
    counts = [torch.zeros(()) for _ in range(number)]

    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = (x @ weights[0]).relu().sin()
        for weight, count in zip(weights, counts, strict=True):
            count += 1
            moved = weight.exp().mul(0.5).add(1).sqrt().sin().cos()
            weight.sub_(moved / count.item())
        return x.sum()

    return step


def test_pieces_of_constant_sizes_are_recorded_where_they_are_replayed() -> None:
    program = _program(_updates(4), torch.ones(7, 4))
    assert [part.piece.recorded for part in cut(program, CPU)].count(True) == 1
    pieces = partition.partition(program.graph, Faults(program.graph, CPU).of, cutting.LEAST)
    assert [piece.recorded for piece in pieces].count(True) > 1, "as where a replay saves time"


def test_a_size_that_a_guard_holds_to_one_value_is_constant() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        for _ in range(6):
            y = (y + torch.ones(5)).sin()
        found = (x > 0).nonzero()
        for _ in range(6):
            x = x.sin().cos()
        return found, x, y

    program = _program(fn, torch.ones(7), torch.ones(5))
    assert cutting._fixed(program.guards) == {"s1"}
    recorded = [part for part in cut(program, CPU) if part.piece.recorded]
    assert all("s0" in part.program.positions for part in recorded)
    assert recorded


@pytest.mark.parametrize(
    ("text", "fixed"), [("s0 == 5", True), ("3*s0 == 15", True), ("s0 % 4 == 1", False)]
)
def test_an_equation_fixes_a_symbol_if_it_is_linear(text: str, fixed: bool) -> None:
    assert cutting._fixed([Guard(parse(text))]) == ({"s0"} if fixed else set())
    assert cutting._fixed([Guard(parse("s0 == s1")), Guard(parse("s0 >= 5"))]) == set()


def test_a_program_of_constant_sizes_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program(_updates(2), torch.ones(7, 4), dynamic=False)
    monkeypatch.setattr(cutting, "partition", lambda *args: pytest.fail("no piece can be padded"))
    assert cut(program, CPU) == ()


def test_the_work_of_a_cut_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The symbols of a step are looked for once, whatever the number of pieces."""
    asked: list[Any] = []
    names = step_order.names_of_spec
    monkeypatch.setattr(step_order, "names_of_spec", lambda spec: (asked.append(1), names(spec))[1])
    counts = []
    for number in (8, 32):
        program = _program(_updates(number), torch.ones(7, 4))
        asked.clear()
        assert cut(program, CPU)
        counts.append(len(asked) / len(program.graph.steps))
    assert counts[1] <= 1.05 * counts[0] <= 6


def test_turns_are_the_first_in_which_needs_are_met() -> None:
    needs: list[tuple[int, ...]] = [(), (0,), (), (1, 2), (), (3,), (4,), (6,)]
    fit = [True, False, True, True, False, False, True, True]
    assert partition._in_turns(needs, fit) == [[0, 2], [1, 4], [3, 6, 7], [5]]
    assert partition._in_turns([(), ()], [False, False]) == [[0, 1]]
    assert partition._in_turns([], []) == []


def _penalty(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        (found,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return found.norm() + x.sum()


def _gradient_of_a_sum(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        x = (x + 1).requires_grad_()
        (found,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return (found * 2).sum()


def _detached(x: torch.Tensor) -> torch.Tensor:
    return _penalty(x).detach()


@pytest.mark.parametrize("fn", [_penalty, _gradient_of_a_sum, _detached])
def test_results_with_a_history_of_their_own_keep_it(fn: Callable[..., torch.Tensor]) -> None:
    compiled = symshape.compile(fn, runner="padded", dynamic=True)
    for rows in (3, 4, 1, 0, 5):
        x = torch.rand(rows)
        found, wanted = compiled(x), fn(x)
        torch.testing.assert_close(found, wanted)
        assert found.requires_grad == wanted.requires_grad
        if found.requires_grad:
            found.backward()  # type: ignore[no-untyped-call]
    assert str(compiled.report()).startswith("entry 0: padded") == (fn is _detached)
