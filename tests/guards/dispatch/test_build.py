"""What the builder chooses to look at, and that each choice answers what a scan answers."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.dispatch.box import Compiler
from guards.dispatch.build import COVER, build
from guards.dispatch.nodes import LEAF, Gate, Leaf, Node, Record, Span, Steps, Table
from guards.terms.arithmetic import symbol
from tests.guards.dispatch.nodes_of import records_of, scan

A, B = symbol("a"), symbol("b")
SLOTS = ("a", "b")


def _built(*texts: str, top: int = 14) -> Node:
    """The node for records of these texts, after a look at whether it answers right."""
    records = records_of(*texts)
    node = build(records, frozenset(), Compiler(SLOTS))
    for values in product(range(top), repeat=2):
        assert node.find(values) is scan(records, SLOTS, values), values
    return node


def test_few_records_are_a_leaf() -> None:
    assert isinstance(_built(*(f"a == {value}" for value in range(LEAF))), Leaf)
    assert isinstance(_built(*(f"a == {value}" for value in range(LEAF + 1))), Table)


def test_nothing_to_tell_apart_is_a_leaf_that_may_grow() -> None:
    node = _built(*(f"a != {value}" for value in range(9)))
    assert isinstance(node, Leaf)
    assert node.limit == 18


def test_exact_values_make_a_table() -> None:
    node = _built(*(f"a == {value};b >= {value % 3}" for value in range(9)), "b == 5")
    assert isinstance(node, Table)
    assert node.forms == (A,)
    assert set(node.branches) == set(range(9))
    assert isinstance(node.rest, Leaf)
    assert node.first == 9


def test_a_table_of_several_forms_where_these_tell_more_apart() -> None:
    node = _built(*(f"a == {value % 3};b == {value // 3}" for value in range(9)))
    assert isinstance(node, Table)
    assert set(node.forms) == {A, B}
    assert len(node.branches) == 9


def test_remainders_are_values_like_others() -> None:
    node = _built(*(f"(a + b) % 8 == {value}" for value in range(8)))
    assert isinstance(node, Table)
    assert node.forms == ((A + B) % 8,)


def test_ranges_make_steps() -> None:
    node = _built(*(f"a > {2 * value};a <= {2 * value + 2}" for value in range(6)))
    assert isinstance(node, Steps)
    assert node.bounds == [1, 3, 5, 7, 9, 11, 13]
    assert node.branches[0] is None
    assert node.branches[-1] is None


def test_what_a_certain_record_covers_is_closed_to_those_behind() -> None:
    """The last of the growing caps lies in one segment only: the others are taken by tighter
    caps.
    """
    node = _built(*(f"a <= {value}" for value in range(8)))
    assert isinstance(node, Steps)
    assert [branch is not None and len(branch.records) for branch in node.branches] == [1] * 8 + [
        False
    ]  # type: ignore[union-attr]


def test_wide_ranges_that_leave_nothing_in_common_make_a_span() -> None:
    texts = [
        f"a >= {value};a <= {value + 3 * COVER};b >= {1 + value % 5}" for value in range(3 * COVER)
    ]
    records = records_of(*texts)
    node = build(records, frozenset(), Compiler(SLOTS))
    spans = [each for each in _nodes(node) if isinstance(each, Span)]
    assert spans
    for values in product(range(0, 7 * COVER, 3), range(6)):
        assert node.find(values) is scan(records, SLOTS, values), values


def test_wide_ranges_with_something_in_common_make_a_gate() -> None:
    texts = [f"a >= {value};a <= {value + 3 * COVER};b % 3 == 1" for value in range(3 * COVER)]
    records = records_of(*texts)
    node = build(records, frozenset(), Compiler(SLOTS))
    gates = [each for each in _nodes(node) if isinstance(each, Gate)]
    assert gates
    assert set(gates[0].shared.limits) == {B % 3}
    for values in product(range(0, 7 * COVER, 3), range(6)):
        assert node.find(values) is scan(records, SLOTS, values), values


@pytest.mark.parametrize("seed", range(8))
def test_random_records(seed: int) -> None:
    rng = random.Random(seed)
    texts = []
    for _ in range(rng.choice([6, 20, 60])):
        parts = []
        for name in rng.sample(SLOTS, rng.randint(1, 2)):
            low = rng.randint(0, 12)
            ends = f"{name} >= {low};{name} <= {low + 3}"
            parts.append(
                rng.choice(
                    [f"{name} == {low}", ends, f"{name} % 3 == {low % 3}", f"{name} != {low}", ends]
                )
            )
        texts.append(";".join(parts))
    _built(*texts, top=16)


def _nodes(node: Node | None) -> list[Node]:
    """A node and those below it that can be reached by attributes (those of a span are hidden in
    its paths).
    """
    if node is None:
        return []
    below: list[Node | None] = []
    if isinstance(node, Table):
        below = [*node.branches.values(), node.rest]
    elif isinstance(node, Steps):
        below = [*node.branches, node.rest]
    elif isinstance(node, Gate):
        below = [node.branch, node.rest]
    elif isinstance(node, Span):
        below = [node.rest]
    return [node, *(each for inner in below for each in _nodes(inner))]


def test_records_are_shared_not_copied() -> None:
    records = records_of(*(f"a <= {value}" for value in range(8)))
    found: set[Record] = set()
    for node in _nodes(build(records, frozenset(), Compiler(SLOTS))):
        if isinstance(node, Leaf):
            found |= set(node.records)
    assert found == set(records)
