"""What a signal's handler raises in a first call goes to the caller, and the function is traced by
the next one.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest
import torch

import symshape
from symshape.interrupts import interrupt_in
from symshape.runtime.runners.inductor.artefacts import Artefacts
from symshape.tracing import capture, run
from symshape.tracing.global_state import Surroundings
from symshape.tracing.intercept.python_numbers import builtins

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
@pytest.mark.parametrize(("module", "amid"), [(run, "histories"), (capture, "outputs_of")])
def test_an_alarm_in_a_trace(
    handler: Any, fullgraph: bool, module: Any, amid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all is as a trace has it, and when that has been put back."""
    original = getattr(module, amid)

    def rings(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return original(*args)

    fn = symshape.compile(_program, dynamic=True, fullgraph=fullgraph)
    state = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(module, amid, rings)
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
