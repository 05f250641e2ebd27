"""A fuzzer in several processes: its cases are handed out in pieces, the outcomes added up.

A process that dies or stands still does not take the rest with it: the case that it was at is a
failure with the command that runs it again, and the other cases of its piece are handed out once
more.  Cases depend on their numbers alone, so a run in many processes tries what a run in one does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

import attrs

from tests.discovery import REPOSITORY
from tests.fuzz.harness import Outcome

STANDS_STILL = 300.0
SAY_EVERY = 15.0
LAST_WORDS = 1500  # characters of what a dead process wrote
ENDLESS = 10**9


@attrs.frozen
class Plan:
    """What to run in how many processes.

    Attributes:
        name: the fuzzer.
        flags: what it is given, beside the numbers of the cases.
        seed, start, count: which cases.
        jobs: processes at a time.
        piece: cases handed to a process at once.
        seconds: no piece is begun later, and the processes end then.
        most: failures after which no more pieces are begun.
        still: seconds on one case after which a process is taken to hang.
        program: what runs a fuzzer by its name.
    """

    name: str
    flags: Sequence[str]
    seed: int
    start: int
    count: int
    jobs: int
    piece: int
    seconds: float | None
    most: int
    still: float = STANDS_STILL
    program: Sequence[str] = (sys.executable, "-m", "tests.fuzz")

    def command(self, start: int, count: int) -> list[str]:
        """The words after ``python -m tests.fuzz`` that run some of the cases."""
        numbers = ["--seed", str(self.seed), "--start", str(start), "--count", str(count)]
        return [self.name, *self.flags, *numbers]


@attrs.define
class _Worker:
    """A process at a piece, and where it writes: the number of its case, its outcome, its last
    words.
    """

    process: subprocess.Popen[bytes]
    start: int
    count: int
    mark: Path
    outcome: Path
    words: Path
    at: int
    since: float

    def look(self) -> None:
        """Reads which case it is at."""
        text = self.mark.read_text() if self.mark.exists() else ""
        number = int(text) if text.strip() else self.start
        if number != self.at:
            self.at, self.since = number, monotonic()


class Pool:
    """Runs a plan."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        whole = range(plan.start, plan.start + plan.count, plan.piece)
        end = plan.start + plan.count
        self._next = iter((start, min(plan.piece, end - start)) for start in whole)
        self._again: deque[tuple[int, int]] = deque()
        self._working: list[_Worker] = []
        self._began = monotonic()
        self._number = 0
        self.total = Outcome(plan.name)

    def run(self) -> Outcome:
        """The outcome of all pieces, added up."""
        said = self._began
        try:
            while self._hand_out() or self._working:
                sleep(0.05)
                for worker in list(self._working):
                    self._watch(worker)
                if monotonic() - said > SAY_EVERY:
                    said = monotonic()
                    self._say()
        finally:
            for worker in self._working:
                worker.process.kill()
        self.total.seconds = monotonic() - self._began
        return self.total

    def _left(self) -> float | None:
        seconds = self._plan.seconds
        return None if seconds is None else seconds - (monotonic() - self._began)

    def _hand_out(self) -> bool:
        """Starts processes where there is room; whether one was started."""
        left = self._left()
        if (left is not None and left <= 0) or len(self.total.failures) >= self._plan.most:
            return False
        started = False
        while len(self._working) < self._plan.jobs:
            piece = self._again.popleft() if self._again else next(self._next, None)
            if piece is None:
                break
            self._working.append(self._start(*piece, left))
            started = True
        return started

    def _start(self, start: int, count: int, left: float | None) -> _Worker:
        self._number += 1
        mark, outcome, words = (
            self._folder / f"{self._number}.{end}" for end in ("mark", "json", "words")
        )
        command = [*self._plan.program, *self._plan.command(start, count), "--mark", str(mark)]
        command += ["--json", str(outcome)]
        command += [] if left is None else ["--seconds", f"{left:.1f}"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with words.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment, stdout=stream, stderr=stream
            )
        return _Worker(process, start, count, mark, outcome, words, start, monotonic())

    def _watch(self, worker: _Worker) -> None:
        ended = worker.process.poll()
        worker.look()
        if ended is None:
            if monotonic() - worker.since > self._plan.still:
                worker.process.kill()
                worker.process.wait()
                self._lost(worker, f"stood still for {self._plan.still:.0f} s")
            return
        if not worker.outcome.exists():
            how = signal.Signals(-ended).name if ended < 0 else f"exit status {ended}"
            self._lost(worker, f"its process died ({how})")
            return
        self._working.remove(worker)
        outcome = Outcome.read(worker.outcome)
        self.total.add(outcome)
        if outcome.cases < worker.count:  # it had found enough, or its time was over
            self._again.append((worker.start + outcome.cases, worker.count - outcome.cases))

    def _lost(self, worker: _Worker, how: str) -> None:
        """Notes the case that a process was at, and hands the others of its piece out once more."""
        self._working.remove(worker)
        number, end = worker.at, worker.start + worker.count
        again = "python -m tests.fuzz " + " ".join(self._plan.command(number, 1))
        words = worker.words.read_text(errors="replace")[-LAST_WORDS:]
        self.total.failures.append(f"\nFAILED case {number}: {how}; again with: {again}\n{words}")
        self.total.tally["died or hung"] += 1
        self.total.cases += 1
        rest = [(worker.start, number - worker.start), (number + 1, end - number - 1)]
        self._again.extend(piece for piece in rest if piece[1] > 0)

    def _say(self) -> None:
        under_way = sum(worker.at - worker.start for worker in self._working)
        took, done = monotonic() - self._began, self.total.cases + under_way
        print(
            f"  {self._plan.name}: {done:,} cases, {took:.0f} s, {done / took:,.0f} a second, "
            f"{len(self.total.failures)} failures",
            file=sys.stderr,
            flush=True,
        )


def run_jobs(plan: Plan) -> Outcome:
    """Runs a plan; the outcome of all of it."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        return Pool(plan, Path(folder)).run()
