"""Reshapes that are views at some sizes and copies at others, where memory that they may share is
written to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.verify import copy_call
from tests.symshape.eager import call_seen, differences

Pair = tuple[torch.Tensor, torch.Tensor]
Program = Callable[[torch.Tensor, torch.Tensor], Any]
SIDES = ((3, 4), (2, 5), (4, 1), (1, 4), (1, 1), (0, 3), (3, 0), (5, 2))


def turned(n: int, m: int) -> Pair:
    memory = torch.arange(float(n * m))
    return memory.view(m, n).t(), memory


def stepped(n: int, m: int) -> Pair:
    memory = torch.arange(float(2 * n * m))
    return memory.view(n, 2 * m)[:, ::2], memory[: n * m]


def cut(n: int, m: int) -> Pair:
    memory = torch.arange(float(n * (m + 1)))
    return memory.view(n, m + 1)[:, 1:], memory[1:]


def images(n: int, m: int) -> Pair:
    memory = torch.arange(float(2 * n * m))
    return memory.view(1, n, m, 2).permute(0, 3, 1, 2), memory[: 2 * n * m]


def writes_alias(op: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = op(a)
        b.add_(1)
        return y * 2

    return program


def reads_alias(op: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = op(a)
        y.add_(1)
        return b * 2

    return program


OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reshape": lambda a: a.reshape(-1),
    "reshape to the other sizes": lambda a: a.reshape(a.shape[::-1]),
    "reshape_as": lambda a: a.reshape_as(a.flatten(1).mT.contiguous()),
    "flatten": lambda a: a.flatten(),
    "torch.flatten": lambda a: torch.flatten(a, 0, 1),
    "ravel": lambda a: a.ravel(),
    "contiguous": lambda a: a.contiguous(),
    "contiguous in another order": lambda a: a.mT.contiguous(),
    "an inner module": lambda a: torch.nn.Flatten(0)(a),
    "twice": lambda a: a.reshape(-1, 1).reshape(-1),
    "of a view": lambda a: a[..., :1].reshape(-1),
}
IMAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "to channels last": lambda a: a.to(memory_format=torch.channels_last),
    "contiguous channels last": lambda a: a.contiguous(memory_format=torch.channels_last),
    "contiguous": lambda a: a.contiguous(),
    "flatten of channels": lambda a: a.flatten(1),
}


def check(fn: Program, calls: Sequence[Pair]) -> None:
    """One compiled function serves all calls as eager does: values, strides, aliasing, writes."""
    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    for call in calls:
        theirs, mine = (copy_call(call, {})[0] for _ in range(2))
        found = differences(call_seen(fn, theirs, {}), call_seen(compiled, mine, {}))
        sizes = [(tuple(each.shape), each.stride()) for each in call]
        assert not found, (sizes, found, compiled.entries)


@pytest.mark.parametrize("direction", [writes_alias, reads_alias])
@pytest.mark.parametrize("pair", [turned, stepped, cut])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_memory_that_another_argument_shares(
    op: Callable[[torch.Tensor], torch.Tensor], pair: Callable[[int, int], Pair], direction: Any
) -> None:
    check(direction(op), [pair(*sides) for sides in SIDES])


@pytest.mark.parametrize("direction", [writes_alias, reads_alias])
@pytest.mark.parametrize("op", IMAGES.values(), ids=IMAGES)
def test_images(op: Callable[[torch.Tensor], torch.Tensor], direction: Any) -> None:
    check(direction(op), [images(*sides) for sides in SIDES])


@pytest.mark.parametrize("first", SIDES)
def test_each_side_may_be_the_first(first: tuple[int, int]) -> None:
    for second in SIDES:
        check(writes_alias(lambda a: a.reshape(-1)), [turned(*sides) for sides in (first, second)])


def test_a_guard_for_each_side() -> None:
    """Sizes that are equal at first are told apart from dimensions of one on either side later."""
    compiled = symshape.compile(writes_alias(lambda a: a.reshape(-1)), fullgraph=True)
    for sides in ((3, 4), (2, 5), (4, 1), (1, 4)):
        assert (
            compiled(*turned(*sides)).tolist()
            == writes_alias(lambda a: a.reshape(-1))(*turned(*sides)).tolist()
        )


def test_a_buffer_that_an_argument_shares() -> None:
    class Counts(torch.nn.Module):
        seen: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            y = a.reshape(-1)
            self.seen.add_(1)
            return y * 2

    def results(
        called: Callable[[torch.Tensor], torch.Tensor], module: Counts
    ) -> list[list[float]]:
        calls = [
            torch.zeros(4, 3).t(),
            torch.zeros(5, 2).t(),
            module.seen.view(1, 4).t(),
            module.seen.view(4, 1).t(),
        ]
        return [called(each).tolist() for each in calls]

    plain, module = Counts(), Counts()
    compiled = symshape.compile(module, dynamic=True, fullgraph=True)
    assert results(compiled, module) == results(plain, plain)


def test_only_writes_to_memory_that_was_there_ask() -> None:
    """What the program itself makes shares memory with no argument, so that writes to it leave no
    guards.
    """

    def fn(written: bool) -> Program:
        def program(a: torch.Tensor, b: torch.Tensor) -> Any:
            y = a.reshape(-1)
            (b if written else torch.zeros(3)).add_(1)
            return y * 2

        return program

    asking, quiet = (
        len(symshape.trace(fn(written), *turned(3, 4), dynamic=True).guards)
        for written in (True, False)
    )
    assert quiet == 1 < asking


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations([(2, 2), (0, 1), (2, 0), (1, 2)], 2))
)
def test_where_a_reshape_begins(first: tuple[int, int], second: tuple[int, int]) -> None:
    """The storage offset of a view of nothing is its source's, that of a copy is 0."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = a.unsqueeze(-1).reshape(-1)
        return y.storage_offset(), y * 1

    check(fn, [cut(*sides) for sides in (first, second)])
