"""Programs that fork, for tests: ``python -m tests.symshape.forking_programs NAME``.

Each prints how its children ended.  A child that hangs ends with the signal of its alarm.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from operator import methodcaller
from typing import Any

import torch

_on_return = ctypes.c_int(0)
"""A signal that comes after a fork, just before this package's locks are let go, which is
registered later.
"""
os.register_at_fork(after_in_parent=partial(ctypes.CDLL(None)["raise"], _on_return))

import symshape  # noqa: E402
from symshape import forks  # noqa: E402
from symshape.tracing import capture  # noqa: E402
from symshape.tracing.state.undo import side_effects  # noqa: E402

_SECONDS = 30  # in which a child has to end


class _Model(torch.nn.Module):
    """Without gradients, products of matrices or random numbers in its calls: torch has locks of
    its own there.

    A fork does not wait for those.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4), requires_grad=False)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x * self.weight) * self.scale
        return y if x.shape[0] > 3 else y + 1


def _forked(work: Callable[[], object]) -> int:
    """The process number of a fork that does this work and ends with 0 unless it raises."""
    child = os.fork()
    if child:
        return child
    signal.alarm(_SECONDS)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _right(fn: Any, model: Callable[..., Any], rows: int) -> None:
    # a child has the lock of torch's generator as it was
    x = torch.linspace(-1.0, 2.0, rows * 4).view(rows, 4)
    torch.testing.assert_close(fn(x), model(x))


def in_the_midst_of_a_trace() -> dict[str, Any]:
    """A thread traces and has the world in its hands when the main one forks."""
    model = _Model()
    known, new = (
        symshape.compile(model, dynamic=True),
        symshape.compile(_Model(), dynamic=True, fullgraph=True),
    )
    _right(known, model, 5)
    before = gc.get_threshold(), _Model.forward.__code__, torch.compiler._is_compiling_flag
    amid, undo = threading.Event(), side_effects.undo

    def slowly(recorder: Any) -> Any:
        amid.set()
        time.sleep(1.0)
        return undo(recorder)

    def child() -> None:
        assert (
            gc.get_threshold(),
            _Model.forward.__code__,
            torch.compiler._is_compiling_flag,
        ) == before
        assert not torch.overrides._get_current_function_mode_stack()
        for rows in (6, 2):
            _right(known, model, rows)
            _right(new, symshape.compiled_of(new).fn, rows)
        assert symshape.compiled_of(new).stats().traces == 2

    side_effects.undo = slowly
    tracing = threading.Thread(target=_right, args=(new, symshape.compiled_of(new).fn, 7))
    tracing.start()
    amid.wait()
    assert gc.get_threshold() != before[0]  # or there was nothing to wait for
    side_effects.undo = undo
    status = _ended(_forked(child))
    tracing.join()
    return {"statuses": [status]}


def while_threads_trace_and_reset() -> dict[str, Any]:
    """Twelve threads trace, hit, and reset; forks come at any moment, from two threads at once."""
    model = _Model()
    fn = symshape.compiled_of(symshape.compile(model, dynamic=True))
    padded = symshape.compiled_of(symshape.compile(model, dynamic=True, runner="padded"))
    ends, problems, statuses = threading.Event(), list[str](), list[int]()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not ends.is_set():
                _right(rng.choice((fn, padded)), model, rng.randrange(1, 9))
                if rng.random() < 0.1:
                    rng.choice((fn, padded)).reset()
                if rng.random() < 0.1:
                    symshape.compile(lambda x: x * 2)(torch.ones(3))
        except BaseException:
            problems.append(traceback.format_exc())

    def child() -> None:
        for rows in (2, 5, 9):
            _right(fn, model, rows)
            _right(padded, model, rows)
            assert torch.equal(
                symshape.compile(lambda x: x * 2)(torch.ones(rows)), torch.full((rows,), 2.0)
            )
        fn.reset()
        assert gc.get_threshold() == before

    def fork() -> None:
        rng = random.Random(7)
        for _ in range(12):
            time.sleep(rng.random() / 20)
            statuses.append(_ended(_forked(child)))

    _right(fn, model, 3)
    before = gc.get_threshold()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
    forking = [threading.Thread(target=fork) for _ in range(2)]
    for each in (*threads, *forking):
        each.start()
    for each in forking:
        each.join()
    ends.set()
    for each in threads:
        each.join()
    return {"statuses": statuses, "problems": problems}


class _Slow:
    @forks.cached_property
    def value(self) -> int:
        time.sleep(1.0)
        return 7


def while_a_thread_computes_a_property() -> dict[str, Any]:
    """Before Python 3.12, a ``functools.cached_property`` has a lock of its class."""
    computing = threading.Thread(target=lambda: _Slow().value)
    computing.start()
    status = _ended(_forked(lambda: _Slow().value))
    computing.join()
    one = _Slow()
    assert one.value == 7
    assert one.__dict__ == {"value": 7}
    return {"statuses": [status]}


def while_another_waits_for_the_fork() -> dict[str, Any]:
    """What holds the lock of traces waits for the forking thread: the fork gives up, and its child
    gets new locks.
    """
    forks.LONGEST = 0.5
    model = _Model()
    fn = symshape.compile(model, dynamic=True)
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with capture.tracing_lock:
            held.set()
            forked.wait(_SECONDS)

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    child = _forked(lambda: _right(fn, model, 3))
    forked.set()
    holding.join()
    _right(fn, model, 3)  # and in this process nothing stayed taken
    return {"statuses": [_ended(child)]}


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _are_free(locks: list[Any]) -> bool:
    done = threading.Event()

    def all_free() -> None:
        taken = list(takewhile(methodcaller("acquire", blocking=False), locks))
        for each in taken:
            each.release()
        if len(taken) == len(locks):
            done.set()

    other = threading.Thread(target=all_free)
    other.start()
    other.join()
    return done.is_set()


def with_an_interrupt() -> dict[str, Any]:
    """Signals whose handler raises come while a fork waits: whatever it had taken by then it lets
    go.
    """
    statuses: list[int] = []
    locks = [forks.lock() for _ in range(20_000)]
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGALRM, _stop)
    for n in range(40):
        signal.setitimer(signal.ITIMER_REAL, 0.001 + n * 0.0005)
        try:
            child = os.fork()
            if child == 0:
                os._exit(0)
            statuses.append(_ended(child))
            time.sleep(0.03)
        except KeyboardInterrupt:
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)

    return {"statuses": statuses, "problems": [] if _are_free(locks) else ["locks stayed taken"]}


def with_an_interrupt_on_return() -> dict[str, Any]:
    """A signal whose handler raises comes when the system has forked and all locks are still
    taken.
    """
    locks = [forks.lock() for _ in range(10)]
    statuses, problems = list[int](), list[str]()
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGALRM, _stop)
    for turn in range(3):
        _on_return.value = signal.SIGALRM
        child = None
        try:
            child = os.fork()
            if child == 0:
                os._exit(0)
        except KeyboardInterrupt:
            problems += [] if child is None else [f"fork {turn} was told of late"]
        _on_return.value = 0
        statuses.append(os.waitstatus_to_exitcode(os.wait()[1]))
        problems += [] if _are_free(locks) else [f"locks stayed taken by fork {turn}"]
    return {"statuses": statuses, "problems": problems}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(globals()[sys.argv[1]]()), flush=True)
