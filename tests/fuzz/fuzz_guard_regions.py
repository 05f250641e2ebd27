"""Guard sets as regions, against brute force over a small box.

Every symbol has a small range, so that all points can be tried: satisfiability, implication,
equivalence, disjointness, intersection, difference, negation, minimising, projection, sampling,
cores, the nearest point and certificates must say what trying says, or that they do not know; JSON
must give back the very same set.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product

from guards import budget
from guards.asking.assumptions import facts_from
from guards.dispatch.explanation import distinguish, explain, explain_conflict
from guards.errors import CannotSolve
from guards.facts.definedness import satisfied
from guards.regions import minimising
from guards.regions.nearest import nearest
from guards.regions.solving import solve
from guards.sets.coverage import certify
from guards.sets.guard_set import GuardSet
from guards.sets.serialize import from_json, to_json
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.guards.making import text_of_condition

NAMES = ("s0", "s1", "s2")
Point = dict[str, int]


def some_set(rng: random.Random, most: int = 3) -> GuardSet:
    """A set whose symbols all have small ranges."""
    ranges = {
        name: (low := rng.choice([0, 0, 1, 2, -2]), low + rng.randint(0, 6)) for name in NAMES
    }
    while True:
        try:
            return GuardSet.read(
                *(text_of_condition(rng, NAMES) for _ in range(rng.randint(0, most))), ranges=ranges
            )
        except ZeroDivisionError:
            continue


def box(*sets: GuardSet, margin: int = 1) -> Iterator[Point]:
    """All points around the ranges of the sets."""
    axes = []
    for name in NAMES:
        limits = [each.ranges[name] for each in sets]
        axes.append(
            range(
                min(low or 0 for low, _ in limits) - margin,
                max(high or 0 for _, high in limits) + margin + 1,
            )
        )
    return (dict(zip(NAMES, values, strict=True)) for values in product(*axes))


def points(guards: GuardSet) -> list[Point]:
    """All points of a set."""
    return [point for point in box(guards, margin=0) if guards.holds(point)]


def expect(found: bool | None, wanted: bool, what: str, *sets: GuardSet) -> str | None:
    """Compares a verdict of three values with the truth."""
    if found is not None and found is not wanted:
        raise Counterexample(
            f"{what} is {found}, by trying all points it is {wanted}\n" + shown(*sets)
        )
    return what if found is None else None


def shown(*sets: GuardSet) -> str:
    return "\n".join(
        f"GuardSet.read(*{[str(g.term) for g in s]}, ranges={dict(s.ranges)})" for s in sets
    )


def case(rng: random.Random) -> str:
    return rng.choice(CASES)(rng)


def relations(rng: random.Random) -> str:
    a, b = some_set(rng), some_set(rng)
    inside_a, inside_b = points(a), points(b)
    in_b = [point for point in inside_a if b.holds(point)]
    unknown = [
        expect(a.is_satisfiable(), bool(inside_a), "a.is_satisfiable()", a),
        expect(a.implies(b), len(in_b) == len(inside_a), "a.implies(b)", a, b),
        expect(a.disjoint(b), not in_b, "a.disjoint(b)", a, b),
        expect(
            a.equivalent(b), len(in_b) == len(inside_a) == len(inside_b), "a.equivalent(b)", a, b
        ),
    ]
    return "relations, one unknown" if any(unknown) else "relations"


def algebra(rng: random.Random) -> str:
    a, b = some_set(rng), some_set(rng)
    both, neither, less = a.intersect(b), a.negate(), a.difference(b)
    sizes = {name: (limits[0] or 0) >= 0 for name, limits in a.ranges.items()}
    for point in box(a, b):
        in_a, in_b = a.holds(point), b.holds(point)
        inside = all(point[name] >= 0 or not sizes[name] for name in NAMES)
        for made, wanted, what in (
            (both, in_a and in_b, "intersect"),
            (less, in_a and not in_b, "difference"),
            (neither, not in_a and inside, "negate"),
        ):
            if made.holds(point) != wanted:
                raise Counterexample(
                    f"{what} holds at {point}: {not wanted}, should be {wanted}\n"
                    f"{shown(a, b, made)}"
                )
    return "algebra"


def minimised(rng: random.Random) -> str:
    a = some_set(rng, 7)
    small = a.minimise()
    for point in box(a):
        if a.holds(point) != small.holds(point):
            raise Counterexample(f"minimise changed the meaning at {point}\n{shown(a, small)}")
    redundant = []
    if points(a):
        for guard in small:
            rest = GuardSet(tuple(g for g in small if g is not guard), small.ranges)
            redundant += [guard] if len(points(rest)) == len(points(small)) else []
    return "minimised, one left over" if redundant else "minimised"


def shadow(rng: random.Random) -> str:
    a = some_set(rng)
    name = rng.choice(NAMES)
    found = a.project(name)
    wanted = {point[name] for point in points(a)}
    low, high = a.ranges[name]
    said = {
        value
        for value in range((low or 0) - 2, (high or 0) + 3)
        if found.guard_set.holds({name: value})
    }
    if not wanted <= said or (found.exact and wanted != said):
        raise Counterexample(
            f"project({name}) is {found}: {said}, the shadow is {wanted}\n{shown(a)}"
        )
    return "shadow" if found.exact else "shadow, too wide"


def gridded(rng: random.Random) -> str:
    a = some_set(rng)
    wanted = {(point["s0"], point["s1"]) for point in points(a)}
    axes = [
        range((low or 0) - 1, (high or 0) + 2) for low, high in (a.ranges["s0"], a.ranges["s1"])
    ]
    found = a.region("s0", "s1", axes[0], axes[1])
    cells = {
        (x, y): c
        for y, row in zip(axes[1], found.cells, strict=True)
        for x, c in zip(axes[0], row, strict=True)
    }
    for cell, inside in cells.items():
        if inside is not None and inside is not (cell in wanted):
            raise Counterexample(f"region at {cell} is {inside}\n{shown(a)}")
    return "grid" if None not in cells.values() else "grid with gaps"


def sampled(rng: random.Random) -> str:
    a = some_set(rng)
    count = rng.randint(1, 6)
    found = a.sample(count, seed=rng.randrange(100))
    everything = points(a)
    if any(point not in everything for point in found) or len(
        {tuple(p.items()) for p in found}
    ) != len(found):
        raise Counterexample(f"sample({count}) is {found}\n{shown(a)}")
    return "sampled" if len(found) == min(count, len(everything)) else "sampled too few"


def responsible(rng: random.Random) -> str:
    a = some_set(rng, 6)
    everything = points(a)
    found = a.core()
    if everything:
        if found is not None:
            raise Counterexample(
                f"core is {found}, but {everything[0]} satisfies the set\n{shown(a)}"
            )
        return "no core needed"
    if found is None:
        return "core not found"
    around = list(box(a, margin=3))
    for left_out in found:
        rest = [guard for guard in found if guard is not left_out]
        if rest and not any(all(guard.holds(point) for guard in rest) for point in around):
            # a point may lie outside of the box that was tried
            far = GuardSet(rest, found.ranges).sample(1)
            if not far:
                return "core, perhaps not the least"
            if not all(guard.holds(far[0]) for guard in rest):
                raise Counterexample(f"{far[0]} is no point of {rest}\n{shown(a)}")
    if any(all(guard.holds(point) for guard in found) for point in around):
        raise Counterexample(f"core can be satisfied: {found}\n{shown(a)}")
    return "core"


def closest(rng: random.Random) -> str:
    a = some_set(rng)
    everything = points(a)
    here = {name: rng.randint(-2, 9) for name in NAMES}
    found = nearest([g.term for g in a], a.ranges, here)
    told = explain(a, here)
    if (told is None) != a.holds(here):
        raise Counterexample(f"explain at {here}: {told}\n{shown(a)}")
    if not everything:
        if found is not None:
            raise Counterexample(f"nearest to {here} is {found} of an empty set\n{shown(a)}")
        return "nothing near"
    if found is None:
        return "nearest not found"

    def cost(point: Mapping[str, int]) -> tuple[int, int]:
        gaps = [abs(point[name] - here[name]) for name in NAMES]
        return sum(gap > 0 for gap in gaps), sum(gaps)

    best = min(map(cost, everything))
    if found.values not in everything or (found.certain and cost(found.values) != best):
        raise Counterexample(f"nearest to {here} is {found}, the best costs {best}\n{shown(a)}")
    return "nearest" if found.certain else "nearest, uncertain"


def covered(rng: random.Random) -> str:
    contract = some_set(rng, 1)
    entries = [some_set(rng, 2) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.6:  # what a program makes: one side of a branch, and the other
        entries += [
            GuardSet(e.guards[:1], contract.ranges).negate() for e in entries[:1] if e.guards
        ]
        entries += [GuardSet(entries[0].guards[:1], contract.ranges)]
    found = certify(contract, entries)
    missed = [
        point for point in points(contract) if not any(entry.holds(point) for entry in entries)
    ]
    if found.covered is True and missed:
        raise Counterexample(f"certified, but {missed[0]} is missed\n{shown(contract, *entries)}")
    if found.covered is False and dict(found.counterexample or {}) not in missed:
        raise Counterexample(
            f"{found.counterexample} is no counterexample\n{shown(contract, *entries)}"
        )
    return {True: "certified", False: "counterexample", None: "certificate unknown"}[found.covered]


def exchanged(rng: random.Random) -> str:
    a = some_set(rng)
    # two at random seldom agree
    b = some_set(rng) if rng.random() < 0.7 else GuardSet(a.guards[1:], a.ranges)
    if from_json(to_json(a)) != a:
        raise Counterexample(f"JSON gives back another set\n{shown(a)}\n{to_json(a)}")
    apart = distinguish(a, b)
    for point, one, other in ((apart.only_first, a, b), (apart.only_second, b, a)):
        if point is not None and not (one.holds(point) and not other.holds(point)):
            raise Counterexample(f"distinguish: {point} does not tell apart\n{shown(a, b)}")
    conflict = explain_conflict(a, b)
    if conflict is not None and any(b.holds(point) for point in points(a)):
        raise Counterexample(f"explain_conflict finds {conflict}\n{shown(a, b)}")
    return "exchanged" if conflict is None else "conflict"


def solved(rng: random.Random) -> str:
    """Solving for one symbol: the answer holds at the same points as the condition, within the
    ranges.
    """
    a = some_set(rng)
    name = rng.choice(NAMES)
    facts = facts_from(dict(a.ranges))
    label = "solved"
    for guard in a:
        try:
            answer = solve(guard.term, name, facts)
        except CannotSolve:
            label = "not all solved"
            continue
        for point in box(a, margin=0):
            if satisfied(answer, point) is not guard.holds(point):
                raise Counterexample(
                    f"solve({guard}, {name}) is {answer}: wrong at {point}\n{shown(a)}"
                )
    return label


def minimised_together(rng: random.Random) -> str:
    """As :func:`minimised`, by the one solver that is else only asked about many guards."""
    many = minimising._MANY
    minimising._MANY = rng.randrange(3)
    try:
        return minimised(rng)
    finally:
        minimising._MANY = many


@contextmanager
def limited(**limits: int) -> Iterator[None]:
    """What a question may work, other than it is else (``steps``, ``searches``, ``runs``,
    ``steps_each`` ...).
    """
    before = {name.upper(): getattr(budget, name.upper()) for name in limits}
    for name, limit in limits.items():
        setattr(budget, name.upper(), limit)
    try:
        yield
    finally:
        for name, limit in before.items():
            setattr(budget, name, limit)


def hurried(rng: random.Random) -> str:
    """Another case where questions may work little: their answers are few, and right."""
    steps, searches, runs = (
        rng.choice([0, 300, 3_000]),
        rng.choice([0, 1, 2, 5]),
        rng.choice([0, 20, 200]),
    )
    chosen = rng.choice([each for each in CASES if each is not hurried])
    with limited(steps=steps, searches=searches, runs=runs, steps_each=0, searches_each=0):
        chosen(rng)
    return "hurried"


CASES = (
    hurried,
    solved,
    minimised_together,
    relations,
    algebra,
    minimised,
    shadow,
    gridded,
    sampled,
    responsible,
    closest,
    covered,
    exchanged,
)


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer."""
    seen = (
        "relations",
        "algebra",
        "minimised",
        "shadow",
        "grid",
        "sampled",
        "core",
        "nearest",
        "certified",
        "counterexample",
        "exchanged",
        "conflict",
        "solved",
        "hurried",
    )
    return run_fuzzer("guard_regions", __doc__, argv, case, count=5_000, smoke=250, must_see=seen)
