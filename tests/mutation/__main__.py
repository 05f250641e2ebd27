"""Changes one thing in a module and asks whether a test notices: ``make mutation`` (see README.md
beside this file).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import attrs

from tests.mutation.sampling import Mutant, sample

HERE = Path(__file__).resolve().parent
COPIED = ("guards", "meta_fns", "symshape", "tests", "pyproject.toml", "README.md")
SURVIVED, KILLED, TIMED_OUT = "survived", "killed", "timed out"


@attrs.frozen
class Target:
    """Modules that are mutated together, and the tests that should notice.

    Attributes:
        name: what it is called on the command line.
        modules: patterns of their paths.
        tests: patterns of test files, and flags of pytest; a module's namesake among the tests
            comes first by itself.
        share: how many times ``--count`` mutants it gets.
    """

    name: str
    modules: tuple[str, ...] = attrs.field(converter=tuple)
    tests: tuple[str, ...] = attrs.field(converter=tuple)
    share: int = 1

    def tests_of(self, root: Path, module: str) -> tuple[str, ...]:
        """What pytest is given for a mutant of one module.

        Raises: SystemExit where a pattern matches no file.
        """
        path = Path(module)
        found = [str(Path("tests", path.parent, f"test_{path.name}"))]
        found = [each for each in found if (root / each).exists()]
        for pattern in self.tests:
            if not pattern.startswith("tests/"):
                found.append(pattern)
                continue
            matching = [str(each.relative_to(root)) for each in sorted(root.glob(pattern))]
            if not matching:
                raise SystemExit(f"targets.toml: {self.name}: there is no {pattern}")
            found += matching
        return tuple(dict.fromkeys(found))


def targets(path: Path = HERE / "targets.toml") -> list[Target]:
    """What is mutated, in the order of the file."""
    return [Target(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["target"]]


def equivalents(path: Path = HERE / "equivalent.toml") -> dict[tuple[str, str, str], str]:
    """Why a change of a module, ``(path, was, became)``, is no mutant that a test should kill."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return {(row["path"], row["was"], row["became"]): row["why"] for row in rows}


def reason_to_survive(path: str, diff: str, known: dict[tuple[str, str, str], str]) -> str | None:
    """Why a mutant of one line is known to make no difference; None where it may make one."""
    lines = [line[1:].strip() for line in diff.splitlines()]
    return known.get((path, *lines)) if len(lines) == 2 else None


class Workplace:
    """A copy of the tree in which modules are changed and tests run, interpreted, one at a time."""

    def __init__(self, source: Path, python: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="symshape-mutation-"))
        self.python = python
        for name in COPIED:
            if (source / name).is_dir():
                hidden = shutil.ignore_patterns("__pycache__", "*.so", ".hypothesis")
                shutil.copytree(source / name, self.root / name, ignore=hidden)
            else:
                shutil.copy(source / name, self.root / name)

    def tests_pass(self, tests: Sequence[str], seconds: float) -> bool | None:
        """Whether the tests pass; None where they took longer than ``seconds``."""
        flags = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not nightly"]
        command = [str(self.python), "-m", "pytest", *flags, *tests]
        told = {"SYMSHAPE_INTERPRETED": "1", "HYPOTHESIS_PROFILE": "ci", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env={**os.environ, **told},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
        if process.returncode in (4, 5):  # a wrong path or no test: nothing that a mutant does
            raise SystemExit(f"no tests ran: {' '.join(command)}\n{output[-2000:]}")
        return process.returncode == 0

    def outcome(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> str:
        """What becomes of a mutant; the module is as it was afterwards."""
        path = self.root / mutant.path
        original = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.source)
            passed = self.tests_pass(tests, seconds)
        finally:
            self._write(path, original)
        return TIMED_OUT if passed is None else SURVIVED if passed else KILLED

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        # a twin as long and as old would pass for it
        Path(cache_from_source(path)).unlink(missing_ok=True)

    def close(self) -> None:
        """Removes the copy."""
        shutil.rmtree(self.root, ignore_errors=True)


def mutants(root: Path, target: Target, count: int, seed: int) -> Iterator[Mutant]:
    """``count`` mutants of a target, shared out among its modules by their length."""
    rng = random.Random(f"{seed} {target.name}")
    paths = [
        str(path.relative_to(root))
        for pattern in target.modules
        for path in sorted(root.glob(pattern))
    ]
    if not paths:
        raise SystemExit(f"targets.toml: {target.name}: there is no {', '.join(target.modules)}")
    lengths = [(root / path).read_text(encoding="utf-8").count("\n") for path in paths]
    shares = Counter(rng.choices(paths, lengths, k=count))
    drawn = [mutant for path in paths for mutant in sample(root, path, shares[path], rng)]
    rng.shuffle(drawn)
    yield from drawn


def main(argv: Sequence[str] | None = None) -> int:
    """Samples, runs, and writes the score as JSON; 0 unless nothing could be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", help="targets (all)")
    parser.add_argument("--count", type=int, default=8, help="mutants a target (8)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--seconds", type=float, default=1500, help="no new mutant is begun after so long (1500)"
    )
    parser.add_argument(
        "--root", type=Path, default=HERE.parents[1], help="the tree to be tested (this one)"
    )
    parser.add_argument("--targets", type=Path, default=HERE / "targets.toml")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the Python that runs the tests"
    )
    parser.add_argument("--write", type=Path, help="where the JSON goes (it is printed otherwise)")
    asked = parser.parse_args(argv)
    chosen = [
        target for target in targets(asked.targets) if not asked.names or target.name in asked.names
    ]
    began = time.monotonic()
    workplace = Workplace(asked.root.resolve(), asked.python.absolute())
    try:
        rows = _run(workplace, chosen, asked, began)
    finally:
        workplace.close()
    if not rows:
        raise SystemExit("no mutant was run")
    report = _report(rows, asked)
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")
    print(
        text
        if not asked.write
        else f"{report['killed']} of {report['mutants']} killed: {asked.write}"
    )
    return 0


def _run(
    workplace: Workplace, chosen: list[Target], asked: argparse.Namespace, began: float
) -> list[tuple[Target, Mutant, str]]:
    """One mutant of each target in turn, so that a run cut short has seen them all."""
    rows: list[tuple[Target, Mutant, str]] = []
    limits: dict[tuple[str, ...], float] = {}
    drawn = {
        target.name: list(mutants(workplace.root, target, target.share * asked.count, asked.seed))
        for target in chosen
    }
    while any(drawn.values()):
        for target in chosen:
            for mutant in [
                drawn[target.name].pop() for _ in range(target.share) if drawn[target.name]
            ]:
                if time.monotonic() - began > asked.seconds:
                    return rows
                tests = target.tests_of(workplace.root, mutant.path)
                if tests not in limits:
                    start = time.monotonic()
                    if not workplace.tests_pass(tests, 600):
                        raise SystemExit(
                            f"{mutant.path}: its tests fail without any mutant: {' '.join(tests)}"
                        )
                    limits[tests] = 20 + 2.5 * (time.monotonic() - start)
                outcome = workplace.outcome(mutant, tests, limits[tests])
                rows.append((target, mutant, outcome))
                print(
                    f"{outcome:9} {mutant.path}:{mutant.line} {mutant.operator}\n{mutant.diff}",
                    file=sys.stderr,
                )
    return rows


def _report(rows: list[tuple[Target, Mutant, str]], asked: argparse.Namespace) -> dict[str, Any]:
    def counted(some: list[tuple[Target, Mutant, str]]) -> dict[str, Any]:
        found = Counter(outcome for _, _, outcome in some)
        killed = found[KILLED] + found[TIMED_OUT]  # a test that never ends is noticed
        return {"mutants": len(some), "killed": killed, "score": round(killed / len(some), 3)}

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=asked.root,
        capture_output=True,
        text=True,
        check=False,
    )
    known = equivalents()
    survivors = [
        {"at": f"{mutant.path}:{mutant.line}", "operator": mutant.operator, "diff": mutant.diff}
        | (
            {"equivalent": why}
            if (why := reason_to_survive(mutant.path, mutant.diff, known))
            else {}
        )
        for _, mutant, outcome in rows
        if outcome == SURVIVED
    ]
    names = dict.fromkeys(target.name for target, _, _ in rows)
    paths = sorted({mutant.path for _, mutant, _ in rows})
    return {
        "tool": f"cosmic-ray {version('cosmic-ray')}, Python {platform.python_version()}",
        "commit": commit.stdout.strip(),
        "seed": asked.seed,
        "count": asked.count,
        **counted(rows),
        "equivalent": sum("equivalent" in survivor for survivor in survivors),
        "targets": {name: counted([row for row in rows if row[0].name == name]) for name in names},
        "modules": {path: counted([row for row in rows if row[1].path == path]) for path in paths},
        "survivors": survivors,
    }


if __name__ == "__main__":
    sys.exit(main())
