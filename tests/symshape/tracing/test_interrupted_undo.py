"""Interrupts while the writes of a trace are undone: the user's objects hold what they held before
the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import symshape
from symshape.tracing import global_state
from tests.interrupts import OpcodeInterrupt

_UNDOING = (
    *(
        "symshape.tracing.run",
        "symshape.tracing.global_state",
        "symshape.tracing.state.instrument.hooks",
    ),
    *(
        "symshape.tracing.state.undo.side_effects",
        "symshape.tracing.state.undo.writes",
        "symshape.tracing.state.instrument.placeholders",
    ),
    *("symshape.tracing.state.record.places", "contextlib"),
)
"""The modules that undo what a trace wrote."""
_DYING = global_state._Held.__getattr__.__code__
_LOST = {f"{_DYING.co_filename}:{line}" for _, _, line in _DYING.co_lines()}
"""The lines that C runs when the stream around standard output dies; it drops what they raise."""


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 1


class Counting(torch.nn.Module):
    """Reads and writes an attribute, an entry, a list, a slot and the variable of a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 1
        self.table = {"k": 1}
        self.log = [1]
        self.slots = Slots()
        self.add, self.total = _closure()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.n + self.table["k"] + self.slots.n
        self.n = self.n + x.shape[0]
        self.table["k"] = self.table["k"] + x.shape[1]
        self.log.append(self.n)
        self.slots.n += 1
        self.add(x.shape[0])
        return y

    def state(self) -> tuple[Any, ...]:
        """All that it holds, and of which classes the numbers are."""
        numbers = [self.n, self.table["k"], *self.log, self.slots.n, self.total()]
        return [*numbers, *map(type, numbers)], list(self.table), len(self.log)


def _closure() -> tuple[Any, Any]:
    total = 0

    def add(n: int) -> None:
        nonlocal total
        total += n

    return add, lambda: total


def _interrupted(numbers: Sequence[int], trace: int) -> OpcodeInterrupt:
    """One traced call with interrupts: the first one of a function, or the second, which reads what
    the first wrote.
    """
    model = Counting()
    fn = symshape.compile(model, dynamic=True)
    for n in range(1, trace):
        fn(torch.ones(n + 2, 4))
    before, x = model.state(), torch.ones(7, 4)
    whole = Counting()  # as after the call, if the interrupt comes behind all that it writes
    for n in range(1, trace):
        whole(torch.ones(n + 2, 4))
    whole(x)
    interrupt = OpcodeInterrupt(numbers, _UNDOING)
    try:
        interrupt.of(lambda: fn(x))
    except KeyboardInterrupt:
        assert model.state() in (before, whole.state()), f"left at {interrupt.raised}"
    else:
        assert not set(interrupt.raised) - _LOST or not numbers
    plain = Counting()
    plain.load_state_dict(model.state_dict())
    plain.n, plain.table, plain.log, plain.slots.n = (
        model.n,
        dict(model.table),
        list(model.log),
        model.slots.n,
    )
    assert torch.equal(fn(x), plain(x))
    assert [type(each) for each in (model.n, model.slots.n, *model.log)] == [int] * (
        2 + len(model.log)
    )
    return interrupt


@pytest.mark.slow
@pytest.mark.parametrize("parts", [10, pytest.param(400, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("trace", [1, 2], ids=["first trace", "trace with variables"])
@pytest.mark.parametrize("gaps", [(), (40,), (700, 3)], ids=["one", "two", "three"])
def test_writes_are_undone(gaps: tuple[int, ...], trace: int, parts: int) -> None:
    every = _interrupted((), trace).seen
    assert every > 3000
    begun = sum(
        bool(_interrupted((every * part // (parts + 1), *gaps), trace).raised)
        for part in range(1, parts + 1)
    )
    assert begun == parts
