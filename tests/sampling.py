"""Samples of large sets of cases: ``make test`` runs some of them, ``make test-all`` all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def sampled(*axes: Iterable[Any], every: int) -> list[Any]:
    """Return all combinations of the axes as parameters of a test; only each ``every``-th runs without ``-m slow``.

    Each value of each axis is in the sample if ``every`` has no factor in common with the lengths of the axes.
    """
    combinations = list(itertools.product(*axes))
    return [
        pytest.param(*each, marks=[] if number % every == 0 else [pytest.mark.slow])
        for number, each in enumerate(combinations)
    ]
