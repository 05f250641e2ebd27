"""Samples of large sets of cases, of which a quicker command runs some and a slower one all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def sampled(
    *axes: Iterable[Any], every: int, others: pytest.MarkDecorator = pytest.mark.nightly
) -> list[Any]:
    """Return all combinations of the axes as parameters of a test; those outside the sample have
    the mark ``others``.

    The sample is each ``every``-th combination.  With several axes, a combination joins it if it is
    the first one with some value of an axis, so that each value of each axis is in the sample.

    >>> [each.values for each in sampled("abc", [1, 2], every=3) if not each.marks]
    [('a', 1), ('b', 2), ('c', 1)]
    """
    values = [list(axis) for axis in axes]
    places = list(itertools.product(*(range(len(each)) for each in values)))
    chosen = [number % every == 0 for number in range(len(places))]
    if len(values) > 1:
        there = {
            part
            for number, place in enumerate(places)
            if chosen[number]
            for part in enumerate(place)
        }
        for number, place in enumerate(places):
            if not there.issuperset(enumerate(place)):
                chosen[number] = True
                there.update(enumerate(place))
    return [
        pytest.param(
            *(axis[part] for axis, part in zip(values, place, strict=True)),
            marks=[] if picked else [others],
        )
        for place, picked in zip(places, chosen, strict=True)
    ]
