"""What the rungs do to a climb, one at a time: forms they reach, points they find, and when they
are asked.
"""

from __future__ import annotations

import pytest

from guards import parse
from guards.asking import rungs
from guards.asking.assumptions import facts_from
from guards.asking.climb import Climb
from guards.asking.ladder import Step
from guards.terms.boolean import TRUE
from guards.terms.fold import evaluate

SIZES = {"x": (1, None), "y": (1, None)}


def _climb(
    text: str, assume: tuple[str, ...] = (), only: bool | None = None, **ranges: tuple[int, int]
) -> Climb:
    condition = parse(text)
    return Climb(facts_from({**SIZES, **ranges}, assume).component(condition), condition, only)


@pytest.mark.parametrize(
    ("applies", "yes", "no"),
    [
        (rungs.divides_by_terms, "x % y == 0", "x % 8 == 0"),
        (rungs.is_connective, "x == 1 or y == 1", "x == y"),
        (rungs.divides_by_numbers, "x // 3 + x // 2 <= x", "x*y <= x"),
        (rungs.divides_by_numbers, "x // 3 + x // 2 <= x", "x // y <= x"),
        (rungs.divides_by_numbers, "x // 3 + x // 2 <= x", "x // 3 == x"),
        (rungs.may_be_rewritten, "x % 8 <= 3", "x + y <= 3"),
        (rungs.may_be_rewritten, "x*y <= 3", "x <= 3"),
    ],
)
def test_when_rungs_are_asked(applies: Step, yes: str, no: str) -> None:
    assert applies(_climb(yes))
    assert not applies(_climb(no))


def test_rungs_asked_for_one_answer() -> None:
    for only, for_true, for_false in (
        (None, True, True),
        (True, True, False),
        (False, False, True),
    ):
        climb = _climb("x < y", only=only)
        assert rungs.may_always_hold(climb) is for_true
        assert rungs.may_never_hold(climb) is for_false
        assert rungs.seeks_one_answer(climb) is (only is not None)
        assert rungs.seeks_both_answers(climb) is (only is None)


def test_elimination_tries_a_form_once() -> None:
    climb = _climb("x // 3 + x // 2 <= y")
    assert rungs.may_always_hold(climb)
    assert not rungs.eliminate_for_true(climb)
    assert not rungs.may_always_hold(climb)
    climb.condition = parse("x <= y + 1")
    assert rungs.may_always_hold(climb)


def test_it_is_asked_only_where_it_is_defined() -> None:
    climb = _climb("x % (y - 1) <= x")
    before = climb.component
    assert before.bounds(parse("y - 1")) == (0, None)
    assert not rungs.restrict_to_defined(climb)
    assert climb.component is not before
    assert climb.component.bounds(parse("y - 1")) == (1, None)
    nowhere = _climb("x % (y - 1) <= x", y=(1, 1))
    assert rungs.restrict_to_defined(nowhere)
    assert nowhere.value is None
    assert "no value" in nowhere.reason


def test_known_equations_are_put_in() -> None:
    climb = _climb("x % 4 == 0", ("x % 8 == 0",))
    assert rungs.has_rewrites(climb)
    assert not rungs.was_rewritten(climb)
    assert rungs.replace_known(climb)
    assert (climb.value, climb.condition) == (True, TRUE)
    open_one = _climb("x % 16 == 0", ("x % 8 == 0",))
    assert not rungs.replace_known(open_one)
    assert rungs.was_rewritten(open_one)
    assert not rungs.has_rewrites(_climb("x == y"))


def test_parts_of_a_conjunction_contradict_each_other() -> None:
    never = _climb("x == 3 and x*y < y")
    assert rungs.contradict_parts(never)
    assert never.value is False
    always = _climb("x != 3 or x*y >= y")
    assert rungs.contradict_parts(always)
    assert always.value is True
    for only, text in (
        (True, "x == 3 and x*y < y"),
        (None, "x == 3 and x*y < 9"),
        (None, "x == 3"),
    ):
        assert not rungs.contradict_parts(_climb(text, only=only))


def test_rewriting_reaches_another_form() -> None:
    climb = _climb("(x*y + x) // (y + 1) == x")
    assert rungs.rewrite(climb)
    assert climb.value is True
    plain = _climb("x <= y")
    assert not rungs.rewrite(plain)
    assert plain.condition is plain.asked


@pytest.mark.parametrize(
    "find", [rungs.try_points, rungs.search_points, rungs.try_all_values, rungs.ask_z3]
)
@pytest.mark.parametrize("text", ["x < y", "x*y % 3 == 1", "x == 4 or y == 2"])
def test_points_are_points(find: Step, text: str) -> None:
    """Whoever finds points: the query has the value there that excludes the answer."""
    climb = _climb(text, ("x <= y + 3",), x=(1, 6), y=(1, 7))
    ended = find(climb)
    assert climb.value is None
    assert (
        ended is (climb.fails is not None and climb.holds is not None)
        or find is rungs.try_all_values
    )
    assert climb.possible() == []
    assert climb.fails is not None
    assert climb.holds is not None
    for point, value in ((climb.fails, False), (climb.holds, True)):
        assert evaluate(climb.asked, point) is value
        assert point["x"] <= point["y"] + 3


@pytest.mark.parametrize(
    ("settle", "always", "never"),
    [
        (rungs.look, "x + y >= 2", "x + y <= 1"),
        (rungs.try_all_values, "x*x*y % 7 <= x*x*y", "x*x*y % 7 > x*x*y"),
        (rungs.split_cases, "x*x % 4 <= 1", "x*x % 4 >= 2"),
        (rungs.factor, "x*x + y*y + 1 > 2*x*y", "x*x + y*y + 1 <= 2*x*y"),
        (rungs.ask_z3, "x*x + y*y >= 2*x*y", "x*x + y*y < 2*x*y"),
        (rungs.try_large_box, "x*y*x % 9 <= x*x*y", "x*y*x % 9 > x*x*y"),
    ],
)
def test_rungs_give_both_answers(settle: Step, always: str, never: str) -> None:
    for text, value in ((always, True), (never, False)):
        climb = _climb(text, x=(1, 30), y=(1, 30))
        assert settle(climb), text
        assert climb.value is value
        other = _climb(text, only=not value, x=(1, 30), y=(1, 30))
        settle(other)
        assert other.value is None or (settle is rungs.look and other.value is value)


def test_a_large_box_is_tried_after_z3_gave_up() -> None:
    small, large = (
        _climb("x*y != 0", x=(1, 200), y=(1, 250)),
        _climb("x*y != 0", x=(1, 400), y=(1, 250)),
    )
    assert rungs.try_large_box(small)
    assert not rungs.try_large_box(large)
    assert not rungs.try_all_values(small)


def test_what_z3_does_not_know_has_a_reason() -> None:
    text = "x*x*x + y*y*y + z*z*z != 114"
    condition = parse(text)
    climb = Climb(
        facts_from(dict.fromkeys("xyz", (None, None))).component(condition), condition, True
    )
    assert not rungs.ask_z3(climb)
    assert climb.possible() == [True]
    assert climb.reason
