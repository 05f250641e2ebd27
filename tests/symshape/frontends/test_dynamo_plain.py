"""Training that runs the graph as Dynamo made it: where nothing is recorded, or where steps are
faster so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options
from symshape.frontends import dynamo, dynamo_training
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_training import TrainingGraph
from symshape.runtime.trials import EVERY, PAIRS, REST, Verdict
from tests.training import TRAINED, Trained, sizes, step


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def _trained(model: nn.Module, run: Callable[..., Any], rows: list[int]) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for number, each in enumerate(rows):
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = run(torch.randn(each, 4)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def _plain() -> int:
    return sum(each.plain for each in dynamo.alive)


def _fits(options: Any, steps: int = 3 * EVERY) -> int:
    """How many calls of a training were served plainly; all are eager's."""
    theirs, ours = _model(), _model()
    rows = [2 + number % 7 for number in range(steps)]
    run = torch.compile(ours, backend=symshape_backend, options=options)
    torch.testing.assert_close(_trained(ours, run, rows), _trained(theirs, theirs, rows))
    for mine, its in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, its)
    return _plain()


def test_on_the_cpu_from_the_first_call_on() -> None:
    assert _fits(None) == 3 * EVERY
    assert {(each.stats().traces, each.stats().fallbacks) for each in dynamo.alive} == {(0, 0)}
    told = str(symshape.backend_report())
    assert "95 of 95 calls ran Dynamo's own graph: torch's own backward is faster" in told


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs go the way of those on a CUDA device, which may be recorded."""
    monkeypatch.setattr(dynamo, "_on_cuda", lambda gm: True)


@pytest.mark.usefixtures("recorded")
def test_where_nothing_is_recorded_after_a_few_calls() -> None:
    assert _fits(None) == 2 * EVERY  # the first call has a graph of its own
    (forward,) = (each for each in dynamo.alive if each.plain)
    stats = forward.stats()
    assert (stats.plain, stats.calls, stats.traces) == (2 * EVERY, 3 * EVERY - 1, 1)
    (told,) = (each.plain for each in symshape.backend_report().graphs if each.plain)
    assert "64 of 95 calls ran Dynamo's own graph" in told
    assert told in str(symshape.backend_report())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"runner": "eager"}, {"fullgraph": True}, Options(plain_calls=False), Options(verify=0.2)],
    ids=["runner", "fullgraph", "plain_calls", "verify"],
)
def test_programs_serve_where_that_was_asked(options: Any) -> None:
    assert _fits(options) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "trained",
    [
        pytest.param(
            each, id=each.name, marks=() if each.name == "encoder" else pytest.mark.nightly
        )
        for each in TRAINED
        if each.name != "lstm"
    ],
)
def test_models(trained: Trained) -> None:
    theirs, ours = trained.build(), trained.build()
    compiled = torch.compile(ours, backend=symshape_backend)
    for number, (batch, length) in enumerate(sizes(EVERY + 8)):
        torch.manual_seed(number)
        call = trained.call(batch, length)
        loss = step(compiled, ours, call)
        if number > EVERY:
            torch.testing.assert_close(loss, step(theirs, theirs, call), rtol=1e-4, atol=1e-5)
            for mine, eager in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-3, atol=1e-5)
        else:
            step(theirs, theirs, call)  # statistics
    assert _plain() > 0


def test_gradients_of_gradients_from_then_on() -> None:
    """AOTAutograd refuses them; torch's own backward does not."""
    compiled = torch.compile(lambda x: (x**3).sum(), backend=symshape_backend, dynamic=True)
    for _ in range(EVERY + 1):
        x = torch.randn(3, requires_grad=True)
        compiled(x).backward()
    (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.func.vmap(lambda row: row.sin() * row.sum())(x).sum(),
        lambda x: torch.utils.checkpoint.checkpoint(
            lambda y: y.sin().exp(), x, use_reentrant=False
        ).sum(),
    ],
    ids=["vmap", "checkpoint"],
)
def test_what_is_slower_as_dynamo_has_it(fn: Callable[..., Any]) -> None:
    compiled = torch.compile(fn, backend=symshape_backend, dynamic=True)
    for number in range(2 * EVERY):
        x = torch.randn(2 + number % 3, 4, requires_grad=True)
        compiled(x).backward()
    assert _plain() == 0


@pytest.mark.usefixtures("recorded")
def test_forgotten_it_begins_again() -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(), backend=symshape_backend, dynamic=True)
    xs = [torch.randn(3, requires_grad=True) for _ in range(EVERY + 1)]
    for x in xs:
        compiled(x).backward()
    (forward,) = (each for each in dynamo.alive if each.plain)
    served = forward.plain
    dynamo.reset()
    for x in xs[: EVERY - 1]:
        compiled(x).backward()
    assert (forward.plain, len(forward.entries)) == (served, 1)
    compiled(xs[0])
    compiled(xs[0])
    assert forward.plain > served


# -- trials, by a clock of our own


class _Part:
    """What a trial sees of a graph that is recorded."""

    def __init__(self, part: str, graphs: Callable[[], int]) -> None:
        self.origin = dynamo.Origin("fn", part=part)
        self.entries, self.op_by_op, self.plain, self.plain_because = (1,), False, 0, ""
        self._graphs = graphs

    def stats(self) -> Any:
        return symshape.Stats(0, 0, 0, 0, 0, 0, self._graphs(), None, 0.0)


class _World:
    """Steps that take what they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plain: float, programs: float) -> None:
        self.now, self.ran, self.graphs = 0.0, "", 0
        self.costs = {"p": plain, "c": programs}
        monkeypatch.setattr(dynamo_training.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(dynamo_training, "_wait", lambda args: None)
        monkeypatch.setattr(dynamo_training, "is_capturing", lambda: False)
        module = torch.fx.symbolic_trace(nn.Identity())
        module.forward = lambda *args: self._run("p", *args)
        parts: Any = [_Part(each, lambda: self.graphs) for each in ("forward", "backward")]
        self.graph = TrainingGraph(module, lambda *args: self._run("c", *args), parts)

    def _run(self, who: str, *args: Any) -> Any:
        self.ran += who
        self.now += self.costs[who]
        return args

    def calls(self, count: int) -> str:
        """Who served them."""
        before = len(self.ran)
        for _ in range(count):
            self.graph.serve(torch.ones(3))
        return self.ran[before:]


def test_the_faster_way_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    assert world.calls(EVERY - 1) == "c" * (EVERY - 1)
    tried = world.calls(2 * PAIRS)
    assert (tried.count("c"), tried.count("p")) == (PAIRS, PAIRS)
    assert world.calls(REST) == "p" * REST
    assert world.graph.verdict == Verdict(5e6, 6e6, True)
    assert set(world.calls(2 * PAIRS)) == {"c", "p"}, "it is tried again"
    assert world.calls(4 * REST) == "p" * 4 * REST


def test_recorded_graphs_that_pay_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=4.0)
    world.calls(EVERY - 1 + 2 * PAIRS)
    assert world.calls(REST) == "c" * REST


def test_it_waits_while_graphs_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    for _ in range(2):
        world.graphs += 8
        assert set(world.calls(EVERY)) == {"c"}
    assert "p" in world.calls(2 * EVERY), "they came to rest"


def test_it_waits_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    for _ in range(6):
        world.graphs += 8
        world.calls(EVERY)
    assert "p" in world.ran


def test_steps_of_other_graphs_in_between_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of other sizes serve every third step, and take long."""
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    for number in range(4 * EVERY):
        world.calls(1)
        if number % 3 == 0:
            TrainingGraph.calls += 1
            world.now += 1000.0
    assert world.graph.verdict == Verdict(5e6, 6e6, True)


def test_parts_of_one_model_are_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    for _ in range(4 * EVERY):
        world.calls(1)
        TrainingGraph.calls += 2
        world.now += 1.0
    assert world.graph.verdict == Verdict(6e6, 7e6, True)


def test_a_trial_that_finds_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(monkeypatch, plain=5.0, programs=6.0)
    for number in range(20 * EVERY):
        world.calls(1)
        TrainingGraph.calls += max(1, 600 - number)
    assert world.graph.verdict is None
    assert world.ran[-EVERY:] == "c" * EVERY
