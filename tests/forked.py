"""Programs in processes of their own that need not import torch again: forks of one process that
has imported it.

What most programs of this project import takes longer than the smallest work of many of them. A
fork begins with the modules imported, with nothing traced, asked or compiled, and with no thread
but one; it ends as any process does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType

from tests.discovery import REPOSITORY

IMPORTED = (
    "torch",
    "torch._dynamo",
    "z3",
    "sympy",
    "transformers",
    "symshape",
    "tests.bench.run",
    "tests.fuzz.run",
)


class Forks:
    """Runs ``python -m MODULE ARGUMENTS`` as forks of one process, which starts here and ends with
    the context.
    """

    def __enter__(self) -> Forks:
        command = [sys.executable, "-m", "tests.forked"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(
        self, module: str, arguments: Sequence[str], *, said: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """The end of one run. What it prints goes to files named after ``said``, and comes back.

        A run that takes longer than ``timeout`` seconds is killed, and its exit status is that of
        the signal.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = [said.with_suffix(end) for end in (".out", ".err")]
        for file in files:
            file.write_bytes(b"")
        words = [module, *arguments]
        self._process.stdin.write(
            json.dumps([words, [str(file) for file in files], timeout]) + "\n"
        )
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(
            words, status, *(file.read_text(errors="replace") for file in files)
        )


def main() -> None:
    """Serves requests, one a line, until there are no more; answers each with an exit status."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        words, files, timeout = json.loads(line)
        child = os.fork()
        if child == 0:
            become(words, files)
            return
        print(status_of(child, timeout), flush=True)


def become(words: Sequence[str], files: Sequence[str]) -> None:
    """Goes on as ``python -m`` with these words, without the input of this process and with files
    for what is said.
    """
    with ExitStack() as opened:
        streams = [opened.enter_context(open(os.devnull, "rb"))]
        streams += [opened.enter_context(open(file, "wb")) for file in files]
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = [*words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def status_of(child: int, timeout: float) -> int:
    """How a child ended: its exit status, or less than 0 the signal that killed it."""
    end = monotonic() + timeout
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if monotonic() > end:
            os.kill(child, signal.SIGKILL)
        sleep(0.02)


if __name__ == "__main__":
    main()
