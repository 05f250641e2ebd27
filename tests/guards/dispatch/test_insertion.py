"""Insertion makes a new tree: it finds one record more, and the old tree stays as it was."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.dispatch.box import Compiler
from guards.dispatch.build import COVER, build
from guards.dispatch.insertion import _cut, insert
from guards.dispatch.nodes import Gate, Leaf, Node, Span, Steps, Table
from tests.guards.dispatch.nodes_of import records_of, scan

SLOTS = ("a", "b")
KINDS: dict[type[Node], list[str]] = {
    Leaf: ["a != 3", "b != 2"],
    Table: [f"a == {value};b >= 1" for value in range(9)],
    Steps: [f"a > {2 * value};a <= {2 * value + 2};b <= 9" for value in range(6)],
    Gate: [f"a >= {value};a <= {value + 3 * COVER};b % 3 == 1" for value in range(3 * COVER)],
    Span: [
        f"a >= {value};a <= {value + 3 * COVER};b >= {1 + value % 5}" for value in range(3 * COVER)
    ],
}
MORE = [
    "a == 4;b == 0",
    "a == 40",
    "b == 0",
    "a >= 2;a <= 5",
    "a <= 60",
    "a >= 8;b % 3 == 1",
    "a % 2 == 1",
    "b <= 5",
]
VALUES = [
    *product((0, 1, 2, 3, 4, 5, 6, 8, 9, 40, 60, 61, 99, 150, 190, 300), (0, 1, 2, 5, 6, 9, 10))
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_more_is_found_and_the_old_tree_stays(kind: type[Node]) -> None:
    texts = KINDS[kind]
    for more in MORE:
        *records, added = records_of(*texts, more)
        compiler = Compiler(SLOTS)
        old = build(records, frozenset(), compiler)
        assert isinstance(old, kind)
        before = [old.find(values) for values in VALUES]
        new = insert(old, added, compiler)
        assert [old.find(values) for values in VALUES] == before
        for values in VALUES:
            assert new.find(values) is scan([*records, added], SLOTS, values), (more, values)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_many_more(kind: type[Node]) -> None:
    """Until what was inserted is as much as what was there, and beyond: parts are made anew on the
    way.
    """
    rng = random.Random(kind.__name__)
    texts = [*KINDS[kind], *(rng.choice(MORE) + f";b != {rng.randint(0, 9)}" for _ in range(120))]
    records = records_of(*texts)
    count = len(KINDS[kind])
    compiler = Compiler(SLOTS)
    node = build(records[:count], frozenset(), compiler)
    for number, record in enumerate(records[count:], count + 1):
        node = insert(node, record, compiler)
        for values in rng.sample(VALUES, 4):
            assert node.find(values) is scan(records[:number], SLOTS, values), (number, values)
    for values in VALUES:
        assert node.find(values) is scan(records, SLOTS, values), values


def test_what_no_value_leads_to_changes_nothing() -> None:
    *records, hidden = records_of("a == 1", "a >= 0", "b == 1")
    compiler = Compiler(SLOTS)
    leaf = Leaf(tuple(records), frozenset(), compiler)
    assert insert(leaf, hidden, compiler) is leaf
    *caps, hidden = records_of(*(f"a <= {value}" for value in range(8)), "a <= 3;b == 1")
    steps = build(caps, frozenset(), compiler)
    assert isinstance(steps, Steps)
    assert insert(steps, hidden, compiler) is steps
    *exact, hidden = records_of(*(f"a == {value}" for value in range(8)), "a == 3;b == 1")
    table = build(exact, frozenset(), compiler)
    assert isinstance(table, Table)
    assert insert(table, hidden, compiler) is table


def test_all_but_one_path_is_shared() -> None:
    *records, added = records_of(*(f"a == {value};b >= 1" for value in range(9)), "a == 4;b == 0")
    compiler = Compiler(SLOTS)
    old = build(records, frozenset(), compiler)
    new = insert(old, added, compiler)
    assert isinstance(old, Table)
    assert isinstance(new, Table)
    assert [value for value in range(9) if new.branches[value] is not old.branches[value]] == [4]


def test_a_leaf_grows_up_to_its_limit() -> None:
    records = records_of(*(f"a == {value};b >= 1" for value in range(6)))
    compiler = Compiler(SLOTS)
    node: Node = Leaf((), frozenset(), compiler)
    kinds = []
    for record in records:
        node = insert(node, record, compiler)
        kinds.append(type(node))
    assert kinds == [Leaf] * 4 + [Table] * 2


@pytest.mark.parametrize(
    ("limits", "bounds", "branches", "covered"),
    [
        ((None, None), [3, 7], "xyz", (0, 3)),
        ((3, None), [3, 7], "xyz", (1, 3)),
        ((4, None), [3, 4, 7], "xyyz", (2, 4)),
        ((None, 6), [3, 7], "xyz", (0, 2)),
        ((None, 7), [3, 7, 8], "xyzz", (0, 3)),
        ((5, 5), [3, 5, 6, 7], "xyyyz", (2, 3)),
        ((0, 9), [0, 3, 7, 10], "xxyzz", (1, 4)),
    ],
)
def test_cut(
    limits: tuple[int | None, int | None],
    bounds: list[int],
    branches: str,
    covered: tuple[int, int],
) -> None:
    """Segments before 3, from 3 to 6, and from 7 on: a range ends at bounds afterwards."""
    now, parts = [3, 7], list("xyz")
    assert _cut(now, parts, limits) == covered
    assert (now, "".join(parts)) == (bounds, branches)
