"""Facts from ranges by name and conditions as text."""

from __future__ import annotations

import pytest

from guards.asking.assumptions import condition_of, facts_from
from guards.domains.interval import Interval
from guards.errors import Contradiction, ParseError, RangeError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import ge

s0 = symbol("s0")


def test_the_same_words_give_the_same_facts() -> None:
    assert facts_from({"s0": (2, None)}, ["s0 % 8 == 0"]) is facts_from(
        {"s0": (2, None)}, ["s0 % 8 == 0"]
    )
    assert facts_from({"s0": (2, None)}) is not facts_from({"s0": (2, 3)})
    assert facts_from({"s0": (2, None)}).interval(s0) == Interval(2, None)


def test_what_ranges_and_conditions_may_be() -> None:
    assert facts_from({"s0": Interval(1, 4)}).interval(s0) == Interval(1, 4)  # type: ignore[dict-item]
    assert facts_from(None, "s0 >= 3").conditions == (ge(s0, 3),)  # one text is one condition
    assert facts_from(None, ge(s0, 3)).conditions == (ge(s0, 3),)  # type: ignore[arg-type]
    assert condition_of("s0 >= 3") is condition_of(ge(s0, 3)) is ge(s0, 3)


def test_what_they_may_not_be() -> None:
    with pytest.raises(RangeError, match="pair of integers"):
        facts_from({"s0": (True, 4)})
    with pytest.raises(RangeError, match="range of s0"):
        facts_from({"s0": (1, 2, 3)})  # type: ignore[dict-item]
    with pytest.raises(ParseError, match="condition is needed, not the integer"):
        condition_of(s0 + 1)
    with pytest.raises(Contradiction) as caught:
        facts_from({"s0": (0, 5)}, ["s0 >= 6"])
    assert caught.value.conditions == ("s0 >= 6",)
