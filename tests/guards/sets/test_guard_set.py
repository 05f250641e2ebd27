"""Sets of guards: values that cannot change, and regions that can be compared, cut and put
together.
"""

from __future__ import annotations

import pickle
from itertools import product

import pytest

from guards import Guard, GuardSet, Origin, ParseError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, gt, le

S0, S1, S2 = (symbol(f"s{i}") for i in range(3))


class TestGuardSet:
    def test_symbols_without_range_are_sizes(self) -> None:
        guards = GuardSet((Guard(le(S0, 4)),))
        assert dict(guards.ranges) == {"s0": (0, None)}
        assert not guards.holds({"s0": -1})
        assert [v.text for v in guards.violations({"s0": -1})] == ["s0 >= 0, but s0 = -1"]

    def test_ranges_are_part_of_the_set(self) -> None:
        guards = GuardSet((), {"s0": (2, 8)})
        assert [guards.holds({"s0": value}) for value in (1, 2, 8, 9)] == [False, True, True, False]
        assert len(guards) == 0
        assert len(guards.conditions) == 2

    def test_range_of_one_value(self) -> None:
        assert [str(g.term) for g in GuardSet((), {"s0": (5, 5)}).conditions] == ["s0 == 5"]

    def test_is_a_value(self) -> None:
        one = GuardSet((Guard(gt(S0, 2)),), {"s0": (0, None)})
        other = GuardSet([gt(S0, 2)])
        assert one == other
        assert hash(one) == hash(other)
        assert one != GuardSet([gt(S0, 2)], {"s0": (0, 9)})
        assert pickle.loads(pickle.dumps(one)) == one

    def test_cannot_be_changed(self) -> None:
        ranges = {"s0": (0, 4)}
        guards = GuardSet((), ranges)
        ranges["s0"] = (0, 9)
        assert guards.ranges["s0"] == (0, 4)
        with pytest.raises(TypeError):
            guards.ranges["s0"] = (0, 9)  # type: ignore[index]
        with pytest.raises(AttributeError):
            guards.guards = ()  # type: ignore[misc]

    def test_violations_in_the_users_names(self) -> None:
        guards = GuardSet.read("s0 == s1")
        (found,) = guards.violations({"s0": 3, "s1": 4}, {"s0": "x.size(0)", "s1": "y.size(0)"})
        assert found.text == "x.size(0) == y.size(0), but x.size(0) = 3 and y.size(0) = 4"

    def test_text_leaves_out_trivial_ranges(self) -> None:
        guards = GuardSet((Guard(gt(S0, 2), Origin("m.py", 4)),), {"s0": (0, None), "s1": (0, 7)})
        assert guards.text() == "s1 <= 7  # declared range\ns0 >= 3  # m.py:4"

    def test_bad_text(self) -> None:
        with pytest.raises(ParseError):
            GuardSet.read("s0 >")
        with pytest.raises(ParseError, match="a condition is needed, not the integer s0"):
            GuardSet.read("s0 + 1")

    def test_missing_value(self) -> None:
        with pytest.raises(KeyError):
            GuardSet.read("s0 > 1").holds({})


class TestRegions:
    def test_implies(self) -> None:
        a = GuardSet.read("s0 >= 3", "s1 % 8 == 0")
        assert a.implies(GuardSet.read("s0 + s1 > 2", "s1 % 4 == 0")) is True
        assert a.implies(GuardSet.read("s0 >= 4")) is False
        assert a.implies(GuardSet((), {"s0": (0, 100)})) is False

    def test_implies_minds_division_by_zero(self) -> None:
        """`s0 % s1 >= 0` is true wherever it is defined: still it does not follow from s0 >= 0."""
        undefined_at_zero = GuardSet((Guard(ge(S0 % S1, 0)),))
        assert GuardSet.read("s0 >= 0", "s1 >= 0").implies(undefined_at_zero) is False
        assert GuardSet.read("s0 >= 0", "s1 >= 1").implies(undefined_at_zero) is True

    def test_empty_range(self) -> None:
        empty = GuardSet((), {"s0": (3, 2)})
        assert empty.is_satisfiable() is False
        assert empty.implies(GuardSet.read("s0 == 77")) is True
        assert empty.disjoint(GuardSet()) is True
        assert empty.sample(3) == []
        assert empty.minimise() == empty

    def test_complement_is_exact(self) -> None:
        guards = GuardSet.read("s0 % s1 == 0", "s0 < 5")
        other = guards.negate()
        for s0 in range(8):
            for s1 in range(4):
                values = {"s0": s0, "s1": s1}
                assert guards.holds(values) != other.holds(values), values

    def test_equivalent(self) -> None:
        assert (
            GuardSet.read("s0 % 2 == 0", "s0 % 3 == 0").equivalent(GuardSet.read("s0 % 6 == 0"))
            is True
        )
        assert GuardSet.read("s0 % 2 == 0").equivalent(GuardSet.read("s0 % 4 == 0")) is False

    def test_intersection_of_ranges(self) -> None:
        both = GuardSet((), {"s0": (0, 9)}).intersect(GuardSet((), {"s0": (4, None), "s1": (1, 2)}))
        assert dict(both.ranges) == {"s0": (4, 9), "s1": (1, 2)}

    def test_projection_is_exact_for_linear_guards(self) -> None:
        found = GuardSet.read("s0 + s1 >= 10", "s1 <= 4", "s2 > s0").project("s0")
        assert found.exact
        assert str(found.guard_set) == "s0 >= 6"

    def test_projection_says_when_it_is_too_wide(self) -> None:
        found = GuardSet.read("s0 == s1 * s1").project("s0")
        assert not found.exact
        assert str(found).startswith("at most: ")
        assert all(found.guard_set.holds({"s0": root * root}) for root in range(5))

    def test_projection_of_a_multiple(self) -> None:
        found = GuardSet.read("s0 == 8 * s1", "s1 >= 1").project("s1")
        assert found.exact
        assert str(found.guard_set) == "s1 >= 1"

    def test_core_is_least(self) -> None:
        guards = GuardSet.read("s0 >= 2", "s1 == 5", "s2 > 3", "s0 > s1", "s0 < 4")
        found = guards.core()
        assert found is not None
        assert {g.term for g in found} == {le(S0, 3), gt(S0, S1), eq(S1, 5)}

    def test_no_core_of_what_can_hold(self) -> None:
        assert GuardSet.read("s0 > 2").core() is None

    def test_only_a_proof_says_that_sets_are_disjoint(self) -> None:
        assert GuardSet.read("s0 % 2 == 0").disjoint(GuardSet.read("s0 % 2 == 1")) is True
        assert GuardSet.read("s0 % 2 == 0").disjoint(GuardSet.read("s0 % 3 == 1")) is False

    def test_difference(self) -> None:
        left = GuardSet.read("s0 < 9").difference(GuardSet.read("s0 % s1 == 0", "s1 < 3"))
        for s0, s1 in product(range(12), range(5)):
            values = {"s0": s0, "s1": s1}
            assert left.holds(values) is (s0 < 9 and not (s1 in (1, 2) and s0 % s1 == 0)), values

    def test_a_core_keeps_its_origins(self) -> None:
        guards = GuardSet(
            (Guard(gt(S0, S1), Origin("m.py", 1)), Guard(le(S0, S1), Origin("m.py", 2)))
        )
        found = guards.core()
        assert found is not None
        assert [str(guard.origin) for guard in found] == ["m.py:1", "m.py:2"]


def test_table_for_notebooks() -> None:
    guards = GuardSet((Guard(le(S0, 2), Origin("m.py", 4, "f", "if n < 3:", "aten.add", "sizes")),))
    table = guards._repr_html_()
    for cell in ("s0 &lt;= 2", "m.py:4 in f", "if n &lt; 3:", "aten.add: sizes", "guards (1)"):
        assert cell in table
