"""Padded programs that write to memory which they also read: as eager does, errors included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.verify import copy_call

Program = Callable[..., Any]


def T(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes)


def outcome(fn: Program, call: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """The result and the arguments afterwards, or the error."""
    args, _ = copy_call(call, {})
    try:
        return fn(*args).tolist(), [each.tolist() for each in args]
    except RuntimeError as error:
        return RuntimeError, "refer to a single memory location" in str(error)


def check(fn: Program, calls: Sequence[Sequence[torch.Tensor]]) -> list[PaddedRunner]:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    for call in calls:
        assert outcome(compiled, call) == outcome(fn, call), [tuple(each.shape) for each in call]
    return [entry.runner for entry in compiled.entries]


def places(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.size(0))


def own(write: Callable[[torch.Tensor], Any]) -> Program:
    """The write to memory that the program made itself."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        write(y)
        return y + 0

    return program


def given(write: Callable[[torch.Tensor], Any]) -> Program:
    """The write to an argument."""

    def program(x: torch.Tensor) -> torch.Tensor:
        write(x)
        return x + 0

    return program


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "add_": lambda x: x[1:].add_(x[:-1]),
    "sub_": lambda x: x[:-1].sub_(x[1:]),
    "setitem": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "index_add_": lambda x: x.index_add_(0, places(x), x),
    "index_copy_": lambda x: x.index_copy_(0, places(x), x),
    "index_put_": lambda x: x.index_put_((places(x),), x),
    "scatter_": lambda x: x.scatter_(0, places(x)[:, None].expand(x.shape), x),
    "scatter_add_": lambda x: x.scatter_add_(0, places(x)[:, None].expand(x.shape), x[...]),
    "out": lambda x: torch.add(x[1:], 1, out=x[:-1]),
    "out of two": lambda x: torch.mul(x[:-1], x[1:], out=x[1:]),
    "turned": lambda x: x.add_(x.t()) if x.size(0) == x.size(1) else x.add_(1),
    "a row": lambda x: x.mul_(x[:1]),
    "addcmul_": lambda x: x[1:].addcmul_(x[:-1], x[1:]),
    "lerp_": lambda x: x[1:].lerp_(x[:-1], 0.5),
    "views of each other": lambda x: torch._foreach_add_([x[1:], x[:-1]], 1),
    "one tensor twice": lambda x: torch._foreach_mul_([x, x], 2),
}
CALLS = [(T(5, 3),), (T(6, 3),), (T(2, 3),), (T(4, 4),), (T(1, 3),), (T(1, 1),), (T(9, 9),)]


@pytest.mark.parametrize("memory", [own, given])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_as_eager(write: Callable[[torch.Tensor], Any], memory: Callable[[Any], Program]) -> None:
    check(memory(write), CALLS)


SAME: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda x: x.mul_(x),
    "a view of all": lambda x: x.add_(x[...]),
    "a detached one": lambda x: x.sub_(x.detach()),
    "out": lambda x: torch.add(x, x, out=x),
    "another": lambda x: x[1:].copy_((x * 2)[:-1]),
}


@pytest.mark.parametrize("memory", [own, given])
@pytest.mark.parametrize("write", SAME.values(), ids=SAME)
def test_the_same_places_are_padded(
    write: Callable[[torch.Tensor], Any], memory: Callable[[Any], Program]
) -> None:
    """Element by element from the same places is fine in eager, and on padded copies too."""
    runners = check(memory(write), CALLS)
    assert any(runner.buckets for runner in runners)


def test_the_refusal_says_what_to_do() -> None:
    compiled = symshape.compile(own(WRITES["copy_"]), dynamic=True, runner="padded")
    with pytest.raises(RuntimeError):
        compiled(T(5, 3))
    (refusal,) = {str(each) for each in compiled.entries[0].runner.refusals.values()}
    assert "may read elements that it writes" in refusal
    assert "clone()" in refusal
