"""Ops that are listed as refusing no data, with NaN, infinities, extreme integers and zeros for
op_db's values.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from symshape.graph import dead_code
from symshape.graph.dead_code import _TAKES_ANY_DATA, _is_pointwise
from tests.meta_fns.opdb import Call, clone, record

# Eager itself ends the process, where a graph without the op does not.
CRASHES = {"lcm", "gcd"}
FLOATS = [
    [float("nan")],
    [0.0],
    [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e30, 0.5, 2.0],
]


def _filled(given: torch.Tensor, rng: random.Random) -> torch.Tensor:
    tensor = clone(given)
    if tensor.layout is not torch.strided or not tensor.numel() or tensor.dtype is torch.uint64:
        return tensor
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    if tensor.dtype is torch.bool:
        pool: list[Any] = [True, False]
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        pool = rng.choice(FLOATS)
    else:
        most, least = torch.iinfo(tensor.dtype).max, torch.iinfo(tensor.dtype).min
        pool = rng.choice([[least], [0], [most], [least, most, 0, 1, 7]])
    values = torch.tensor(
        [rng.choice(pool) for _ in range(64)],
        dtype=torch.float64 if pool in FLOATS else torch.int64,
    )
    whole.copy_(values.repeat(whole.numel() // 64 + 1)[: whole.numel()])
    return tensor


def _listed(call: Call) -> bool:
    op = call.op
    name = op._schema.name.partition("::")[2]
    name = name.removesuffix("_") if op._schema.is_mutable else name
    divides = name.removeprefix("_foreach_") in dead_code._DIVISIONS
    return (name in _TAKES_ANY_DATA or _is_pointwise(name)) and not divides and name not in CRASHES


def _refusal(calls: Iterable[Call]) -> str:
    """Return what an op raises for some data, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        rng, found = random.Random(0), "fine"
        for call in calls:
            for _ in range(6):
                args, kwargs = tree_map_only(
                    torch.Tensor, lambda each: _filled(each, rng), (call.args, call.kwargs)
                )
                try:
                    call.op(*args, **kwargs)
                except Exception as error:
                    found = f"{type(error).__name__}: {error} ({call})"
        os.write(writing, found.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return text or f"ended with status {status}"


def check(first: int, step: int) -> int:
    by_op: defaultdict[Any, list[Call]] = defaultdict(list)
    for call in record(first=first, step=step, most=3):
        if _listed(call):
            by_op[call.op].append(call)
    refused = {str(op): said for op, calls in by_op.items() if (said := _refusal(calls)) != "fine"}
    assert not refused, refused
    return len(by_op)


def test_each_name_is_that_of_an_op() -> None:
    spaces = torch.ops.aten, torch.ops.prims
    assert not [
        name
        for name in _TAKES_ANY_DATA
        if not any(hasattr(s, n) for s in spaces for n in (name, f"{name}_"))
    ]


@pytest.mark.slow
def test_some_ops() -> None:
    torch.set_num_threads(1)
    assert check(1, 12) > 30


@pytest.mark.nightly
def test_all_ops() -> None:
    torch.set_num_threads(1)
    assert check(0, 1) > 400
