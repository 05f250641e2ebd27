"""A process that compiles beside this one, so that calls go on meanwhile.

A compiler shares much with the rest of its process: the flags of FX and Dynamo, random states, the
device while a graph is captured.  A compiling thread therefore breaks other code (seen: other
functions' ``torch.compile``, captures); a process does not.  The process is started by the first
request, answers in order, and ends after a minute without work, or with this process.  On CUDA it
has a context of its own on the device (some 500 MB) while it lives.
"""

from __future__ import annotations

import atexit
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from symshape import forks
from symshape.errors import Reason, UnsupportedError
from symshape.runtime.runners.inductor.compile_request import Request
from symshape.runtime.runners.inductor.compile_worker import Answer, Conditions, read, write

__all__ = ["CompileProcess", "shared"]

Told = Callable[[Answer], None]
"""A callback for the answer, run in a thread of its own: it has to be quick."""

_DEATHS = 3  # processes that died in a request; then no other is started, as it would die too


class CompileProcess:
    """The compiling process, started when needed.

    Args:
        command: the Python code that the process runs; for tests.
    """

    def __init__(self, command: str = f"from {read.__module__} import main; main()") -> None:
        self._command = command
        self._lock = forks.lock()
        self._running: _Running | None = None
        self._deaths = 0
        self._number = 0

    def ask(self, request: Request, told: Told) -> None:
        """Send a request; ``told`` is called with its answer.

        Raises:
            UnsupportedError: the request cannot be sent, or the process cannot be started.
        """
        content, conditions = request.packed(), Conditions.present()
        with self._lock:
            self._number += 1
            running = self._started()
            running.told[self._number] = told
            running.asked.put((self._number, conditions, content))

    def stop(self) -> None:
        """Kill the process; open requests are not answered."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None and running.owner == os.getpid():
            running.told.clear()
            running.process.kill()
            running.process.wait()

    def _started(self) -> _Running:
        running = self._running
        if running is not None and running.owner == os.getpid() and running.process.poll() is None:
            return running
        if self._deaths >= _DEATHS:
            raise UnsupportedError(
                f"the process that compiles has ended {_DEATHS} times in the middle of a request",
                reason=Reason.INSTALLATION,
            )
        if not sys.executable:
            raise UnsupportedError(
                "no Python process can be started to compile in, since sys.executable is empty",
                reason=Reason.INSTALLATION,
            )
        paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", self._command],
                env={**os.environ, "PYTHONPATH": paths},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        except OSError as error:
            raise UnsupportedError(
                f"the process that compiles cannot be started: {error}", reason=Reason.INSTALLATION
            ) from error
        self._running = running = _Running(process)
        for work in (running.speak, partial(self._listen, running)):
            threading.Thread(
                target=work, daemon=True, name="symshape: what is compiled elsewhere"
            ).start()
        return running

    def _listen(self, running: _Running) -> None:
        with suppress(Exception):  # after any malformed answer the process is given up
            while True:
                answer = read(running.output)
                if answer.number is None:
                    self._let_go(running)
                    continue
                told = running.told.pop(answer.number, None)
                if told is not None:
                    told(answer)
        self._ended(running)

    def _let_go(self, running: _Running) -> None:
        """Let an idle process end."""
        with self._lock:
            if not running.told and self._running is running:
                self._running = None
                running.asked.put(None)

    def _ended(self, running: _Running) -> None:
        running.asked.put(None)
        running.output.close()
        running.process.kill()
        code = running.process.wait()
        with self._lock:
            if self._running is running:
                self._running = None
            left = dict(running.told)
            running.told.clear()
            self._deaths += bool(left)
        for number, told in left.items():
            told(Answer(number, reason=f"the process that compiles ended with code {code}"))


class _Running:
    """A running process, with the callbacks of its open requests."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.input: Any = process.stdin
        self.output: Any = process.stdout
        self.owner = os.getpid()
        self.told: dict[int, Told] = {}
        self.asked: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def speak(self) -> None:
        """Send the requests: in a thread, since the process reads only once it has imported
        torch.
        """
        with suppress(OSError), self.input:
            while (request := self.asked.get()) is not None:
                write(self.input, request)


shared = CompileProcess()
"""The compiling process that all of this process shares."""

atexit.register(shared.stop)
