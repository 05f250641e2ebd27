"""An entry of the recompile cache: one compiled program with its runner."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from guards.sets.guard_set import GuardSet
from symshape.calls.floats import given_leaves
from symshape.calls.outputs import Build, finisher
from symshape.graph.program import Program
from symshape.runtime.failing import Failing
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.protocol import Runner
from symshape.tracing.intercept.python_warnings import run_as_in_eager


class Seen:
    """The counter of an entry's calls with certain integers; concurrent threads may lose a count.

    Attributes:
        calls: their number.
    """

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Entry:
    """One compiled program in the cache.

    Attributes:
        number: 0 for the first program that was traced.
        program: the traced program.
        runner_name: the name of the runner that was asked for.
        runner: runs the program; released when the entry is removed from the cache.
        around: handles a failed run; None if errors are raised unchanged.
        run: the runner's ``run(leaves, values)``, wrapped by ``around``; returns the flat outputs.
        build: turns flat outputs into the program's result structure.
        checks: whether calls are served by ``serve`` in ``runtime/variables.py``, which checks
            containers among the arguments, or by a :class:`symshape.runtime.verify.Verifier`.
        finish: runs after ``build`` if the program writes to objects among its arguments; else
            None.
        last_used: the number of the last call that it served, for eviction.
        gone: whether it has left the cache.
        seen: the call counters by integers.
        warns: the function whose lines the warnings of the program's kernels cite; None before the
            first warning.
        watched: weak references to the objects that it was traced for; when one dies, the entry is
            removed.
    """

    __slots__ = (
        "__weakref__",
        "_guards",
        "around",
        "build",
        "checks",
        "finish",
        "gone",
        "last_used",
        "number",
        "program",
        "run",
        "runner",
        "runner_name",
        "seen",
        "warns",
        "watched",
    )

    def __init__(
        self,
        number: int,
        program: Program,
        runner_name: str,
        runner: Runner,
        build: Build,
        around: Failing | None = None,
        *,
        verified: bool = False,
    ) -> None:
        self.number = number
        self.program = program
        self._guards: GuardSet | None = None
        self.runner_name = runner_name
        self.around = around
        self.warns: Callable[..., Any] | None = None
        self.use(runner)
        self.build = build
        self.checks = verified or program.given is not None or bool(program.apart)
        self.finish = finisher(program.graph.output_tree)
        self.last_used = 0
        self.gone = False
        self.seen: dict[tuple[int, ...], Seen] = {}
        self.watched: list[Any] = []

    @property
    def guards(self) -> GuardSet:
        """The guards over slots ``v0, v1, …``, for the dispatch tree; built on first access."""
        found = self._guards
        if found is None:
            found = self._guards = self.program.slot_guards()
        return found

    def use(self, runner: Runner) -> None:
        """Run by ``runner`` from now on; the old runner is not released, since the new one may wrap
        it.
        """
        self.runner = runner
        run = runner.run  # bound once: a warm call looks up one attribute
        if self.program.call.has_floats and not isinstance(runner, EagerRunner):
            run = given_leaves(run)
        run = run if self.around is None else self.around(run, self.program.lifted_tensors)
        self.run = run if self.warns is None else run_as_in_eager(run, self.warns)

    def place_warnings(self, fn: Callable[..., Any]) -> None:
        """Have the warnings of kernels cite the lines of ``fn`` from now on; the program warns."""
        if self.warns is None:
            self.warns = fn
            self.run = run_as_in_eager(self.run, fn)

    def made(self, flat: list[Any], leaves: Sequence[Any]) -> Any:
        """Return the result of a call from its flat outputs, after writing back to its
        arguments.
        """
        built = self.build(flat)
        return built if self.finish is None else self.finish(built, leaves)

    def instead(
        self, failed: list[Exception], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the result of an eager run after the program's run failed, or raise the run's
        error.

        Call it outside the ``except`` block, so that the error is not the context of a new one. The
        error is removed from ``failed``, so that no frame of the caller keeps it alive.
        """
        if self.around is None:
            raise failed.pop()
        return self.around.instead(failed.pop(), args, kwargs)

    def refused_data(self, error: Exception | None) -> bool:
        """Return whether an op of the program raised this error because of the values in its
        tensors.
        """
        return self.around is not None and self.around.refused_data(error)

    def held(self) -> Callable[[], Entry | None]:
        """Return a function that returns this entry; weakly if the entry depends on watched
        objects.
        """
        return weakref.ref(self) if self.watched else lambda: self

    def __repr__(self) -> str:
        guards = "; ".join(guard.text() for guard in self.program.guards) or "no guards"
        shapes = ", ".join(
            f"{each.path}[{', '.join(map(str, each.value.spec.sizes))}]"
            for each in self.program.graph.inputs
        )
        return f"<Entry {self.number}: {shapes}; {guards}; {self.runner.describe()}>"

    def _repr_html_(self) -> str:
        modes = self.program.modes
        heading = f"<p><b>{escape(repr(self)[1:-1])}</b><br>{escape(str(modes))}</p>"
        return heading + self.program.guards._repr_html_()
