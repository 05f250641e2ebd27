"""A process that compiles beside this one: who waits is answered, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.fx

from symshape.errors import UnsupportedError
from symshape.runtime.runners.inductor import compile_process
from symshape.runtime.runners.inductor.code import loaded
from symshape.runtime.runners.inductor.compile_process import CompileProcess
from symshape.runtime.runners.inductor.compile_request import Given, Request
from symshape.runtime.runners.inductor.compile_worker import Answer, Conditions

WORKER = "from symshape.runtime.runners.inductor import compile_worker\n"


@pytest.fixture
def made() -> Iterator[Any]:
    processes: list[CompileProcess] = []

    def make(command: str = WORKER + "compile_worker.main()") -> CompileProcess:
        processes.append(CompileProcess(command))
        return processes[-1]

    yield make
    for each in processes:
        each.stop()


def _request(op: Any = torch.ops.aten.neg.default) -> Request:
    graph = torch.fx.Graph()
    graph.output([graph.call_function(op, (graph.placeholder("x"),))])
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return Request(module, [Given(torch.ones(4, 3), ("v0", "v1"), (True, False))], {})


class Waiter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.told = threading.Event()

    def __call__(self, answer: Answer) -> None:
        self.answer = answer
        self.told.set()

    def wait(self) -> Answer:
        """What it was told."""
        assert self.told.wait(120)
        assert self.answer is not None
        return self.answer


def _asked(process: CompileProcess, op: Any = torch.ops.aten.neg.default) -> Waiter:
    waiter = Waiter()
    process.ask(_request(op), waiter)
    return waiter


@pytest.mark.slow
def test_code_for_other_sizes(made: Any) -> None:
    process = made()
    answers = [
        _asked(process, op).wait()
        for op in (torch.ops.aten.neg.default, torch.ops.aten.abs.default)
    ]
    assert [each.reason for each in answers] == ["", ""]
    for answer, expected in zip(answers, (torch.neg, torch.abs), strict=True):
        assert answer.assumed is not None
        assert "v1 == 3" in answer.assumed
        code = loaded(answer.content)
        for rows in (4, 9):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(code(x)[0], expected(x))


@pytest.mark.slow
def test_a_compiler_that_fails_says_why(made: Any) -> None:
    process = made(
        WORKER + "compile_worker.Conditions.restored = lambda _: 1 / 0\ncompile_worker.main()"
    )
    assert "ZeroDivisionError" in _asked(process).wait().reason


@pytest.mark.slow
def test_flags_that_cannot_be_set_there(made: Any) -> None:
    process = made(
        WORKER + "compile_worker.Conditions.restored = lambda _: False\ncompile_worker.main()"
    )
    assert "flags" in _asked(process).wait().reason


def test_flags_of_this_process_are_set_there() -> None:
    import torch._inductor.config

    before = Conditions.present()
    assert before.restored()
    with torch._inductor.config.patch(
        {"epilogue_fusion": not torch._inductor.config.epilogue_fusion}
    ):
        other = Conditions.present()
        assert other.made_for != before.made_for
        assert before.restored()
        assert Conditions.present().made_for == before.made_for


@pytest.mark.parametrize(
    "command", ["raise SystemExit(3)", "import os; os.write(1, b'no answer at all' * 9)"]
)
def test_a_process_that_ends_is_told_of_and_started_a_few_times(command: str, made: Any) -> None:
    process = made(command)
    for _ in range(3):
        assert "ended with code" in _asked(process).wait().reason
    with pytest.raises(UnsupportedError, match="3 times"):
        _asked(process)


def test_one_that_is_killed_in_the_middle(made: Any) -> None:
    process = made("import time; time.sleep(600)")
    waiter = _asked(process)
    os.kill(process._running.process.pid, signal.SIGKILL)
    assert "ended with code -9" in waiter.wait().reason


@pytest.mark.slow
def test_it_ends_when_there_is_nothing_to_do(made: Any) -> None:
    process = made(WORKER + "compile_worker.IDLE = .2\ncompile_worker.main()")
    assert not _asked(process).wait().reason
    deadline = time.monotonic() + 60
    while process._running is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process._running is None
    assert not _asked(process).wait().reason, "another one is started"


@pytest.mark.slow
def test_it_ends_with_the_process_that_started_it(made: Any) -> None:
    process = made(
        WORKER
        + "import time\ncompile_worker.answer = lambda *_: time.sleep(600)\ncompile_worker.main()"
    )
    _asked(process)
    running = process._running.process
    time.sleep(0.2)
    running.stdin.close()  # as the system does when a process ends, however it does
    assert running.wait(60) == 0


def test_a_python_that_cannot_be_started(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_process.sys, "executable", "/nowhere/python")
    with pytest.raises(UnsupportedError, match="cannot be started"):
        _asked(made())
    monkeypatch.setattr(compile_process.sys, "executable", "")
    with pytest.raises(UnsupportedError, match="no Python process can be started"):
        _asked(made())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_child_of_a_fork_has_one_of_its_own(made: Any) -> None:
    process = made("import time; time.sleep(600)")
    _asked(process)
    first = process._running.process.pid
    child = os.fork()
    if not child:
        code = 1
        try:
            process.stop()  # not the parent's
            _asked(process)
            code = 0 if process._running.process.pid != first else 2
            process.stop()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert process._running.process.poll() is None
