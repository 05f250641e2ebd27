"""Explanations: who is responsible, what is nearest, and the sentence about it."""

from __future__ import annotations

from time import perf_counter

from guards import Guard, GuardSet, Origin, Size, Tree, distinguish, explain, explain_conflict, explain_miss, parse
from guards.nearest import nearest

NAMES = {"s0": Size("x", 0), "s1": Size("y", 0), "s2": Size("kwargs['mask']", 1)}
BRANCH = Origin("models/mlp.py", 12, text="if a.size(0) + b.size(0) > 2:")


def guard(text: str, origin: Origin | None = None) -> Guard:
    return Guard(parse(text), origin)


class TestExplain:
    def test_nothing_to_explain(self) -> None:
        assert explain(GuardSet.read("s0 > 2"), {"s0": 3}) is None

    def test_sentence(self) -> None:
        found = explain(GuardSet([guard("s0 + s1 > 2", BRANCH)]), {"s0": 1, "s1": 0}, NAMES)
        assert str(found) == (
            "x.size(0) is 1 and y.size(0) is 0, but the entry traced at mlp.py:12 (`if a.size(0) + b.size(0) > 2:`) "
            "needs x.size(0) + y.size(0) > 2; nearest passing input: x.size(0) = 3"
        )

    def test_own_names_without_sources(self) -> None:
        found = explain(GuardSet.read("s0 == 8"), {"s0": 7})
        assert str(found) == "s0 is 7, but the entry needs s0 == 8; nearest passing input: s0 = 8"

    def test_declared_range(self) -> None:
        found = explain(GuardSet((), {"s0": (2, 64)}), {"s0": 65}, NAMES)
        assert str(found) == (
            "x.size(0) is 65, but the declared range needs x.size(0) <= 64; nearest passing input: x.size(0) = 64"
        )

    def test_origin_without_a_line(self) -> None:
        found = explain(GuardSet([guard("s0 == 8", Origin("", 0, op="aten.mm", rule="inner sizes"))]), {"s0": 7})
        assert "the entry needs s0 == 8 (aten.mm: inner sizes)" in str(found)

    def test_only_those_responsible(self) -> None:
        """Once s0 >= 8 holds, the others do too."""
        guards = GuardSet.read("s0 >= 4", "s0 >= 8", "s0 + s1 >= 6", "s1 >= 0")
        found = explain(guards, {"s0": 1, "s1": 0})
        assert found is not None
        assert [str(v.guard.term) for v in found.violations] == ["s0 >= 8"]
        assert found.nearest is not None
        assert found.nearest.values == {"s0": 8, "s1": 0}

    def test_many_violations_are_counted(self) -> None:
        guards = GuardSet.read(*(f"n{index} == {index + 1}" for index in range(6)))
        found = explain(guards, {f"n{index}": 0 for index in range(6)})
        assert found is not None
        assert len(found.violations) == 6
        assert "and 3 more guards fail" in str(found)
        assert found.nearest is not None
        assert len(found.nearest.changed) == 6

    def test_no_input_passes(self) -> None:
        found = explain(GuardSet.read("s0 > s1", "s1 > s0"), {"s0": 1, "s1": 2})
        assert str(found).endswith("; no input passes")

    def test_division_by_zero(self) -> None:
        found = explain(GuardSet.read("s0 % s1 == 0"), {"s0": 6, "s1": 0})
        assert str(found) == ("s0 is 6 and s1 is 0, but the entry needs s0 % s1 == 0; nearest passing input: s1 = 1")


class TestNearest:
    def near(self, *texts: str, **values: int) -> tuple[dict[str, int], bool]:
        guards = GuardSet.read(*texts)
        found = nearest([g.term for g in guards], guards.ranges, values)
        assert found is not None
        return {name: found.values[name] for name in found.changed}, found.certain

    def test_fewest_changes_before_smallest(self) -> None:
        """Changing both to 5 would cost 10; one change of 90 is preferred."""
        assert self.near("s0 == 90 or (s0 == 5 and s1 == 5)", s0=0, s1=0) == ({"s0": 90}, True)

    def test_both_must_change(self) -> None:
        assert self.near("s0 + s1 >= 10", "s0 <= 6", "s1 <= 6", s0=0, s1=0) == ({"s0": 4, "s1": 6}, True) or (
            sum(self.near("s0 + s1 >= 10", "s0 <= 6", "s1 <= 6", s0=0, s1=0)[0].values()) == 10
        )

    def test_far_away(self) -> None:
        assert self.near("s0 >= 1000000", "s0 % 4096 == 0", s0=3) == ({"s0": 1003520}, True)

    def test_far_away_without_a_bound(self) -> None:
        """Nothing cheap says where to look: the solver halves the distance."""
        assert self.near("s0 * s0 >= 1000000", s0=3) == ({"s0": 1000}, True)

    def test_sizes_stay_sizes(self) -> None:
        assert self.near("s0 < s1", s0=0, s1=0) == ({"s1": 1}, True)

    def test_independent_parts_are_solved_apart(self) -> None:
        texts = [f"a{index} + b{index} == {index}" for index in range(1, 9)]
        start = perf_counter()
        moved, certain = self.near(*texts, **{f"{letter}{index}": 0 for letter in "ab" for index in range(1, 9)})
        assert perf_counter() - start < 10
        assert len(moved) == 8
        assert certain

    def test_inside_is_itself(self) -> None:
        assert self.near("s0 > 2", s0=5) == ({}, True)


class TestMisses:
    def test_one_entry(self) -> None:
        tree: Tree[str] = Tree(["s0"])
        assert explain_miss(tree.miss((4,))) == "there are no entries yet"
        tree.insert(GuardSet([guard("s0 % 8 == 0", BRANCH)]), "entry")
        assert explain_miss(tree.miss((9,)), NAMES) == (
            "x.size(0) is 9, but the entry traced at mlp.py:12 (`if a.size(0) + b.size(0) > 2:`) needs "
            "x.size(0) % 8 == 0; nearest passing input: x.size(0) = 8"
        )

    def test_hundreds_of_entries(self) -> None:
        tree: Tree[int] = Tree(["s0", "s1"])
        for index in range(500):
            tree.insert(GuardSet.read(f"s0 == {index}", "s1 % 8 == 0"), index)
        start = perf_counter()
        told = explain_miss(tree.miss((250, 9)), NAMES)
        assert perf_counter() - start < 2
        assert told == (
            "y.size(0) is 9, but the nearest of 500 entries needs y.size(0) % 8 == 0; "
            "nearest passing input: y.size(0) = 8"
        )


class TestDistinguish:
    def test_what_each_asks_alone(self) -> None:
        found = distinguish(GuardSet.read("s0 == 1", "s1 > 0"), GuardSet.read("s0 > 1", "s1 > 0"), NAMES)
        assert [str(g.term) for g in found.first] == ["s0 == 1"]
        assert [str(g.term) for g in found.second] == ["s0 >= 2"]
        assert found.only_first == {"s0": 1, "s1": 1}
        assert found.only_second == {"s0": 2, "s1": 1}
        assert str(found).startswith("the first alone asks x.size(0) == 1; the second alone asks x.size(0) >= 2; ")

    def test_the_same(self) -> None:
        found = distinguish(GuardSet.read("s0 > 1"), GuardSet.read("s0 >= 2", "s0 != 1"))
        assert str(found) == "both hold for the same values"
        assert found.first == found.second == ()


class TestConflict:
    def test_chain_with_origins(self) -> None:
        program = GuardSet(
            [
                guard("s2 > 3", Origin("m.py", 1)),
                guard("s0 == s1", Origin("m.py", 3, text="a + b")),
                guard("s1 == 16", Origin("m.py", 9, text="b.view(16)")),
            ]
        )
        found = explain_conflict(GuardSet((), {"s0": (2, 8)}), program, NAMES)
        assert found is not None
        assert [str(g.term) for g in found.declared] == ["s0 <= 8"]
        assert [g.origin.line for g in found.program if g.origin] == [3, 9]
        assert str(found) == (
            "declared x.size(0) <= 8 contradicts the program: x.size(0) == y.size(0) by m.py:3 (`a + b`), "
            "and y.size(0) == 16 by m.py:9 (`b.view(16)`)"
        )

    def test_no_conflict(self) -> None:
        assert explain_conflict(GuardSet((), {"s0": (2, 8)}), GuardSet.read("s0 == 8")) is None

    def test_declared_contradicts_itself(self) -> None:
        found = explain_conflict(GuardSet.read("s0 > 5", "s0 < 3"), GuardSet.read("s1 > 1"))
        assert str(found) == "what was declared contradicts itself: s0 >= 6 and s0 <= 2"

    def test_program_contradicts_itself(self) -> None:
        found = explain_conflict(GuardSet((), {"s0": (0, 9)}), GuardSet.read("s1 > s2", "s1 < s2"))
        assert found is not None
        assert str(found).startswith("the program contradicts itself: ")
        assert (len(found.declared), len(found.program)) == (0, 2)
