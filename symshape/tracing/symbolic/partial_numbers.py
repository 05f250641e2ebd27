"""Floats that a program computes and that other calls may be unable to compute:
``math.log(n - 2)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from guards.sets.origin import Origin
from symshape.graph.float_terms import FloatTerm


class Environment(Protocol):
    """The part of an environment that is used here."""

    def hint(self, term: Any) -> Any:
        """Return the value in the example call."""

    def origin(self) -> Origin:
        """Return the user's line that is asking."""


class PartialNumbers:
    """The floats of one trace that other calls may be unable to compute.

    Attributes:
        of_sizes: the floats of sizes alone, which guards can check, and where the program computes
            them.
        on_data: called with each other float.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.of_sizes: list[tuple[FloatTerm, Origin]] = []
        self.on_data: Callable[[FloatTerm], None] | None = None

    def add(self, term: FloatTerm) -> None:
        """Note that the program computes a float here, even if it never uses the float."""
        if not term.unbacked() and all(self._env.hint(each) is not None for each in term.symbols()):
            self.of_sizes.append((term, self._env.origin()))
        elif self.on_data is not None:
            self.on_data(term)
