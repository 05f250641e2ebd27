"""A guard: a condition that is read as total, and what is said when it fails."""

from __future__ import annotations

import pytest

from guards import Guard, Origin, parse
from guards.sets.guard import listed, violation
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE, eq, or_

S0, S1 = symbol("s0"), symbol("s1")


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

    def test_says_where_it_comes_from(self) -> None:
        assert str(Guard(parse("s0 > 2"), Origin("deep/m.py", 4))) == "s0 >= 3  # m.py:4"
        assert str(Guard(parse("s0 > 2"))) == "s0 >= 3"

    def test_in_other_names(self) -> None:
        assert Guard(parse("s0 == 2*s1")).text({"s1": "x.size(1)"}) == "s0 == 2*x.size(1)"

    def test_missing_value(self) -> None:
        with pytest.raises(KeyError):
            Guard(parse("s0 > s1")).holds({"s0": 1})

    def test_is_a_value(self) -> None:
        assert Guard(parse("s0 > 2"), Origin("m.py", 4)) == Guard(
            parse("2 < s0"), Origin("m.py", 4)
        )
        assert len({Guard(parse("s0 > 2")), Guard(parse("s0 > 2"), Origin("m.py", 4))}) == 2


class TestViolation:
    def test_names_the_values_of_its_symbols_alone(self) -> None:
        found = violation(
            Guard(parse("s1 > s0"), Origin("m.py", 4)), {"s2": 9, "s1": 2, "s0": 3}, {"s0": "n"}
        )
        assert found.text == "n < s1, but n = 3 and s1 = 2"
        assert found.values == (("s0", 3), ("s1", 2))
        assert str(found) == f"{found.text}  # m.py:4"
        assert found.origin == Origin("m.py", 4)

    def test_of_a_condition_without_symbols(self) -> None:
        assert violation(Guard(TRUE), {}).text == "True"


def test_listed() -> None:
    assert [listed(["a", "b", "c"][:count]) for count in range(4)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
