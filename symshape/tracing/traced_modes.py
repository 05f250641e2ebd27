"""Modes of torch that are different while a function is traced, and while its graph runs."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad

from symshape.calls.modes import Modes
from symshape.errors import Problem, Reason
from symshape.graph.codegen import LateLines, LateRun, Run, StepLines
from symshape.torch_internals import autograd, functorch
from symshape.tracing.intercept.exchanges import exchanged
from symshape.tracing.restart import Restart, after

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiling() -> AbstractContextManager[None]:
    """Return a context in which ``torch.compiler.is_compiling()`` is true: libraries then avoid
    data-dependent shortcuts.
    """
    return exchanged((torch.compiler, "_is_compiling_flag", True))


_DYNAMO = "torch._dynamo"


def without_dynamo() -> AbstractContextManager[object]:
    """Return a context in which functions compiled with ``torch.compile`` run eagerly, so that a
    trace sees their ops.

    Dynamo is told so if it is loaded.  Loading Dynamo takes half a second, and before that it has
    compiled nothing.
    """
    if _DYNAMO in sys.modules:
        return torch.compiler.set_stance("force_eager")  # type: ignore[no-any-return]
    return _before_dynamo()


@contextmanager
def _before_dynamo() -> Iterator[None]:
    """Keep Dynamo from being loaded under a trace's modes: load it outside of the trace, and start
    the trace again.

    Raises:
        Restart: this thread imports Dynamo, or another thread has loaded it within the block.
    """
    wanted = _DynamoWanted()
    sys.meta_path.insert(0, wanted)
    try:
        yield
    finally:
        sys.meta_path.remove(wanted)
    if _DYNAMO in sys.modules:
        raise _to_load()


class _DynamoWanted:
    """An import hook that Python asks first for every module that is loaded."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise ``Restart`` if the traced thread imports Dynamo; else return None: this hook finds
        no module.
        """
        if name == _DYNAMO and threading.get_ident() == self._thread:
            raise _to_load()


def _to_load() -> Restart:
    text = f"needs {_DYNAMO}, which is not loaded while something is traced; import it before"
    return Restart(
        text, after(partial(importlib.import_module, _DYNAMO)), Reason.OTHER_TRACER, prepares=True
    )


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Leave the transforms of ``torch.func`` around a compiled function within the block.

    ``torch.func.grad`` or ``vmap`` then transforms the graph when the graph runs.  Inference mode
    may be on around ``grad``, which switches it off inside.  Without the transform the dispatcher
    would still skip autograd, so inference mode is switched off once more.  (A private name,
    checked on 2.11 to 2.13.)
    """
    from symshape.torch_internals.functorch import (
        interpreters_cleared as temporarily_clear_interpreter_stack,
    )

    transformed = functorch.interpreters() is not None
    with temporarily_clear_interpreter_stack(), ExitStack() as stack:
        if transformed and not torch.is_inference_mode_enabled():
            grad = torch.is_grad_enabled()
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(grad))
        yield


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Switch autocast's cache of casted weights off within the block: a trace neither reads from it
    nor adds to it.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextmanager
def without_saving_hooks() -> Iterator[None]:
    """Remove the saved-tensor hooks around a call within the block, and put them back at its end.

    The hooks see the tensors that the graph saves for autograd, but not the symbolic tensors of the
    trace.  Otherwise a checkpoint around a compiled function would count more tensors during the
    trace than it recomputes.
    """
    saving: Any = autograd.saving
    found: list[tuple[Any, Any]] = []
    while (hooks := saving._top_saved_tensors_default_hooks(True)) is not None:
        found.append(hooks)
        saving._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(found):
            saving._push_saved_tensors_default_hooks(*hooks)


@contextmanager
def nothing_left_entered() -> Iterator[None]:
    """Exit, at the end of the block, the modes that were entered within it and not exited because
    of an error.

    Graphs of Dynamo's enter autocast, ``torch.func``'s transforms and dual levels by one node, and
    exit by another. (An autocast that is never exited keeps casts of weights for ever; private
    names, checked on 2.11 to 2.13.)
    """
    layers, level = functorch.layers(), forward_ad._current_level
    casts, dual = _autocast_depth(), _is_dual()
    try:
        yield
    finally:
        if _is_dual() and not dual:
            autograd.exit_dual_level(level=0)
            forward_ad._current_level = level
        if functorch.layers() > layers:
            functorch.undo_layers_to(layers)
        left = _autocast_depth() - casts
        for _ in range(left):
            torch.autocast_decrement_nesting()
        if left > 0 and not casts:
            torch.clear_autocast_cache()


def _is_dual() -> bool:
    """Return whether a level of forward-mode gradients is entered; torch allows one at most."""
    try:
        level = autograd.enter_dual_level()
    except RuntimeError:
        return True
    autograd.exit_dual_level(level=level)
    return False


def _autocast_depth() -> int:
    """Return the number of autocast contexts that are entered, one in another."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return int(depth)


def _noted_by_torch() -> None:
    """Fill torch's lazily set values before a trace, which would take them for changes by the
    program.

    These are the number of devices and, once Dynamo is loaded, its mark on new modules (2.11 to
    2.13).
    """
    if torch.cuda.is_initialized():
        torch.cuda.device_count()
    marking = sys.modules.get("torch._dynamo.mutation_guard")
    if marking is not None and getattr(torch.nn.Module, "___needs_generation_tag_patch", True):
        # absent while it is being loaded
        install = getattr(marking, "install_generation_tagging_init", None)
        if install is not None:
            install()


@contextmanager
def while_tracing() -> Iterator[None]:
    """All of these modes."""
    _noted_by_torch()
    with (
        compiling(),
        without_dynamo(),
        without_autocast_cache(),
        outside_transforms(),
        without_saving_hooks(),
        nothing_left_entered(),
        torch.autograd.set_multithreading_enabled(False),  # for CUDA's tensors too
    ):
        yield


def with_autocast_off(run: Callable[_P, _R], modes: Modes) -> Callable[_P, _R]:
    """The same, with autocast off where it was on when a program was traced: its casts are in the
    graph.
    """
    if not modes.autocast:
        return run

    def run_without(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with ExitStack() as stack:
            for device, _ in modes.autocast:
                stack.enter_context(torch.autocast(device, enabled=False))
            return run(*args, **kwargs)

    return run_without


def without_autocast(run: Run, modes: Modes) -> Run:
    """The run of a program with autocast off; what is generated is found behind it."""
    run_without = with_autocast_off(run, modes)
    if run_without is not run:
        run_without.__symshape_source__ = run.__symshape_source__  # type: ignore[attr-defined]
        run_without.__wrapped__ = run  # type: ignore[attr-defined]
    return run_without


def as_generated(run: Run) -> Run:
    """Return the generated function of a program's graph, without the wrapper of
    :func:`without_autocast`.
    """
    found: Run = getattr(run, "__wrapped__", run)
    return found


def lines_of(run: Run) -> StepLines:
    """Return the lines of each step of a program in the generated code."""
    found: StepLines = as_generated(run).__symshape_steps__  # type: ignore[attr-defined]
    return found


def lines_alone(run: Run) -> LateLines | StepLines:
    """Return the lines of each step of a program in the code that is generated for it, perhaps
    later; they do not hold the program's tensors.
    """
    made = as_generated(run)
    return made.lines if isinstance(made, LateRun) else lines_of(made)


_DEVICES = ("cpu", "cuda")


def autocast_modes() -> list[tuple[bool, torch.dtype]]:
    """Return, for CPU and CUDA, whether autocast is on and to which dtype it casts."""
    return [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _DEVICES]


def set_autocast_modes(modes: Sequence[tuple[bool, torch.dtype]]) -> None:
    """Set what :func:`autocast_modes` returned before."""
    for device, (enabled, dtype) in zip(_DEVICES, modes, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _switches() -> tuple[bool, torch.dtype, list[tuple[bool, torch.dtype]]]:
    return torch.is_grad_enabled(), torch.get_default_dtype(), autocast_modes()


@contextmanager
def left_as_they_are(problems: list[Problem]) -> Iterator[None]:
    """Put torch's modes back at the end of the block; describe those that the function changed in
    ``problems``.
    """
    before = _switches()
    try:
        yield
    finally:
        if _switches() != before:
            torch.set_grad_enabled(before[0])
            torch.set_default_dtype(before[1])
            set_autocast_modes(before[2])
            text = (
                "leaves torch's modes changed (gradients, autocast or the default dtype); use "
                "`with`"
            )
            problems.append(Problem(text, Reason.DEFAULTS))
