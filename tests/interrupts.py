"""An interrupt at a step of some code, by its number, and the world that it must leave as it was.

Python delivers a signal where a function begins and where a call of C's has returned: there the
interrupt is raised.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.tracing import capture

ENTERED = (
    *(
        "contextlib",
        "torch.utils._python_dispatch",
        "torch.utils._contextlib",
        "torch.overrides",
        "torch.autograd",
    ),
    *("torch._dynamo.decorators", "torch._dynamo.eval_frame", "torch._functorch.pyfunctorch"),
)
"""Modules whose functions enter and leave modes."""
_CALLED_BY_C = "symshape.tracing.symbolic."
_OF_MODULES = ("torch", "symshape", "guards", "meta_fns", "sys", "random", "builtins")
_KINDS = (
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.Linear,
)


class Interrupt:
    """Raises KeyboardInterrupt at the step with a number, counted from the start of :meth:`of`.

    Args:
        number: of the step.
        where: how the names of the modules begin whose steps are counted.
    """

    def __init__(self, number: int, where: Sequence[str]) -> None:
        self.left = number
        self._where = tuple(where)

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        """A profile function."""
        if event not in ("call", "c_return") or not str(frame.f_globals.get("__name__")).startswith(
            self._where
        ):
            return
        if _must_not_raise(frame):
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt(f"{event} in {frame.f_code.co_filename}:{frame.f_lineno}")

    def of(self, call: Callable[[], Any]) -> Any:
        """What ``call`` answers, unless it is interrupted."""
        sys.setprofile(self)
        try:
            return call()
        finally:
            sys.setprofile(None)


class OpcodeInterrupt:
    """Raises KeyboardInterrupt before chosen opcodes of some modules, counted from the start of
    :meth:`of`.

    Finer than :class:`Interrupt`: between any two opcodes, in ``finally`` blocks and loops too.

    Args:
        numbers: how many opcodes come before the first interrupt, and how many more before each
            other one.
        where: the names of the modules whose opcodes are counted.
    """

    def __init__(self, numbers: Sequence[int], where: Sequence[str]) -> None:
        self.left = list(numbers)
        self.seen = 0
        self.raised: list[str] = []
        self._where = frozenset(where)

    def _enter(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_globals.get("__name__") not in self._where:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "opcode":
            self.seen += 1
            if self.left and self.left[0] == 0:
                self.left.pop(0)
                self.raised.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                raise KeyboardInterrupt(self.raised[-1])
            if self.left:
                self.left[0] -= 1
        return self._step

    def of(self, call: Callable[[], Any]) -> Any:
        """Return what ``call`` returns, unless it is interrupted."""
        outer = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return call()
        finally:
            sys.settrace(outer)


def steps_of(call: Callable[[], Any], where: Sequence[str]) -> int:
    """How many steps something takes."""
    counting = Interrupt(10**9, where)
    counting.of(call)
    return 10**9 - counting.left


def _must_not_raise(frame: Any) -> bool:
    """Whether torch's C++ called this: some of its functions end the process if an exception passes
    them.
    """
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__" or str(
            frame.f_globals.get("__name__")
        ).startswith(_CALLED_BY_C):
            return True
        frame = frame.f_back
    return False


class World:
    """What everybody shares, as it is now: names in modules and classes, torch's modes and
    switches, random numbers.
    """

    def __init__(self) -> None:
        owners: dict[str, Any] = {
            name: vars(module)
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in _OF_MODULES and hasattr(module, "__dict__")
        }
        owners |= {each.__qualname__: vars(each) for each in _KINDS}
        self.names = {
            (owner, name): value for owner, found in owners.items() for name, value in found.items()
        }
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        functions = torch.overrides._get_current_function_mode_stack()
        self.switches = {
            "modes": [id(each) for each in (*modes, *functions)],
            "gradients": torch.is_grad_enabled(),
            "dtype": torch.get_default_dtype(),
            "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
            "backward's threads": torch._C._is_multithreading_enabled(),
            "collector": gc.isenabled(),
            "profile": sys.getprofile(),
            "keys": (
                str(torch._C._dispatch_tls_local_include_set()),
                str(torch._C._dispatch_tls_local_exclude_set()),
            ),
            "transforms": torch._C._functorch.peek_interpreter_stack(),
            "random numbers": torch.get_rng_state().tolist(),
        }

    def differences(self, before: World) -> list[str]:
        """What is not what it was."""
        missing = object()
        found = [
            f"{owner}.{name}"
            for owner, name in self.names.keys() | before.names.keys()
            if self.names.get((owner, name), missing)
            is not before.names.get((owner, name), missing)
        ]
        return found + [
            each for each, value in self.switches.items() if value != before.switches[each]
        ]


def others_may_trace() -> bool:
    """Whether another thread gets the lock of traces."""
    found: list[bool] = []

    def ask() -> None:
        found.append(capture.tracing_lock.acquire(timeout=60))
        if found[0]:
            capture.tracing_lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]
