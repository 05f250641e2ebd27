"""Which capacities serve a call: geometric steps, as far as the guards of the entry allow.

A bucket is the entry's guards and ``s <= capacity`` for each padded symbol, so that whoever is in a bucket satisfies
the guards by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import Term

__all__ = ["bucket_guards", "capacities", "fine_step_up", "satisfies", "step_up"]

_SEARCHED = 64  # how far a capacity is moved to satisfy the guards on its symbol alone


def step_up(value: int) -> int:
    """The smallest of 2, 3, 4, 6, 8, 12, 16, 24 … (two steps for each doubling) that is not below ``value``.

    >>> [step_up(value) for value in (0, 2, 3, 5, 7, 9, 13, 100)]
    [2, 2, 3, 6, 8, 12, 16, 128]
    """
    power = 2
    while power < value:
        if power + power // 2 >= value:
            return power + power // 2
        power *= 2
    return power


def fine_step_up(value: int) -> int:
    """The smallest step that is not below ``value``, of eight for each doubling, none of them smaller than 8.

    >>> [fine_step_up(value) for value in (0, 5, 9, 65, 100, 130)]
    [8, 8, 16, 72, 104, 144]
    """
    step = max(8, 1 << max(0, (value - 1).bit_length() - 4))
    return max(8, -(-value // step) * step)


def capacities(
    conditions: Iterable[Term],
    values: Mapping[str, int],
    padded: Iterable[str],
    step: Callable[[int], int] = step_up,
) -> dict[str, int]:
    """Capacities of the padded symbols that hold ``values`` and satisfy the conditions, as far up as a step.

    Where no larger capacity is found to satisfy them, a symbol gets its value.

    >>> from guards import parse
    >>> capacities([parse("s0 % 8 == 0"), parse("s1 <= 100")], {"s0": 40, "s1": 99}, ["s0", "s1"])
    {'s0': 48, 's1': 100}
    """
    conditions = list(conditions)
    caps = {name: step(values[name]) for name in padded}
    for name, cap in caps.items():
        own = [term for term in conditions if {symbol.name for symbol in term.symbols} == {name}]
        tries = (*range(cap, cap + _SEARCHED), *range(cap - 1, values[name], -1), values[name])
        caps[name] = next(each for each in tries if each == values[name] or all(_holds(t, {name: each}) for t in own))
    while True:
        known = {**values, **caps}
        broken = [term for term in conditions if not _holds(term, known)]
        moved = {s.name for term in broken for s in term.symbols if caps.get(s.name, -1) > values.get(s.name, -1)}
        if not moved:
            return caps
        caps.update({name: values[name] for name in moved})


def satisfies(conditions: Iterable[Term], values: Mapping[str, int]) -> bool:
    """Whether all conditions hold of these values."""
    return all(_holds(term, values) for term in conditions)


def _holds(term: Term, values: Mapping[str, int]) -> bool:
    try:
        return bool(fold.evaluate(term, values))
    except ZeroDivisionError:
        return False


def bucket_guards(guards: GuardSet, exact: Mapping[str, int], caps: Mapping[str, int]) -> GuardSet:
    """The guards of a bucket: those of the entry, a value for each exact symbol, a capacity for each padded one."""
    own = [boolean.eq(arithmetic.symbol(name), value) for name, value in exact.items()]
    own += [boolean.le(arithmetic.symbol(name), cap) for name, cap in caps.items()]
    return GuardSet((*guards.guards, *(Guard(term) for term in own if term is not boolean.TRUE)), ranges=guards.ranges)
