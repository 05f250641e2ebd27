"""A law: one row of the rewrite table."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from guards.facts.component import Component
from guards.terms.term import Op, Term

Rewrite = Callable[[Component, Term], Term]
"""The rewriting itself, for laws that ask what the parts they make become."""
Apply = Callable[[Component, Term, Rewrite], "Term | None"]


@attrs.frozen
class Rule:
    """One law: for terms with the operator ``head``, ``law`` (an equation) holds under
    ``where``.
    """

    name: str
    head: Op
    law: str
    where: str
    apply: Apply
