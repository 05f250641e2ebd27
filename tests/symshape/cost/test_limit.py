"""Budgets as guard sets: they hold exactly where the program is right and within the budget;
dispatch uses them.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import symshape
from guards import Tree
from symshape import Limit
from symshape.errors import InputError

NAMES = {"x": {0: "batch", 1: "length"}}


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(1, 2), -1) @ x


def in_turn(x: torch.Tensor) -> torch.Tensor:
    """The same in less memory: keys first, which softmax does not allow; only its sizes matter
    here.
    """
    return x @ (x.transpose(1, 2) @ x)


@pytest.fixture(scope="module")
def traced() -> symshape.Traced:
    return symshape.trace(attention, torch.ones(3, 5, 8), dynamic=NAMES)


def test_holds_exactly_within_the_budget(traced: symshape.Traced) -> None:
    peak, cost = traced.peak_memory(), traced.cost()
    both = Limit(memory="20 kB", flops=9000).guards(traced)
    seen = set()
    for batch, length in itertools.product((1, 2, 3, 17), range(2, 60, 3)):
        at = {"batch": batch, "length": length}
        if not traced.guards.holds(at):
            continue
        fits = peak.at(**at).total <= 20_000, cost.at(**at).flops <= 9000
        assert both.holds(at) == all(fits)
        seen.add(fits)
    assert {(True, True), (False, False), (True, False)} <= seen


def test_dispatch_takes_what_fits(traced: symshape.Traced) -> None:
    slow = symshape.trace(in_turn, torch.ones(3, 5, 8), dynamic=NAMES)
    tree: Tree[str] = Tree(["batch", "length"])
    tree.insert(Limit(memory="1 MB").guards(traced), "quick")
    tree.insert(Limit(memory="3 MB").guards(slow), "small")
    peak = traced.peak_memory()
    last = peak.largest("length", batch=4, bytes="1 MB")
    assert tree.lookup((4, last)) == "quick"
    assert tree.lookup((4, last + 1)) == "small"
    assert tree.lookup((4, 10**6)) is None
    assert "memory within" in str(tree.miss((4, 10**6)))


def test_of_training() -> None:
    model = torch.nn.Linear(8, 1)
    step = symshape.trace_training(
        model,
        torch.ones(4, 8),
        loss=torch.mean,
        optimizer=torch.optim.AdamW,
        dynamic={"input": {0: "batch"}},
    )
    guards = Limit(memory="10 kB", schedule="eager").guards(step)
    best = step.peak_memory().largest("batch", bytes="10 kB")
    assert guards.holds({"batch": best})
    assert not guards.holds({"batch": best + 1})


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"a limit needs memory=… or flops=…"):
        Limit()
    with pytest.raises(InputError, match="bytes='much' is no amount"):
        Limit(memory="much")
    with pytest.raises(InputError, match="flops=-1 must be 0 or more"):
        Limit(flops=-1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 1]))

    with pytest.raises(InputError, match=r"the cost of aten.segment_reduce.default is not known"):
        Limit(flops=100).guards(symshape.trace(fn, torch.ones(3)))
