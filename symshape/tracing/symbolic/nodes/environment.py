"""The interface of an environment that its nodes use; the environment itself is defined above this
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from guards.terms.term import Term
from symshape.graph.float_terms import FloatTerm

Message = str | Callable[[], str]


class Nodes(Protocol):
    """The maker of an environment's nodes; their classes are defined above this module, so they are
    ``Any`` here.
    """

    def int_node(self, term: Term) -> Any:
        """Return the one node for an integer term."""

    def bool_node(self, term: Term) -> Any:
        """Return a node for a condition."""

    def float_node(self, term: FloatTerm | float) -> Any:
        """Return a node for a float."""

    def size(self, term: Term) -> Any:
        """Return ``term`` as a size: an int if it is constant."""

    def condition(self, term: Term) -> Any:
        """Return ``term`` as a condition: a bool if it is constant."""

    def combine(self, function: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """Return ``function(a, b)``, cached."""


class Data:
    """The knowledge about numbers that come from data while a function is traced: nothing is known
    here; ``tracing/data/scalar_reads.py`` knows more.
    """

    def decide(
        self, relation: str, left: FloatTerm | float, right: FloatTerm | float
    ) -> bool | None:
        """Return the answer to a comparison of data in the example call; None if only a run can
        answer.
        """
        return None

    def holds(self, condition: Term) -> bool | None:
        """Return whether a condition on data-dependent integers holds in the example call; None if
        only a run knows.
        """
        return None

    def is_argument(self, term: FloatTerm | float) -> bool:
        """Return whether a float depends on data, and only on float arguments."""
        return False

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """Return the values of the float arguments in a term, fixed from now on; None if it depends
        on other data.
        """
        return None

    def questions(self, leaves: Sequence[Any]) -> Mapping[Any, Hashable]:
        """Return the questions that each call must answer from now on, with the answers for these
        leaves.
        """
        return {}


class PartialNumbers(Protocol):
    """The floats that other calls may be unable to compute."""

    def add(self, term: FloatTerm) -> None:
        """Note that the program computes a float here."""


class Environment(Protocol):
    """The environment that answers the questions of nodes; ``ShapeEnv`` documents the methods."""

    @property
    def nodes(self) -> Nodes:
        """The maker of nodes."""

    @property
    def data(self) -> Data:
        """The knowledge about floats that come from data."""

    @property
    def partial(self) -> PartialNumbers:
        """The floats that other calls may be unable to compute."""

    @property
    def may_begin_again(self) -> Callable[[], bool]:
        """A function that returns whether a run whose assertion fails here may be repeated in
        eager.
        """

    @property
    def unscaled(self) -> Callable[[str, Any, Any], bool | None]:
        """A function that answers a comparison of numbers that say whether gradients overflowed;
        None for any other.
        """

    @property
    def for_torch(self) -> Any:
        """The object that torch finds as ``node.shape_env``."""

    def hint(self, term: Any) -> Any:
        """Return the value in the example call."""

    def known(self, condition: Term) -> bool:
        """Return whether a condition holds for certain."""

    def evaluate(self, condition: Term, raises: type[Exception] | None = None) -> bool:
        """Return the truth of a condition, guarded; ``raises`` is the error that Python raises if
        it holds.
        """

    def guard_or(
        self, condition: Term, fallback: bool, *, free: bool = False, sums: bool = False
    ) -> bool:
        """Return the truth of a condition, guarded, or ``fallback`` if it is open."""

    def check(self, condition: Term, message: Message = "") -> None:
        """Check a condition like ``torch._check``."""

    def expect_true(
        self, condition: Term, message: Message = "", error: type[Exception] = RuntimeError
    ) -> bool:
        """Assert a condition like ``torch._check``; return False instead of raising."""

    def exact_as_float(self, term: Term) -> bool:
        """Return whether a float holds an integer, and a few times as much, exactly; guarded."""

    def specialize(self, term: Term, reason: str = "") -> int:
        """Return the value of an integer, guarded."""

    def specialize_float(self, term: FloatTerm | float) -> float:
        """Return the value of a float, guarded."""
