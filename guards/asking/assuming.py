"""Running code that was written for integers on terms: what it asks is answered by what is assumed
meanwhile.

``if condition`` asks for proof and raises where there is none; ``condition.check()``, which says
that the code needs it, is recorded and assumed from then on. The rules of ``meta_fns`` are such
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from guards.asking.assumptions import condition_of, facts_from
from guards.asking.questions import ask
from guards.domains.interval_arithmetic import Pair
from guards.errors import Undecided
from guards.facts.facts import Facts
from guards.terms.term import Term, judged_by, undecided


class Assumptions:
    """The assumptions in force within a block of :func:`assuming`.

    Attributes:
        facts: what is known, with what was required so far.
        required: the conditions that the code required and that were not known, in order.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.required: list[Term] = []

    def require(self, condition: Term) -> None:
        """Assume a condition from now on, and remember it."""
        self.facts = self.facts.assume(condition)
        self.required.append(condition)


_given: ContextVar[Assumptions | None] = ContextVar("given", default=None)
_SIZES = Facts()


@contextmanager
def assuming(
    *conditions: str | Term, ranges: Mapping[str, Pair] | None = None
) -> Iterator[Assumptions]:
    """Within the block, conditions on terms are decided by these conditions and ranges (sizes are 0
    or more).

    ``if`` on what is not proven either way raises ``Undecided``; what code requires by ``check`` is
    kept in ``required`` of the object that the block is given, and assumed from then on.

    Raises:
        ParseError: a condition cannot be read.
        Contradiction: nothing satisfies the conditions.

    >>> from guards import assuming, symbol
    >>> n, k = symbol("n"), symbol("k")
    >>> def rows(a, b):
    ...     if a < b:
    ...         return b
    ...     (a % 8 == 0).check()
    ...     return a // 8
    >>> with assuming("n >= k", ranges={"k": (8, None)}) as given:
    ...     print(rows(n, k), rows(n, n + 1), rows(8 * k, k), given.required)
    n//8 n + 1 k [<n % 8 == 0>]
    """
    token = _given.set(Assumptions(facts_from(ranges, conditions)))
    try:
        found = _given.get()
        assert found is not None
        yield found
    finally:
        _given.reset(token)


def _truth(condition: Term) -> bool:
    given = _given.get()
    if given is None or not condition.is_bool:
        undecided(condition)
    found = ask(given.facts, condition)
    if found is None:
        raise Undecided(
            f"whether {condition} is not settled by what is assumed: add it, or its opposite, to "
            "guards.assuming(...)"
        )
    return found


def _known(condition: Term) -> bool:
    given = _given.get()
    return ask(_SIZES if given is None else given.facts, condition_of(condition)) is True


def _required(condition: Term) -> bool:
    given = _given.get()
    found = ask(_SIZES if given is None else given.facts, condition_of(condition))
    if found is not None:
        return found
    if given is None:
        raise Undecided(
            f"{condition} is required, and it depends on its symbols: call this within "
            "guards.assuming(...), which keeps what is required"
        )
    given.require(condition)
    return True


judged_by(_truth, _known, _required)
