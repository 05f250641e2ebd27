"""Why a guard set does not hold, in sentences with the user's own names and lines.

``sources`` maps the name of a symbol to where its value is read (:mod:`guards.sets.sources`); a
symbol without a source keeps its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from guards.asking.ladder import Effort
from guards.budget import about, whole_question
from guards.dispatch.tree import Miss
from guards.regions.minimising import needed
from guards.regions.nearest import Nearest, nearest
from guards.regions.satisfiability import core, range_conditions, search, universe
from guards.sets.guard import Guard, Violation, listed
from guards.sets.guard_set import GuardSet, as_set
from guards.sets.origin import DECLARED, Origin
from guards.sets.sources import Source, spelled
from guards.terms.fold import evaluate

Sources = Mapping[str, Source | str]
_MOST = 3  # violations told in one explanation


@attrs.frozen
class Explanation:
    """Why values do not satisfy a guard set.

    Attributes:
        violations: the guards responsible: every other guard that fails follows from these.
        nearest: the nearest values that satisfy the set; None where none were found.
        text: all of it in one sentence.
    """

    violations: tuple[Violation, ...]
    nearest: Nearest | None
    text: str

    def __str__(self) -> str:
        return self.text


@whole_question()
def explain(
    guard_set: GuardSet,
    values: Mapping[str, int],
    sources: Sources | None = None,
    *,
    entry: str = "the entry",
) -> Explanation | None:
    """Why ``values`` do not satisfy the set; None when they do.

    >>> from guards.sets.origin import Origin
    >>> from guards.asking.reading import parse
    >>> from guards.sets.sources import Size
    >>> origin = Origin("model.py", 12, text="if a.size(0) + b.size(0) > 2:")
    >>> guards = GuardSet([Guard(parse("s0 + s1 > 2"), origin)])
    >>> print(explain(guards, {"s0": 1, "s1": 1}, {"s0": Size("a", 0), "s1": Size("b", 0)}))
    a.size(0) is 1 and b.size(0) is 1, but the entry needs a.size(0) + b.size(0) > 2 because of
    model.py:12 (`if a.size(0) + b.size(0) > 2:`); nearest passing input: a.size(0) = 2
    """
    guard_set = as_set(guard_set, "explain")
    violated = guard_set.violations(values, sources)
    if not violated:
        return None
    about(len(guard_set.conditions))
    free = dict.fromkeys(guard_set.ranges, (None, None))
    failed = {violation.guard.term for violation in violated}
    given = [guard.term for guard in guard_set.conditions if guard.term not in failed]
    kept = needed([violation.guard.term for violation in violated], free, Effort.CHEAP, given)
    responsible = tuple(violated[index] for index in kept)
    names = spelled(sources or {})
    found = nearest(
        [guard.term for guard in guard_set],
        guard_set.ranges,
        {n: values[n] for n in guard_set.ranges},
    )
    told: list[str] = []
    subject = entry
    for each in responsible[:_MOST]:
        told.append(_told(each, names, subject))
        subject = subject if each.origin == DECLARED else "it also"
    more = len(responsible) - _MOST
    if more > 0:
        told.append(f"and {more} more guard{'s' * (more > 1)} fail{'s' * (more == 1)}")
    return Explanation(responsible, found, "; ".join([*told, _way_out(guard_set, found, names)]))


def _told(violation: Violation, names: Mapping[str, str], entry: str) -> str:
    seen = listed([f"{names.get(name, name)} is {value}" for name, value in violation.values])
    origin, wanted = violation.origin, violation.guard.text(names)
    if _undefined(violation):
        wanted += " (a division by 0 there)"
    needs = _needs(origin, wanted, entry)
    return f"{seen}, but {needs}" if seen else needs


def _needs(origin: Origin | None, wanted: str, entry: str) -> str:
    if origin is None:
        return f"{entry} needs {wanted}"
    if origin == DECLARED:
        return f"the declared range needs {wanted}"
    return (
        f"{entry} needs {wanted} because of {origin.place}"
        if origin.place
        else f"{entry} needs {wanted} ({origin})"
    )


def _undefined(violation: Violation) -> bool:
    try:
        evaluate(violation.guard.term, dict(violation.values))
    except ZeroDivisionError:
        return True
    return False


def _way_out(guard_set: GuardSet, found: Nearest | None, names: Mapping[str, str]) -> str:
    if found is None:
        against = guard_set.core()
        if against is None:
            return "no passing input was found"
        return f"no input passes: {_contradiction([guard.text(names) for guard in against])}"
    inputs = listed([f"{names.get(name, name)} = {found.values[name]}" for name in found.changed])
    return f"{'nearest' if found.certain else 'a'} passing input: {inputs}"


def _contradiction(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return f"{texts[0]} never holds"
    return (
        f"{texts[0]} contradicts {texts[1]}"
        if len(texts) == 2
        else f"{listed(texts)} contradict each other"
    )


def explain_miss(miss: Miss[Any], sources: Sources | None = None) -> str:
    """Why the nearest entry of a miss does not serve the call, in one sentence.

    >>> from guards.dispatch.tree import Tree
    >>> from guards.sets.sources import Size
    >>> tree = Tree(["s0", "s1"])
    >>> tree.insert(GuardSet.read("s0 == 8", "s1 == 4"), "first")
    >>> tree.insert(GuardSet.read("s0 == 16", "s1 == 2"), "second")
    >>> explain_miss(tree.miss((7, 4)), {"s0": Size("x", 0), "s1": Size("x", 1)})
    'x.size(0) is 7, but the nearest of 2 entries needs x.size(0) == 8;
    nearest passing input: x.size(0) = 8'
    """
    if not miss.nearest:
        return "there are no entries yet"
    entry = "the entry" if miss.entries == 1 else f"the nearest of {miss.entries} entries"
    found = explain(miss.nearest[0].guard_set, miss.values, sources, entry=entry)
    return found.text if found is not None else f"{entry} holds"


# -- two sets --------------------------------------------------------------------------------------


@attrs.frozen
class Distinction:
    """The differences between two guard sets.

    Attributes:
        first: conditions of the first set that the second does not imply.
        second: conditions of the second set that the first does not imply.
        only_first: values that satisfy the first set alone, where some were found.
        only_second: values that satisfy the second set alone, where some were found.
        text: all of it in sentences.
    """

    first: tuple[Guard, ...]
    second: tuple[Guard, ...]
    only_first: Mapping[str, int] | None
    only_second: Mapping[str, int] | None
    text: str

    def __str__(self) -> str:
        return self.text


@whole_question()
def distinguish(first: GuardSet, second: GuardSet, sources: Sources | None = None) -> Distinction:
    """Return the differences between two guard sets, for instance those of two entries of one
    cache.

    >>> print(distinguish(GuardSet.read("s0 > 2", "s1 == 4"), GuardSet.read("s0 > 9", "s1 == 4")))
    the second alone asks s0 >= 10; only the first holds for s0 = 3 and s1 = 4
    >>> print(distinguish(GuardSet.read("s0 % 2 == 0"), GuardSet.read("s0 % 2 == 1")))
    the first alone asks s0 % 2 == 0; the second alone asks s0 % 2 == 1; only the first holds for
    s0 = 0; only the second holds for s0 = 1; no values satisfy both
    """
    first, second = as_set(first, "distinguish"), as_set(second, "distinguish")
    names = spelled(sources or {})
    about(len(first.conditions) + len(second.conditions))
    own = [_not_implied(a, b) for a, b in ((first, second), (second, first))]
    points = [
        a.difference(b) if asked else None
        for a, b, asked in ((first, second, own[1]), (second, first, own[0]))
    ]
    found = [None if s is None else search([g.term for g in s], s.ranges).model for s in points]
    parts = []
    for word, guards in zip(("first", "second"), own, strict=True):
        if guards:
            parts.append(f"the {word} alone asks {listed([guard.text(names) for guard in guards])}")
    for word, point in zip(("first", "second"), found, strict=True):
        if point is not None:
            shown = listed([f"{names.get(name, name)} = {value}" for name, value in point.items()])
            parts.append(f"only the {word} holds for {shown}")
    if all(found) and first.disjoint(second):
        parts.append("no values satisfy both")
    text = "; ".join(parts) or "both hold for the same values"
    return Distinction(tuple(own[0]), tuple(own[1]), found[0], found[1], text)


def _not_implied(guards: GuardSet, by: GuardSet) -> list[Guard]:
    return [
        guard
        for guard in guards.conditions
        if by.implies(
            GuardSet(
                guard, ranges=dict.fromkeys((s.name for s in guard.term.symbols), (None, None))
            )
        )
        is not True
    ]


# -- contradictions --------------------------------------------------------------------------------


@attrs.frozen
class Conflict:
    """Why what the user declared cannot hold together with what the program needs.

    Attributes:
        declared: the declared conditions that take part.
        program: the guards of the program that take part, with their origins.
        text: the chain in sentences.
    """

    declared: tuple[Guard, ...]
    program: tuple[Guard, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@whole_question()
def explain_conflict(
    declared: GuardSet, program: GuardSet, sources: Sources | None = None
) -> Conflict | None:
    """The shortest chain of guards that contradicts what was declared; None unless a contradiction
    is proven.

    >>> from guards.sets.origin import Origin
    >>> from guards.asking.reading import parse
    >>> from guards.sets.sources import Size
    >>> program = GuardSet(
    ...     [
    ...         Guard(parse("s0 == s1"), Origin("model.py", 3, text="a + b")),
    ...         Guard(parse("s1 == 16"), Origin("model.py", 9, text="b.view(16)")),
    ...     ]
    ... )
    >>> names = {"s0": Size("a", 0), "s1": Size("b", 0)}
    >>> print(explain_conflict(GuardSet(ranges={"s0": (2, 8)}), program, names))
    declared a.size(0) <= 8 contradicts the program: a.size(0) == b.size(0) by model.py:3 (`a + b`),
    and b.size(0) == 16 by model.py:9 (`b.view(16)`)
    """
    declared, program = as_set(declared, "explain_conflict"), as_set(program, "explain_conflict")
    about(len(declared.conditions) + len(program.conditions))
    sizes = {
        name: universe(limits)
        for name, limits in (*program.ranges.items(), *declared.ranges.items())
    }
    wide = dict.fromkeys(sizes, (None, None))
    sure = {
        condition for name, limits in sizes.items() for condition in range_conditions(name, limits)
    }
    own = [guard for guard in declared.conditions if guard.term not in sure]
    other = [
        guard
        for guard in program.conditions
        if guard.term not in {*sure, *(guard.term for guard in own)}
    ]
    members = [*own, *other]
    indices = core([guard.term for guard in members], sizes)
    if indices is None:  # that sizes are not negative may be contradicted by itself
        members = [*declared.conditions, *program.conditions]
        indices = core([guard.term for guard in members], wide)
    if indices is None:
        return None
    found = [members[index] for index in indices]
    names = spelled(sources or {})
    said = {guard.term for guard in declared.conditions}
    ours = tuple(guard for guard in found if guard.term in said)
    theirs = tuple(guard for guard in found if guard.term not in said)
    shown = listed([guard.text(names) for guard in ours])
    chain = ", and ".join(
        f"{g.text(names)} by {g.origin}" if g.origin else g.text(names) for g in theirs
    )
    if not theirs:
        return Conflict(ours, theirs, f"what was declared contradicts itself: {shown}")
    if not ours:
        return Conflict(ours, theirs, f"the program contradicts itself: {chain}")
    return Conflict(ours, theirs, f"declared {shown} contradicts the program: {chain}")
