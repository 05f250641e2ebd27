"""Entries in profilers: named ranges with operations and bytes, made only while a profiler is
recording.

``torch.profiler`` and ``emit_nvtx`` get a ``record_function`` for each call of an entry, Triton's
Proton a scope with ``flops`` and ``bytes`` (its viewer then shows rates), Nsight Systems an NVTX
range.  The figures are those of the cost formulas at the sizes of the call.  (Private names used
here: ``torch.autograd.profiler._is_profiler_enabled``, checked on 2.11 to 2.13;
``triton.profiler.flags``, checked on 3.6's layout and the one before.)
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd import profiler as torch_profiler

from symshape.environment_variables import NSIGHT
from symshape.errors import SymShapeError
from symshape.graph.codegen import Run
from symshape.graph.program import Program
from symshape.runtime.entry import Entry

if TYPE_CHECKING:
    from symshape.cost.cost import Cost

__all__ = ["Annotator", "refresh", "torch_profiler"]

_MOST_SIZES = 4096


class _Flags(Protocol):
    profiling_on: bool


class _Always:
    profiling_on = True


class _Never:
    profiling_on = False


other: _Flags = _Never()
"""The flags of a profiler other than torch's: ``profiling_on`` is read at every call, so it is an
attribute.
"""


def refresh() -> None:
    """Look for profilers that were imported meanwhile, or that this process was started under."""
    global other
    if NSIGHT.value():
        other = _Always()
        return
    module = sys.modules.get("triton.profiler.flags")
    found: Any = getattr(module, "flags", module)
    other = found if hasattr(found, "profiling_on") else _Never()


class Annotator:
    """An annotator that puts the calls of entries in named ranges."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._figures: weakref.WeakKeyDictionary[Program, _Figures] = weakref.WeakKeyDictionary()

    def run(self, entry: Entry, leaves: Sequence[Any], values: tuple[int, ...]) -> list[Any]:
        """Return the flat outputs of a call, run in the ranges of the profilers that are
        recording.
        """
        figures = self._figures.get(entry.program)
        if figures is None:
            figures = self._figures[entry.program] = _Figures(entry.program)
        with _ranges(
            f"{self._function} (entry {entry.number}, {entry.runner_name})", figures.at(values)
        ):
            return entry.run(leaves, values)

    def run_of(self, entry: Entry) -> Run:
        """Return the function that runs an entry's calls now: :meth:`run` while a profiler is
        recording.
        """
        profiling = torch_profiler._is_profiler_enabled or other.profiling_on
        return functools.partial(self.run, entry) if profiling else entry.run


class _Figures:
    """The cost of a program's calls, by their integers."""

    def __init__(self, program: Program) -> None:
        from symshape.cost.cost import Cost

        self._places = program.positions
        self._known: dict[tuple[int, ...], dict[str, int]] = {}
        try:
            self._cost: Cost | None = Cost.of(program)
        except SymShapeError:
            self._cost = None

    def at(self, values: tuple[int, ...]) -> dict[str, int]:
        """Return operations and bytes; empty where a formula needs a size that only the run
        determines.
        """
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= _MOST_SIZES:
                self._known.clear()
            found = self._known[values] = self._at(
                {name: values[place] for name, place in self._places.items()}
            )
        return found

    def _at(self, sizes: dict[str, int]) -> dict[str, int]:
        if self._cost is None:
            return {}
        try:
            cost = self._cost.at(**sizes)
        except SymShapeError:
            return {}
        return {"flops": cost.flops, "bytes": cost.bytes}


@contextmanager
def _ranges(name: str, figures: dict[str, int]) -> Iterator[None]:
    shown = ", ".join(f"{key}={number}" for key, number in figures.items())
    with ExitStack() as stack:
        if torch_profiler._is_profiler_enabled:
            stack.enter_context(torch_profiler.record_function(name, shown or None))
        proton = sys.modules.get("triton.profiler")
        if proton is not None and other.profiling_on and not isinstance(other, _Always):
            stack.enter_context(proton.scope(name, figures))
        if isinstance(other, _Always):
            torch.cuda.nvtx.range_push(f"{name}: {shown}" if shown else name)
            stack.callback(torch.cuda.nvtx.range_pop)
        yield
