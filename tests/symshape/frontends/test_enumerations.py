"""Values of enumerations as results, in arguments, in what a program writes: constants without
copies.
"""

from __future__ import annotations

import dataclasses
import enum
import tempfile
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import UnsupportedError


class Stage(enum.Enum):
    """Where a program is."""

    FIRST = 1
    LATER = 2


class Flags(enum.Flag):
    """They can be combined."""

    X = 1
    Y = 2


class Owner:
    """As many attributes as a test likes."""

    stage = Stage.FIRST

    class Inner(enum.Enum):
        """It has its name in a class."""

        ONE = "one"


@dataclasses.dataclass
class Batch:
    """A stage among tensors."""

    x: torch.Tensor
    stage: Stage = Stage.FIRST


def test_results() -> None:
    def fn(x: torch.Tensor, given: Any) -> Any:
        return x * 2, {"stage": Stage.LATER, "all": [Flags.X | Flags.Y, Owner.Inner.ONE]}, given

    with tempfile.TemporaryDirectory() as folder:
        for how in (
            {},
            {"store": folder},
            {"store": folder},
            {"runner": "padded", "dynamic": True},
        ):
            compiled: Any = symshape.compile(fn, fullgraph=True, **how)
            for n in (3, 4, 2):
                doubled, found, given = compiled(torch.ones(n), Stage.FIRST)
                assert doubled.tolist() == [2.0] * n
                assert found == {"stage": Stage.LATER, "all": [Flags.X | Flags.Y, Owner.Inner.ONE]}
                assert given is Stage.FIRST
            assert compiled(torch.ones(3), Stage.LATER)[2] is Stage.LATER


def test_what_is_written() -> None:
    owner = Owner()

    def fn(batch: Batch) -> torch.Tensor:
        owner.stage = Stage.LATER if owner.stage is Stage.FIRST else Stage.FIRST
        batch.stage = owner.stage
        return batch.x * (1 if owner.stage is Stage.FIRST else 2)

    compiled: Any = symshape.compile(fn, fullgraph=True)
    for number, n in enumerate((3, 4, 2, 5, 3)):
        batch = Batch(torch.ones(n))
        found = compiled(batch)
        later = number % 2 == 0
        assert owner.stage is batch.stage is (Stage.LATER if later else Stage.FIRST)
        assert found.tolist() == [2.0 if later else 1.0] * n


def test_one_of_a_class_that_the_program_makes_is_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        class Mine(enum.Enum):
            ONE = 1

        return x, Mine.ONE

    with pytest.raises(UnsupportedError, match=r"result\[1\] is a .*Mine"):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))
