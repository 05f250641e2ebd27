"""Copies of compiled functions: each has the class of the original, also where programs are stored
or verified.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape


def double(x: torch.Tensor) -> torch.Tensor:
    """The function that is compiled."""
    return x * 2


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
@pytest.mark.parametrize("verify", [0.0, 1.0])
@pytest.mark.parametrize("stored", [False, True])
def test_a_copy_is_compiled_alike(
    again: Callable[[Any], Any], verify: float, stored: bool, tmp_path: Path
) -> None:
    store = {"store": str(tmp_path)} if stored else {}
    compiled = symshape.compile(double, options={"verify": verify, "plain_calls": False, **store})
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    made = again(compiled)
    assert made is not compiled
    assert type(made) is type(compiled)
    assert torch.equal(made(torch.ones(3)), torch.full((3,), 2.0))
    assert made.stats().verified == bool(verify)
    assert made.stats().loaded == stored


class Scaler:
    """A class with compiled methods of each kind."""

    def __init__(self, k: float) -> None:
        self.k = k

    @symshape.compile
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        """A method."""
        return x * self.k

    @staticmethod
    @symshape.compile
    def twice(x: torch.Tensor) -> torch.Tensor:
        """A static method."""
        return x * 2

    @classmethod
    @symshape.compile
    def name_length(cls, x: torch.Tensor) -> torch.Tensor:
        """A method of the class."""
        return x * len(cls.__name__)

    class Inner:
        """A class inside another."""

        @symshape.compile
        def thrice(self, x: torch.Tensor) -> torch.Tensor:
            """A method."""
            return x * 3


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "found",
    [
        Scaler.scale,
        Scaler.twice,
        Scaler.Inner.thrice,
        vars(Scaler)["name_length"].__func__,
    ],
)
def test_a_method_that_a_class_holds_stays_the_same_object(found: Any, protocol: int) -> None:
    assert copy.copy(found) is copy.deepcopy(found) is found
    assert pickle.loads(pickle.dumps(found, protocol)) is found


def test_bound_methods_are_pickled_with_their_objects() -> None:
    x = torch.ones(2)
    for found in (Scaler(3.0).scale, Scaler.name_length, Scaler.Inner().thrice):
        assert torch.equal(pickle.loads(pickle.dumps(found))(x), found(x))


def test_a_replaced_method_is_copied() -> None:
    compiled = symshape.compile(Scaler.__init__)
    made = copy.copy(compiled)  # the class holds another object by this name
    assert made is not compiled
    assert made.fn is compiled.fn
