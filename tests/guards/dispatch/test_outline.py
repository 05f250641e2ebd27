"""The outline of a tree leads where the tree leads, whatever its nodes are."""

from __future__ import annotations

import random

import pytest

from guards import GuardSet, Tree
from guards.dispatch.outline import Outline, outline


def _sets(kind: str, rng: random.Random) -> list[GuardSet]:
    if kind == "values":
        return [
            GuardSet.read(f"n == {rng.randint(0, 9)}", f"m == {rng.randint(0, 9)}")
            for _ in range(30)
        ]
    if kind == "ranges":
        return [
            GuardSet.read(f"n >= {low}", f"n < {low + 4}", f"m % {rng.randint(2, 4)} == 0")
            for low in range(0, 60, 4)
        ]
    if kind == "overlapping":
        starts = [rng.randint(0, 40) for _ in range(40)]
        return [
            GuardSet.read(f"n + m >= {low}", f"n + m < {low + 25}", f"n % 7 == {low % 7}")
            for low in starts
        ]
    return [
        GuardSet.read(
            *rng.sample(
                [
                    f"n == {rng.randint(0, 9)}",
                    f"m > {rng.randint(0, 9)}",
                    "n + m > 5",
                    "n % 2 == 1",
                ],
                2,
            )
        )
        for _ in range(25)
    ]


def _walk(node: Outline, values: tuple[int, ...], entry: object) -> tuple[object, ...]:
    """The entries of the leaf that a look-up is said to end in."""
    while node.branches:
        chosen = node.chosen(values, entry)
        assert chosen is not None
        node = node.branches[chosen][1]
    return node.entries


@pytest.mark.parametrize("kind", ["values", "ranges", "overlapping", "mixed"])
def test_leads_to_what_a_look_up_finds(kind: str) -> None:
    rng = random.Random(kind)
    tree: Tree[str] = Tree(["n", "m"])
    for number, guard_set in enumerate(_sets(kind, rng)):
        tree.insert(guard_set, f"entry {number}")
    root = outline(tree)
    found = 0
    for _ in range(400):
        values = (
            (rng.randint(0, 70), rng.randint(0, 12))
            if kind == "ranges"
            else (rng.randint(0, 9), rng.randint(0, 30))
        )
        entry = tree.lookup(values)
        if entry is not None:
            assert entry in _walk(root, values, entry)
            found += 1
    assert found > 10


def test_a_leaf() -> None:
    tree: Tree[str] = Tree(["n"])
    assert outline(tree).entries == ()
    tree.insert(GuardSet.read("n > 2"), "one")
    leaf = outline(tree)
    assert (leaf.entries, leaf.branches, leaf.asks) == (("one",), (), "")
