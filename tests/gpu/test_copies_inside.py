"""Graphs that make a call's copies themselves have the results of those that do not, whoever
launches them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options
from symshape.runtime.padding.result_rows import clone
from symshape.runtime.runners.cuda import capture, launch
from symshape.runtime.runners.cuda.capture import Inside, record, replay_alone
from symshape.runtime.runners.cuda.copies_in_graph import DriverRefused, add_copies
from symshape.runtime.runners.cuda.pool import GraphPool

pytestmark = pytest.mark.skipif(launch.COPIES is None, reason="compiled_launch is not built")
CUDA = torch.device("cuda", 0)
new_stream: Any = torch.cuda.Stream


def recorded(
    run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *, draws: bool = False
) -> tuple[Any, Any, Any, Any]:
    """A graph on a buffer like x, its results, its copies, and the buffer."""
    buffer = x.clone()
    with torch.no_grad(), torch.cuda.stream(new_stream()):
        run(buffer)
    torch.cuda.synchronize()
    with torch.no_grad():
        inside = Inside([buffer], lambda results: results)
        graph, results, copies = record(
            lambda: [run(buffer)], CUDA, GraphPool(), inside, draws=draws
        )
    return graph, results, copies, buffer


def test_the_driver_takes_them() -> None:
    _, _, copies, _ = recorded(nn.Linear(64, 64).cuda(), torch.randn(8, 64, device="cuda"))
    assert copies is not None
    assert copies.on == 0


def test_a_replay_alone_copies_nothing() -> None:
    linear = nn.Linear(64, 64).cuda()
    graph, (result,), copies, buffer = recorded(linear, torch.randn(8, 64, device="cuda"))
    row = launch.launcher(graph.replay, (), [(0, buffer)], [], [clone(result)], copies=copies)
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        (first,) = row((x,), ())
        torch.testing.assert_close(first, linear(x))
        kept = first.clone()
        assert copies.on == 2
        buffer.fill_(1)
        replay_alone(graph, copies)()
        assert copies.on == 0
        torch.testing.assert_close(result, linear(torch.ones_like(x)))
        assert torch.equal(first, kept)
        (again,) = row((x,), ())
    assert torch.equal(again, kept)
    assert copies.on == 2


def test_a_graph_without_nodes_and_one_with_several_ends() -> None:
    def ends(x: torch.Tensor) -> torch.Tensor:
        side = new_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = x * 3
        mine = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return mine + other

    x = torch.randn(1000, device="cuda")
    constant = torch.ones_like(x)
    for run, expected in ((ends, x * 5), (lambda x: constant, constant)):
        graph, (result,), copies, buffer = recorded(run, torch.zeros_like(x))
        row = launch.launcher(graph.replay, (), [(0, buffer)], [], [clone(result)], copies=copies)
        (found,) = row((x,), ())
        torch.testing.assert_close(found, expected)
        assert torch.equal(buffer, x)
        assert copies.on == 2


def test_what_is_refused_leaves_the_graph_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, x = nn.Linear(16, 16).cuda(), torch.randn(4, 16, device="cuda")
    real: Any = add_copies
    seen = []

    def refused(graph: Any, buffers: Any, results: Any) -> Any:
        found = real(graph, buffers, results)
        nodes = (
            found.driver.roots(graph.raw_cuda_graph()),
            found.driver.leaves(graph.raw_cuda_graph()),
        )
        found.remove()
        after = (
            found.driver.roots(graph.raw_cuda_graph()),
            found.driver.leaves(graph.raw_cuda_graph()),
        )
        seen.append((nodes, after))
        return None

    monkeypatch.setattr(capture, "add_copies", refused)
    graph, (result,), copies, buffer = recorded(linear, x)
    assert copies is None
    (before, after) = seen[0]
    assert before != after
    with torch.no_grad():
        buffer.copy_(x)
        graph.replay()
        torch.testing.assert_close(result, linear(x))
    with pytest.raises(DriverRefused):
        real.__globals__["_driver"]().remove(0)


@pytest.mark.parametrize("runner", ["cudagraph", "padded"])
def test_streams_of_calls(runner: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16)).cuda()

    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        hidden = model(x)
        return hidden.softmax(-1), hidden.sum(0), hidden.t().contiguous(), y * 2, y

    mine = symshape.compile(fn, dynamic=True, runner=runner)
    held = []
    with torch.no_grad():
        for number in range(120):
            n = 17 + number % 4 if runner == "cudagraph" else 9 + number % 24
            x, y = torch.randn(n, 32, device="cuda"), torch.randn(n, 3, device="cuda")
            if number % 5 == 1:
                x = torch.randn(32, n, device="cuda").t()
            if number % 7 == 1:
                y = torch.randn(n + 2, 3, device="cuda")[2:]
            held.append((mine(x, y), fn(x, y)))
            if number % 3:
                x.zero_()  # the graph has read it
    for got, expected in held:
        torch.testing.assert_close(got, expected)
    for number in range(1, len(held)):
        assert held[number][0][0].data_ptr() != held[number - 1][0][0].data_ptr()


def test_draws_go_on() -> None:
    mine = symshape.compile(
        lambda x: torch.nn.functional.dropout(x, 0.5), dynamic=True, runner="cudagraph"
    )
    x = torch.ones(1000, device="cuda")
    with torch.no_grad():
        results = [mine(x.clone()) for _ in range(6)]
    assert all(not torch.equal(results[0], each) for each in results[1:])


def test_several_threads_and_streams() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    mine = symshape.compile(model, dynamic=True, runner="padded")
    wrong: list[str] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad(), torch.cuda.stream(new_stream()):
            for number in range(60):
                x = torch.randn(5 + (number * seed) % 12, 64, device="cuda", generator=generator)
                if not torch.allclose(mine(x), model(x), atol=1e-4):
                    wrong.append(f"{seed}, {number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_memory_stays() -> None:
    model = nn.Linear(256, 256).cuda()
    mine = symshape.compile(
        model, dynamic=True, runner="cudagraph", options=Options(max_cuda_graphs=4)
    )
    sizes = list(range(10, 30))

    def round_of_calls() -> int:
        with torch.no_grad():
            for n in sizes * 3:
                mine(torch.randn(n, 256, device="cuda"))
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated()

    round_of_calls()
    first = round_of_calls()
    assert round_of_calls() <= first * 1.05


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("runner", ["cudagraph", "padded"])
def test_a_device_that_is_not_the_current_one(runner: Any) -> None:
    models = [
        nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).to(f"cuda:{i}")
        for i in (0, 1)
    ]
    compiled = [symshape.compile(each, dynamic=True, runner=runner) for each in models]
    held = []
    with torch.no_grad():
        for number in range(60):
            device = number % 2
            x = torch.randn(5 + number % 3, 32, device=f"cuda:{device}")
            with torch.cuda.device(number // 2 % 2):
                held.append((compiled[device](x), models[device](x)))
            x.zero_()
    for i in (0, 1):
        torch.cuda.synchronize(i)
    for got, expected in held:
        assert got.device == expected.device
        torch.testing.assert_close(got, expected)
