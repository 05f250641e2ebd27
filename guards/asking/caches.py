"""The caches of the package, emptied together: for measuring, and to give memory back."""

from __future__ import annotations

from guards.asking.assumptions import forget_assumptions
from guards.asking.reading import forget_texts
from guards.facts.facts import forget_components
from guards.terms import boolean


def clear_caches(*, terms: bool = True) -> None:
    """Forget texts, facts and decisions, and terms that nobody uses: for measuring, and to give
    memory back.

    Facts that somebody holds stay, with what was decided on them.
    """
    forget_texts()
    forget_assumptions()
    forget_components()
    if terms:
        boolean.release()
