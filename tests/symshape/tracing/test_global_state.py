"""What stands around a trace is put back: modes, patched names, switches, and context managers that
were cut short.

(Interrupts at many steps of a whole trace: ``tests/symshape/store/test_interrupts.py``.)
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import BaseTorchDispatchMode, TorchDispatchMode, _push_mode

from symshape.tracing.global_state import Surroundings
from tests.interrupts import Interrupt, World, steps_of


def test_what_was_left_changed() -> None:
    before = World()
    around = Surroundings()
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.set_autocast_enabled("cpu", True)
    torch.compiler._is_compiling_flag = True
    torch.autograd._engine_run_backward = None  # type: ignore[attr-defined]
    torch.SymInt.__format__ = None  # type: ignore[assignment,method-assign]
    vars(torch.utils.weak)["id"] = None
    gc.disable()
    _push_mode(BaseTorchDispatchMode())
    BaseTorchDispatchMode().__enter__()
    BaseTorchFunctionMode().__enter__()
    assert len(World().differences(before)) > 8
    around.put_back(KeyboardInterrupt())
    assert World().differences(before) == []


def test_a_mode_of_the_caller_comes_back() -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **kwargs or {})

    with Mode(), Mode():
        before = World()
        around = Surroundings()
        torch.utils._python_dispatch._pop_mode()
        torch.utils._python_dispatch._pop_mode()
        Mode().__enter__()
        around.put_back(KeyboardInterrupt())
        assert World().differences(before) == []


def test_a_context_manager_that_was_entered_and_lost_is_ended() -> None:
    told: list[str] = []

    @contextmanager
    def manager() -> Iterator[None]:
        told.append("begun")
        try:
            yield
        finally:
            told.append("ended")

    def use() -> None:
        with manager():
            told.append("inside")

    lost = 0
    for step in range(1, steps_of(use, ["contextlib"]) + 1):
        told.clear()
        around = Surroundings()
        with pytest.raises(KeyboardInterrupt) as found:
            Interrupt(step, ["contextlib"]).of(use)
        lost += told == ["begun"]  # the traceback alone holds it
        around.put_back(found.value)
        assert told.count("begun") == told.count("ended")
    assert lost == 1


def test_another_interrupt_while_it_puts_back() -> None:
    around, told = Surroundings(), list[str]()

    def interrupted() -> None:
        told.append("asked")
        if len(told) == 1:
            raise KeyboardInterrupt

    around.afterwards(lambda: told.append("last"))
    around.afterwards(interrupted)
    with pytest.raises(KeyboardInterrupt):
        around.put_back(ValueError())
    assert told == ["asked", "asked", "last"]
