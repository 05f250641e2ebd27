"""The true sizes on the device are those of the call, whatever was written before, and whatever
went wrong.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from symshape.runtime.runners.padded.true_sizes import TrueSizes

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_any_sequence_of_calls(device: str, count: int) -> None:
    rng = random.Random(count)
    sizes = TrueSizes(range(count), torch.device(device))
    for _ in range(60):
        wanted = tuple(rng.choice((0, 1, 5, 2**31 + 7, 2**62 - 1, -3)) for _ in range(count))
        sizes.write(sizes.of(wanted))
        assert sizes.tensor.tolist() == list(wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_after_a_launch_that_failed_nothing_is_taken_for_granted(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    sizes = TrueSizes(range(5), torch.device(device))
    sizes.write((3, 4, 5, 6, 7))
    add = torch._foreach_add_

    def half(tensors: Any, numbers: Any) -> None:
        add(tensors[:1], numbers[:1])
        raise RuntimeError("out of luck")

    monkeypatch.setattr(torch, "_foreach_add_", half)
    with pytest.raises(RuntimeError, match="out of luck"):
        sizes.write((9, 9, 9, 9, 9))
    monkeypatch.undo()
    sizes.write((5, 4, 5, 6, 7))
    assert sizes.tensor.tolist() == [5, 4, 5, 6, 7]
    sizes.write((6, 7, 5, 6, 7))
    assert sizes.tensor.tolist() == [6, 7, 5, 6, 7]
