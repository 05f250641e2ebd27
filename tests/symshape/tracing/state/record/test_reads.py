"""What a recording notes is the same in Python and in C++, and what is built in C++ refuses what it
cannot be.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.tracing.state import compiled
from symshape.tracing.state.instrument import hooks
from symshape.tracing.state.instrument.hooks import recorder_of, recording
from symshape.tracing.state.record.places import MISSING
from symshape.tracing.state.record.recorder import Recorder
from tests.symshape.tracing.state import noting

ROOT = Path(__file__).parents[5]
needs_compiled = pytest.mark.skipif(compiled.READS is None, reason="compiled_reads is not built")


def _noted(how: str) -> list[list[str]]:
    command = [sys.executable, "-m", "tests.symshape.tracing.state.noting", how]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: list[list[str]] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@needs_compiled
def test_the_same_is_noted_in_python_and_in_c() -> None:
    in_python, in_c = _noted("python"), _noted("compiled")
    assert len(in_python) == 2 * len(noting.PROGRAMS)
    for one, other in zip(in_python, in_c, strict=True):
        assert one == other
    assert sum(map(len, in_python)) > 500


@needs_compiled
@pytest.mark.parametrize(
    "wrong", [{"missing": 1, "other": 2}, {"tables": []}, {"quiet": ()}, {"cell": 3}, {}]
)
def test_set_up_with_something_else_is_an_error(wrong: dict[str, Any]) -> None:
    if not wrong:
        with pytest.raises(TypeError):
            compiled.READS.setup(1)
        return
    with pytest.raises(TypeError):
        compiled.READS.setup(**wrong)
    recorder = recorder_of(len)  # nothing was taken of it
    recorder.entry({}, "a", "a", recorder.namespace("", {}))
    assert [each.value for each in recorder.places] == [MISSING]


@pytest.mark.slow
@needs_compiled
def test_before_it_is_set_up_nothing_runs() -> None:
    program = (
        "import importlib.util, sys\n"
        "from symshape.tracing.state import compiled\n"
        "spec = importlib.util.find_spec('symshape.tracing.state.compiled_reads')\n"
        "reads = compiled.READS\n"
        "for call in (lambda: reads.Reads(), lambda: reads.load_attr(1, 'real'), lambda: "
        "reads.load_global('len'),\n"
        "             lambda: reads.of_object(1, 2, 3)):\n"
        "    try:\n        call()\n    except RuntimeError as error:\n        print(error)\n"
    )
    bare = (
        "import sys, types\n"
        "for name in ('symshape', 'symshape.tracing', 'symshape.tracing.state'):\n"
        "    made = types.ModuleType(name)\n"
        "    made.__path__ = [name.replace('.', '/')]\n"
        "    sys.modules[name] = made\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", bare + program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["compiled_reads is not set up"] * 4


def test_outside_of_a_recording_a_load_is_a_load() -> None:
    load_attr, load_global = hooks.HOOKS.load_attr, hooks.HOOKS.load_global
    assert load_attr(3, "real") == 3
    assert load_global("ROOT") is ROOT
    assert load_global("len") is len
    with pytest.raises(AttributeError, match="nothing"):
        load_attr(3, "nothing")
    with pytest.raises(NameError, match="name 'nothing' is not defined") as caught:
        load_global("nothing")
    assert caught.value.name == "nothing"


def test_another_thread_is_not_recorded() -> None:
    def read() -> None:
        hooks.HOOKS.load_attr(noting.THING, "plain")

    recorder = recorder_of(lambda: None)
    with recording(recorder):
        before = len(recorder.seen)
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        assert len(recorder.seen) == before
        # of a class that nobody touched: nothing is known of it
        hooks.HOOKS.load_attr(noting.THING, "plain")
        recorder.touch(noting.THING, "THING")
        hooks.HOOKS.load_attr(noting.THING, "plain")
        assert len(recorder.seen) > before
        assert not recorder.busy


def test_an_error_while_something_is_noted_leaves_the_recording_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: Recorder, value: Any, name: str) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Recorder, "touch_made", fail)
    recorder = recorder_of(lambda: None)
    with recording(recorder):
        recorder.touch(noting.SPACE, "SPACE")
        noting.SPACE.a = 2
        try:
            with pytest.raises(RuntimeError, match="out of order"):
                hooks.HOOKS.load_attr(noting.SPACE, "a")
        finally:
            noting.SPACE.a = 1
        assert not recorder.busy


def test_a_recording_in_a_cycle_goes() -> None:
    recorder = recorder_of(lambda: None)
    recorder.known[0] = recorder
    gone = weakref.ref(recorder)
    del recorder
    gc.collect()
    assert gone() is None


class _Deaf:
    """Watches dictionaries, and is told nothing of attributes: as on Python 3.13."""

    def __init__(self, dicts: tuple[dict[str, Any], ...]) -> None:
        self._before = tuple(map(len, dicts))

    def unchanged(self, _: None) -> bool:
        return True


def test_a_watch_that_sees_no_attributes_is_not_used() -> None:
    assert not compiled._sees_attributes(_Deaf)
    assert compiled.VERSIONS is None or compiled._sees_attributes(compiled.VERSIONS)


def test_a_write_to_attributes_is_seen_on_every_python() -> None:
    class Thing:
        count = 0

    thing = Thing()

    def fn(x: torch.Tensor) -> torch.Tensor:
        thing.count = 7
        return x + 1

    program = symshape.compile(fn, fullgraph=True)
    for n in (3, 4, 4):
        thing.count = n
        program(torch.ones(n))
        assert thing.count == 7
