"""The one door for runners: entries run through it, and whatever leaves the cache is released
through it.
"""

from __future__ import annotations

from typing import get_type_hints

import pytest
import torch

import symshape
from symshape import Options
from symshape.runtime.runners.choice import RUNNERS, Order
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.protocol import Runner, Unfit
from tests.symshape.runtime.runners.fakes import instead_of, noted_runners


def test_it_is_three_methods() -> None:
    assert {name for name in vars(Runner) if not name.startswith("_")} == {
        "run",
        "release",
        "describe",
    }
    assert get_type_hints(Runner.describe)["return"] is str


@pytest.mark.parametrize("name", RUNNERS)
def test_every_runner_of_the_table_runs_describes_itself_and_runs_after_a_release(
    name: str,
) -> None:
    program = symshape.trace(lambda x: x * 2 + 1, torch.ones(3)).program
    order = Order(program=program, eager=EagerRunner(program), graphs=GraphStore(4), patient=False)
    try:
        runner = RUNNERS[name].make(order)
    except Unfit as reason:
        pytest.skip(str(reason))
    x = torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(runner.run([x], (3,)), [x * 2 + 1])
        assert runner.describe().startswith(name)
        runner.release()


def test_eviction_and_reset_release_every_runner() -> None:
    with noted_runners() as made:
        f = symshape.compile(
            lambda x: x * 2, dynamic=False, runner="cudagraph", options=Options(max_entries=2)
        )
        for size in (1, 2, 3, 4):
            assert torch.equal(f(torch.ones(size)), torch.ones(size) * 2)
        assert [entry.runner for entry in f.entries] == made[2:]
        assert [each.releases for each in made] == [1, 1, 0, 0]
        f.reset()
        assert [each.releases for each in made] == [1, 1, 1, 1]
        assert [each.runs for each in made] == [1, 1, 1, 1]


def test_an_entry_shows_what_its_runner_says() -> None:
    with noted_runners():
        f = symshape.compile(lambda x: x * 2, runner="cudagraph")
        f(torch.ones(3)), f(torch.ones(3))
        assert "noted, 2 runs" in repr(f.entries[0])
        assert f.entries[0].runner_name == "cudagraph"


def test_a_runner_that_is_made_around_another_is_used_from_then_on() -> None:
    with noted_runners() as made:
        f = symshape.compile(lambda x: x * 2, runner="cudagraph")
        f(torch.ones(3))
        (entry,) = f.entries
        other = type(made[0])(made[0].order)
        entry.use(other)
        f(torch.ones(3))
        assert (made[0].runs, made[0].releases, other.runs) == (1, 0, 1)
        f.reset()
        assert (made[0].releases, other.releases) == (0, 1)


def test_unfit_says_why_once() -> None:
    def refuse(order: Order) -> Runner:
        raise Unfit("it is Monday")

    heard: list[object] = []
    unsubscribe = symshape.events.subscribe(heard.append)
    try:
        with instead_of("cudagraph", refuse):
            f = symshape.compile(lambda x: x * 2, runner="cudagraph")
            f(torch.ones(3)), f(torch.ones(3))
    finally:
        unsubscribe()
    assert f.entries[0].runner_name == "eager"
    assert [each for each in heard if isinstance(each, symshape.events.RunnerFallback)] == [
        symshape.events.RunnerFallback("cudagraph", "eager", "it is Monday")
    ]
