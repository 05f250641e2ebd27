"""Torch's modes as a record: named, frozen, one object for each combination."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Thread

import attrs
import pytest
import torch
from torch.overrides import TorchFunctionMode

import symshape
from symshape.calls.modes import Modes, modes
from symshape.errors import UnsupportedError

CHANGES: dict[str, tuple[Callable[[], AbstractContextManager[object]], str]] = {
    "nothing": (nullcontext, "grad mode, default dtype torch.float32"),
    "no_grad": (torch.no_grad, "no_grad, default dtype torch.float32"),
    "inference": (torch.inference_mode, "inference mode, default dtype torch.float32"),
    "autocast": (
        lambda: torch.autocast("cpu", dtype=torch.float16),
        "grad mode, default dtype torch.float32, autocast cpu torch.float16",
    ),
    "autocast to another dtype": (
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "grad mode, default dtype torch.float32, autocast cpu torch.bfloat16",
    ),
    "device": (
        lambda: torch.device("meta"),
        "grad mode, default dtype torch.float32, default device meta",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_combination_is_one_record(name: str) -> None:
    change, words = CHANGES[name]
    with change():
        first = modes()
        assert modes() is first
        assert str(first) == words
    seen = {id(first)}
    for other, (change, _) in CHANGES.items():
        if other != name:
            with change():
                assert modes() is not first
                assert modes() != first
                seen.add(id(modes()))
    assert len(seen) == len(CHANGES)


def test_fields_have_names() -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        found = modes()
    assert (found.grad, found.inference, found.dtype) == (False, False, torch.float32)
    assert found.autocast == (("cpu", torch.bfloat16),)
    assert found.device == "meta"
    assert not found.plain
    assert modes().plain
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        found.grad = True  # type: ignore[misc]


def test_the_default_dtype_counts() -> None:
    before = modes()
    torch.set_default_dtype(torch.float64)
    try:
        assert modes().dtype is torch.float64
        assert modes() is not before
    finally:
        torch.set_default_dtype(torch.float32)
    assert modes() is before


def test_threads_that_meet_a_combination_first_agree() -> None:
    found: list[Modes] = []
    torch.set_default_dtype(torch.float16)  # nobody else's
    try:
        threads = [Thread(target=lambda: found.append(modes())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_function_mode_of_the_users_is_refused_around_a_call() -> None:
    class Twice(TorchFunctionMode):
        def __torch_function__(self, fn, kinds, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = fn(*args, **(kwargs or {}))
            return result * 2 if fn is torch.relu else result

    fast = symshape.compile(lambda x: torch.relu(x), fullgraph=True)
    assert torch.equal(fast(torch.ones(3)), torch.ones(3))
    with Twice(), pytest.raises(UnsupportedError, match=r"function mode .*Twice is active"):
        fast(torch.ones(3))
    with torch.device("cpu"):
        assert torch.equal(fast(torch.ones(3)), torch.ones(3))

    def inside(x: torch.Tensor) -> torch.Tensor:
        with Twice():
            return fast(x)  # type: ignore[no-any-return]

    assert torch.equal(symshape.trace(inside, torch.ones(3))(torch.ones(3)), 2 * torch.ones(3))
