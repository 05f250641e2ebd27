"""Numbers that a program reads off tensors which it made from sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError
from tests.symshape.eager import agree

R = torch.randn


FORMULAS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x.new_ones(torch.tensor(x.size(0)).item()), "s0"),
    (lambda x: x.new_ones((torch.tensor(x.size(0)) * 2 + x.size(1)).item()), "2*s0 + s1"),
    (lambda x: x.new_ones(torch.tensor(x.shape).sum().item()), "s0 + s1"),
    (lambda x: x.new_ones(torch.prod(torch.tensor(x.shape)).item()), "s0*s1"),
    (lambda x: x.new_ones(torch.tensor([x.size(1), 3])[0].item()), "s1"),
    (lambda x: x.new_ones((torch.as_tensor([x.size(0), 4]) // 2)[0].item()), "s0//2"),
    (
        lambda x: x.new_ones(torch.div(torch.tensor(x.size(1)), 2, rounding_mode="floor").item()),
        "s1//2",
    ),
    (lambda x: x.new_ones((torch.tensor(x.size(1)) % 4).unsqueeze(0).item()), "s1 % 4"),
]


@pytest.mark.parametrize(("fn", "size"), FORMULAS)
def test_numbers_made_from_sizes_are_formulas(fn: Callable[[Any], Any], size: str) -> None:
    traced, seen = agree(fn, (R(3, 5),), (R(4, 7),), (R(1, 1),))
    assert seen == ["equal"] * 3
    assert str(traced.output_specs.sizes[0]) == size


def test_other_numbers_made_from_sizes_fix_them() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        steps = torch.log2(torch.tensor(x.size(0))).ceil().int().item()
        return x * steps

    traced, seen = agree(fn, (R(5, 2),), (R(5, 7),), (R(6, 2),))
    assert seen == ["equal", "equal", "refused"]
    assert [str(guard.term) for guard in traced.guards] == ["s0 == 5"]


def test_what_was_written_to_is_not_known() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(x.size(0))
        number += (x > 0).sum()
        return x * 2 if number.item() > 3 else x

    with pytest.raises(DataDependentError):
        symshape.trace(fn, R(3, 5))


def test_random_and_uninitialised_numbers_are_not_known() -> None:
    for fn in (
        lambda x: x * 2 if torch.rand(x.size(0)).sum().item() > 1 else x,
        lambda x: x * 2 if torch.empty(x.size(0)).sum().item() > 1 else x,
    ):
        with pytest.raises(DataDependentError):
            symshape.trace(fn, R(3))


def test_the_batch_of_a_packed_sequence_is_known() -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        return x.new_zeros(packed.batch_sizes[0].item(), 2)

    traced, seen = agree(
        fn, (R(5, 3, 2), torch.tensor([5, 2, 1])), (R(4, 2, 2), torch.tensor([3, 3]))
    )
    assert seen == ["equal", "equal"]
    assert str(traced.output_specs.sizes[0]) == "s1"
