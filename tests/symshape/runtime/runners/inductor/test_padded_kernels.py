"""Inductor's kernels in padded programs: eager's values in every bucket from one compilation,
poisoned buffers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options, events
from symshape.errors import UnsupportedError
from symshape.runtime.runners.inductor import artefacts
from symshape.runtime.runners.inductor.compile_worker import Answer
from symshape.runtime.runners.padded import bucket as module_of_bucket
from symshape.runtime.runners.padded import runner as padded
from symshape.runtime.runners.padded.bucket import Variant, measured
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison


@pytest.fixture
def seen() -> Iterator[list[events.Event]]:
    found: list[events.Event] = []
    unsubscribe = events.subscribe(found.append)
    yield found
    unsubscribe()


class Small(nn.Module):
    """Rows mixed by a masked softmax: what lies in the padding would show."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.linear(x) @ x.transpose(-1, -2)
        return (scores.softmax(-1) @ x).mean(-2)


def _call(compiled: Any, model: nn.Module, batch: int, length: int) -> None:
    for entry in compiled.entries:
        assert isinstance(entry.runner, PaddedRunner)
        for bucket in entry.runner.buckets:
            for buffer in bucket.buffers:
                poison(buffer, batch + length)
    x = torch.randn(batch, length, 4)
    with torch.no_grad():
        assert_same(compiled(x), model(x), f"({batch}, {length})", tolerance=1e-4)


def _runner(compiled: Any) -> PaddedRunner:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner


@pytest.mark.slow
def test_one_compilation_serves_all_buckets(seen: list[events.Event]) -> None:
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="inductor")
    )
    for batch, length in ((3, 7), (2, 40), (5, 11), (3, 8), (9, 2), (70, 33), (2, 37), (12, 11)):
        _call(compiled, model, batch, length)
    chosen = [each for each in seen if isinstance(each, events.VariantChosen)]
    assert len(chosen) == len(_runner(compiled).buckets) >= 5
    assert all(each.milliseconds.keys() == {"eager", "inductor"} for each in chosen)
    assert all(
        each.milliseconds[each.kernels] == min(each.milliseconds.values()) for each in chosen
    )
    assert any(
        len({*bucket.made.caps.values()}) < len(bucket.made.caps)
        for bucket in _runner(compiled).buckets
    )
    assert len(_runner(compiled)._kernels) == 1  # type: ignore[arg-type]
    assert not [each for each in seen if isinstance(each, events.RunnerFallback)]
    text = symshape.compiled_of(compiled).report()
    assert text.count("ms with inductor's") == text.count("ms with eager's") == len(chosen)


def test_a_compiler_that_fails_leaves_eagers_kernels(
    seen: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(artefacts.Artefacts, "_compile", broken)
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="inductor")
    )
    for batch, length in ((3, 7), (2, 40), (3, 8)):
        _call(compiled, model, batch, length)
    reasons = [each.reason for each in seen if isinstance(each, events.RunnerFallback)]
    assert reasons == ["RuntimeError: no compiler here"]
    assert [each.kernels for bucket in _runner(compiled).buckets for each in bucket.variants] == [
        "eager",
        "eager",
    ]


def test_a_program_without_a_common_form_says_so(
    seen: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "symshape.runtime.runners.inductor.padded_kernels.generalise", lambda padded, pad: None
    )
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="inductor")
    )
    for batch, length in ((3, 7), (2, 40), (3, 8)):
        _call(compiled, model, batch, length)
    reasons = [each.reason for each in seen if isinstance(each, events.RunnerFallback)]
    assert len(reasons) == 2, "once for each bucket"
    assert all("no form in common" in reason for reason in reasons)
    assert "no form in common" in symshape.compiled_of(compiled).report()


@pytest.mark.slow
def test_calls_that_wait_for_no_compiler(seen: list[events.Event]) -> None:
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="auto")
    )
    for batch, length in ((3, 7), (2, 40), (3, 7)):
        _call(compiled, model, batch, length)
    runner = _runner(compiled)
    assert [len(bucket.variants) for bucket in runner.buckets] == [1, 1]
    assert runner.warm_up({**runner.buckets[0].made.exact, **runner.buckets[0].made.caps}).ready
    assert [len(bucket.variants) for bucket in runner.buckets] == [2, 1]
    # what is there serves them all, and buckets made later
    for batch, length in ((2, 40), (3, 7), (5, 11)):
        _call(compiled, model, batch, length)
    assert [len(bucket.variants) for bucket in runner.buckets] == [2, 2, 2]
    assert len(runner._kernels) == 1  # type: ignore[arg-type]
    assert len([each for each in seen if isinstance(each, events.VariantChosen)]) == 3
    assert not [each for each in seen if isinstance(each, events.RunnerFallback)]


@pytest.mark.parametrize(("kernels", "asked"), [("auto", [False, True]), ("inductor", [True])])
def test_who_compiles(kernels: Any, asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_now: list[bool] = []

    def told(*_: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        compiled_now.append(True)
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(artefacts.Artefacts, "_compile", told)
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels=kernels)
    )
    _call(compiled, model, 3, 7)
    assert bool(compiled_now) is asked[0]
    runner = _runner(compiled)
    runner.warm_up({**runner.buckets[0].made.exact, **runner.buckets[0].made.caps})
    assert compiled_now == [True]


def test_what_has_effects_is_not_timed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).sum(0)

    compiled = symshape.compile(
        fn, dynamic=True, runner="padded", options=Options(kernels="inductor")
    )
    for size in (5, 9, 6):
        x = torch.randn(size, 3)
        twin = x.clone()
        torch.testing.assert_close(compiled(x), fn(twin))
        torch.testing.assert_close(x, twin)


def _ranked(monkeypatch: pytest.MonkeyPatch, slower: str) -> None:
    """Let these kernels be the slower ones in every bucket, whatever the clock says."""

    def timed(variants: Sequence[Variant], device: torch.device) -> tuple[Variant, ...]:
        return tuple(sorted(measured(variants, device), key=lambda each: each.kernels == slower))

    monkeypatch.setattr(module_of_bucket, "measured", timed)


@pytest.mark.slow
def test_compiled_beside_calls(seen: list[events.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    # else three buckets of one mind would spare the others their timing
    _ranked(monkeypatch, slower="inductor")
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    for batch, length in ((3, 7), (2, 40), (3, 7)):
        _call(compiled, model, batch, length)
    runner = _runner(compiled)
    assert "are being compiled" in runner.describe()
    assert [len(bucket.variants) for bucket in runner.buckets] == [1, 1], "no call waits"
    assert not compiled.settle(0.01)
    assert compiled.settle(300)
    assert [len(bucket.variants) for bucket in runner.buckets] == [2, 2]
    # what is there serves buckets made later, too
    for batch, length in ((2, 40), (5, 11), (3, 7), (70, 33), (12, 11)):
        _call(compiled, model, batch, length)
    assert compiled.settle()
    assert [len(bucket.variants) for bucket in runner.buckets] == [2] * 5
    assert len(runner._kernels) == 1  # type: ignore[arg-type]
    assert len([each for each in seen if isinstance(each, events.CompiledBeside)]) == 1
    assert len([each for each in seen if isinstance(each, events.VariantChosen)]) == 5
    assert not [each for each in seen if isinstance(each, events.RunnerFallback)]


def test_what_several_buckets_have_chosen_is_captured_at_once(
    seen: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    _ranked(monkeypatch, slower="eager")
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    for length in (7, 40, 90):
        _call(compiled, model, 3, length)
    assert compiled.settle(300)
    for length in (20, 7, 200):
        _call(compiled, model, 3, length)
    runner = _runner(compiled)
    assert [[each.kernels for each in made.variants] for made in runner.buckets] == [
        *[["inductor", "eager"]] * 3,
        *[["inductor"]] * 2,
    ]
    assert [made.captures for made in runner.buckets] == [2, 2, 2, 1, 1]
    _ranked(monkeypatch, slower="inductor")
    assert runner.warm_up({**runner.buckets[0].made.exact, **runner.buckets[0].made.caps}).ready
    # it lies elsewhere: all is captured again
    model.linear.weight.data = model.linear.weight.data * 2
    for length in (20, 7, 200):
        _call(compiled, model, 3, length)
    assert [len(made.variants) for made in runner.buckets] == [1, 2, 2, 1, 1]


def test_calls_take_in_what_was_compiled_beside_them(
    seen: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a bucket whose calls have lost without it what another capture takes."""
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    for length in (7, 40):
        _call(compiled, model, 3, length)
    runner = _runner(compiled)
    small, large = runner.buckets
    for each in (small, large):  # however slow this machine is, no call has lost as much
        each.planned_ms, each.milliseconds = 1e9, 1e9
    assert runner._kernels is not None
    assert runner._kernels.wait(300)
    _call(compiled, model, 3, 40)
    assert not [each for each in seen if isinstance(each, events.CompiledBeside)]
    large.planned_ms = large.milliseconds = 0.0
    for _ in range(40):
        for length in (7, 40):
            _call(compiled, model, 3, length)
    assert len([each for each in seen if isinstance(each, events.CompiledBeside)]) == 1
    assert [len(bucket.variants) for bucket in runner.buckets] == [1, 2]
    small.planned_ms = small.milliseconds = 0.0
    for _ in range(40):
        _call(compiled, model, 3, 7)
    assert [len(bucket.variants) for bucket in runner.buckets] == [2, 2]


class Refusing:
    """A process that answers at once, with a reason why not, or cannot even be asked."""

    def __init__(
        self, reason: str = "", content: bytes = b"", raises: Exception | None = None
    ) -> None:
        self.answer = Answer(1, (), content, reason)
        self.raises = raises
        self.asked = 0

    def ask(self, request: Any, told: Any) -> None:
        self.asked += 1
        if self.raises:
            raise self.raises
        told(self.answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "said"),
    [
        (Refusing("no compiler there"), "no compiler there"),
        (Refusing(content=b"no pickle"), "UnpicklingError"),
        (Refusing(raises=UnsupportedError("nobody listens")), "nobody listens"),
        (Refusing(raises=AssertionError("lint")), "AssertionError: lint"),
    ],
)
def test_where_nothing_comes_of_it_eagers_kernels_serve(
    process: Any, said: str, seen: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded, "shared", process)
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    for batch, length in ((3, 7), (2, 40), (3, 7), (5, 11)):
        _call(compiled, model, batch, length)
    runner = _runner(compiled)
    assert compiled.settle()
    reasons = [each.reason for each in seen if isinstance(each, events.RunnerFallback)]
    assert len(reasons) == process.asked == 1
    assert said in reasons[0]
    assert said in runner.describe()
    assert all(len(bucket.variants) == 1 for bucket in runner.buckets)
    assert compiled.settle()
    assert runner.warm_up({**runner.buckets[0].made.exact, **runner.buckets[0].made.caps}).ready
    assert len(runner.buckets[0].variants) == 2, "who waits compiles in this process"


def test_settling_is_not_disturbed_by_data_that_failed() -> None:
    table = nn.Embedding(8, 4)

    def fn(rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = table(rows).softmax(0).sum(0)
        return found

    compiled = symshape.compile(
        fn, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    with torch.no_grad():
        compiled(torch.arange(5))
        with pytest.raises(IndexError):
            compiled(torch.full((5,), 99))
        assert compiled.settle(300)
        assert [len(bucket.variants) for bucket in _runner(compiled).buckets] == [2]
        rows = torch.tensor([7, 1, 0, 3])
        torch.testing.assert_close(compiled(rows), fn(rows))


def test_warm_up_waits_for_what_is_compiled_beside_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts.Artefacts, "_compile", lambda *_: pytest.fail("compiled twice"))
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    _call(compiled, model, 3, 7)
    runner = _runner(compiled)
    assert runner.warm_up({**runner.buckets[0].made.exact, **runner.buckets[0].made.caps}).ready
    assert len(runner.buckets[0].variants) == 2


class Silent:
    """A process that never answers."""

    def ask(self, request: Any, told: Any) -> None:
        """Takes the request."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_child_of_a_fork_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded, "shared", Silent())
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    _call(compiled, model, 3, 7)
    kernels = _runner(compiled)._kernels
    assert kernels is not None
    assert kernels.pending
    assert not kernels.wait(0.01)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if not kernels.pending and kernels.wait(60) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert kernels.pending


@pytest.mark.slow
def test_what_left_takes_nothing_in(seen: list[events.Event]) -> None:
    model = Small()
    compiled = symshape.compile(
        model, dynamic=True, runner="padded", options=Options(kernels="background")
    )
    _call(compiled, model, 3, 7)
    kernels = _runner(compiled)._kernels
    symshape.compiled_of(compiled).reset()
    assert kernels is not None
    assert kernels.wait(300)
    assert compiled.settle()
    _call(compiled, model, 3, 7)
    assert not [each for each in seen if isinstance(each, events.CompiledBeside)]
    assert compiled.settle(300)
    assert len([each for each in seen if isinstance(each, events.CompiledBeside)]) == 1
