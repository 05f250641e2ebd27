"""Cached results of other modules about a component; they live as long as the component."""

from __future__ import annotations

from typing import Any

from guards.terms.term import Term


class Memo:
    """Caches about one component. Nothing here changes what is known; any of them may be emptied at
    any time.

    Attributes:
        answers: decisions already made, by condition, in bits; filled by
            ``guards.asking.questions``.
        assumed: components with one more condition, by condition; filled by
            ``guards.facts.propagate``.
        points: a ``Found``, the assignments found so far (None before that); filled by
            ``guards.deciders.witnesses``.
        simplified: what the rewrite rules made of terms; filled by ``guards.facts.rewrite_rules``.
        network: a ``Network``, its rows as edges (None before that); filled by
            ``guards.deciders.chains``.
        freedom: how freely symbols take their values (-1 before that); filled by
            ``guards.deciders.independence``.
    """

    __slots__ = ("answers", "assumed", "freedom", "network", "points", "simplified")

    def __init__(self) -> None:
        self.answers: dict[Term, int] = {}
        self.assumed: dict[
            Term, Any
        ] = {}  # of a `Component`, and a `Found` below: both stand above this file
        self.points: Any = None
        self.network: Any = None
        self.simplified: dict[Term, Term] = {}
        self.freedom = -1
