"""Which steps may go when nobody reads their results: those that only compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from meta_fns import TensorSpec
from symshape.graph.dead_code import without_dead_code
from symshape.graph.steps import Node, Value

R = torch.ones


def ops(fn: Any, *args: Any) -> list[str]:
    return [str(node.op).split(".")[1] for node in symshape.trace(fn, *args).graph.nodes]


def test_steps_that_are_kept_and_steps_that_are_not() -> None:
    assert ops(lambda x: (x.sin(), x.cos())[1], R(3)) == ["cos"]
    assert ops(lambda x: (x.sin().cos().view(-1), x)[1], R(3)) == []
    assert ops(lambda x: (x.clone().zero_(), x)[1], R(3)) == ["clone", "zero_"]  # writes are kept
    assert ops(lambda x: (torch.rand(3), x)[1], R(3)) == ["rand"]  # the generator moves
    assert ops(lambda x: ((x > 0).nonzero(), x)[1], R(3)) == ["gt", "nonzero"]  # it binds a symbol
    assert ops(lambda x: x.split(2)[0], R(6)) == ["split"]


@pytest.mark.parametrize(
    ("unread", "kept"),
    [
        (lambda x: x.gather(0, torch.zeros(1, dtype=torch.long)), "gather"),
        (lambda x: nn.functional.one_hot(x.long(), 4), "one_hot"),
        (lambda x: torch.linalg.inv_ex(x.outer(x)), "linalg_inv_ex"),
    ],
)
def test_what_may_refuse_its_data_runs_even_unread(unread: Any, kept: str) -> None:
    assert kept in ops(lambda x: (unread(x), x)[1], R(3))


def test_batch_norm_keeps_its_running_statistics() -> None:
    norm = nn.BatchNorm1d(3)
    assert "native_batch_norm" in "".join(ops(lambda x: (norm(x), x)[1], R(4, 3)))


def test_all_steps_go_when_only_inputs_come_back() -> None:
    found = symshape.trace(lambda x: x.sin().cos(), R(3)).graph
    assert len(found.steps) == 2
    assert without_dead_code(list(found.steps), (found.inputs[0].value,)) == ()
    assert without_dead_code(list(found.steps), found.outputs) == found.steps


@pytest.mark.parametrize(
    ("unread", "sizes", "wrong"),
    [
        (nn.functional.conv2d, ([1, 3, 5, 5], [4, 3, 1, 1]), ([1, 3, 5, 5], [0, 3, 1, 1])),
        (nn.functional.conv1d, ([2, 3, 5], [4, 3, 2]), ([2, 3, 5], [0, 3, 2])),
        (nn.functional.conv1d, ([2, 3, 5], [4, 3, 2]), ([2, 3, 5], [4, 3, 0])),
        (nn.functional.conv2d, ([1, 3, 5, 5], [4, 3, 1, 2]), ([1, 3, 5, 5], [4, 3, 1, 0])),
        (
            nn.functional.conv_transpose2d,
            ([1, 3, 5, 5], [3, 4, 1, 1]),
            ([1, 3, 5, 5], [3, 0, 1, 1]),
        ),
    ],
)
def test_what_eager_refuses_is_refused_unread(unread: Any, sizes: Any, wrong: Any) -> None:
    """A convolution that nobody reads may go, as its guards refuse the sizes that eager refuses."""

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        unread(x, weight)
        return x * 2

    bad = [R(size) for size in wrong]
    with pytest.raises(RuntimeError):
        fn(*bad)
    compiled = symshape.compile(fn)
    good = [R(size) for size in sizes]
    more = [good[0], torch.cat([good[1]] * 2, int(unread is nn.functional.conv_transpose2d))]
    for args in (good, more):
        assert torch.equal(compiled(*args), args[0] * 2)
    for call in (compiled, symshape.compile(fn)):
        with pytest.raises(RuntimeError):
            call(*bad)


def _value(index: int, device: str, dtype: torch.dtype = torch.float32) -> Value:
    return Value(index, TensorSpec.contiguous((4,), dtype, torch.device(device)), object())


@pytest.mark.parametrize(
    ("op", "given", "goes"),
    [
        ("softmax", [("cuda", torch.float32)], True),
        ("softmax", [("cpu", torch.int64)], True),
        ("softmax", [("cuda", torch.int64)], False),  # which the CPU may take, and CUDA may not
        ("add", [("cuda", torch.int64), ("cuda", torch.int64)], True),
        ("view", [("cuda", torch.int64)], True),
        ("bucketize", [("cuda", torch.float32), ("cuda", torch.float32)], True),
        ("bucketize", [("cuda", torch.float32), ("cpu", torch.float32)], False),
    ],
)
def test_what_a_device_may_refuse_runs_even_unread(op: str, given: Any, goes: bool) -> None:
    overload = {
        "softmax": torch.ops.aten._softmax.default,
        "add": torch.ops.aten.add.Tensor,
        "view": torch.ops.aten.view.default,
        "bucketize": torch.ops.aten.bucketize.Tensor,
    }[op]
    values = [_value(i, device, dtype) for i, (device, dtype) in enumerate(given)]
    rest = {"softmax": (0, False), "view": ((4,),)}.get(op, ())
    node = Node(overload, (*values, *rest), {}, (_value(9, "cuda"),), True)
    assert (without_dead_code([node], ()) == ()) == goes
