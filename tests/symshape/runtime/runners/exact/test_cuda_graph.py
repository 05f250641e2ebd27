"""What the CUDA-graph runner keeps and lets go, without a device: a stand-in for capture runs the
program again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import symshape
from symshape import Options, events
from symshape.runtime.policy.eviction import ASKED
from symshape.runtime.runners.cuda import launch
from symshape.runtime.runners.cuda.static_outputs import Outputs
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.exact import cuda_graph
from symshape.runtime.runners.exact.cuda_graph import Captured, CudaGraphRunner, Repeats, _computed
from symshape.runtime.runners.graph_store import GraphKey, GraphStore
from symshape.runtime.runners.protocol import Unfit
from tests.symshape.runtime.runners.fake_driver import FakeGraph


class Graph:
    """A "captured graph": a replay runs the program on the static inputs, into the static
    outputs.
    """

    def __init__(self, runner: CudaGraphRunner, static: list[Any], values: Sequence[int]) -> None:
        self.again = lambda: runner._captured_run(static, values)
        self.outputs = self.again()

    def replay(self) -> None:
        for then, now in zip(self.outputs, self.again(), strict=True):
            if isinstance(then, torch.Tensor):
                then.copy_(now)


@pytest.fixture(params=["in Python", "in C++", "copies inside"])
def captures(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, ...]]:
    """The sizes that were captured; calls are served in Python, and in C++ where that was built."""
    found: list[tuple[int, ...]] = []
    inside = request.param == "copies inside" and launch.COPIES is not None
    if request.param == "in Python":
        monkeypatch.setattr(launch, "LAUNCH", None)

    def capture(
        self: CudaGraphRunner, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> Captured:
        found.append(tuple(values))
        static = list(leaves)
        for position in self._positions:
            static[position] = leaves[position].clone()
        inputs = {position: static[position] for position in self._positions}
        graph: Any = Graph(self, static, values)
        outputs, copies = Outputs(graph.outputs, inputs, self._lifted), None
        if inside:
            known = {id(each) for each in (*inputs.values(), *self._lifted)}
            results = _computed(known, graph.outputs)
            graph = FakeGraph(graph.again, inputs.values(), results, outputs=graph.outputs)
            copies = graph.copies
        captured = self._captured(graph, list(inputs.values()), outputs, copies)
        rows = outputs.rows() is not None and not self._writes
        assert (captured.launch is not None) == (rows and launch.LAUNCH is not None)
        return captured

    stand_in(monkeypatch, capture)
    return found


def stand_in(monkeypatch: pytest.MonkeyPatch, capture: Callable[..., Captured]) -> None:
    """The runner without a device."""
    monkeypatch.setattr(cuda_graph, "_check_fit", lambda program: torch.device("cpu"))
    monkeypatch.setattr(cuda_graph, "is_capturing", lambda: False)
    monkeypatch.setattr(cuda_graph, "_current_stream", lambda device: 0)
    monkeypatch.setattr(CudaGraphRunner, "_capture", capture)


def check(f: Any, *sizes: int) -> None:
    for size in sizes:
        x = torch.randn(size)
        assert torch.equal(f(x), x * 2 + 1)


def doubled(**options: int) -> Any:
    return symshape.compile(lambda x: x * 2 + 1, runner="cudagraph", options=Options(**options))


def test_one_graph_for_each_exact_size(captures: list[tuple[int, ...]]) -> None:
    f = doubled()
    check(f, 3, 4, 5, 3, 4, 5)
    assert sorted(captures) == [(3,), (4,), (5,)]
    assert f.stats().cuda_graphs == 3
    assert [entry.runner.describe() for entry in f.entries] == [
        "cudagraph, 1 graphs",
        "cudagraph, 2 graphs",
    ]


def test_a_release_lets_go_of_the_programs_graphs_and_captures_no_more(
    captures: list[tuple[int, ...]],
) -> None:
    f = doubled()
    check(f, 3, 4, 5)
    static, dynamic = f.entries
    dynamic.runner.release()
    assert f.stats().cuda_graphs == 1
    check(f, 4, 5, 3)  # late calls
    assert len(captures) == 3
    assert (static.runner.describe(), dynamic.runner.describe()) == (
        "cudagraph, 1 graphs",
        "cudagraph, 0 graphs",
    )


def test_evicted_entries_leave_no_graphs(captures: list[tuple[int, ...]]) -> None:
    f = symshape.compile(
        lambda x: x * 2 + 1,
        runner="cudagraph",
        dynamic=False,
        options=Options(max_entries=2, max_cuda_graphs=64),
    )
    check(f, *range(1, 9))
    assert len(captures) == 8
    assert f.stats().cuda_graphs == 2
    f.reset()
    assert f.stats().cuda_graphs == 0


def test_more_sizes_than_fit_do_not_drive_each_other_out(captures: list[tuple[int, ...]]) -> None:
    f = doubled(max_cuda_graphs=2)
    check(f, *[3, 4, 5, 6] * 20)
    assert len(captures) == 2, "what is in use stays, the others run without a graph"
    assert f.stats().cuda_graphs == 2


def test_a_graph_that_nobody_uses_leaves_for_one_that_is_wanted(
    captures: list[tuple[int, ...]],
) -> None:
    f = doubled(max_cuda_graphs=2)
    check(f, 3, 4, *[3] * 30)
    check(f, *[5] * ASKED)
    assert captures == [(3,), (4,)]
    check(f, 5, 4)  # wanted often enough: the graph of 4 has left for it
    assert captures == [(3,), (4,), (5,)]


def _patient(store: GraphStore) -> CudaGraphRunner:
    program = symshape.trace(lambda x: x * 2, torch.ones(3), dynamic=True).program
    return CudaGraphRunner(program, EagerRunner(program), store, patient=True)


def _call(runner: CudaGraphRunner, n: int) -> None:
    x = torch.randn(n)
    assert torch.equal(runner.run([x], (n,))[0], x * 2)


def test_calls_pay_for_a_graph_before_it_is_captured(captures: list[tuple[int, ...]]) -> None:
    runner = _patient(GraphStore(4))
    runner._estimates.price.saw(100.0)
    for _ in range(9):
        runner._estimates.eager_host.saw(2.0)
    for _ in range(20):
        _call(runner, 3)
        for _ in range(9):
            runner._estimates.eager_host.saw(2.0)  # whatever it took here
    assert captures == []
    for _ in range(60):
        _call(runner, 3)
        for _ in range(9):
            runner._estimates.eager_host.saw(2.0)
    assert captures == [(3,)]
    _call(runner, 4)
    assert captures == [(3,)], "these sizes have paid for nothing"


def test_a_graph_that_saves_nothing_is_not_captured(captures: list[tuple[int, ...]]) -> None:
    runner = _patient(GraphStore(4))
    runner._estimates.replayed(24.0, 5.0)  # the device is always busy
    for _ in range(9):
        runner._estimates.eager_host.saw(2.0)
    for _ in range(100):
        _call(runner, 3)
        for _ in range(9):
            runner._estimates.eager_host.saw(2.0)
    assert captures == []


def test_sizes_that_cannot_be_captured_are_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(
        self: CudaGraphRunner, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> Captured:
        asked.append(1)
        raise Unfit("too odd")

    stand_in(monkeypatch, refuse)
    heard: list[events.Event] = []
    unsubscribe = events.subscribe(heard.append)
    try:
        check(doubled(), 3, 3, 3)
    finally:
        unsubscribe()
    assert len(asked) == 1
    assert [e.reason for e in heard if isinstance(e, events.RunnerFallback)] == ["too odd"]


def test_a_parameter_that_moved_is_captured_again(captures: list[tuple[int, ...]]) -> None:
    linear = torch.nn.Linear(2, 2)
    f = symshape.compile(linear, runner="cudagraph")
    x = torch.randn(3, 2)
    with torch.no_grad():
        torch.testing.assert_close(f(x), linear(x))
        linear.weight.data = torch.randn(2, 2)
        torch.testing.assert_close(f(x), linear(x))
        torch.testing.assert_close(f(x), linear(x))
    assert len(captures) == 2


def test_results_of_every_kind(captures: list[tuple[int, ...]]) -> None:
    scale = torch.randn(3)

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        total = x * scale + y
        return total, x, total, scale, total.t(), 7

    compiled = symshape.compile(f, runner="cudagraph")
    for _ in range(4):
        x, y = torch.randn(4, 3), torch.randn(4, 3)
        for mine, theirs in zip(compiled(x, y), f(x, y), strict=True):
            assert mine is theirs or torch.equal(mine, theirs)
    plain = symshape.compile(lambda x, y: (x * 2 + y, x, 7), runner="cudagraph")
    kept = []
    for _ in range(4):
        x, y = torch.randn(4, 3), torch.randn(4, 3).t().contiguous().t()
        result, same, seven = plain(x, y)
        assert (same is x, seven) == (True, 7)
        kept.append((result, x * 2 + y))
    for result, expected in kept:
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()
    assert len(captures) == 2


def test_inputs_that_stay_are_read_where_they_are(
    captures: list[tuple[int, ...]], monkeypatch: Any
) -> None:
    times: list[int] = []

    def direct(
        self: CudaGraphRunner, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> None:
        times.append(1)  # it cannot be captured so

    monkeypatch.setattr(CudaGraphRunner, "_capture_direct", direct)
    monkeypatch.setattr(cuda_graph, "_WORTH_A_GRAPH", 5)
    f, x = doubled(), torch.randn(3)
    for number in range(12):
        x.fill_(number)
        assert torch.equal(f(x), x * 2 + 1)
        # which does not see the call that captures
        assert len(times) == (number >= 4 + (launch.LAUNCH is not None))
    check(f, 3, 3)
    assert times == [1]


def test_a_graph_on_the_memory_of_the_arguments(
    captures: list[tuple[int, ...]], monkeypatch: Any
) -> None:
    times: list[int] = []

    def direct(
        self: CudaGraphRunner, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> Captured:
        times.append(1)
        inputs = {position: leaves[position].detach() for position in self._positions}
        static = [inputs.get(position, leaf) for position, leaf in enumerate(leaves)]
        graph: Any = Graph(self, static, values)
        outputs = Outputs(graph.outputs, inputs, self._lifted)
        outputs.let_go_of_inputs()
        return self._direct(graph, inputs, outputs, None)

    monkeypatch.setattr(CudaGraphRunner, "_capture_direct", direct)
    monkeypatch.setattr(cuda_graph, "_WORTH_A_GRAPH", 5)
    f, x, y = doubled(), torch.randn(3), torch.randn(3)
    for number in range(30):
        x.fill_(number)
        assert torch.equal(f(x), x * 2 + 1)
    assert times == [1]
    kept = [(f(each), each * 2 + 1) for each in (x, y, y, x)]
    for result, expected in kept:
        assert torch.equal(result, expected)
    for number in range(12):
        y.fill_(number)
        assert torch.equal(f(y), y * 2 + 1)
    assert times == [1, 1]


def test_transforms_around_a_call_are_not_lost(captures: list[tuple[int, ...]]) -> None:
    f, x = doubled(), torch.tensor([0.5, -1.25, 3.0])  # whose sums are exact
    check(f, 3, 3, 3)
    value, tangent = torch.func.jvp(f, (x,), (torch.ones(3),))
    assert torch.equal(value, x * 2 + 1)
    assert torch.equal(tangent, torch.full((3,), 2.0))
    assert torch.equal(
        torch.func.vmap(f)(torch.stack([x, x + 1])), torch.stack([x * 2 + 1, x * 2 + 3])
    )
    assert torch.equal(torch.func.grad(lambda given: f(given).sum())(x), torch.full((3,), 2.0))
    with forward_ad.dual_level():
        dual = f(forward_ad.make_dual(x, torch.ones(3)))
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, torch.full((3,), 2.0))
        assert torch.equal(f(x), x * 2 + 1)
    check(f, 3, 3)


def test_a_graph_that_left_is_not_kept(captures: list[tuple[int, ...]]) -> None:
    f = doubled(max_cuda_graphs=1)
    check(f, 3, 3)
    (entry,) = f.entries
    runner: Any = entry.runner
    assert len(runner._leases) == (launch.LAUNCH is not None)
    runner.release()
    check(f, 3)
    assert not runner._leases


def test_keys_tell_programs_sizes_and_streams_apart() -> None:
    keys = {GraphKey(1, (3,), 0), GraphKey(2, (3,), 0), GraphKey(1, (4,), 0), GraphKey(1, (3,), 7)}
    assert len(keys) == 4
    store = GraphStore(8)
    for key in keys:
        store.put(key, object(), program=key.program)
    assert (len(store.of(1)), len(store.of(2)), len(store)) == (3, 1, 4)
    store.drop(1)
    assert (len(store.of(1)), len(store.of(2)), len(store)) == (0, 1, 1)
    assert store.get(GraphKey(1, (3,), 7)) is None


def test_repeats_count_calls_at_the_same_addresses() -> None:
    repeats = Repeats()
    told = [repeats.see([1, 2]) for _ in range(300)]
    assert [i + 1 for i, each in enumerate(told) if each] == [cuda_graph._WORTH_A_GRAPH]
    assert not repeats.see([1, 3])
    assert (repeats.count, repeats.direct) == (1, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_is_unfit() -> None:
    program = symshape.trace(lambda x: x * 2, torch.ones(3)).program
    with pytest.raises(Unfit, match="no CUDA device"):
        CudaGraphRunner(program, EagerRunner(program), GraphStore(4))
