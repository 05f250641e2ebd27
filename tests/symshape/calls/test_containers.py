"""An argument, or what it holds, may be a list that the program meets outside, too; and an object
of another class.
"""

from __future__ import annotations

import pytest
import torch

import symshape
from tests.symshape.holders import Holder


def test_a_list_in_an_argument_may_be_one_that_is_read_outside() -> None:
    def world(compiled: bool) -> list[str]:
        outside = [torch.ones(2)]

        def f(holder: Holder) -> torch.Tensor:
            holder.kept.append(holder.x)
            return holder.x + len(outside)

        run = symshape.compile(f) if compiled else f
        found = []
        for call in range(8):
            holder = Holder.of(3 + call % 2, 0, outside if call in (4, 6) else None)
            found.append(repr((run(holder), vars(holder), outside)))
        return found

    assert world(compiled=True) == world(compiled=False)


def test_the_class_of_an_argument_may_be_exchanged() -> None:
    class Other(Holder): ...

    def f(holder: Holder) -> torch.Tensor:
        holder.__class__ = Other
        return holder.x + 1

    compiled = symshape.compile(f)
    holder = Holder.of(3, 0)
    with pytest.warns(symshape.FallbackWarning, match="changes the class of the argument holder"):
        compiled(holder)
    for n in (3, 4, 5, 5):
        assert type(holder) is Other
        holder = Holder.of(n, 0)
        assert torch.equal(compiled(holder), holder.x + 1)


@pytest.mark.parametrize("writes_outside", [True, False])
def test_a_list_that_is_an_argument_may_be_one_that_is_read_outside(writes_outside: bool) -> None:
    def world(compiled: bool) -> list[str]:
        outside = [1]

        def f(items: list[int], x: torch.Tensor) -> torch.Tensor:
            (outside if writes_outside else items).append(1)
            return x * len(items) + 10 * len(outside)

        run = symshape.compile(f) if compiled else f
        found = []
        for call in range(6):
            items = outside if call in (1, 3, 4) else [1, 2]
            found.append(repr((run(items, torch.arange(3.0)), items, outside)))
        return found

    assert world(compiled=True) == world(compiled=False)
