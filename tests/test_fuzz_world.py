"""The fuzzer of worlds convicts ways that are wrong, acquits the plain function, and says how to
see it again.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.discovery import REPOSITORY
from tests.fuzz import fuzz_world
from tests.fuzz.fuzz_world import Made, difference, kind_of, make, script, shrunk
from tests.fuzz.lines import Line
from tests.fuzz.worlds import BODY, CHANGES, THINGS


def line(text: str, lines: tuple[Line, ...] = BODY) -> Line:
    return next(each for each in lines if each.text == text)


def stale(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Answers what it answered first."""
    known: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(fn(*args, **kwargs))
        return known[0]

    return call


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Does everything twice."""

    def call(*args: Any, **kwargs: Any) -> Any:
        fn(*args, **kwargs)
        return fn(*args, **kwargs)

    return call


STATEFUL = Made(
    (line("x = x * 2"), line("x = x * SCALE"), line("x = x + get_cell()")),
    "(x, y)",
    (
        "call(t(3), t(2))",
        line("put_cell(9)", CHANGES),
        line("SCALE = 3.0", CHANGES),
        "call(t(3), t(2))",
    ),
)


def test_a_stale_answer_is_convicted_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz_world.WAYS, "default", stale)
    way, outcome, told = difference(STATEFUL, ["default"])
    assert (way, outcome) == ("default", "wrong")
    assert "result" in told or "aliasing" in told
    small = shrunk(STATEFUL, way)
    assert len(small.body) <= 1
    assert small.result == "x"
    assert len(small.steps) <= 2
    assert difference(small, [way])[0] == way
    assert kind_of(small, way, outcome).startswith("default wrong")


@pytest.mark.parametrize(
    "text",
    ["global COUNT\nCOUNT += 1", "y = y.clone()\ny.mul_(2)", "NUMBERS[0] += 1", "print('ran')"],
)
def test_what_is_done_twice_is_convicted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz_world.WAYS, "default", twice)
    made = Made((line(text),), "x", ("call(t(3), t(2))",))
    assert bool(difference(made, ["default"])[0]) is ("clone" not in text)


def test_the_plain_function_is_acquitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz_world.WAYS, "default", lambda fn: fn)
    for number in range(40):
        made = make(random.Random(number))
        assert difference(made, ["default"])[0] == "", made.source()


@pytest.mark.parametrize("text", [each.text for each in BODY])
def test_every_statement_can_be_run(text: str) -> None:
    made = Made((line(text),), "x", ("call(t(3), t(2))",))
    life = fuzz_world.Life(made, compile(made.source(), "<a world>", "exec"), None)
    assert life.take("call(t(3), t(3))").error is None
    assert made.things == [name for name in THINGS if name in line(text).needs]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.tag)
def test_every_change_can_be_made(change: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made((), "x", ("call(t(3), t(2))", change))
    life = fuzz_world.Life(made, compile(made.source(), "<a world>", "exec"), None)
    with fuzz_world._process_kept():
        assert life.take(change).error is None
    assert torch.is_grad_enabled()


@pytest.mark.slow
def test_a_script_shows_the_difference() -> None:
    text = script(STATEFUL, "fullgraph")
    run = subprocess.run(
        [sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "same " in run.stdout
    assert "OTHER" not in run.stdout
    broken = text.replace("symshape.compile(fn, fullgraph=True)", "lambda *args: 0")
    run = subprocess.run(
        [sys.executable, "-c", broken], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "OTHER" in run.stdout
