"""What a signal's handler raises in a first call goes to the caller, and the function is traced by
the next one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.interrupts import PatientHandlers, interrupt_in
from symshape.runtime.runners.inductor.artefacts import Artefacts
from symshape.tracing import run
from symshape.tracing.global_state import Surroundings
from symshape.tracing.intercept.python_numbers import builtins
from tests.discovery import REPOSITORY

if not hasattr(signal, "setitimer"):
    pytest.skip("this system has no alarms", allow_module_level=True)


class _Late(TimeoutError):
    pass


def _handler(number: int, frame: Any) -> None:
    raise _Late


class _Handlers:
    def method(self, number: int, frame: Any) -> None:
        raise _Late

    def __call__(self, number: int, frame: Any) -> None:
        raise _Late


def _partial(text: str, number: int, frame: Any) -> None:
    raise _Late(text)


HANDLERS = [_handler, _Handlers().method, _Handlers(), partial(_partial, "late")]


def _program(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 2) * 2 + 1


@pytest.fixture(params=HANDLERS, ids=["function", "method", "object", "partial"])
def handler(request: pytest.FixtureRequest) -> Any:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("amid", ["histories", "outputs_of"])
def test_an_alarm_in_a_trace(
    handler: Any, fullgraph: bool, amid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all is as a trace has it, and when that has been put back."""
    original = getattr(run, amid)

    def rings(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return original(*args)

    fn = symshape.compile(_program, dynamic=True, fullgraph=fullgraph)
    state = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(run, amid, rings)
        with pytest.raises(_Late):
            fn(torch.ones(6))
    assert torch.equal(torch.get_rng_state(), state)
    for n in (4, 8):
        assert torch.equal(fn(torch.ones(n)), _program(torch.ones(n)))
    stats = fn.stats()
    assert (stats.traces, stats.fallbacks, stats.refusals) == (1, 0, 0)


def test_an_alarm_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, _handler)
    try:
        fn = symshape.compile(lambda x: x * 2 + 1, dynamic=True, runner="inductor")
        with monkeypatch.context() as patch:
            patch.setattr(Artefacts, "_compile", late)
            with pytest.raises(_Late):
                fn(torch.ones(5))
    finally:
        signal.signal(signal.SIGUSR1, before)
    asked: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(Artefacts, "_compile", lambda *_: asked.append(1) or _no_compiler())
        assert torch.equal(fn(torch.ones(5)), torch.full((5,), 3.0))
    assert asked  # it was not given up


def _no_compiler() -> Any:
    raise RuntimeError("none here")


def test_what_came_of_it(handler: Any) -> None:
    with pytest.raises(RuntimeError) as found:
        _gives_up()
    assert type(interrupt_in(found.value)) is _Late
    assert interrupt_in(_Late()) is None


def _gives_up() -> None:
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    except _Late as late:
        raise RuntimeError("it took too long") from late


def test_whom_ids_are_refused_for_is_put_back() -> None:
    around, before = Surroundings(), builtins._stand_ins
    builtins._stand_ins = {1, 2}
    around.put_back(KeyboardInterrupt())
    assert builtins._stand_ins is before


# -- C++ asks for sizes, and ends the process if the answer is an exception ------------------------

WHILE_ASKED = """
import os, signal, sys, torch, symshape
from symshape.tracing import mode
from symshape.tracing.symbolic import tensors

class Late(BaseException):  # Dynamo wraps others
    pass

def handler(number, frame):
    raise Late

signal.signal(signal.SIGUSR1, handler)
asked, rings = 0, 0

def ring():
    global asked
    asked += 1
    if asked == rings:
        os.kill(os.getpid(), signal.SIGUSR1)

def rung(original):
    def answer(*args, **kwargs):
        ring()
        return original(*args, **kwargs)
    return answer

if sys.argv[1] == "metadata":
    mode._metadata.update({op: rung(answer) for op, answer in mode._metadata.items()})
else:
    tensors.__dict__.update(ring=ring, rung=None)
    exec("def answer(self, *args, before=SymbolicTensor.__setattr__): ring(); before(self, *args)",
         vars(tensors))
    tensors.SymbolicTensor.__setattr__ = tensors.answer
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
late = 0
for rings in range(1, 60):
    if sys.argv[2] == "compile":
        compiled = symshape.compile(model, dynamic=True)
    else:
        torch._dynamo.reset()
        model.requires_grad_(False)
        compiled = torch.compile(model, backend="symshape", dynamic=True)
    asked = 0
    try:
        compiled(torch.ones(3, 4))
    except Late:
        late += 1
    asked = 1000
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert torch.equal(compiled(torch.ones(5, 4)), model(torch.ones(5, 4)))
    if sys.argv[2] == "compile":
        assert compiled.stats().fallbacks == 0
print("late", late)
"""


@pytest.mark.parametrize(
    ("asked", "way"), [("metadata", "compile"), ("attributes", "compile"), ("metadata", "backend")]
)
def test_an_alarm_while_cpp_asks(asked: str, way: str, tmp_path: Path) -> None:
    """The process lives, the caller gets the alarm, and no state of the trace is left."""
    program = tmp_path / "program.py"
    program.write_text(WHILE_ASKED)
    ran = subprocess.run(
        [sys.executable, str(program), asked, way],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[1]) >= 2


@pytest.fixture
def rings(handler: Any) -> Any:
    return lambda: os.kill(os.getpid(), signal.SIGUSR1)


def _held(must_wait: Any, *body: Any) -> list[int]:
    """The steps of a body that ended before the handler's exception left the context."""
    ended: list[int] = []
    with pytest.raises(_Late), PatientHandlers(must_wait):
        _run(body, ended)
    return ended


def _run(body: Any, ended: list[int]) -> None:
    for number, step in enumerate(body):
        step()
        ended.append(number)


def test_a_handler_waits_until_the_end_at_most(rings: Any) -> None:
    assert _held(lambda frame: True, rings, rings) == [0, 1]


def test_a_handler_that_need_not_wait(rings: Any) -> None:
    assert _held(lambda frame: False, rings) == []


def test_a_handler_runs_when_it_may(rings: Any) -> None:
    waits, never = [True], threading.Event()
    assert _held(lambda frame: bool(waits), rings, waits.pop, partial(never.wait, 60)) == [0, 1]


def test_handlers_are_those_from_before(handler: Any) -> None:
    with PatientHandlers(lambda frame: False):
        assert signal.getsignal(signal.SIGUSR1) is not handler
        with PatientHandlers(lambda frame: False):
            pass
        assert signal.getsignal(signal.SIGUSR1) is not handler
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_handler_that_the_program_sets_stays(handler: Any) -> None:
    def another(number: int, frame: Any) -> None:
        pass

    with PatientHandlers(lambda frame: False):
        signal.signal(signal.SIGUSR1, another)
    assert signal.getsignal(signal.SIGUSR1) is another


def test_other_threads_leave_handlers_alone(handler: Any) -> None:
    found: list[Any] = []

    def trace() -> None:
        with PatientHandlers(lambda frame: False):
            found.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=trace)
    thread.start()
    thread.join()
    assert found == [handler]
