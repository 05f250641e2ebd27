"""Ops on lists against eager: torch's own samples of foreach ops, and the fused steps of
optimisers.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from tests.meta_fns.opdb import Call, _run_info, judge, judge_apart, vary

aten = torch.ops.aten


def _calls(step: int, first: int) -> list[Call]:
    from torch.testing._internal import common_methods_invocations as infos

    tables = ("unary", "binary", "pointwise", "reduce", "other")
    calls: dict[Any, dict[str, Call]] = defaultdict(dict)
    torch.manual_seed(0)
    every = [info for table in tables for info in getattr(infos, f"foreach_{table}_op_db")]
    for info in every[first::step]:
        _run_info(info, torch.float32, calls, 6, "cpu")
    return [
        call for found in calls.values() for call in found.values() if "_foreach_" in str(call.op)
    ]


def _judge(calls: list[Call]) -> None:
    torch.set_num_threads(1)
    rng = random.Random(0)
    verdicts = [judge(call) for call in calls]
    verdicts += judge_apart([other for call in calls if (other := vary(call, rng)) is not None])
    wrong = [f"{verdict.label}: {verdict.detail}" for verdict in verdicts if not verdict.fine]
    assert not wrong, f"{Counter(each.label for each in verdicts)}\n" + "\n".join(wrong[:10])


def test_a_sample_of_torchs_own() -> None:
    calls = _calls(12, 1)
    assert len({call.op for call in calls}) >= 6
    _judge(calls)


@pytest.mark.nightly
def test_all_of_torchs_own() -> None:
    calls = _calls(1, 0)
    assert len({call.op for call in calls}) >= 70
    _judge(calls)


def _lists(number: int, sizes: tuple[int, ...] = (3, 2)) -> list[list[torch.Tensor]]:
    return [[torch.rand(sizes), torch.rand(4)] for _ in range(number)]


_ADAM = {
    "lr": 0.1,
    "beta1": 0.9,
    "beta2": 0.99,
    "weight_decay": 0.0,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
}
_SGD = {
    "weight_decay": 0.0,
    "momentum": 0.9,
    "lr": 0.1,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
}
_FUSED = {
    "_fused_adamw_": lambda: (*_lists(4), [], [torch.tensor(1.0), torch.tensor(1.0)]),
    "_fused_adam_": lambda: (*_lists(4), [], [torch.tensor(1.0), torch.tensor(1.0)]),
    "_fused_sgd_": lambda: (*_lists(3),),
    "_fused_adagrad_": lambda: (*_lists(3), [torch.tensor(1.0), torch.tensor(1.0)]),
}


def _numbers(name: str) -> dict[str, Any]:
    if name == "_fused_sgd_":
        return {**_SGD, "is_first_step": False}
    if name == "_fused_adagrad_":
        return {"lr": 0.1, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    return _ADAM


@pytest.mark.parametrize("name", _FUSED)
def test_fused_steps_return_nothing_and_refuse_what_does_not_fit(name: str) -> None:
    op = getattr(aten, name).default
    lists, numbers = _FUSED[name](), _numbers(name)
    specs = [[TensorSpec.of(each) for each in items] for items in lists]
    assert op(*lists, **numbers) is None
    assert meta_fns.infer(op, specs, numbers) is None
    assert set(meta_fns.aliasing(op).mutated) >= {0, 2}, (
        "the parameters and the state are written to"
    )
    short = [specs[0], specs[1][:1], *specs[2:]]
    with pytest.raises(RuntimeError):
        op(lists[0], lists[1][:1], *lists[2:], **numbers)
    with pytest.raises(meta_fns.ShapeError, match="of one length"):
        meta_fns.infer(op, short, numbers)
    other = [specs[0], [TensorSpec.of(torch.rand(2, 3)), specs[1][1]], *specs[2:]]
    with pytest.raises(meta_fns.ShapeError, match=r"has sizes \(2, 3\) where"):
        meta_fns.infer(op, other, numbers)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(meta_fns.ShapeError, match="one length"):
        meta_fns.infer(aten._foreach_add.List, [[torch.rand(2)], [torch.rand(2), torch.rand(2)]])


def _float(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype)


_UNSCALED = [
    ([_float(3), _float(2, 2, dtype=torch.bfloat16)], _float(), _float()),
    ([], _float(), _float()),
    ([_float(3)], _float(1), _float(1, 1)),
    ([_float(3)], _float(2), _float()),
    ([_float(3)], _float(), _float(2)),
    ([_float(3)], _float(dtype=torch.float64), _float()),
    ([_float(3)], _float(), _float(dtype=torch.float64)),
    ([torch.ones(3, dtype=torch.int32)], _float(), _float()),
    ([_float(1, 3).expand(2, 3)], _float(), _float()),
]
_INT = torch.ones((), dtype=torch.int32)
_SCALES = [
    (_float(), _INT, _float()),
    (_float(1), _INT.reshape(1), _float(1)),
    (_float(2), _INT, _float()),
    (_float(), _INT.long(), _float()),
    (_float(dtype=torch.float64), _INT, _float()),
    (_float(), _INT, _float(dtype=torch.float64)),
    (_float(), _INT.expand(2), _float()),
    (_float(), _INT, _float(2)),
]


@pytest.mark.parametrize("args", _UNSCALED)
def test_unscaling(args: tuple[Any, ...]) -> None:
    _as_in_eager(aten._amp_foreach_non_finite_check_and_unscale_.default, args)


@pytest.mark.parametrize("args", _SCALES)
def test_the_next_scale(args: tuple[Any, ...]) -> None:
    _as_in_eager(aten._amp_update_scale_.default, (*args, 2.0, 0.5, 3))


def _as_in_eager(op: Any, args: tuple[Any, ...]) -> None:
    """The rule answers what eager does, or refuses what that refuses."""
    try:
        expected = op(*args)
    except (RuntimeError, NotImplementedError):
        with pytest.raises(meta_fns.MetaError):
            meta_fns.infer(op, args)
        return
    found = meta_fns.infer(op, args)
    assert (found is None) == (expected is None)
    assert found is None or (tuple(found.sizes), found.strides, found.dtype) == (
        tuple(expected.shape),
        expected.stride(),
        expected.dtype,
    )
