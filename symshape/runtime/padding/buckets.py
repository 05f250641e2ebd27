"""The choice of a bucket's capacities: geometric steps, as far as the guards of the entry allow.

A bucket's guards are the entry's and ``s <= capacity`` for each padded symbol, so that each call in
a bucket satisfies the entry's guards by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import Term
from symshape.runtime.policy.nesting import fine_step_up, octave_up, step_up

__all__ = ["bucket_guards", "capacities", "fine_step_up", "octave_up", "satisfies", "step_up"]

_SEARCHED = 64  # capacities tried above a step to satisfy guards
_NEAR = 2048  # capacities tried on either side of a step that contradicts another symbol's


def capacities(
    conditions: Iterable[Term],
    values: Mapping[str, int],
    padded: Iterable[str],
    step: Callable[[int], int] = step_up,
) -> dict[str, int]:
    """Return capacities of the padded symbols that hold ``values`` and satisfy the conditions, up
    to a step larger.

    Where steps contradict a condition, one of them gives way: a mask that is one longer than the
    cache before it has a capacity that is one larger, whatever its step would be.  If that does not
    help, a symbol gets its exact value.

    >>> from guards import parse
    >>> capacities([parse("s0 % 8 == 0"), parse("s1 <= 100")], {"s0": 40, "s1": 99}, ["s0", "s1"])
    {'s0': 48, 's1': 100}
    >>> capacities([parse("s1 == s0 + 1")], {"s0": 40, "s1": 41}, ["s0", "s1"])
    {'s0': 48, 's1': 49}
    """
    fitting = _Fitting(conditions, values, {name: step(values[name]) for name in padded})
    while not fitting.fits():
        pass
    return fitting.caps


class _Fitting:
    """The search for capacities that satisfy conditions.

    Attributes:
        caps: the present capacities.
    """

    def __init__(
        self, conditions: Iterable[Term], values: Mapping[str, int], caps: dict[str, int]
    ) -> None:
        self.caps, self._values = caps, values
        self._conditions = [
            (term, [each.name for each in term.symbols if each.name in caps]) for term in conditions
        ]
        self._about: dict[str, list[Term]] = {name: [] for name in caps}
        for term, names in self._conditions:
            for name in names:
                self._about[name].append(term)
        self._places = {name: place for place, name in enumerate(caps)}
        self._given_way: set[str] = set()
        alone = [
            (name, term)
            for term, names in self._conditions
            for name in names
            if len(term.symbols) == 1
        ]
        own: dict[str, list[Term]] = {}
        for name, term in alone:
            own.setdefault(name, []).append(term)
        for name, terms in own.items():
            cap, value = caps[name], values[name]
            tries = (*range(cap, cap + _SEARCHED), *range(cap - 1, value, -1))
            caps[name] = next(
                (each for each in tries if all(_holds(t, {name: each}) for t in terms)), value
            )
        self._known = {**values, **caps}

    def fits(self) -> bool:
        """Change capacities that violate conditions; return whether nothing was changed."""
        changed = False
        for term, names in self._conditions:
            if _holds(term, self._known):
                continue
            if any(self._gives_way(name) for name in self._in_turn(names)):
                changed = True
                continue
            for name in names:
                if self.caps[name] > self._values[name]:
                    self._set(name, self._values[name])
                    changed = True
        return not changed

    def _in_turn(self, names: Iterable[str]) -> list[str]:
        """Return the symbols in the order in which they give way: in the fewest conditions first,
        of these the last.
        """
        return sorted(names, key=lambda name: (len(self._about[name]), -self._places[name]))

    def _gives_way(self, name: str) -> bool:
        """Set a symbol, once, to the nearest capacity that satisfies its conditions; return whether
        there is one.
        """
        if name in self._given_way:
            return False
        cap, value, about = self.caps[name], self._values[name], self._about[name]
        reach = min(cap - value, _NEAR)
        near = [one for away in range(1, reach + 1) for one in (cap - away, cap + away)]
        for each in (*near, *range(cap + reach + 1, cap + _SEARCHED), value):
            self._known[name] = each
            if all(_holds(term, self._known) for term in about):
                self._given_way.add(name)
                self.caps[name] = each
                return True
        self._known[name] = cap
        return False

    def _set(self, name: str, cap: int) -> None:
        self.caps[name] = self._known[name] = cap


def satisfies(conditions: Iterable[Term], values: Mapping[str, int]) -> bool:
    """Return whether all conditions hold for these values."""
    return all(_holds(term, values) for term in conditions)


def _holds(term: Term, values: Mapping[str, int]) -> bool:
    try:
        return bool(fold.evaluate(term, values))
    except ZeroDivisionError:
        return False


def bucket_guards(guards: GuardSet, exact: Mapping[str, int], caps: Mapping[str, int]) -> GuardSet:
    """Return the guards of a bucket: those of the entry, exact symbols' values, and padded symbols'
    capacities.
    """
    own = [boolean.eq(arithmetic.symbol(name), value) for name, value in exact.items()]
    own += [boolean.le(arithmetic.symbol(name), cap) for name, cap in caps.items()]
    return GuardSet(
        (*guards.guards, *(Guard(term) for term in own if term is not boolean.TRUE)),
        ranges=guards.ranges,
    )
