"""A conjunction as a box, and the tests that are made of it."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import GuardSet, parse
from guards.dispatch.box import Box, Compiler, bounded_form, conjuncts
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE, le
from guards.terms.extremes import maximum
from guards.terms.straight_line import DEEPEST
from tests.guards.making import SLOTS, random_set

A, B = symbol("a"), symbol("b")


@pytest.mark.parametrize(
    ("text", "form", "pair"),
    [
        ("a == 4", "a", (4, 4)),
        ("a > 4", "a", (5, None)),
        ("a <= 4", "a", (None, 4)),
        ("2*a - 4*b <= 7", "a - 2*b", (None, 3)),
        ("4*b - 2*a <= 7", "a - 2*b", (-3, None)),
        ("a + b == 3", "a + b", (3, 3)),
        ("b == a + 3", "a - b", (-3, -3)),
        ("a % 8 >= 2", "a % 8", (2, None)),
        ("max(a, b) * b == 9", "b * max(a, b)", (9, 9)),
    ],
)
def test_relations_bound_a_form(text: str, form: str, pair: tuple[int | None, int | None]) -> None:
    found = bounded_form(parse(text))
    assert found == (parse(form), pair)


@pytest.mark.parametrize(
    "text", ["a != 4", "a > 4 or b > 2", "a > 4 and b > 2", "a % b == 0", "a // b <= 4"]
)
def test_what_is_no_range(text: str) -> None:
    assert bounded_form(parse(text)) is None


def test_deep_terms_are_no_forms() -> None:
    """They are computed in steps, which a test of a form has no place for."""
    term = A
    for _ in range(DEEPEST):
        term = maximum(term // 2, B) + 1
    assert bounded_form(le(term, 4)) is None


def test_conjuncts() -> None:
    assert conjuncts(TRUE) == ()
    assert conjuncts(parse("a > 1")) == (parse("a > 1"),)
    assert set(conjuncts(parse("a > 1 and b > 2"))) == {parse("a > 1"), parse("b > 2")}


class TestBox:
    def test_ranges_of_one_form_meet(self) -> None:
        box = Box.of(GuardSet.read("a >= 2", "a <= 9", "a >= 4", "b != 3"))
        assert box.limits[A] == (4, 9)
        assert box.limits[B] == (0, None)
        assert box.rest == (parse("b != 3"),)
        assert not box.empty

    def test_signs_of_sizes_are_left_out(self) -> None:
        guards = GuardSet.read(
            "a != 3", "b >= 0", "b <= 9", ranges={"a": (0, None), "b": (-4, None)}
        )
        assert Box.of(guards, ["a", "b"]).limits == {B: (None, 9)}
        assert Box.of(guards).limits == {A: (0, None), B: (0, 9)}

    def test_a_least_size_is_kept(self) -> None:
        assert Box.of(GuardSet.read("a >= 1"), ["a"]).limits == {A: (1, None)}

    @pytest.mark.parametrize(
        "texts", [["a > 5", "a <= 2"], ["a % 8 == 1", "a % 8 == 2"], ["False"]]
    )
    def test_empty(self, texts: list[str]) -> None:
        assert Box.of(GuardSet.read(*texts)).empty

    def test_atoms_are_what_each_guard_asks(self) -> None:
        box = Box.of(GuardSet.read("a >= 2 and b != 3", "a <= 9"), ["a", "b"])
        first, second = box.atoms
        assert set(first) == {(A, (2, None)), (parse("b != 3"), None)}
        assert second == ((A, (None, 9)),)


class TestCompiler:
    def test_reads_slots_and_forms(self) -> None:
        compiler = Compiler(["b", "a"])
        assert compiler.getter((A,))((7, 8)) == 8
        assert compiler.getter((A, B))((7, 8)) == (8, 7)
        assert compiler.getter((A + B, A % 3))((7, 8)) == (15, 2)
        assert compiler.getter((A + B,)) is compiler.getter((A + B,))

    def test_agrees_with_the_guards(self) -> None:
        rng = random.Random(4)
        compiler = Compiler(SLOTS)
        held = 0
        for _ in range(150):
            guards = random_set(rng)
            test = compiler.test(Box.of(guards), frozenset())
            for _ in range(10):
                values = tuple(rng.randint(-1, 10) for _ in SLOTS)
                wanted = guards.holds(dict(zip(SLOTS, values, strict=True)))
                assert (True if test is None else test(values)) is wanted, (guards, values)
                held += wanted
        assert 150 < held < 1350

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
    def test_points(self, count: int) -> None:
        """All slots at once, some by a getter, few one by one: the same answers."""
        slots = [f"s{index}" for index in range(5)]
        test = Compiler(slots).test(
            Box.of(GuardSet.read(*(f"s{4 - index} == {index}" for index in range(count))), slots),
            frozenset(),
        )
        assert test is not None
        for values in product(*((4 - index, 9) for index in range(5))):
            assert test(values) is all(values[4 - index] == index for index in range(count))

    def test_boxes_that_differ_in_numbers_share_their_code(self) -> None:
        compiler = Compiler(["a", "b"])
        one, other = (
            compiler.test(Box.of(GuardSet.read(text)), frozenset()) for text in ("a > 4", "a > 9")
        )
        assert one is not None
        assert other is not None
        assert one.__code__ is other.__code__
        assert (one((5, 0)), other((5, 0))) == (True, False)

    def test_what_is_verified_is_not_tested_again(self) -> None:
        compiler = Compiler(["a", "b"])
        box = Box.of(GuardSet.read("a == 4", "b != 2"), ["a", "b"])
        condition = parse("b != 2")
        left = compiler.test(box, frozenset({A}))
        assert left is not None
        assert left((0, 3))
        assert not left((4, 2))
        assert compiler.test(box, frozenset({A, condition})) is None

    def test_undefined_does_not_hold(self) -> None:
        test = Compiler(["a", "b"]).test(Box.of(GuardSet.read("a % b == 0")), frozenset())
        assert test is not None
        assert [test((6, 3)), test((6, 4)), test((6, 0))] == [True, False, False]
