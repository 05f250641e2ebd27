"""Calls that C++ serves have the results of those that Python serves; what is out of the ordinary
is left to Python.
"""

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
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import alive
from symshape.runtime.padding import wide_copies
from symshape.runtime.padding.result_rows import clone, known, part
from symshape.runtime.runners.cuda import launch as launching
from symshape.runtime.runners.cuda.capture import Recording
from symshape.runtime.runners.cuda.launch import launcher
from symshape.runtime.runners.padded import bucket as module_of_bucket
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.true_sizes import TrueSizes
from tests.meta_fns.padding.poison import poison
from tests.symshape.runtime.runners.fake_driver import FakeGraph, captured_with_copies

needs_compiled = pytest.mark.skipif(launching.LAUNCH is None, reason="compiled_launch is not built")


@pytest.fixture(params=["in Python", "in C++", "copies inside", "copies inside, some refused"])
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
    elif request.param != "in C++":
        refuses = (
            (lambda size: size % 3 == 0) if "refused" in request.param else (lambda size: False)
        )
        monkeypatch.setattr(module_of_bucket, "captured", captured_with_copies(refuses))
    yield found
    assert launching.LAUNCH is not None or not any(found)


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    return symshape.compile(fn, dynamic=True, runner="padded", options=Options(**options))


def check(mine: Any, fn: Any, *calls: tuple[Any, ...]) -> None:
    """Compares calls with eager, the buffers poisoned before each; results are looked at when all
    calls are done.
    """
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
        for a, b in (
            zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
        ):
            assert not isinstance(a, torch.Tensor) or (a.stride(), a.requires_grad) == (
                b.stride(),
                b.requires_grad,
            )


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


def test_many_results_and_inputs_are_copied_together(served: list[bool]) -> None:
    """Of several dtypes and layouts, some with padding between their rows, one without elements."""

    def many(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: list[torch.Tensor] = []
        for number, each in enumerate(given):
            found += [each * number, (each + 1).t(), each.to(torch.int32), each.sum(), each[:, :0]]
        return (*found, given[0].sum(0), given[1].sum(1))

    calls = [[torch.randn(rows, 3 + rows % 4) for _ in range(10)] for rows in (5, 9, 5, 9, 4)]
    check(compiled(many), many, *[tuple(each) for each in calls])
    was_served(served, 2)


@needs_compiled
def test_results_of_one_dtype_are_copied_in_one_launch() -> None:
    """78 gradients of a step of training took 78 launches."""
    fast = compiled(lambda x: [x * number for number in range(12)])
    x = torch.randn(5)
    for _ in range(2):
        fast(x)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, acc_events=True) as seen:
        fast(x)
    assert [each.name for each in seen.events()].count("aten::_foreach_copy_") == 1


def test_many_true_sizes(served: list[bool]) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return (
            a.softmax(0).mean(0)
            + b.softmax(0).mean(0)
            + c.softmax(0).mean(0)
            + d.softmax(0).mean(0)
        )

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
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
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


def test_what_writes_is_pythons(served: list[bool]) -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).softmax(0)

    mine = compiled(writes)
    for n in (5, 6, 5, 6):
        x = torch.randn(n)
        other = x.clone()
        torch.testing.assert_close(mine(x), writes(other))
        assert torch.equal(x, other)
    assert not any(served)


def test_results_that_share_memory(served: list[bool]) -> None:
    """One that fills it, and none that does; a change of one is a change of the others, and told to
    autograd.
    """

    def fn(x: torch.Tensor) -> Any:
        whole = x.softmax(0) * 2
        parts = (x.sin() + 1)[1:]
        turned = whole.transpose(0, 1)
        return whole, parts[:, 1:], turned, parts[1:], whole[1:, 2:], whole.reshape(-1)

    rng = random.Random(2)
    calls = [(torch.randn(rng.randint(5, 8), rng.randint(17, 24)),) for _ in range(30)]
    mine = compiled(fn)
    check(mine, fn, *calls)
    check(mine, fn, *calls)
    was_served(served, 40)
    with torch.no_grad():
        for results in (mine(*calls[0]), fn(*calls[0])):
            whole, part_of, turned, other, corner, flat = results
            versions = [each._version for each in (turned, corner, flat)]
            whole.fill_(7.0)
            part_of.fill_(8.0)
            assert all(
                torch.equal(each, torch.full_like(each, 7.0)) for each in (turned, corner, flat)
            )
            assert torch.equal(other[:, 1:], torch.full_like(other[:, 1:], 8.0))
            assert all(
                each._version > was
                for each, was in zip((turned, corner, flat), versions, strict=True)
            )


def test_views_of_arguments_and_numbers(served: list[bool]) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (
            x[1:],
            (x + y).softmax(0),
            x.transpose(0, 1),
            x.size(0) * 2 + y.size(1),
            y[:, 3:].unsqueeze(0),
            x[1:],
        )

    rng = random.Random(3)
    sizes = [(rng.randint(5, 8), rng.randint(17, 24)) for _ in range(30)]
    calls = [(torch.randn(b, n), torch.randn(b + 1, n)[1:]) for b, n in sizes]
    mine = compiled(fn)
    check(mine, fn, *calls)
    check(mine, fn, *calls)
    was_served(served, 40)
    x, y = calls[0]
    with torch.no_grad():
        rows, _, turned, number, columns, again = mine(x, y)
    assert rows._base is x
    assert again is rows or again.data_ptr() == rows.data_ptr()
    assert (rows.data_ptr(), turned.data_ptr()) == (x[1:].data_ptr(), x.data_ptr())
    assert columns.data_ptr() == y[:, 3:].data_ptr()
    assert type(number) is int
    assert number == x.size(0) * 2 + y.size(1)
    before = rows._version
    x.add_(1)
    assert rows._version > before


def test_detached_arguments_ask_for_no_gradients(served: list[bool]) -> None:
    """A view made without recording gradients asks for them where its tensor does; what was
    detached does not.
    """

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return y.detach(), x.softmax(0), y.detach()[1:], y[1:], y.transpose(0, 1).detach()

    rng = random.Random(6)
    sizes = [(rng.randint(5, 8), rng.randint(17, 24)) for _ in range(30)]
    calls = [(torch.randn(b, n), torch.randn(b, n, requires_grad=True)) for b, n in sizes]
    mine = compiled(fn)
    check(mine, fn, *calls)
    check(mine, fn, *calls)
    was_served(served, 40)


def test_a_detached_parameter_is_where_it_lies_now(served: list[bool]) -> None:
    weight = nn.Parameter(torch.randn(4))

    def fn(x: torch.Tensor) -> Any:
        return weight.detach(), weight.detach()[1:], (x * weight).softmax(0).detach()

    mine = compiled(fn)
    for n in (5, 6, 5, 6):
        weight.data = torch.randn(4)
        check(mine, fn, (torch.randn(n, 4),))
        assert mine(torch.randn(n, 4))[0].data_ptr() == weight.data_ptr()


def test_merged_results(served: list[bool]) -> None:
    def fn(x: torch.Tensor) -> Any:
        rows = x.softmax(1).reshape(-1, 4) * 2
        return rows, rows.t(), x.sin().flatten(), rows[1:], rows.reshape(x.shape)

    rng = random.Random(4)
    calls = [(torch.randn(rng.randint(5, 8), rng.randint(17, 24), 4),) for _ in range(30)]
    mine = compiled(fn)
    check(mine, fn, *calls)
    check(mine, fn, *calls)
    was_served(served, 40)


@pytest.mark.slow
def test_merged_inputs(served: list[bool]) -> None:
    """A backward is handed the rows that its forward merged."""
    torch._dynamo.reset()

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = (x * y).reshape(-1, 4).sin()
        back: torch.Tensor = (rows.exp() * rows.t().cos().t()).reshape(x.shape).softmax(1)
        return back

    run = torch.compile(fn, backend=symshape_backend, dynamic=True, options={"runner": "padded"})
    rng = random.Random(5)
    sizes = [(rng.randint(5, 8), rng.randint(17, 24)) for _ in range(20)]
    try:
        for number, (b, n) in enumerate([*sizes, *sizes]):
            for graph in alive:
                for bucket in getattr(graph.entries[0].runner, "buckets", ()):
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            leaves = [torch.randn(b, n, 4, requires_grad=True) for _ in range(2)]
            weight = torch.randn(b, n, 4)
            mine, theirs = (
                torch.autograd.grad((each(*leaves) * weight).sum(), leaves) for each in (run, fn)
            )
            torch.testing.assert_close(mine, theirs)
        backward = next(graph for graph in alive if graph.origin.part == "backward")
        runner: Any = backward.entries[0].runner
        assert any(part.merged for bucket in runner.buckets for part, _ in bucket._moved)
    finally:
        torch._dynamo.reset()
    was_served(served, 60)


def test_borrowed_results_are_pythons(served: list[bool]) -> None:
    mine = compiled(lambda x: x.softmax(0), outputs="borrow")
    for n in (5, 6, 5):
        x = torch.randn(n)
        torch.testing.assert_close(mine(x), x.softmax(0))
    assert not any(served)


@pytest.mark.slow
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
    def recorded(run: Callable[[], Any], device: Any, pool: Any, **more: Any) -> Recording:
        tensors = run()

        def replay() -> Any:
            sys.setprofile(None)
            return tensors

        return Recording(replay)

    def frames(call: Callable[[], Any]) -> int:
        names: list[str] = []
        sys.setprofile(
            lambda frame, event, _: (
                names.append(frame.f_code.co_qualname) if event == "call" else None
            )
        )
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


def test_large_copies_in_wider_elements(
    served: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
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
        # the input and two results, each a copy between two views
        assert large - small == least - small == 2 * wide
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


def _with_copies(
    results: Any = None, refuses: Callable[[int], bool] = lambda size: False
) -> tuple[Any, FakeGraph, torch.Tensor, torch.Tensor]:
    """A launch of a graph that doubles a buffer of 4 by 3 and can copy; the graph, the buffer, what
    it answers.
    """
    buffer, doubled = torch.zeros(4, 3), torch.zeros(4, 3)
    graph = FakeGraph(
        lambda: [torch.mul(buffer, 2, out=doubled)], [buffer], [doubled], refuses, [doubled]
    )
    rows = [part(0, (0, 1), (2, 3))] if results is None else [clone(doubled)]
    launch = launcher(graph.replay, graph.tensors, [(0, buffer)], [], rows, copies=graph.copies)
    return launch, graph, buffer, doubled


@needs_compiled
def test_a_graph_copies_what_is_one_piece() -> None:
    launch, graph, _, _ = _with_copies()
    wide = torch.randn(4, 6)
    cases = {
        "all": (torch.randn(4, 3), (4, 3, 3, 1), 2),
        "a first part": (torch.randn(2, 3), (2, 3, 3, 1), 2),
        "at an offset": (torch.randn(5, 3)[2:], (3, 3, 3, 1), 2),
        "with gaps": (torch.randn(4, 2), (4, 2, 2, 1), 0),
        "a source with gaps": (wide[:, :3], (4, 3, 3, 1), 1),
        "in another order": (torch.randn(3, 4).t(), (4, 3, 3, 1), 1),
        "a result in another order": (torch.randn(4, 3), (4, 3, 1, 4), 1),
        "one row with strides of its own": (wide[:1, :3], (1, 3, 100, 1), 2),
        "a repeated source": (torch.randn(1, 3).expand(4, 3), (4, 3, 3, 1), 1),
        "all again": (torch.randn(4, 3), (4, 3, 3, 1), 2),
    }
    for name, (source, numbers, copies) in cases.items():
        before = graph.done
        (result,) = launch([source], numbers)
        assert torch.equal(result, source * 2), name
        assert result.stride() == numbers[2:], name
        assert graph.done - before == copies, name


@needs_compiled
def test_inputs_that_are_read_where_they_lie() -> None:
    x, doubled = torch.randn(4, 3), torch.zeros(4, 3)
    graph = FakeGraph(lambda: [torch.mul(x, 2, out=doubled)], [], [doubled], outputs=[doubled])
    stays = [(1, x.data_ptr())]
    launch = launcher(graph.replay, (), [], [], [clone(doubled)], copies=graph.copies, stays=stays)
    for number in range(3):
        x.fill_(number)
        (result,) = launch([7, x.view(4, 3)], ())
        assert torch.equal(result, x * 2)
    for leaves in ([7, x.clone()], [7, 8], [7], [x, 7], [7, x[1:]]):
        assert launch(leaves, ()) is None
    assert graph.done == 3


@needs_compiled
def test_a_replay_of_pythons_copies_nothing() -> None:
    launch, graph, buffer, doubled = _with_copies("all")
    x = torch.randn(4, 3)
    (result,) = launch([x], ())
    assert torch.equal(result, x * 2)
    assert graph.copies.on == 2
    graph.copies.turn_off()
    before, kept = graph.done, result.clone()
    buffer.fill_(3)
    graph.replay()
    assert graph.done == before
    assert torch.equal(doubled, torch.full((4, 3), 6.0))
    assert torch.equal(result, kept)
    assert graph.copies.on == 0


@needs_compiled
def test_another_launch_of_a_graph_takes_its_copies_over() -> None:
    launch, graph, buffer, doubled = _with_copies()
    (first,) = launch([torch.ones(2, 3)], (2, 3, 3, 1))
    other = launcher(
        graph.replay, graph.tensors, [(0, buffer)], [], [known(1)], copies=graph.copies
    )
    assert other([torch.full((4, 3), 5.0)], ()) == [1]
    assert graph.copies.on == 1
    assert torch.equal(doubled, torch.full((4, 3), 10.0))
    assert torch.equal(first, torch.full((2, 3), 2.0))


@needs_compiled
def test_what_the_driver_refuses_is_copied_apart() -> None:
    launch, graph, _, _ = _with_copies(refuses=lambda size: size == 24)
    for rows in (4, 2, 4, 2, 1, 2):
        before, x = graph.done, torch.randn(rows, 3)
        (result,) = launch([x], (rows, 3, 3, 1))
        assert torch.equal(result, x * 2)
        assert graph.done - before == (0 if rows == 2 else 2)


@needs_compiled
def test_the_buffer_itself_as_an_input_is_copied_apart() -> None:
    launch, graph, buffer, _ = _with_copies()
    buffer.copy_(torch.arange(12.0).view(4, 3))
    (result,) = launch([buffer], (4, 3, 3, 1))
    assert torch.equal(result, torch.arange(12.0).view(4, 3) * 2)
    assert graph.done == 1  # the result


@needs_compiled
def test_a_node_that_stays_as_it_was_is_set_alone() -> None:
    launch, graph, _, _ = _with_copies()
    for _ in range(3):
        launch([torch.randn(4, 3)], (4, 3, 3, 1))
    assert graph.told == [6, 4]  # off, then on, each once
