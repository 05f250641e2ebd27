"""Calls that C++ serves have the results of those that Python serves; what is out of the ordinary is left to Python."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from symshape import Options
from symshape.runtime.padding import wide_copies
from symshape.runtime.padding.result_rows import clone, known, part
from symshape.runtime.runners import bucket as module_of_bucket
from symshape.runtime.runners import launching
from symshape.runtime.runners.bucket import Bucket
from symshape.runtime.runners.capture import Recording
from symshape.runtime.runners.launching import launcher
from symshape.runtime.runners.true_sizes import TrueSizes
from tests.meta_fns.padding.poison import poison

needs_compiled = pytest.mark.skipif(launching.LAUNCH is None, reason="compiled_launch is not built")


@pytest.fixture(params=["in Python", "in C++"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each call of a bucket, whether C++ served it."""
    found: list[bool] = []
    launched: Any = Bucket.launched

    def noted(self: Bucket, *args: Any) -> Any:
        results = launched(self, *args)
        found.append(results is not None)
        return results

    monkeypatch.setattr(Bucket, "launched", noted)
    if request.param == "in Python":
        monkeypatch.setattr(launching, "LAUNCH", None)
    yield found
    assert launching.LAUNCH is not None or not any(found)


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    return symshape.compile(fn, dynamic=True, runner="padded", options=Options(**options))


def check(mine: Any, fn: Any, *calls: tuple[Any, ...]) -> None:
    """Compares calls with eager, the buffers poisoned before each; results are looked at when all calls are done."""
    pairs = []
    with torch.no_grad():
        for number, call in enumerate(calls):
            for entry in mine.entries:
                for bucket in getattr(entry.runner, "buckets", ()):
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            pairs.append((mine(*call), fn(*call)))
    for got, expected in pairs:
        torch.testing.assert_close(got, expected)
        for a, b in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
            assert not isinstance(a, torch.Tensor) or (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)


def was_served(served: list[bool], least: int) -> None:
    assert launching.LAUNCH is None or sum(served) >= least


def test_a_stream_of_sizes(served: list[bool]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        hidden = model(x).softmax(1) + y.cumsum(1)
        return hidden.sum(1), hidden, hidden.transpose(0, 1).contiguous(), x, 3

    rng = random.Random(0)
    sizes = [(rng.randint(5, 8), rng.randint(17, 32)) for _ in range(60)]
    calls = [(torch.randn(b, n, 8), torch.randn(b, n, 8)) for b, n in sizes]
    mine = compiled(fn)
    check(mine, fn, *calls)
    was_served(served, 40)
    served.clear()
    check(mine, fn, *calls)
    was_served(served, 60)


def test_many_true_sizes(served: list[bool]) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return a.softmax(0).mean(0) + b.softmax(0).mean(0) + c.softmax(0).mean(0) + d.softmax(0).mean(0)

    rng = random.Random(1)
    calls = [tuple(torch.randn(rng.randint(9, 12), 3) for _ in range(4)) for _ in range(20)]
    check(compiled(fn), fn, *calls)
    was_served(served, 15)


def test_inputs_of_every_kind(served: list[bool]) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.softmax(0) * 2 + y.sum()

    plain, mine = torch.randn(20, 24), compiled(fn)
    inputs = [
        plain,
        plain[1:],
        plain[:, :-2],
        plain[::2, ::2].contiguous(),
        plain.clone().requires_grad_(),
        nn.Parameter(plain[:19]),
        torch.randn(24, 20).t(),
        torch.randn(1, 24).expand(20, 24),
        plain.double()[:18],
    ]
    check(mine, fn, *((x, torch.randn(2)) for _ in range(3) for x in inputs))
    was_served(served, 5)


def test_parameters_that_move(served: list[bool]) -> None:
    linear = nn.Linear(4, 4)
    mine = compiled(lambda x: linear(x) + 1)
    for number in range(6):
        if number % 2:
            linear.weight.data = torch.randn(4, 4)
        check(mine, lambda x: linear(x) + 1, *((torch.randn(n, 4),) for n in (5, 6, 5)))
    was_served(served, 8)


def test_gradients_and_modes_of_the_caller_stay(served: list[bool]) -> None:
    linear = nn.Linear(4, 4).requires_grad_(False)
    mine = compiled(lambda x: linear(x).softmax(0))
    for n in (5, 6, 5, 6):
        with torch.inference_mode():
            assert mine(torch.randn(n, 4)).is_inference()
        assert not mine(torch.randn(n, 4)).is_inference()
        assert torch.is_grad_enabled()
    was_served(served, 4)


def test_whoever_watches_ops_sees_them(served: list[bool]) -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    mine = compiled(lambda x: x.softmax(0))
    check(mine, lambda x: x.softmax(0), *((torch.randn(n),) for n in (5, 6, 5)))
    served.clear()
    with Seen(), torch.no_grad():
        mine(torch.randn(6))
    assert "aten::copy_" in names
    assert not any(served)


def test_an_error_half_way_leaves_all_as_it_was(served: list[bool]) -> None:
    mine = compiled(lambda x: x.softmax(0) * x.size(0))
    calls = [(torch.randn(n),) for n in (5, 6, 5, 6)]
    check(mine, lambda x: x.softmax(0) * x.size(0), *calls)
    broken = [True]

    def breaking(run: Any) -> Any:
        def once(*args: Any) -> Any:
            if broken:
                raise KeyError("a fault", broken.pop())
            return run(*args)

        return once

    for bucket in mine.entries[0].runner.buckets:
        bucket._run = breaking(bucket._run)
    x = torch.randn(6)
    with torch.no_grad():  # the function itself runs
        assert torch.equal(mine(x), x.softmax(0) * 6)
    assert not broken
    check(mine, lambda x: x.softmax(0) * x.size(0), *calls)
    was_served(served, 4)


def test_what_writes_or_shares_memory_is_pythons(served: list[bool]) -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).softmax(0)

    def shares(x: torch.Tensor) -> Any:
        y = x.softmax(0)
        return y, y[1:]

    for fn in (writes, shares):
        mine = compiled(fn)
        for n in (5, 6, 5, 6):
            x = torch.randn(n)
            other = x.clone()
            torch.testing.assert_close(mine(x), fn(other))
            assert torch.equal(x, other)
    assert not any(served)


def test_borrowed_results_are_pythons(served: list[bool]) -> None:
    mine = compiled(lambda x: x.softmax(0), outputs="borrow")
    for n in (5, 6, 5):
        x = torch.randn(n)
        torch.testing.assert_close(mine(x), x.softmax(0))
    assert not any(served)


def test_a_bucket_that_left_dies(served: list[bool]) -> None:
    mine = compiled(lambda x: x.softmax(0))
    check(mine, lambda x: x.softmax(0), *((torch.randn(n),) for n in (5, 6, 5)))
    runner = mine.entries[0].runner
    lost = weakref.ref(runner.buckets[0])
    runner.release()
    gc.collect()
    assert lost() is None


@needs_compiled
def test_few_frames_stand_between_a_call_and_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(run: Callable[[], Any], device: Any, pool: Any, *, lent: bool) -> Recording:
        tensors = run()

        def replay() -> Any:
            sys.setprofile(None)
            return tensors

        return Recording(replay)

    def frames(call: Callable[[], Any]) -> int:
        names: list[str] = []
        sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_qualname) if event == "call" else None)
        try:
            call()
        finally:
            sys.setprofile(None)
        return len(names) - 2  # without the call's own lambda and the replay

    monkeypatch.setattr(module_of_bucket, "captured", recorded)
    linear = nn.Linear(4, 4)
    mine = compiled(lambda x: linear(x).softmax(0))
    with torch.no_grad():
        for _ in range(20):
            for n in (9, 10, 12):
                mine(torch.randn(n, 4))
        x = torch.randn(11, 4)
        assert frames(lambda: mine(x)) <= 24, "of sizes never seen"
        assert frames(lambda: mine(x)) <= 7, "of known sizes"


def _launch(results: Any = None, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A launch of a graph that doubles a buffer of 4 by 3, and what it works on."""
    buffer, sizes = torch.zeros(4, 3), TrueSizes((0,), torch.device("cpu"))
    weight = torch.ones(3)
    parts = {"buffer": buffer, "sizes": sizes, "weight": weight, "replays": []}

    def replay() -> list[torch.Tensor]:
        parts["replays"].append(sizes.tensor.tolist())
        return [buffer * 2]

    rows = [part(0, (0, 1), (1, 2))] if results is None else results
    return launcher(replay, (), [(0, buffer)], [weight], rows, sizes, **more), parts


@needs_compiled
def test_nothing_is_done_where_none_is_answered() -> None:
    launch, parts = _launch()
    rows, numbers = torch.randn(2, 3), (2, 3, 1)
    strides: dict[str, tuple[Any, ...]] = {
        "too large": ((torch.randn(5, 3),), numbers),
        "other dimensions": ((torch.randn(2),), numbers),
        "another dtype": ((rows.double(),), numbers),
        "another device": ((rows.to("meta"),), numbers),
        "no tensor": ((1,), numbers),
        "no leaf": ((), numbers),
        "empty": ((torch.randn(0, 3),), numbers),
        "sparse": ((rows.to_sparse(),), numbers),
        "few numbers": ((rows,), (2,)),
        "no numbers": ((rows,), (2, "a", 1)),
        "shared elements": ((rows,), (2, 3, 0)),
        "too large a number": ((rows,), (2**70, 3, 1)),
    }
    for name, (leaves, given) in strides.items():
        assert launch(leaves, given) is None, name
    parts["sizes"].held = None
    assert launch((rows,), numbers) is None
    parts["sizes"].held = (0,)
    parts["weight"].data = torch.ones(3)
    assert launch((rows,), numbers) is None
    assert not parts["buffer"].any()
    assert not parts["replays"]


def _views(call: Callable[[], Any]) -> int:
    """How many views under other sizes or dtypes a call makes."""
    with torch.profiler.profile() as seen:
        call()
    return sum(event.name == "aten::view" for event in seen.events())


def test_large_copies_in_wider_elements(served: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.softmax(1) + y

    monkeypatch.setattr(wide_copies, "DEVICES", frozenset({"cpu"}))
    for dtype, wide in ((torch.bfloat16, 3), (torch.float32, 3), (torch.float64, 0)):
        monkeypatch.setattr(wide_copies, "LEAST", 6 * 18 * 8 * dtype.itemsize)
        mine = compiled(fn)
        sizes = ((5, 17), (7, 30), (6, 18), (8, 32))
        calls = [(torch.randn(b, n, 8).to(dtype), torch.randn(8).to(dtype)) for b, n in sizes]
        check(mine, fn, *calls, *calls)
        with torch.no_grad():
            small, large, least, _ = [_views(partial(mine, *call)) for call in calls]
        assert large - small == least - small == 2 * wide  # the input and two results, each a copy between two views
    was_served(served, 20)


@needs_compiled
def test_true_sizes_are_written_once_and_unknown_after_a_fault() -> None:
    launch, parts = _launch()
    held: list[Any] = []

    class Sizes(TrueSizes):
        def __setattr__(self, name: str, value: Any) -> None:
            held.append((name, value))
            super().__setattr__(name, value)

    parts["sizes"].__class__ = Sizes
    for rows in (2, 2, 3):
        x = torch.randn(rows, 3)
        (result,) = launch([x], (rows, 3, 1))
        assert torch.equal(result, (x * 2))
        assert result.stride() == (3, 1)
    assert parts["replays"] == [[2], [2], [3]]
    assert held == [("held", None), ("held", (2,)), ("held", None), ("held", (3,))]


@needs_compiled
def test_arguments_that_make_no_launch() -> None:
    launch, _ = _launch([known(1), clone(torch.ones(2))])
    assert launch((torch.ones(2, 3),), (2, 3, 1))[0] == 1
    with pytest.raises(TypeError):
        launch((torch.ones(2, 3),))
    with pytest.raises(TypeError):
        launch((torch.ones(2, 3),), [2, 3, 1])
    assert launcher(list, [1], [], [], []) is None  # type: ignore[list-item]


@needs_compiled
def test_a_call_is_left_to_python_when_its_inputs_stayed() -> None:
    launch, _ = _launch(worth=3)
    x = torch.randn(2, 3)
    told = [launch((x,), (2, 3, 1)) is None for _ in range(6)]
    assert told == [False, False, True, False, False, False]
    assert launch.repeated == 6
    launch((x.clone(),), (2, 3, 1))
    assert launch.repeated == 1
