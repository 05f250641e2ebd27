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
