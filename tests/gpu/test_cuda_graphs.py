"""The CUDA-graph runner on a device: eager's values at every size, nothing of an earlier call,
reasons for refusals.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape import Options, events
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.runners.padded.runner import PaddedRunner

Function = Callable[..., torch.Tensor]


@pytest.fixture
def seen() -> Iterator[list[events.Event]]:
    found: list[events.Event] = []
    unsubscribe = events.subscribe(found.append)
    yield found
    unsubscribe()


def reasons(seen: list[events.Event]) -> list[str]:
    return [event.reason for event in seen if isinstance(event, events.RunnerFallback)]


def captures(seen: list[events.Event]) -> int:
    return sum(isinstance(event, events.GraphCaptured) for event in seen)


def test_every_size_gives_eagers_values(seen: list[events.Event]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).softmax(-1)

    compiled = symshape.compile(f, runner="cudagraph")
    for n in (8, 1, 2, 33, 8, 2, 100, 1):
        x, y = torch.randn(n, 16, device="cuda"), torch.randn(16, 4, device="cuda")
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert not reasons(seen)
    assert captures(seen) == compiled.stats().cuda_graphs == 5
    assert compiled.stats().traces == 2


def test_an_empty_call_is_served() -> None:
    compiled = symshape.compile(lambda x: x * 2, runner="cudagraph")
    assert compiled(torch.randn(0, 3, device="cuda")).shape == (0, 3)


def test_a_small_call_after_a_large_one_shows_nothing_of_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0) + x.sum()

    compiled = symshape.compile(f, runner="cudagraph")
    large = torch.full((1000,), 1e9, device="cuda")
    small = torch.ones(3, device="cuda")
    compiled(small)
    for _ in range(3):
        compiled(large)
        assert torch.equal(compiled(small), f(small))


def test_results_outlive_later_replays() -> None:
    compiled = symshape.compile(lambda x: x * 2, runner="cudagraph")
    first = compiled(torch.ones(4, device="cuda"))
    second = compiled(torch.full((4,), 5.0, device="cuda"))
    assert first.tolist() == [2.0] * 4
    assert second.tolist() == [10.0] * 4


def test_mutated_inputs_are_written_back() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        x[0].zero_()
        return x * 2

    compiled = symshape.compile(f, runner="cudagraph")
    for n in (3, 5, 3):
        x, y = torch.randn(n, 4, device="cuda"), torch.randn(n, 4, device="cuda")
        twin = x.clone()
        expected = f(twin, y)
        assert torch.equal(compiled(x, y), expected)
        assert torch.equal(x, twin)


def test_outputs_that_are_inputs_or_views_of_them_stay_so() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x, x[1:], x + 1

    compiled = symshape.compile(f, runner="cudagraph")
    for _ in range(2):
        x = torch.randn(4, 2, device="cuda")
        same, view, fresh = compiled(x)
        assert same is x
        assert view.data_ptr() == x[1:].data_ptr()
        assert torch.equal(fresh, x + 1)


def test_buffers_that_the_program_writes_count_each_call_once() -> None:
    model = torch.nn.BatchNorm1d(4).cuda().train()
    twin = copy.deepcopy(model)
    compiled = symshape.compile(model, runner="cudagraph")
    with torch.no_grad():
        for n in (8, 8, 16, 8):
            x = torch.randn(n, 4, device="cuda")
            torch.testing.assert_close(compiled(x), twin(x))
            torch.testing.assert_close(model.running_mean, twin.running_mean)
            assert int(model.num_batches_tracked) == int(twin.num_batches_tracked)


def test_swapped_parameters_are_read() -> None:
    model = torch.nn.Linear(4, 3).cuda()
    compiled = symshape.compile(model, runner="cudagraph")
    x = torch.randn(5, 4, device="cuda")
    with torch.no_grad():
        compiled(x)
        model.weight.copy_(torch.ones_like(model.weight))
        torch.testing.assert_close(compiled(x), model(x))
        model.weight.data = torch.full_like(model.weight, 3.0)
        torch.testing.assert_close(compiled(x), model(x))
        model.weight = torch.nn.Parameter(torch.full_like(model.weight, 4.0))
        torch.testing.assert_close(compiled(x), model(x))


def test_the_number_of_graphs_is_bounded() -> None:
    compiled = symshape.compile(
        lambda x: x * 2, runner="cudagraph", options=Options(max_cuda_graphs=3)
    )
    for n in (*range(2, 12), 2, 3):
        x = torch.randn(n, device="cuda")
        assert torch.equal(compiled(x), x * 2)
    assert compiled.stats().cuda_graphs == 3


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: x[x > 0], "data"),
        (lambda x: x.cpu() * 2, "cpu"),
        (lambda x: x.expand(3, *x.shape), None),
    ],
)
def test_what_cannot_be_captured_runs_all_the_same(
    fn: Function, reason: str | None, seen: list[events.Event]
) -> None:
    compiled = symshape.compile(fn, runner="cudagraph")
    x = torch.randn(6, device="cuda")
    torch.manual_seed(0)
    ours = compiled(x)
    torch.manual_seed(0)
    assert torch.equal(ours, fn(x))
    if reason is not None:
        assert any(reason in each for each in reasons(seen))


@pytest.mark.parametrize("runner", ["cudagraph", "auto"])
def test_random_numbers_are_eagers(runner: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        return (
            torch.nn.functional.dropout(x, 0.5) * 2,
            torch.rand_like(x),
            torch.randn(3, device=x.device),
        )

    compiled = symshape.compile(program, runner=runner)
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(3)
    # a graph is captured on the way, where nobody asked for one at once
    mine = [compiled(x) for _ in range(600)]
    state = torch.cuda.get_rng_state()
    torch.manual_seed(3)
    theirs = [program(x) for _ in range(600)]
    for ours, eagers in zip(mine, theirs, strict=True):
        for a, b in zip(ours, eagers, strict=True):
            assert torch.equal(a, b)
    assert torch.equal(state, torch.cuda.get_rng_state())
    assert not torch.equal(mine[-1][0], mine[-2][0])
    # it is captured only where that pays
    assert compiled.stats().cuda_graphs == 1 or runner == "auto"


def test_sizes_that_find_no_room_run_without_a_graph() -> None:
    compiled = symshape.compile(
        lambda x: x * 2, runner="cudagraph", options=Options(max_cuda_graphs=2)
    )
    captured: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: captured.append(e) if isinstance(e, events.GraphCaptured) else None
    )
    try:
        for n in [2, 3, 4, 5] * 20:
            x = torch.randn(n, device="cuda")
            assert torch.equal(compiled(x), x * 2)
    finally:
        unsubscribe()
    assert len(captured) == 2


def test_gradients_of_the_caller(seen: list[events.Event]) -> None:
    model = torch.nn.Linear(4, 3).cuda()
    compiled = symshape.compile(model, runner="cudagraph")
    for _ in range(4):
        x = torch.randn(5, 4, device="cuda")
        found, wanted = (
            torch.autograd.grad(each(x).square().sum(), list(model.parameters()))
            for each in (compiled, model)
        )
        torch.testing.assert_close(found, wanted)
    assert captures(seen) == 2  # forward and backward
    assert not reasons(seen)


def test_auto_pads_where_that_is_faster(seen: list[events.Event]) -> None:
    def many(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x.sin() + 1
        return x.softmax(0)

    compiled = symshape.compile(many, dynamic=True)
    for n in (*range(20, 33), 25, 26):
        x = torch.randn(n, 3, device="cuda")
        torch.testing.assert_close(compiled(x), many(x))
    (entry,) = compiled.entries
    assert entry.runner_name == "padded"
    assert isinstance(entry.runner, PaddedRunner)
    assert 1 <= len(entry.runner.buckets) <= 2
    assert 1 <= captures(seen) <= 2  # the first call runs eagerly and is timed
    assert sum(each.calls for each in entry.seen.values()) == 15


def test_auto_is_right_where_there_is_little_to_gain() -> None:
    compiled = symshape.compile(lambda x: x * 2, dynamic=True)
    for n in (*range(20, 60), *range(20, 60)):
        x = torch.randn(n, device="cuda")
        assert torch.equal(compiled(x), x * 2)


def test_auto_captures_sizes_that_come_back(seen: list[events.Event]) -> None:
    compiled = symshape.compile(lambda x: x * 2 + 1, dynamic=False)
    for n in (4, 5, 6):
        compiled(torch.randn(n, device="cuda"))
    assert captures(seen) == 0, "no size has paid for a graph yet"
    for _ in range(2000):
        x = torch.randn(5, device="cuda")
        assert torch.equal(compiled(x), x * 2 + 1)
    assert captures(seen) <= 2, "one of the program of 5, and one on the memory of its arguments"


def test_two_streams_do_not_share_a_graph() -> None:
    compiled = symshape.compile(lambda x: x * 2, runner="cudagraph")
    x = torch.randn(1000, device="cuda")
    compiled(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(y, x * 2)
    assert compiled.stats().cuda_graphs == 2


def test_inputs_that_stay_where_they_are_are_read_there(seen: list[events.Event]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y + 1

    compiled = symshape.compile(f, runner="cudagraph")
    x, y = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    for step in range(300):
        x.fill_(step)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert captures(seen) == 2  # once on buffers of its own, once on the caller's memory
    other = torch.randn(8, 8, device="cuda")
    torch.testing.assert_close(compiled(other, y), f(other, y))
    torch.testing.assert_close(compiled(x, other), f(x, other))
    for _ in range(300):  # and once more for the new neighbours
        torch.testing.assert_close(compiled(x, other), f(x, other))
    assert captures(seen) == 3


@pytest.mark.parametrize("runner", ["cudagraph", "padded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(256, 64, 64), (33, 17, 19), (256, 1024, 1024)])
def test_relu_keeps_nan_of_the_product_before_it(
    runner: Any, dtype: torch.dtype, sizes: tuple[int, int, int]
) -> None:
    """Some of cuBLASLt's kernels with a ReLU in their epilogue answer 0 for NaN."""
    rows, size, wanted = sizes
    model = torch.nn.Sequential(torch.nn.Linear(size, wanted), torch.nn.ReLU())
    model = model.to("cuda", dtype).eval()
    x = torch.randn(rows, size, device="cuda", dtype=dtype)
    x[3, 5], x[7, 1], x[9, 2] = float("nan"), float("inf"), -float("inf")
    with torch.no_grad():
        ours, eager = symshape.compile(model, runner=runner)(x), model(x)
    torch.testing.assert_close(ours, eager, equal_nan=True)


def test_torch_compile_on_the_device() -> None:
    torch._dynamo.reset()
    layers = [
        torch.nn.Linear(8, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 4),
    ]
    model = torch.nn.Sequential(*layers).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=symshape_backend)
    for n in (3, 5, 6, 1):
        x = torch.randn(n, 8, device="cuda")
        for each in (compiled, twin):
            each.zero_grad()
            each(x).pow(2).mean().backward()
        for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, eager.grad)


def test_inductor_on_the_device() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu() + 1

    compiled = symshape.compile(f, runner="inductor")
    for n in (3, 4, 5, 9, 1, 0):
        x, y = torch.randn(n, 4, device="cuda"), torch.randn(4, 5, device="cuda")
        torch.testing.assert_close(compiled(x, y), f(x, y))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_without_dropout_is_captured(masked: bool, seen: list[events.Event]) -> None:
    def f(q: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, q, q, attn_mask=mask, is_causal=mask is None
        )

    compiled = symshape.compile(f, runner="cudagraph")
    with torch.no_grad():
        for n in (8, 16, 24, 8):
            q = torch.randn(2, 4, n, 32, device="cuda", dtype=torch.float16)
            mask = (
                torch.ones(2, 1, n, n, device="cuda", dtype=torch.bool).tril() if masked else None
            )
            torch.testing.assert_close(compiled(q, mask), f(q, mask), atol=1e-3, rtol=1e-3)
    assert not reasons(seen)
    assert compiled.stats().cuda_graphs == 3


def test_eviction_and_reset_give_graphs_back_metered_or_not() -> None:
    from symshape.exploring.metering import Meter, MeteredRunner

    options = Options(max_entries=2)
    compiled = symshape.compile(lambda x: x * 2, runner="cudagraph", dynamic=False, options=options)
    meter = Meter()
    for n in (3, 4, 5, 6):
        x = torch.randn(n, device="cuda")
        assert torch.equal(compiled(x), x * 2)
        newest = compiled.entries[-1]
        newest.use(MeteredRunner(newest.runner, meter))
        assert torch.equal(compiled(x), x * 2)
        assert newest.runner.describe() == "cudagraph, 1 graphs"
    assert compiled.stats().cuda_graphs == 2
    assert meter.runs == 4
    late = compiled.entries[-1]
    compiled.reset()
    assert compiled.stats().cuda_graphs == 0
    assert torch.equal(late.run([x], (6,))[0], x * 2)
    assert compiled.stats().cuda_graphs == 0
