"""Explanations: who is responsible, what is nearest, and the sentence about it."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from guards import (
    Guard,
    GuardSet,
    Origin,
    Size,
    Tree,
    distinguish,
    explain,
    explain_conflict,
    explain_miss,
    parse,
)
from guards.regions.nearest import nearest
from guards.regions.satisfiability import search, universe
from tests.counting import calls
from tests.guards.making import random_set

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
            "x.size(0) is 1 and y.size(0) is 0, but the entry needs x.size(0) + y.size(0) > 2 "
            "because of mlp.py:12 "
            "(`if a.size(0) + b.size(0) > 2:`); nearest passing input: x.size(0) = 3"
        )

    def test_own_names_without_sources(self) -> None:
        found = explain(GuardSet.read("s0 == 8"), {"s0": 7})
        assert str(found) == "s0 is 7, but the entry needs s0 == 8; nearest passing input: s0 = 8"

    def test_declared_range(self) -> None:
        found = explain(GuardSet((), {"s0": (2, 64)}), {"s0": 65}, NAMES)
        assert str(found) == (
            "x.size(0) is 65, but the declared range needs x.size(0) <= 64; nearest passing input: "
            "x.size(0) = 64"
        )

    def test_a_range_and_a_guard(self) -> None:
        found = explain(
            GuardSet([guard("s1 == 8"), guard("s2 == 4")], {"s0": (2, 64)}),
            {"s0": 65, "s1": 7, "s2": 3},
        )
        assert str(found) == (
            "s0 is 65, but the declared range needs s0 <= 64; s1 is 7, but the entry needs s1 == "
            "8; "
            "s2 is 3, but it also needs s2 == 4; nearest passing input: s0 = 64, s1 = 8 and s2 = 4"
        )

    def test_origin_without_a_line(self) -> None:
        found = explain(
            GuardSet([guard("s0 == 8", Origin("", 0, op="aten.mm", rule="inner sizes"))]), {"s0": 7}
        )
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
        assert str(found).endswith("; no input passes: s0 > s1 contradicts s0 < s1")

    def test_division_by_zero(self) -> None:
        found = explain(GuardSet.read("s0 % s1 == 0"), {"s0": 6, "s1": 0})
        assert str(found) == (
            "s0 is 6 and s1 is 0, but the entry needs s0 % s1 == 0 (a division by 0 there); "
            "nearest passing input: s1 = 1"
        )


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
        assert self.near("s0 + s1 >= 10", "s0 <= 6", "s1 <= 6", s0=0, s1=0) == (
            {"s0": 4, "s1": 6},
            True,
        ) or (sum(self.near("s0 + s1 >= 10", "s0 <= 6", "s1 <= 6", s0=0, s1=0)[0].values()) == 10)

    def test_far_away(self) -> None:
        assert self.near("s0 >= 1000000", "s0 % 4096 == 0", s0=3) == ({"s0": 1003520}, True)

    def test_far_away_without_a_bound(self) -> None:
        """Nothing cheap says where to look: the solver halves the distance."""
        assert self.near("s0 * s0 >= 1000000", s0=3) == ({"s0": 1000}, True)

    def test_sizes_stay_sizes(self) -> None:
        assert self.near("s0 < s1", s0=0, s1=0) == ({"s1": 1}, True)

    def test_independent_parts_are_solved_apart(self) -> None:
        texts = [f"a{index} + b{index} == {index}" for index in range(1, 9)]
        values = {f"{letter}{index}": 0 for letter in "ab" for index in range(1, 9)}
        (moved, certain), count = calls(lambda: self.near(*texts, **values))
        assert count < 100_000, count
        assert len(moved) == 8
        assert certain

    def test_inside_is_itself(self) -> None:
        assert self.near("s0 > 2", s0=5) == ({}, True)

    @given(st.integers(0, 2**40))
    def test_nothing_is_nearer_by_trying_all_points(self, seed: int) -> None:
        """Fewest values changed, then the least change; the responsible guards fail, and when they
        hold all do.
        """
        rng = random.Random(seed)
        names = ("s0", "s1")
        bounded = dict.fromkeys(names, (rng.choice([-2, 0, 1]), rng.randint(3, 12)))
        guards = random_set(rng, names, 3).intersect(GuardSet((), bounded))
        here = {name: rng.randint(-3, 15) for name in names}
        found = explain(guards, here)
        assert (found is None) is guards.holds(here)
        if found is None:
            return
        assert found.violations
        assert not any(each.guard.holds(here) for each in found.violations)
        points = [
            dict(zip(names, values, strict=True)) for values in product(range(-3, 14), repeat=2)
        ]
        inside = [point for point in points if guards.holds(point)]

        def cost(point: dict[str, int]) -> tuple[int, int]:
            changes = [abs(point[name] - here[name]) for name in names]
            return sum(change > 0 for change in changes), sum(changes)

        if not inside:
            assert found.nearest is None
            assert "no input passes" in found.text or "was found" in found.text
        elif found.nearest is not None and found.nearest.certain:
            assert cost({name: found.nearest.values[name] for name in names}) == min(
                map(cost, inside)
            )


class TestMisses:
    def test_one_entry(self) -> None:
        tree: Tree[str] = Tree(["s0"])
        assert explain_miss(tree.miss((4,))) == "there are no entries yet"
        tree.insert(GuardSet([guard("s0 % 8 == 0", BRANCH)]), "entry")
        assert explain_miss(tree.miss((9,)), NAMES) == (
            "x.size(0) is 9, but the entry needs x.size(0) % 8 == 0 because of mlp.py:12 "
            "(`if a.size(0) + b.size(0) > 2:`); nearest passing input: x.size(0) = 8"
        )

    def test_hundreds_of_entries(self) -> None:
        tree: Tree[int] = Tree(["s0", "s1"])
        for index in range(500):
            tree.insert(GuardSet.read(f"s0 == {index}", "s1 % 8 == 0"), index)
        told, count = calls(lambda: explain_miss(tree.miss((250, 9)), NAMES))
        assert count < 50_000, count
        assert told == (
            "y.size(0) is 9, but the nearest of 500 entries needs y.size(0) % 8 == 0; "
            "nearest passing input: y.size(0) = 8"
        )


class TestDistinguish:
    def test_what_each_asks_alone(self) -> None:
        found = distinguish(
            GuardSet.read("s0 == 1", "s1 > 0"), GuardSet.read("s0 > 1", "s1 > 0"), NAMES
        )
        assert [str(g.term) for g in found.first] == ["s0 == 1"]
        assert [str(g.term) for g in found.second] == ["s0 >= 2"]
        assert found.only_first == {"s0": 1, "s1": 1}
        assert found.only_second == {"s0": 2, "s1": 1}
        assert str(found).startswith(
            "the first alone asks x.size(0) == 1; the second alone asks x.size(0) >= 2; "
        )

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
            "declared x.size(0) <= 8 contradicts the program: x.size(0) == y.size(0) by m.py:3 (`a "
            "+ b`), and y.size(0) == 16 by m.py:9 (`b.view(16)`)"
        )

    def test_no_conflict(self) -> None:
        assert explain_conflict(GuardSet((), {"s0": (2, 8)}), GuardSet.read("s0 == 8")) is None

    def test_sizes_are_not_told(self) -> None:
        """That sizes are 0 or more needs no telling; what the user declared does."""
        program = GuardSet.read("s0 == s1 + 1", "s1 == 7*s2", "s2 < 1")
        found = explain_conflict(GuardSet.read("s0 % 8 == 0", ranges={"s0": (1, 64)}), program)
        assert (
            str(found)
            == "declared s0 % 8 == 0 contradicts the program: s0 == s1 + 1, and s1 == 7*s2, and s2 "
            "<= 0"
        )

    def test_nothing_can_be_left_out(self) -> None:
        rng = random.Random(12)
        names = ("s0", "s1")
        conflicts = 0
        for _ in range(150):
            declared, program = random_set(rng, names, 2), random_set(rng, names, 4)
            found = explain_conflict(declared, program)
            both = declared.intersect(program)
            if found is None:
                assert both.is_satisfiable() is not False
                continue
            conflicts += 1
            members = [g.term for g in (*found.declared, *found.program)]
            given = (*program.ranges.items(), *declared.ranges.items())
            sizes = {name: universe(limits) for name, limits in given}
            base = (
                sizes
                if search(members, sizes).satisfiable is False
                else dict.fromkeys(sizes, (None, None))
            )
            assert search(members, base).satisfiable is False
            for left_out in members:
                assert (
                    search([term for term in members if term is not left_out], base).satisfiable
                    is not False
                )
        assert conflicts > 20

    def test_declared_contradicts_itself(self) -> None:
        found = explain_conflict(GuardSet.read("s0 > 5", "s0 < 3"), GuardSet.read("s1 > 1"))
        assert str(found) == "what was declared contradicts itself: s0 >= 6 and s0 <= 2"

    def test_program_contradicts_itself(self) -> None:
        found = explain_conflict(GuardSet((), {"s0": (0, 9)}), GuardSet.read("s1 > s2", "s1 < s2"))
        assert found is not None
        assert str(found).startswith("the program contradicts itself: ")
        assert (len(found.declared), len(found.program)) == (0, 2)
