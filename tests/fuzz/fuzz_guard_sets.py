"""Guard sets: the generated check against Python's own `eval`, and the dispatch tree against a scan
by priority.

A case reads random conditions from text.  The check, the explanation and `holds` must agree with
what Python makes of the same text wherever it divides by no zero.  A tree of many sets, with
insertions and removals in between, must answer what the first set that holds answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from guards.dispatch.tree import Tree
from guards.sets.codegen import Check, compile_check
from guards.sets.guard_set import GuardSet
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.guards.making import SLOTS, families, random_set, text_of_condition

PROBES = 20  # values tried for each guard set
FAMILIES = families()


def case(rng: random.Random) -> str:
    """One guard set, or (one case in twenty) one tree."""
    if rng.random() < 0.95:
        return case_of_check(rng)
    return case_of_random_tree(rng) if rng.random() < 0.5 else case_of_families(rng)


def case_of_check(rng: random.Random) -> str:
    """The check of a set against `eval` of its text."""
    texts = [text_of_condition(rng, SLOTS) for _ in range(rng.randint(1, 3))]
    ranges = {name: (rng.choice([0, 1, None]), rng.choice([None, 9])) for name in SLOTS}
    try:
        guards = GuardSet.read(*texts, ranges=ranges)
    except ZeroDivisionError:
        return "divides by zero"
    check = compile_check(guards, SLOTS)
    label = "never held"
    for _ in range(PROBES):
        values = tuple(rng.randint(-3, 13) for _ in SLOTS)
        known = dict(zip(SLOTS, values, strict=True))
        got = check.check(values)
        reproducer = (
            f"compile_check(GuardSet.read(*{texts}, ranges={ranges}), {SLOTS}).check({values})"
        )
        if guards.holds(known) != got:
            raise Counterexample(
                f"{reproducer} is {got}, GuardSet.holds says otherwise\n{check.source}"
            )
        if bool(check.explain(values)) == got:
            raise Counterexample(
                f"{reproducer} is {got}, but explain says {check.explain(values)}\n{check.source}"
            )
        wanted = _by_python(texts, ranges, known)
        if wanted is not None and wanted != got:
            raise Counterexample(f"{reproducer} is {got}, Python says {wanted}\n{check.source}")
        label = "held" if got else label
    return label


def _by_python(
    texts: Sequence[str], ranges: dict[str, tuple[int | None, int | None]], values: dict[str, int]
) -> bool | None:
    """What Python says of the conditions; None where one divides by zero (there the canonical form
    may be defined).
    """
    try:
        truths = [bool(eval(text, {"min": min, "max": max}, dict(values))) for text in texts]
    except ZeroDivisionError:
        return None
    inside = [
        (low is None or values[name] >= low) and (high is None or values[name] <= high)
        for name, (low, high) in ranges.items()
    ]
    return all(truths) and all(inside)


def case_of_random_tree(rng: random.Random) -> str:
    """A tree of unrelated sets."""
    tree: Tree[str] = Tree(SLOTS)
    live: list[tuple[Check, str]] = []
    label = "tree"
    for index in range(rng.choice([2, 6, 20, 50])):
        guards = random_set(rng)
        entry = f"entry {index}"
        tree.insert(guards, entry)
        live.append((compile_check(guards, SLOTS), entry))
        if rng.random() < 0.08:
            _, gone = live.pop(rng.randrange(len(live)))
            tree.remove(gone)
            label = "tree with removals"
    for _ in range(100):
        _compare(tree, live, tuple(rng.randint(-1, 11) for _ in SLOTS))
    return label


def case_of_families(rng: random.Random) -> str:
    """A tree of entries from one or two families, in random order, with values near their edges."""
    chosen = rng.sample(FAMILIES, rng.choice([1, 1, 2]))
    tree: Tree[str] = Tree(chosen[0].slots)
    live: list[tuple[Check, str]] = []
    numbers = [(family, rng.randrange(40)) for family in chosen for _ in range(rng.randint(1, 40))]
    rng.shuffle(numbers)
    for family, number in numbers:
        entry = f"{family.name} {number}"
        tree.insert(family.guard_set(number), entry)
        live.append((compile_check(family.guard_set(number), tree.slots), entry))
    for _ in range(100):
        family, number = rng.choice(numbers)
        _compare(
            tree,
            live,
            tuple(value + rng.choice([0, 0, 0, -8, -1, 1, 5]) for value in family.values(number)),
        )
    return "families"


def _compare(tree: Tree[str], live: list[tuple[Check, str]], values: tuple[int, ...]) -> None:
    wanted = next((entry for check, entry in live if check.check(values)), None)
    got = tree.lookup(values)
    if got != wanted:
        sets = "\n".join(f"{entry}: {check.guard_set.text()}" for check, entry in live)
        raise Counterexample(
            f"lookup({values}) is {got!r}, the first set that holds is {wanted!r} of\n{sets}"
        )
    if got is None and len(tree):
        miss = tree.miss(values)
        counts = [len(near.violations) for near in miss.nearest]
        if not counts or not all(counts) or counts != sorted(counts):
            raise Counterexample(f"miss({values}) has nearest entries with {counts} violations")


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case of a check tries 20 values."""
    seen = ("held", "never held", "tree", "tree with removals", "families")
    return run_fuzzer("guard_sets", __doc__, argv, case, count=20_000, smoke=600, must_see=seen)
