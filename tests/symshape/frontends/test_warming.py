"""Traffic that a compiled function has seen, the plan for it, and its buckets made before calls
need them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import InputError, Options, Traffic, events
from symshape.runtime import cache
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import assert_same


def _program(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0).cumsum(0) * 2


def _padded(**options: Any) -> Any:
    return symshape.compile(
        _program, dynamic={"x": {0: "length"}}, runner="padded", options=Options(**options)
    )


def _caps(compiled: Any) -> list[int]:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return sorted(each.made.caps["length"] for each in entry.runner.buckets)


def _made(compiled: Any, sizes: list[int]) -> int:
    """Calls with these sizes, held against eager; how many buckets they made."""
    made: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: made.append(e) if isinstance(e, events.BucketMade) else None
    )
    try:
        for n in sizes:
            x = torch.randn(n, 4)
            assert_same(compiled(x), _program(x), f"{n}", tolerance=1e-5)
    finally:
        unsubscribe()
    return len(made)


STREAM = [3, 90, 91, 17, 90, 3, 18, 91, 90, 3]


def test_the_loop_from_traffic_to_buckets_closes() -> None:
    compiled = _padded()
    _made(compiled, STREAM)
    traffic = compiled.traffic()
    assert traffic.counts == {(n,): STREAM.count(n) for n in STREAM}
    plan = symshape.plan(compiled, max_graphs=3)
    assert [each["length"] for each in plan.sizes] == [3, 18, 91]
    assert plan.regret(compiled.traffic()) == 0
    warm = compiled.warm_up(plan, progress=False)
    assert [each.sizes["length"] for _, each in warm.made] == [91, 18, 3], "the largest first"
    assert (warm.graphs, warm.failures) == (3, ())
    assert 0 < warm.bytes == compiled._graphs.bytes() < sum(each.bytes for _, each in warm.made), (
        "they share memory"
    )
    assert warm.milliseconds > 0
    assert _caps(compiled) == [3, 18, 91], "what the plan does not name has left"
    assert _made(compiled, STREAM) == 0, "no call makes a bucket"
    assert _caps(compiled) == [3, 18, 91]
    _made(compiled, [60] * 30)
    assert plan.regret(compiled.traffic()) > 0


def test_sizes_beyond_every_planned_bucket_get_one_of_their_own() -> None:
    compiled = _padded()
    compiled(torch.randn(5, 4))
    compiled.warm_up([10, 50], progress=False)
    assert _made(compiled, [51, 64, 9]) == 1
    assert _caps(compiled) == [10, 50, 64]


def test_with_a_bar_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = _padded(max_cuda_graphs=2)
    compiled(torch.randn(5, 4))
    warm = compiled.warm_up([{"length": 10}, {"length": 20}, {"length": 30}])
    assert warm.graphs == 2
    assert "no room in the budget of 2 graphs" in str(warm)
    assert "2 of 3 buckets" in warm._repr_html_()
    assert _caps(compiled) == [20, 30]


def test_a_budget_in_bytes() -> None:
    compiled = _padded(graph_memory="40 kB")
    compiled(torch.randn(5, 4))
    warm = compiled.warm_up([10, 100, 10_000], progress=False)
    assert {each.sizes["length"]: each.ready for _, each in warm.made} == {
        10_000: False,
        100: True,
        10: True,
    }
    assert "40000 bytes" in warm.failures[0].reason
    assert compiled._graphs.bytes() <= 40_000
    assert _made(compiled, [9_000, 50]) == 0


def test_each_entry_gets_the_sizes_within_its_guards() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] <= 50 else x - 1

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    for n in (5, 70):
        compiled(torch.ones(n))
    warm = compiled.warm_up([40, 60, 90], progress=False)
    assert [(number, each.sizes["s0"]) for number, each in warm.made] == [(1, 90), (1, 60), (0, 40)]
    for n in (40, 50, 51, 90):
        x = torch.randn(n)
        assert torch.equal(compiled(x), program(x))


def test_a_trace_with_backward_that_holds_for_a_batch_of_1_alone() -> None:
    """It has no bucket of other sizes; the trace for those has."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    mine = symshape.compile(model, runner="padded", dynamic={"input": {0: "batch"}})
    for batch in (1, 1, 3):
        mine(torch.randn(batch, 4)).sum().backward()
    compiled = symshape.compiled_of(mine)
    assert "2 graphs take" in str(compiled.graph_memory([(20,)]))
    for sizes in ([(20,), (1,)], symshape.plan(compiled)):
        warm = compiled.warm_up(sizes, progress=False)
        assert not warm.failures
        assert warm.graphs == 2
    (entry,) = compiled.entries
    runners = [runner for _, runner in padded_parts(entry.runner, entry.program)]
    caps = [sorted(each.made.caps["batch"] for each in one.buckets) for one in runners]
    assert caps == [[1], [1], [1, 3, 20], [1, 3, 20]]
    assert "backward where input.size(0) == 1: padded, 1 buckets" in str(compiled.report())
    assert "where input.size(0) == 1; forward (padded, 3 buckets)" in entry.runner.describe()


def test_sizes_outside_of_the_guards_are_named() -> None:
    compiled = symshape.compile(lambda x: x.view(-1, 2) + 1, dynamic=True, runner="padded")
    compiled(torch.ones(6))
    warm = compiled.warm_up([7, 8], progress=False)
    assert {each.sizes["s0"]: each.reason for _, each in warm.made} == {
        8: "",
        7: "outside of the guards: s0 % 2 == 0",
    }


def test_what_an_op_refuses_is_said() -> None:
    compiled = symshape.compile(
        lambda x: torch.renorm(x[:, None], 2, 0, 1.0), dynamic=True, runner="padded"
    )
    compiled(torch.ones(6))
    (failed,) = compiled.warm_up([8], progress=False).failures
    assert "aten.renorm.default" in failed.reason


@pytest.mark.parametrize(
    ("runner", "sizes", "message"),
    [
        ("eager", [8], "eager"),
        ("padded", [{"width": 8}], "sizes of length are needed, not of width"),
        ("padded", [(8, 9)], "2 sizes"),
        ("padded", 8, "a plan or a list of sizes of length"),
        ("padded", [], "empty"),
        ("padded", Traffic.of([3], ("length",)), "plan first"),
    ],
)
def test_bad_requests_are_told(runner: Any, sizes: Any, message: str) -> None:
    compiled = symshape.compile(_program, dynamic={"x": {0: "length"}}, runner=runner)
    with pytest.raises(InputError, match="call"):
        compiled.warm_up(sizes)
    compiled(torch.randn(5, 4))
    with pytest.raises(InputError, match=message):
        compiled.warm_up(sizes, progress=False)


# --- traffic --------------------------------------------------------------------------------------


def test_calls_of_an_entry_with_fixed_sizes_count_too() -> None:
    compiled = symshape.compile(_program)
    for n in (3, 3, 5, 7, 5):
        compiled(torch.randn(n, 4))
    assert len(compiled.entries) == 2
    assert compiled.traffic().counts == {(3,): 2, (5,): 2, (7,): 1}
    with pytest.raises(InputError, match="entry 0 has no symbols"):
        compiled.traffic(0)
    with pytest.raises(InputError, match="there is no entry 7; there are 0, 1"):
        compiled.traffic(7)


def test_nested_arguments_and_verified_calls_are_counted_once() -> None:
    compiled = symshape.compile(
        lambda given: given["x"] * 2, dynamic=True, options=Options(verify=1.0)
    )
    for n in (3, 4, 3):
        compiled({"x": torch.ones(n)})
    assert compiled.traffic().counts == {(3,): 2, (4,): 1}


def test_nothing_seen_is_told() -> None:
    compiled = symshape.compile(_program)
    with pytest.raises(InputError, match="call the compiled function once"):
        compiled.traffic()
    with pytest.raises(InputError, match="traffic is needed"):
        symshape.plan(symshape.trace(_program, torch.ones(3, 4)))


def test_the_rarest_sizes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_SEEN", 8)
    compiled = _padded()
    for n in range(1, 40):
        for _ in range(2 if n % 10 else 1):
            compiled(torch.randn(n, 4))
        compiled(torch.randn(5, 4))
    counts = compiled.traffic().counts
    assert len(counts) <= 8
    assert counts[(5,)] == 41, "what comes often is counted to the last call"


def test_arguments_of_other_types_are_refused() -> None:
    compiled = _padded()
    compiled(torch.ones(5, 4))
    for call, message in (
        (lambda: compiled.settle("a"), "seconds='a' must be None or a number"),
        (lambda: compiled.settle(True), "seconds=True must be None or a number"),
        (lambda: compiled.settle(float("nan")), "seconds=nan must be None or a number"),
        (lambda: compiled.report(peaks=3), "peaks=3 must be a symshape.DevicePeaks"),
        (lambda: compiled.traffic(True), "entry=True must be the number of an entry"),
        (lambda: compiled.traffic("a"), "entry='a' must be the number of an entry"),
        (lambda: compiled.warm_up([(True,)], progress=False), "True is no size"),
        (lambda: Traffic.of([float("inf")], ("n",)), "inf is no size"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert compiled.settle(0.5)
    assert compiled.settle(-1)


def test_sizes_for_which_there_is_no_memory_are_told() -> None:
    compiled = _padded()
    compiled(torch.ones(5, 4))
    found = compiled.warm_up([(10**14,), (7,)], progress=False)
    assert [(each.ready, bool(each.reason)) for _, each in found.made] == [
        (False, True),
        (True, False),
    ]
    assert "no memory" in found.failures[0].reason
    assert_same(compiled(torch.ones(6, 4)), _program(torch.ones(6, 4)), "6", tolerance=1e-5)
