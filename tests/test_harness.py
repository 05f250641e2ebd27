"""The runners of benchmarks and fuzzers: a failure they swallowed would look like a success of the
library.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.bench import run as bench_run
from tests.bench.report import Goal, NotHere, Report, bench_parser
from tests.bench.timing import Timing, measure_each, measure_together
from tests.discovery import REPOSITORY, split_names
from tests.fuzz import run as fuzz_run
from tests.fuzz.harness import MOST_FAILURES, Counterexample, Outcome, run_fuzzer
from tests.fuzz.jobs import Plan, run_jobs
from tests.test_docs import CONTRIBUTING, blocks


def test_examples_of_contributing_run() -> None:
    kinds = []
    for block in blocks(CONTRIBUTING.read_text(encoding="utf-8")):
        namespace: dict[str, Any] = {}
        exec(compile("\n" * (block.line - 1) + block.code, str(CONTRIBUTING), "exec"), namespace)
        result = namespace["main"](["--smoke"])
        kinds.append(type(result))
        if isinstance(result, Outcome):
            assert result.cases
            assert not result.failures
        else:
            assert result.text()
    assert kinds == [Report, Outcome]


# --- fuzzers --------------------------------------------------------------------------------------


def _sevens_are_wrong(rng: random.Random) -> str:
    number = rng.randrange(1000)
    if number % 7 == 0:
        raise Counterexample(f"number = {number}")
    return "fine"


def _fuzz(argv: list[str], case: Any = _sevens_are_wrong, **options: Any) -> Outcome:
    return run_fuzzer("sevens", "doc", argv, case, count=10_000, smoke=200, **options)


def test_a_failure_is_reproduced_by_the_command_it_prints() -> None:
    outcome = _fuzz(["--seed", "3"])
    assert len(outcome.failures) == MOST_FAILURES
    words = outcome.failures[0].split("again with: python -m tests.fuzz sevens ")[1].split("\n")
    again = _fuzz(words[0].split())
    assert again.cases == 1
    assert again.failures == outcome.failures[:1]
    assert words[1] in outcome.text()


def test_any_exception_is_a_failure() -> None:
    outcome = _fuzz(["--count", "1"], case=lambda rng: str(1 // 0))
    assert "ZeroDivisionError" in outcome.failures[0]


def test_a_label_never_seen_is_a_failure() -> None:
    assert not _fuzz(["--smoke"], case=lambda rng: "proved", must_see=("proved",)).failures
    assert (
        "unknown"
        in _fuzz(["--smoke"], case=lambda rng: "proved", must_see=("unknown",)).failures[0]
    )
    assert not _fuzz(["--count", "1"], case=lambda rng: "proved", must_see=("unknown",)).failures


@pytest.mark.slow
def test_exit_status_of_fuzzers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {
        "good": Outcome("good", cases=1),
        "bad": Outcome("bad", cases=1, failures=["x"]),
        "idle": Outcome("idle"),
    }
    monkeypatch.setattr(fuzz_run, "main_of", lambda kind, name: lambda argv: results.get(name))
    assert [fuzz_run.main([name]) for name in ("good", "bad", "idle", "nothing")] == [0, 1, 1, 1]
    monkeypatch.setattr(fuzz_run, "run_apart", lambda kind, name, argv: int(name == "bad"))
    assert fuzz_run.main(["good", "idle"]) == 0
    assert fuzz_run.main(["good", "bad", "--smoke"]) == 1
    assert "failed: bad" in capsys.readouterr().out


_DIES_AND_HANGS = f"""
import os, random, sys, time
from pathlib import Path
sys.path.insert(0, {str(REPOSITORY)!r})
from tests.fuzz.harness import Counterexample, run_fuzzer

ODD = {{random.Random(f"3:{{number}}").random(): number for number in (7, 21, 30)}}

def case(rng):
    number = ODD.get(rng.random())
    if number == 7:
        print("last words", flush=True)
        os.abort()
    if number == 21:
        time.sleep(600)
    if number == 30:
        raise Counterexample("thirty")
    return "fine"

words = sys.argv[1:]
at = words.index("--json")
told = words[1:at] + words[at + 2:]
run_fuzzer("odd", None, told, case, count=1, smoke=1).write(Path(words[at + 1]))
"""


@pytest.mark.slow
def test_processes_that_die_or_hang_are_told_by_their_cases(tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text(_DIES_AND_HANGS)
    plan = Plan(
        "odd", [], 3, 0, 40, 2, 12, None, 50, still=8.0, program=(sys.executable, str(script))
    )
    outcome = run_jobs(plan)
    assert outcome.cases == 40
    assert outcome.tally == {"fine": 37, "failed": 1, "died or hung": 2}
    told = sorted(outcome.failures)
    assert (
        "case 21: stood still for 8 s; again with: python -m tests.fuzz odd --seed 3 --start 21 "
        "--count 1" in told[0]
    )
    assert "thirty" in told[1]
    assert "case 7: its process died (SIGABRT)" in told[2]
    assert "last words" in told[2]


def test_jobs_end_in_time(tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text(_DIES_AND_HANGS)
    began = Plan("odd", [], 4, 0, 10**9, 2, 10**9, 1.0, 50, program=(sys.executable, str(script)))
    outcome = run_jobs(began)
    assert outcome.cases == outcome.tally["fine"] > 0
    assert outcome.seconds < 30


def test_outcomes_add_up_and_are_read_again(tmp_path: Path) -> None:
    one = Outcome("x", 2, 1.0, Counter(a=2), Counter(calls=7), ["f"])
    one.write(tmp_path / "one.json")
    total = Outcome("x", 1, 5.0, Counter(a=1), Counter())
    total.add(Outcome.read(tmp_path / "one.json"))
    assert total == Outcome("x", 3, 5.0, Counter(a=3), Counter(calls=7), ["f"])
    assert "7 calls" in total.text()


# --- benchmarks -----------------------------------------------------------------------------------


def _example(argv: list[str]) -> Report:
    args = bench_parser("doc").parse_args(argv)
    report = Report("example", device=args.device)
    report.table("a title", "who", "µs").row("ours", 1.5)
    report.goal("ratio", 1.5, at_most=1.0)
    report.note("a note")
    return report


def test_a_run_writes_what_it_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_run, "main_of", lambda kind, name: _example)
    assert bench_run.main(["example", "--out", str(tmp_path), "--seed", "4"]) == 0
    assert bench_run.main(["example", "--smoke", "--strict"]) == 1
    printed = capsys.readouterr().out
    assert "| ours |" in printed
    assert "MISSED ratio: 1.5 (at most 1)" in printed
    content = json.loads((tmp_path / "example-cpu.json").read_text(encoding="utf-8"))
    assert content["tables"] == [
        {"title": "a title", "columns": ["who", "µs"], "rows": [["ours", 1.5]]}
    ]
    assert content["goals"] == [
        {"name": "ratio", "value": 1.5, "at_most": 1.0, "at_least": None, "met": False}
    ]
    assert content["arguments"] == ["--seed", "4"]
    assert {"date", "torch", "device", "python", "commit", "notes"} <= content.keys()


def test_exit_status_of_benchmarks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(argv: list[str]) -> Report:
        raise NotHere("needs a peer")

    mains = {"absent": absent, "empty": lambda argv: None, "other": _example}
    monkeypatch.setattr(bench_run, "main_of", lambda kind, name: mains[name])
    assert [bench_run.main([name, "--smoke"]) for name in mains] == [0, 1, 1]
    assert "not run here: needs a peer" in capsys.readouterr().out


def test_goals() -> None:
    assert Goal("x", 1.0, at_most=1.0).met
    assert Goal("x", 1.0, at_least=1.0, at_most=2.0).met
    assert not Goal("x", 1.0, at_least=1.1).met
    assert not Goal("x", math.nan, at_most=1.0).met
    with pytest.raises(ValueError, match="no bound"):
        Report("x").goal("y", 1.0)
    with pytest.raises(ValueError, match="2 columns, the row has 1"):
        Report("x").table("t", "a", "b").row(1)


def test_timing() -> None:
    timing = Timing.of(range(1000, 101_000, 1000))
    assert (timing.median, timing.p99, timing.least, timing.samples) == (50.5, 100.0, 1.0, 100)
    with pytest.raises(ValueError, match="no sample"):
        measure_each([])
    calls = []
    times = measure_together(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, samples=5, sample_us=0
    )
    assert [time.samples for time in times.values()] == [5, 5]
    assert calls[-10:] == ["a", "b"] * 5


def test_names_come_before_flags() -> None:
    assert split_names(["one", "two", "--count", "7"]) == (["one", "two"], ["--count", "7"])
    assert split_names(["--smoke"]) == ([], ["--smoke"])
