"""The table of what became of the programs, class by class and way by way, made in one process or
in several.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep

from tests.discovery import REPOSITORY
from tests.worlds.ways import WAYS
from tests.worlds.world import GOOD, OUTCOMES, PROGRAMS, Program, Verdict, judge

Found = dict[str, dict[str, Verdict]]
"""By way and program."""
PROCESS = (sys.executable, "-m", "tests.worlds", "--share")
"""What is started, with the files of what is asked and answered."""
_ALWAYS = ("right", "refused", "wrong")


def judged(names: Sequence[str], ways: Sequence[str]) -> Iterator[tuple[str, str, Verdict]]:
    """What becomes of the programs, one way after the other: the way, the program, the verdict."""
    for way in ways:
        for name in names:
            with contextlib.redirect_stderr(io.StringIO()):
                verdict = judge(PROGRAMS[name], WAYS[way])
            yield way, name, verdict


def write_verdicts(asked: Path, answered: Path) -> None:
    """The work of one process: judges what stands in a file, and writes each verdict when it is
    there.
    """
    with answered.open("a") as stream:
        for way, name in json.loads(asked.read_text()):
            stream.write(json.dumps([way, name]) + "\n")
            stream.flush()
            for _, _, verdict in judged([name], [way]):
                stream.write(json.dumps([way, name, verdict.outcome, verdict.detail]) + "\n")
                stream.flush()


class _Share:
    """Programs of one process; one at which the process dies is a crash, and another process does
    the rest.
    """

    def __init__(self, folder: Path, number: int, todo: list[tuple[str, str]]) -> None:
        self.todo, self.found = todo, list[tuple[str, str, Verdict]]()
        self._asked, self._answered = folder / f"{number}.asked", folder / f"{number}.answered"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._asked.write_text(json.dumps(self.todo))
        self._answered.write_text("")
        command = [*PROCESS, str(self._asked), str(self._answered)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.DEVNULL)

    def done(self) -> bool:
        """Whether the process has ended with everything."""
        if self._process.poll() is None:
            return False
        lines = [json.loads(line) for line in self._answered.read_text().splitlines()]
        self.found += [(way, name, Verdict(*rest)) for way, name, *rest in lines if rest]
        answered = sum(len(line) > 2 for line in lines)
        if answered < len(self.todo):
            way, name = self.todo[answered]
            if len(lines) > 2 * answered:
                self.found.append(
                    (way, name, Verdict("crash", f"the process died ({self._process.returncode})"))
                )
                answered += 1
            elif not answered:
                raise RuntimeError(
                    f"a process ended before its first program: {self._process.returncode}"
                )
            self.todo = self.todo[answered:]
            if self.todo:
                self._process = self._start()
                return False
        return True


def judged_in_jobs(names: Sequence[str], ways: Sequence[str], jobs: int) -> Found:
    """As :func:`judged`, in several processes; each does all ways for its programs, one way after
    the other.
    """
    began = said = monotonic()
    with tempfile.TemporaryDirectory(prefix="worlds-") as folder:
        shares = [
            _Share(
                Path(folder), number, [(way, name) for way in ways for name in names[number::jobs]]
            )
            for number in range(min(jobs, len(names)))
        ]
        left = list(shares)
        while left:
            sleep(0.1)
            left = [share for share in left if not share.done()]
            if monotonic() - said > 30:
                said = monotonic()
                print(
                    f"  {len(left)} processes at work, {said - began:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    return collected(ways, (each for share in shares for each in share.found))


def collected(ways: Sequence[str], verdicts: Iterator[tuple[str, str, Verdict]]) -> Found:
    """Verdicts by way and program."""
    found: Found = {way: {} for way in ways}
    for way, name, verdict in verdicts:
        found[way][name] = verdict
    return found


def table(programs: Sequence[Program], found: Found) -> str:
    """Class, programs, and how many came to which outcome, for each way, as Markdown."""
    seen = {verdict.outcome for verdicts in found.values() for verdict in verdicts.values()}
    outcomes = [outcome for outcome in OUTCOMES if outcome in seen or outcome in _ALWAYS]
    heads = [f"{name} {outcome}" for name in found for outcome in outcomes]
    lines = ["| class | programs | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for kind in [*sorted({each.kind for each in programs}, key=_number), ""]:
        members = [each for each in programs if kind in ("", each.kind)]
        counts = [
            Counter(verdicts[str(each)].outcome for each in members) for verdicts in found.values()
        ]
        cells = [str(count[outcome]) for count in counts for outcome in outcomes]
        lines.append(f"| {kind or 'all'} | {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bad_ones(programs: Sequence[Program], found: Found) -> Iterator[str]:
    """Lines about the programs that are neither right nor refused, way by way."""
    for name, verdicts in found.items():
        yield f"\n{name}, neither right nor refused:"
        for program in programs:
            verdict = verdicts[str(program)]
            if verdict.outcome not in GOOD:
                yield f"  {verdict.outcome:8} {program}: {verdict.detail}"


def _number(kind: str) -> tuple[int, str]:
    return int(kind.split()[0]), kind
