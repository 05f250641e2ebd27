"""The decision tree that finds the guard set that holds, in place of a scan.

A :class:`Tree` returns what a scan of the guard sets in order of insertion would return, with far
fewer tests: forms that many sets fix are looked up in a table, ranges of a form are searched by
bisection, and only what is left of a set is tested one by one.  Readers need no lock: a writer
publishes a new tree by one assignment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from guards.dispatch.box import Box, Compiler, Values
from guards.dispatch.build import build
from guards.dispatch.insertion import insert
from guards.dispatch.nodes import Leaf, Node, Record
from guards.domains.interval_arithmetic import Pair
from guards.errors import Missing
from guards.facts.definedness import satisfied
from guards.sets.codegen import require_slots, slot_names
from guards.sets.guard import Violation
from guards.sets.guard_set import GuardSet, as_set
from guards.sets.sources import Source
from guards.terms.fold import evaluate
from guards.terms.term import Term

E = TypeVar("E")


@attrs.frozen
class Near(Generic[E]):
    """An entry that a call missed, and what failed.

    Attributes:
        entry: the entry.
        guard_set: its guards.
        violations: those that failed, fewest first among the entries of one miss.
    """

    entry: E
    guard_set: GuardSet
    violations: tuple[Violation, ...]


@attrs.frozen
class Miss(Generic[E]):
    """Why no entry serves a call.

    Attributes:
        values: the values of the call, by symbol.
        nearest: the entries with the fewest failing guards, best first.
        entries: how many entries there were.
    """

    values: Mapping[str, int]
    nearest: tuple[Near[E], ...]
    entries: int

    def __str__(self) -> str:
        if not self.nearest:
            return "there are no entries"
        near = self.nearest[0]
        return f"no entry of {self.entries} holds; the nearest needs " + "; ".join(
            str(v) for v in near.violations
        )


class Tree(Generic[E]):
    """Entries behind guard sets, the one inserted first wins.

    ``slots`` names the symbols in the order in which their values arrive.  ``sizes`` may name slots
    whose values are known to be 0 or more: that they are is not tested then.

    >>> tree = Tree(["s0", "s1"])
    >>> tree.insert(GuardSet.read("s0 == 8", "s1 == 4"), "static")
    >>> tree.insert(GuardSet.read("s0 + s1 > 2"), "dynamic")
    >>> tree.lookup((8, 4)), tree.lookup((9, 4)), tree.lookup((1, 1))
    ('static', 'dynamic', None)
    >>> print(tree.miss((1, 1)))
    no entry of 2 holds; the nearest needs s0 + s1 > 2, but s0 = 1 and s1 = 1
    """

    __slots__ = (
        "_by_size",
        "_compiler",
        "_find",
        "_lock",
        "_next",
        "_records",
        "_root",
        "_sizes",
        "slots",
    )

    def __init__(self, slots: Sequence[str], sizes: Collection[str] = ()) -> None:
        slot_names(slots)
        self.slots = tuple(slots)
        self._sizes = frozenset(sizes)
        self._compiler = Compiler(self.slots)
        self._lock = threading.Lock()
        self._records: tuple[Record, ...] = ()
        self._next = 0
        self._by_size = 8  # the number of entries at which the tree is made anew
        self._publish(Leaf((), frozenset(), self._compiler))

    def _publish(self, root: Node) -> None:
        self._root = root
        self._find: Callable[[Values], Record | None] = root.find

    def lookup(self, values: Values) -> E | None:
        """The first entry, in order of insertion, whose guards hold at ``values``; None when there
        is none.
        """
        found = self._find(values)
        return None if found is None else found.entry

    def insert(self, guard_set: GuardSet, entry: E) -> None:
        """Add an entry behind all that are there.

        Raises:
            GuardsError: the guards speak about a symbol that has no slot.
        """
        guard_set = as_set(guard_set, "Tree.insert")
        require_slots(guard_set, self.slots)
        box = Box.of(guard_set, self._sizes)
        with self._lock:
            record = Record(entry, self._next, guard_set, box)
            self._next += 1
            self._records = (*self._records, record)
            if len(self._records) >= self._by_size:
                self._by_size = 2 * len(self._records)
                self._rebuild()
            elif not box.empty:
                self._publish(insert(self._root, record, self._compiler))

    def remove(self, entry: E) -> None:
        """Take out every guard set that leads to ``entry`` (the same object).

        Raises:
            Missing: there is none.

        >>> tree = Tree(["s0"])
        >>> tree.insert(GuardSet.read("s0 == 8"), "static")
        >>> tree.remove("static")
        >>> len(tree), tree.lookup((8,))
        (0, None)
        """
        with self._lock:
            kept = tuple(record for record in self._records if record.entry is not entry)
            if len(kept) == len(self._records):
                raise Missing(f"no guard set leads to the entry {entry!r}")
            self._records = kept
            self._rebuild()

    def _rebuild(self) -> None:
        live = [record for record in self._records if not record.box.empty]
        self._publish(build(live, frozenset(), self._compiler))

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[tuple[GuardSet, E]]:
        return iter([(record.guard_set, record.entry) for record in self._records])

    def scan(self, values: Values) -> E | None:
        """Find the entry that :meth:`lookup` must return by trying one set after the other, for
        tests.
        """
        known = dict(zip(self.slots, values, strict=True))
        for record in self._records:
            if record.guard_set.holds(known):
                return record.entry  # type: ignore[no-any-return]
        return None

    def miss(
        self, values: Values, sources: Mapping[str, Source | str] | None = None, limit: int = 3
    ) -> Miss[E]:
        """The entries nearest to ``values``: the fewest failing guards, then the least distance,
        then the newest.

        ``sources`` gives the names in which the violations are spelled.
        """
        known = dict(zip(self.slots, values, strict=True))
        seen: dict[Term, int] = {}
        records = self._records
        ranked = sorted(
            records, key=lambda record: (*_distance(record, known, seen), -record.priority)
        )
        nearest: list[Near[E]] = []
        for record in ranked[:limit]:
            violations = record.guard_set.violations(known, sources)
            if violations:
                nearest.append(Near(record.entry, record.guard_set, violations))
        return Miss(known, tuple(nearest), len(records))


def _distance(record: Record, values: Mapping[str, int], seen: dict[Term, int]) -> tuple[int, int]:
    """Return how many conditions of a record fail, and the sum of their distances."""
    failing = gap = 0
    for atoms in record.box.atoms:
        gaps = [_gap(term, pair, values, seen) for term, pair in atoms]
        if any(gaps):
            failing += 1
            gap += sum(gaps)
    return failing, gap


def _gap(term: Term, pair: Pair | None, values: Mapping[str, int], seen: dict[Term, int]) -> int:
    """Return the distance of a form from its range: 0 inside, and 1 for a condition that fails."""
    if term not in seen:
        seen[term] = (
            evaluate(term, values) if pair is not None else 0 if satisfied(term, values) else 1
        )
    value = seen[term]
    if pair is None:
        return value
    low, high = pair
    if low is not None and value < low:
        return low - value
    return value - high if high is not None and value > high else 0
