"""One compiled program in the cache, with what runs it."""

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


class Seen:
    """How many calls with certain integers an entry served; threads may lose one now and then.

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
        program: what was traced.
        runner_name: what runs it.
        runner: runs it, and is released when the entry leaves the cache.
        around: what happens where a run fails; None where an error is raised as it is.
        run: the runner's ``run(leaves, values)``, with ``around`` around it: the flat outputs.
        build: from flat outputs to the program's own structure.
        looks: whether its calls look at containers among their arguments: see ``serve`` in ``runtime/variables.py``.
        finish: what ends a call of a program that writes to records among its arguments, after ``build``.
        last_used: the number of the last call that it served, for eviction.
        gone: whether it has left the cache.
        seen: how often which integers came.
        watched: references to the objects that it was traced for: when one dies, the entry can serve no call.
    """

    __slots__ = (
        "__weakref__",
        "_guards",
        "around",
        "build",
        "finish",
        "gone",
        "last_used",
        "looks",
        "number",
        "program",
        "run",
        "runner",
        "runner_name",
        "seen",
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
    ) -> None:
        self.number = number
        self.program = program
        self._guards: GuardSet | None = None
        self.runner_name = runner_name
        self.around = around
        self.use(runner)
        self.build = build
        self.looks = program.given is not None or bool(program.apart)
        self.finish = finisher(program.graph.output_tree)
        self.last_used = 0
        self.gone = False
        self.seen: dict[tuple[int, ...], Seen] = {}
        self.watched: list[Any] = []

    @property
    def guards(self) -> GuardSet:
        """The guards over slots ``v0, v1, …``, made when they are asked for first: what the tree dispatches on."""
        found = self._guards
        if found is None:
            found = self._guards = self.program.slot_guards()
        return found

    def use(self, runner: Runner) -> None:
        """Runs by ``runner`` from now on; the one before is not released, since the new one may be made around it."""
        self.runner = runner
        run = runner.run  # bound once: a warm call looks up one attribute
        if self.program.call.has_floats and not isinstance(runner, EagerRunner):
            run = given_leaves(run)
        self.run = run if self.around is None else self.around(run, self.program.lifted_tensors)

    def made(self, flat: list[Any], leaves: Sequence[Any]) -> Any:
        """The result of a call with these flat outputs, and what it writes to its arguments."""
        built = self.build(flat)
        return built if self.finish is None else self.finish(built, leaves)

    def instead(self, failed: list[Exception], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What becomes of a call whose run has failed; nobody handles the error meanwhile, as in eager.

        It is taken out of ``failed``, so that no frame of the caller's keeps it.
        """
        if self.around is None:
            raise failed.pop()
        return self.around.instead(failed.pop(), args, kwargs)

    def refused_data(self, error: Exception | None) -> bool:
        """Whether an op of the program raised this error because of what its tensors hold."""
        return self.around is not None and self.around.refused_data(error)

    def held(self) -> Callable[[], Entry | None]:
        """What answers this entry: for as long as the objects live that it was traced for, whoever holds the answer."""
        return weakref.ref(self) if self.watched else lambda: self

    def __repr__(self) -> str:
        guards = "; ".join(guard.text() for guard in self.program.guards) or "no guards"
        shapes = ", ".join(
            f"{each.path}[{', '.join(map(str, each.value.spec.sizes))}]" for each in self.program.graph.inputs
        )
        return f"<Entry {self.number}: {shapes}; {guards}; {self.runner.describe()}>"

    def _repr_html_(self) -> str:
        modes = self.program.modes
        return f"<p><b>{escape(repr(self)[1:-1])}</b><br>{escape(str(modes))}</p>{self.program.guards._repr_html_()}"
