"""The sources of a compiled function's programs: a trace, a store of programs, or the ranks of a
process group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from symshape.calls.arguments import Call
from symshape.calls.variables import Variable
from symshape.graph.program import Program, State
from symshape.options import Options
from symshape.runtime.entry import Entry
from symshape.tracing.capture import capture
from symshape.tracing.symbolic_arguments import Policies


@attrs.frozen(eq=False)
class ProgramRequest:
    """A call that needs a program.

    Attributes:
        call: the call.
        wanted: the policies of its sizes and numbers.
        given_up: called with the state that a failed trace had read.
        variables: the places whose values are the last leaves of the call.
        asks: whether a trace raises ``GradientsRead``: see
            :func:`symshape.tracing.capture.capture`.
    """

    call: Call
    wanted: Policies
    given_up: Callable[[State], object]
    variables: Sequence[Variable]
    asks: bool


class ProgramSource(Protocol):
    """The source of one compiled function's programs."""

    @property
    def stores(self) -> bool:
        """True if programs are stored: then the first call already needs one, and a call's form is
        not checked.
        """

    @property
    def loaded(self) -> int:
        """The number of programs that came from a store instead of a trace."""

    def program(self, request: ProgramRequest) -> Program:
        """Return a program for a call.

        Raises:
            SymShapeError: there is none; see :func:`symshape.tracing.capture.capture`.
        """

    def equip(self, entry: Entry) -> None:
        """Give the runners of a new entry the store for what they compile."""

    def clear(self) -> None:
        """Count loaded programs from 0 again."""


class TracedPrograms:
    """The source that traces each program.

    Args:
        fn: the function.
        options: of the trace.
    """

    stores, loaded = False, 0

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self._fn, self._options = fn, options

    def program(self, request: ProgramRequest) -> Program:
        """Return a newly traced program."""
        return capture(
            self._fn,
            request.call,
            request.wanted,
            self._options,
            request.given_up,
            variables=request.variables,
            asks=request.asks,
        )

    def equip(self, entry: Entry) -> None:
        """Do nothing: what runners compile is not stored."""

    def clear(self) -> None:
        """Do nothing: no program is loaded."""
