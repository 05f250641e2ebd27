"""Every world, the way a user lives through it: right or refused, or a known gap that must still be
there.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.worlds import table
from tests.worlds.corpus import PROGRAMS
from tests.worlds.known import DIFFERENT_BY_DEFAULT, KNOWN, Known
from tests.worlds.ways import DEFAULT, OURS, STALE
from tests.worlds.world import GOOD, Program, Verdict, Way, judge


def _mark(number: int, program: Program) -> Any:
    """Return when a program is run: ``make test`` takes each fourth of those that take no
    minutes.
    """
    if program.slow:
        return pytest.mark.nightly
    return pytest.mark.slow if number % 4 else ()


_PARAMETERS = [
    pytest.param(each, id=name, marks=_mark(number, each))
    for number, (name, each) in enumerate(PROGRAMS.items())
]
# Of the classes in which a stale answer is a wrong one: here it is not what is asked.
_STALE_IS_RIGHT = {"state_dict_hook_is_no_reason_to_fail", "shape_of_a_library_module"}


@pytest.mark.parametrize("program", _PARAMETERS)
def test_right_or_refused(program: Program) -> None:
    _as_known(judge(program, OURS), KNOWN.get(str(program)))


@pytest.mark.parametrize("program", _PARAMETERS)
def test_right_where_refusals_run_as_they_are(program: Program) -> None:
    verdict = judge(program, DEFAULT)
    assert verdict.outcome != "refused", verdict.detail
    _as_known(verdict, DIFFERENT_BY_DEFAULT.get(str(program), KNOWN.get(str(program))))


def _as_known(verdict: Verdict, known: Known | None) -> None:
    if verdict.outcome in GOOD:
        assert known is None, (
            f"it is {verdict.outcome} now: take its row out of tests/worlds/known.py"
        )
    else:
        assert known is not None, f"{verdict.outcome}: {verdict.detail}"
        assert verdict.outcome == known.outcome, (
            f"known as {known.outcome}, now {verdict.outcome}: {verdict.detail}"
        )


def test_known_gaps_are_programs() -> None:
    assert PROGRAMS.keys() >= KNOWN.keys(), f"no such programs: {KNOWN.keys() - PROGRAMS.keys()}"
    assert all(each.outcome not in GOOD and each.reason for each in KNOWN.values())
    assert PROGRAMS.keys() >= DIFFERENT_BY_DEFAULT.keys()
    assert all(KNOWN.get(name) != each for name, each in DIFFERENT_BY_DEFAULT.items())


@pytest.mark.slow
def test_stale_answers_are_convicted() -> None:
    """The judge and the programs find a way that answers what it answered first, wherever state
    changes.
    """
    changing = [each for each in PROGRAMS.values() if each.kind[:2] in ("1 ", "2 ")]
    acquitted = {each.name for each in changing if judge(each, STALE).outcome in GOOD}
    assert acquitted == _STALE_IS_RIGHT


_DIES = """
import json, os, pathlib, sys
asked, answered = map(pathlib.Path, sys.argv[1:])
with answered.open("a") as stream:
    for way, name in json.loads(asked.read_text()):
        print(json.dumps([way, name]), file=stream, flush=True)
        if (way, name) == ("default", "b"):
            os.abort()
        print(json.dumps([way, name, "right", ""]), file=stream, flush=True)
"""


def test_a_program_that_kills_its_process_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PROCESS", (sys.executable, "-c", _DIES))
    found = table.judged_in_jobs(["a", "b", "c"], ["ours", "default"], 2)
    outcomes = {
        way: {name: each.outcome for name, each in verdicts.items()}
        for way, verdicts in found.items()
    }
    fine = dict.fromkeys("abc", "right")
    assert outcomes == {"ours": fine, "default": fine | {"b": "crash"}}


@pytest.mark.slow
def test_several_processes_find_what_one_does() -> None:
    names = [name for name, each in PROGRAMS.items() if not each.slow][::200]
    one = table.collected(["ours"], table.judged(names, ["ours"]))
    assert table.judged_in_jobs(names, ["ours"], 2) == one
    text = table.table([PROGRAMS[name] for name in names], one)
    assert f"| all | {len(names)} |" in text


@pytest.mark.slow
def test_the_plain_function_is_right() -> None:
    """Living through a world twice gives the same: what differs is the way's doing."""
    plain = Way("plain", lambda made: made.fn, refusals=())
    sample = [each for each in PROGRAMS.values() if not each.slow][::5]
    different = {
        str(each): verdict.detail
        for each in sample
        if (verdict := judge(each, plain)).outcome != "right"
    }
    assert not different
