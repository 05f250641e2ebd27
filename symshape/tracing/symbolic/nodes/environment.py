"""What nodes need of the environment that they belong to, which stands above them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from guards.terms.term import Term
from symshape.graph.float_terms import FloatTerm

Message = str | Callable[[], str]


class Nodes(Protocol):
    """Makes the nodes of an environment (their classes stand above this one, so here they are ``Any``)."""

    def int_node(self, term: Term) -> Any:
        """The one node for an integer term."""

    def bool_node(self, term: Term) -> Any:
        """A node for a condition."""

    def float_node(self, term: FloatTerm | float) -> Any:
        """A node for a float."""

    def size(self, term: Term) -> Any:
        """``term`` as a size: an int where it is constant."""

    def condition(self, term: Term) -> Any:
        """``term`` as a condition: a bool where it is constant."""

    def combine(self, function: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """``function(a, b)``, remembered."""


class Data(Protocol):
    """What is known of numbers that come of data while a function is traced: see ``tracing/scalar_data.py``."""

    def decide(self, relation: str, left: FloatTerm | float, right: FloatTerm | float) -> bool | None:
        """The answer to a comparison that data tell, in the example call; None where only a run can tell it."""

    def holds(self, condition: Term) -> bool | None:
        """Whether a condition on integers that data tell holds in the example call; None where only a run can tell."""

    def is_argument(self, term: FloatTerm | float) -> bool:
        """Whether data tell a float, and that of float arguments alone."""

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """The values of the float arguments in a term, constants from now on; None: it depends on other data."""

    def questions(self, leaves: Sequence[Any]) -> Mapping[Any, Hashable]:
        """What each call is asked from now on, and what the one with these leaves answers."""


class PartialNumbers(Protocol):
    """Floats that other calls may be unable to compute."""

    def add(self, term: FloatTerm) -> None:
        """The program computes it here."""


class NoData:
    """Where nothing is known of data."""

    def decide(self, relation: str, left: FloatTerm | float, right: FloatTerm | float) -> bool | None:
        """Nothing."""
        return None

    def holds(self, condition: Term) -> bool | None:
        """Nothing."""
        return None

    def is_argument(self, term: FloatTerm | float) -> bool:
        """No."""
        return False

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """Nothing."""
        return None

    def questions(self, leaves: Sequence[Any]) -> Mapping[Any, Hashable]:
        """Nothing."""
        return {}


class Environment(Protocol):
    """Answers the questions of nodes; see ``ShapeEnv``, which has the contracts."""

    @property
    def nodes(self) -> Nodes:
        """Makes nodes."""

    @property
    def data(self) -> Data:
        """What is known of floats that come of data."""

    @property
    def partial(self) -> PartialNumbers:
        """Floats that other calls may be unable to compute."""

    @property
    def may_begin_again(self) -> Callable[[], bool]:
        """Whether a run that fails here may be begun anew, in eager."""

    @property
    def unscaled(self) -> Callable[[str, Any, Any], bool | None]:
        """The answer to a comparison of numbers that tell whether gradients overflowed; None: it is another one."""

    @property
    def for_torch(self) -> Any:
        """What torch finds as ``node.shape_env``."""

    def hint(self, term: Any) -> Any:
        """The value in the example call."""

    def known(self, condition: Term) -> bool:
        """Whether a condition holds for certain."""

    def evaluate(self, condition: Term, raises: type[Exception] | None = None) -> bool:
        """The truth of a condition, guarded; what is raised where it holds."""

    def guard_or(self, condition: Term, fallback: bool) -> bool:
        """The same, with an answer for what is left open."""

    def check(self, condition: Term, message: Message = "") -> None:
        """``torch._check``."""

    def expect_true(self, condition: Term, message: Message = "", error: type[Exception] = RuntimeError) -> bool:
        """``torch._check`` that answers instead of raising."""

    def exact_as_float(self, term: Term) -> bool:
        """Whether a float holds an integer, and a few times as much, exactly; guarded."""

    def specialize(self, term: Term, reason: str = "") -> int:
        """The value of an integer, guarded."""

    def specialize_float(self, term: FloatTerm | float) -> float:
        """The value of a float, guarded."""
