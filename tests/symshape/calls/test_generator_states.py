"""Reading the state of a random generator in many threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import pytest
import torch

from symshape.calls.generator_states import state_of

# Four threads, garbage with tensors in it and a collector that is always due: torch's own call
# hangs within a second.
_PROGRAM = """
    import faulthandler, gc, sys, threading, torch
    from symshape.calls.generator_states import state_of

    class Circle: pass

    def seed():
        while not done.is_set():
            torch.default_generator.manual_seed(3)

    def read():
        for _ in range(3000):
            for _ in range(3):
                circle = Circle()
                circle.itself, circle.tensor = circle, torch.ones(2)
            state_of(torch.default_generator)

    faulthandler.dump_traceback_later(60, exit=True)
    gc.set_threshold(7)
    sys.setswitchinterval(1e-5)
    done = threading.Event()
    seeding = [threading.Thread(target=seed, daemon=True) for _ in range(2)]
    reading = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for each in seeding + reading:
        each.start()
    for each in reading:
        each.join()
    done.set()
    print("read")
"""


def test_the_state() -> None:
    generator = torch.Generator().manual_seed(7)
    assert torch.equal(state_of(generator), generator.get_state())
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        state_of(torch.default_generator)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.nightly
def test_threads_that_seed_and_threads_that_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "read\n", done.stderr


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="nothing is collected inside a call of C's there"
)
def test_nothing_is_collected_inside() -> None:
    class Watching(torch.Generator):
        collecting = True

        def get_state(self) -> torch.Tensor:
            Watching.collecting = gc.isenabled()
            return super().get_state()

    state_of(Watching())
    assert not Watching.collecting
    assert gc.isenabled()
