"""What is known of the sizes that one padded program serves."""

from __future__ import annotations

from typing import Any

import pytest

from guards import parse
from guards.terms import fold
from symshape.runtime.padding import region as module
from symshape.runtime.padding.region import Region

PRODUCTS = [parse("s0*s1 == s2*s3"), parse("s1 == s3"), parse("s1 >= 2")]
QUESTIONS = ("s0 == 1", "s0 == s2", "s1 == s0*s1", "s0*s1 >= 2", "s0 <= 8", "s1 <= 32", "s1 != 0")


def _region(batch: int, length: int, conditions: Any = PRODUCTS) -> Region:
    caps = {"s0": batch, "s1": length, "s2": batch, "s3": length}
    return Region(conditions, {}, caps)


def test_what_was_not_known_is_not_asked_of_another_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, other = _region(6, 32, PRODUCTS[:1]), _region(4, 16, PRODUCTS[:1])
    assert not first._is_refuted(parse("s0 == s2"))
    assert not first.known(parse("s0 == s2"))
    assert not first.known_of_calls(parse("s0 == 1"))
    monkeypatch.setattr(module, "ask", lambda *args, **kwargs: pytest.fail("it is asked"))
    assert other.answers_alike(first)


def test_what_was_known_has_to_be_known_there_too() -> None:
    first = _region(6, 32)
    assert first.known(parse("s0 <= 8"))
    assert _region(8, 32).answers_alike(first)
    assert not _region(12, 32).answers_alike(first)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_known_holds_for_all_sizes_of_the_region(question: str, batch: int) -> None:
    """Of calls, none of whose sizes is 0; all of them are tried."""
    caps = {"s0": batch, "s1": 3, "s2": batch, "s3": 3}
    region, condition = Region(PRODUCTS, {}, caps), parse(question)
    calls = [
        values
        for values in (
            {"s0": a, "s1": b, "s2": c, "s3": d}
            for a in range(1, batch + 1)
            for b in range(1, 4)
            for c in range(1, batch + 1)
            for d in range(1, 4)
        )
        if all(fold.evaluate(each, values) for each in PRODUCTS)
    ]
    holds = all(fold.evaluate(condition, values) for values in calls)
    if region.known(condition) or region.known_of_calls(condition):
        assert holds
    if region._is_refuted(condition):
        assert not holds


def test_samples_are_in_the_region() -> None:
    """Sizes of 1 are not, where the guards exclude them."""
    region = _region(6, 32)
    assert all(region._holds(each) for each in region._samples)
    assert all(each["s1"] >= 2 for each in region._samples)
    assert not region._is_refuted(parse("s1 != 1"))
