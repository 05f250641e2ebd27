"""Gradients of which nobody sees the history are not recorded; whatever can be seen of it is
eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.graph.autograd_history import RecordedHistory
from tests.training import TRAINED, Trained, loss_of, sizes


def silent(compiled: Any) -> list[bool]:
    """For each program, whether it records nothing, for sure."""
    found = []
    for entry in compiled.entries:
        graph, keys = entry.program.graph, entry.program.call.keys
        asking = [
            each.value
            for each in graph.inputs
            if getattr(keys[each.position], "requires_grad", False)
        ]
        asking += [each.value for each in graph.lifted if each.tensor.requires_grad]
        found.append(RecordedHistory(graph.steps, asking).silent)
    return found


def _train(
    model: nn.Module, optimizer: torch.optim.Optimizer, call: dict[str, torch.Tensor]
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(model(**call))
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


@pytest.mark.slow
@pytest.mark.parametrize(
    "trained", [each for each in TRAINED if each.name != "lstm"], ids=lambda each: each.name
)
def test_a_step_of_training_records_nothing(trained: Trained) -> None:
    theirs, ours = (trained.build() for _ in range(2))
    by_eager, by_us = (
        torch.optim.SGD(each.parameters(), lr=1e-2, momentum=0.9) for each in (theirs, ours)
    )
    step: Any = symshape.compile(lambda call: _train(ours, by_us, call))
    for batch, length in sizes(5):
        call = trained.call(batch, length)
        loss = step(call)
        assert torch.equal(loss, _train(theirs, by_eager, call)) or trained.name == "llama"
        assert not loss.requires_grad
    assert all(silent(step))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.grad, other.grad)
        assert one.requires_grad


def test_a_loss_that_is_returned_leads_where_its_history_led() -> None:
    (trained,) = (each for each in TRAINED if each.name == "encoder")
    theirs, ours = (trained.build() for _ in range(2))
    by_eager, by_us = (torch.optim.SGD(each.parameters(), lr=1e-2) for each in (theirs, ours))

    def train(
        model: nn.Module, optimizer: torch.optim.Optimizer, call: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(**call))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    step: Any = symshape.compile(lambda call: train(ours, by_us, call))
    for batch, length in sizes(4):
        call = trained.call(batch, length)
        mine, its = step(call), train(theirs, by_eager, call)
        assert torch.equal(mine, its)
        for loss in (mine, its):
            assert loss.requires_grad
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()  # type: ignore[no-untyped-call]
    assert all(silent(step))


class Kept(nn.Module):
    """Keeps what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(4, 4), torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.linear(x)
        return self.last.detach() * 2


def _written(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros(x.shape)
    kept[:, :2] = linear(x)[:, :2]
    return kept


def _written_data(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros(x.shape)
    kept[:, :2] = linear(x)[:, :2].detach()
    return kept.add_(1)


def _of_a_view(linear: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        turned = linear.weight.t()
    return x @ turned


PROGRAMS: dict[str, tuple[Callable[[nn.Linear, torch.Tensor], Any], bool]] = {
    "a result": (lambda linear, x: linear(x).relu_(), False),
    "one of two": (lambda linear, x: (linear(x).argmax(1), linear(x)[0].sum()), False),
    "a view of a parameter": (lambda linear, x: (linear.weight.t(), linear(x).detach()), False),
    "a parameter": (lambda linear, x: (linear.weight, linear(x).detach()), True),
    "detached": (lambda linear, x: linear(x).relu_().detach() + 1, True),
    "positions": (lambda linear, x: linear(x).softmax(1).argmax(1), True),
    "without gradients inside": (
        lambda linear, x: torch.no_grad()(lambda y: y * 2)(linear(x)),
        True,
    ),
    "of a view made without gradients": (_of_a_view, False),
    "written": (_written, False),
    "written, data": (_written_data, True),
    "rounded": (lambda linear, x: (linear(x) * 10).to(torch.int64), True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_asks_for_gradients_does_so(name: str) -> None:
    program, is_silent = PROGRAMS[name]
    linear = nn.Linear(4, 4)
    compiled: Any = symshape.compile(lambda x: program(linear, x), fullgraph=True)
    for n in (3, 5, 6):
        x = torch.randn(n, 4)
        for mine, theirs in zip(
            *(_tensors(each) for each in (compiled(x), program(linear, x))), strict=True
        ):
            torch.testing.assert_close(mine, theirs)
            assert (mine.requires_grad, mine.is_leaf) == (theirs.requires_grad, theirs.is_leaf)
            if theirs.requires_grad and not theirs.is_leaf:
                found = [
                    torch.autograd.grad(
                        each.sum(), linear.weight, retain_graph=True, allow_unused=True
                    )[0]
                    for each in (mine, theirs)
                ]
                assert (found[0] is None) == (found[1] is None)
                if found[0] is not None:
                    torch.testing.assert_close(*found)
    assert set(silent(compiled)) == {is_silent}


def _tensors(result: Any) -> list[torch.Tensor]:
    return [
        each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)
    ]


def test_what_is_kept_outside_has_its_history() -> None:
    model = Kept()
    compiled: Any = symshape.compile(model)
    for n in (3, 5, 6):
        model.zero_grad()
        x = torch.randn(n, 4)
        assert not compiled(x).requires_grad
        model.last.sum().backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(model.linear.weight.grad, x.sum(0).expand(4, 4))


def test_transforms_see_what_they_saw() -> None:
    """Of what hangs on parameters nothing is recorded; of what hangs on a wrapped argument all
    is.
    """
    linear = nn.Linear(4, 4)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * linear(x).detach() + x.sin()).sum()

    compiled: Any = symshape.compile(fn)
    for n in (3, 5, 6):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))
        torch.testing.assert_close(torch.func.grad(compiled)(x), torch.func.grad(fn)(x))


def test_tensors_saved_on_the_way() -> None:
    """Whoever keeps elsewhere what autograd saves gets the same numbers."""
    (trained,) = (each for each in TRAINED if each.name == "encoder")
    theirs, ours = (trained.build() for _ in range(2))
    by_eager, by_us = (torch.optim.SGD(each.parameters(), lr=1e-2) for each in (theirs, ours))
    step: Any = symshape.compile(lambda call: _train(ours, by_us, call))
    for batch, length in sizes(4):
        call = trained.call(batch, length)
        with torch.autograd.graph.save_on_cpu():
            torch.testing.assert_close(step(call), _train(theirs, by_eager, call))
