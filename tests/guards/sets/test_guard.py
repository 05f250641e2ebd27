"""Guards, their origins, and sets of them as regions."""

from __future__ import annotations

import pickle
from time import perf_counter

import pytest

from guards import Effort, Guard, GuardsError, GuardSet, Origin, ParseError
from guards.sets.guard import listed
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE, eq, ge, gt, le, ne, or_

S0, S1, S2 = (symbol(f"s{i}") for i in range(3))


class TestOrigin:
    def test_names_the_users_line(self) -> None:
        origin = Origin("deep/in/model.py", 12, "forward", "if n > 2:", "aten.add", "broadcasting")
        assert str(origin) == "model.py:12 in forward (`if n > 2:`) [aten.add: broadcasting]"

    def test_without_a_file(self) -> None:
        assert str(Origin("", 0, op="aten.mm", rule="inner sizes agree")) == "aten.mm: inner sizes agree"

    def test_is_a_value(self) -> None:
        assert Origin("m.py", 1) == Origin("m.py", 1)
        assert len({Origin("m.py", 1), Origin("m.py", 1), Origin("m.py", 2)}) == 2


class TestGuard:
    def test_needs_a_condition(self) -> None:
        with pytest.raises(TypeError, match="condition"):
            Guard(S0 + 1)

    def test_undefined_does_not_hold(self) -> None:
        guard = Guard(eq(S0 % S1, 0))
        assert guard.holds({"s0": 6, "s1": 3})
        assert not guard.holds({"s0": 6, "s1": 0})

    def test_undefined_part_of_or(self) -> None:
        guard = Guard(or_(eq(S1, 0), eq(S0 % S1, 0)))
        assert guard.holds({"s0": 6, "s1": 0})


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
        with pytest.raises(TypeError, match="condition"):
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
        assert GuardSet.read("s0 % 2 == 0", "s0 % 3 == 0").equivalent(GuardSet.read("s0 % 6 == 0")) is True
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

    def test_samples_spread(self) -> None:
        guards = GuardSet.read("s0 % 8 == 0", "s1 < s0", ranges={"s0": (8, 4096), "s1": (0, None)})
        found = guards.sample(20)
        assert len(found) == 20
        assert all(guards.holds(point) for point in found)
        assert max(p["s0"] for p in found) > 2000 > 64 >= min(p["s0"] for p in found)
        assert found == guards.sample(20)
        assert found != guards.sample(20, seed=1)

    def test_sample_finds_every_point_of_a_small_set(self) -> None:
        guards = GuardSet.read("s0 * s1 == 12", ranges={"s0": (1, 20), "s1": (1, 20)})
        found = guards.sample(50)
        assert sorted(p["s0"] for p in found) == [1, 2, 3, 4, 6, 12]

    def test_core_is_least(self) -> None:
        guards = GuardSet.read("s0 >= 2", "s1 == 5", "s2 > 3", "s0 > s1", "s0 < 4")
        found = guards.core()
        assert found is not None
        assert {g.term for g in found} == {le(S0, 3), gt(S0, S1), eq(S1, 5)}

    def test_no_core_of_what_can_hold(self) -> None:
        assert GuardSet.read("s0 > 2").core() is None


class TestMinimise:
    def test_keeps_origins(self) -> None:
        strong = Guard(ge(S0, 3), Origin("m.py", 7))
        small = GuardSet((Guard(ge(S0, 2), Origin("m.py", 3)), strong, Guard(ne(S0, 1)))).minimise()
        assert small.guards == (strong,)

    def test_drops_what_ranges_imply(self) -> None:
        assert len(GuardSet([ge(S0, 2), le(S0, 64)], {"s0": (2, 64)}).minimise()) == 0

    def test_keeps_one_of_equals(self) -> None:
        small = GuardSet([eq(S0, S1), eq(S1, S0), eq(2 * S0, 2 * S1), ge(S0, 5), ge(S1, 5)]).minimise()
        assert len(small) == 2

    def test_contradictions_stay(self) -> None:
        guards = GuardSet([gt(S0, 5), le(S0, 2), ne(S1, 3)])
        assert guards.minimise() == guards

    def test_division_by_zero_is_not_implied(self) -> None:
        """`s0 % s1 >= 0` holds wherever it is defined, but it also says that s1 is not 0."""
        guards = GuardSet([ge(S0 % S1, 0)])
        assert guards.minimise() == guards

    def test_same_object_when_minimal(self) -> None:
        guards = GuardSet([gt(S0 + S1, 2)])
        assert guards.minimise() is guards

    def test_true_goes(self) -> None:
        assert len(GuardSet([TRUE]).minimise(Effort.CHEAP)) == 0

    def test_three_hundred_guards(self) -> None:
        """The kind of guards that a transformer leaves: the same few conditions again for each layer."""
        terms = []
        for layer in range(25):
            terms += [ge(S0 * S1, 1), ne(S0 * S1 * 768, 0), le(S1, 1024), gt(S0 * S1 * 768, layer), ne(S1, 1)]
            terms += [ge(S1, 1 + layer % 3), ne(S0, 0), le(S0 * S1 * 64, 64 * 1024 * S0), ge(S0 + S1, 2)]
            terms += [eq((S1 + S2) % 8, 0), ge((S1 + S2 + 7) // 8, 1), le(S2, 4096 - S1)]
        guards = GuardSet(terms, {"s0": (1, 64)})
        start = perf_counter()
        small = guards.minimise()
        seconds = perf_counter() - start
        assert len(small) <= 5
        assert small.equivalent(guards) is True
        assert seconds < 3  # about 0.1 s; the goal is 1 s, on a quiet machine


def test_listed() -> None:
    assert [listed(["a", "b", "c"][:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]


class TestRegion:
    def test_cells_are_where_the_rest_can_hold(self) -> None:
        guards = GuardSet.read("s0 + s1 >= s2", "s2 * s2 == 9", "s0 % 2 == 0", ranges={"s2": (1, None)})
        found = guards.region("s0", "s1", range(5), range(4))
        for y, row in zip(found.rows, found.cells, strict=True):
            for x, cell in zip(found.columns, row, strict=True):
                assert cell is (x % 2 == 0 and x + y >= 3), (x, y)

    def test_fixed_symbols(self) -> None:
        found = GuardSet.read("s0 + s1 > s2").region("s0", "s1", range(3), range(2), at={"s2": 1})
        assert found.cells == ((False, False, True), (False, True, True))

    def test_unbounded_ranges_are_cut(self) -> None:
        found = GuardSet.read("s0 > 10", "s1 > s0").region("s0", "s1")
        assert found.columns == tuple(range(11, 43))
        assert found.rows[0] == 12
        assert found.cells[0][0] is True
        assert found.cells[0][1] is False

    def test_empty(self) -> None:
        found = GuardSet.read("s0 > 2", "s0 < 2", ranges={"s1": (0, 1)}).region("s0", "s1", range(2), range(2))
        assert found.cells == ((False, False), (False, False))

    def test_wrong_use(self) -> None:
        guards = GuardSet.read("s0 > 2")
        with pytest.raises(GuardsError, match="two symbols"):
            guards.region("s0", "s0")
        with pytest.raises(GuardsError, match="too many"):
            guards.region("s0", "s1", range(2000), range(2000))


class TestSamples:
    """Points satisfy the set, are different, repeat for the same seed, and reach the ends."""

    @pytest.mark.parametrize(
        ("texts", "ranges", "wanted"),
        [
            (["s0 == 3 or s0 == 900 or s0 > 5000"], {}, {3, 900, 5001}),
            (["s0 * s0 >= 1000000"], {"s0": (0, 2000)}, {1000, 2000}),
            (["s0 % 64 == 5"], {"s0": (0, 4096)}, {5, 4037}),
            (["s0 != 7"], {"s0": (5, 9)}, {5, 9}),
            (["s0 % 2 == 1"], {"s0": (1, 9)}, {1, 3, 5, 7, 9}),
        ],
    )
    def test_the_ends_are_among_them(
        self, texts: list[str], ranges: dict[str, tuple[int | None, int | None]], wanted: set[int]
    ) -> None:
        found = GuardSet.read(*texts, ranges=ranges).sample(10)
        assert wanted <= {point["s0"] for point in found}

    def test_remainders_of_squares(self) -> None:
        """No walk that tries values at random would find many of these."""
        guards = GuardSet.read("(s0*s0 + 3) % 101 == 7")
        found = guards.sample(12)
        assert len(found) == 12
        assert {point["s0"] % 101 for point in found} == {2, 99}

    def test_ends_that_depend_on_another_symbol(self) -> None:
        found = GuardSet.read("s0 < s1", ranges={"s1": (1, 40)}).sample(12)
        assert any(point["s0"] == point["s1"] - 1 for point in found)
        assert any(point["s0"] == 0 for point in found)
        assert any(point["s1"] == 40 for point in found)

    def test_nothing_to_take(self) -> None:
        assert GuardSet.read("s0 * s0 == 7").sample(3) == []
        assert GuardSet().sample(2) == [{}]
        assert GuardSet.read("s0 > 1").sample(0) == []
