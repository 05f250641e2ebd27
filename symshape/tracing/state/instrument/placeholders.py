"""Stand-ins that replace the values of variables while a function that reads the variables is
traced.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from symshape.calls.variables import Contents, FloatPlace, InnerContainer, Variable, containers_in
from symshape.tracing.state.record.recorder import Recorder

_planted_by = 0
"""The id of the thread whose trace has put stand-ins into variables; 0 for none."""


def is_planted_by_another() -> bool:
    """Return whether another thread's trace has put stand-ins into variables: wait for its end, and
    read again.
    """
    return _planted_by not in (0, threading.get_ident())


class Planted:
    """The variables of one trace, with the stand-ins for their values."""

    def __init__(self, variables: Sequence[Variable], stand_ins: Sequence[Any]) -> None:
        self._pairs = list(zip(variables, stand_ins, strict=True))
        self._before: list[tuple[Variable, Any]] = []
        self._are_back = False

    @contextmanager
    def in_the_world(self, recorder: Recorder) -> Iterator[None]:
        """Return a context in which the variables hold their stand-ins; afterwards they hold their
        old values.
        """
        global _planted_by
        outer, _planted_by = _planted_by, threading.get_ident()
        try:
            for variable, stand_in in self._pairs:
                place = variable.variable if isinstance(variable, FloatPlace) else variable
                value = place.read()
                whole = isinstance(variable, Contents)
                for path, each in containers_in(value):
                    # an item may be a variable beside all items, with one stand-in for both
                    if (path or not whole) and id(each) not in recorder.stand_ins:
                        recorder.hidden[id(each)] = each
                for path, each in containers_in(stand_in):
                    if path or not whole:
                        recorder.stand_ins[id(each)] = InnerContainer(variable, path)
                self._before.append((place, copy.copy(value) if whole else value))
                recorder.planted.add(place.where)
                variable.write(stand_in)
            yield
        finally:
            self.put_back()
            _planted_by = outer

    def put_back(self, again: bool = False) -> None:
        """Write the values from before the trace to the variables.

        Args:
            again: also if that was done already: a repeated undo has put the stand-ins into the
                variables again.
        """
        self._are_back = self._are_back and not again
        if not self._are_back:
            for variable, value in reversed(self._before):
                variable.write(value)
            self._are_back = True
