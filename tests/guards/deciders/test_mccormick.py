"""McCormick's envelope: it holds on the whole box, and it is tight at the corners."""

from __future__ import annotations

from itertools import product

import pytest

from guards.deciders.mccormick import Inequality, chord, envelope
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate

u, v = symbol("u"), symbol("v")
BOXES = [((-3, 4), (-2, 5)), ((0, 6), (1, 3)), ((-7, -2), (2, 2)), ((1, 4), (-6, -1))]


def _slack(inequality: Inequality, point: dict[str, int]) -> int:
    constant, items = inequality
    return constant + sum(c * evaluate(m, point) for m, c in items)


@pytest.mark.parametrize(("u_pair", "v_pair"), BOXES)
def test_the_envelope_contains_the_product(
    u_pair: tuple[int, int], v_pair: tuple[int, int]
) -> None:
    found = envelope(u * v, u, v, u_pair, v_pair)
    assert len(found) == 4
    for a, b in product(range(u_pair[0], u_pair[1] + 1), range(v_pair[0], v_pair[1] + 1)):
        point = {"u": a, "v": b}
        slacks = [_slack(inequality, point) for inequality in found]
        distances = [(a - lo) * (b - other) for lo in u_pair for other in v_pair]
        # each is the product of two distances from bounds
        assert sorted(slacks) == sorted(map(abs, distances))
        assert min(slacks) >= 0


@pytest.mark.parametrize(("u_pair", "v_pair"), BOXES)
def test_it_is_tight_at_the_corners(u_pair: tuple[int, int], v_pair: tuple[int, int]) -> None:
    """At a corner the only product that the four allow is the right one."""
    for a, b in product(u_pair, v_pair):
        allowed = [
            w
            for w in range(-60, 61)
            if all(
                constant + sum(c * (w if m is u * v else a if m is u else b) for m, c in items) >= 0
                for constant, items in envelope(u * v, u, v, u_pair, v_pair)
            )
        ]
        assert allowed == [a * b]


def test_each_needs_one_bound_of_each_factor() -> None:
    assert len(envelope(u * v, u, v, (2, None), (None, 5))) == 1
    assert len(envelope(u * v, u, v, (2, None), (0, None))) == 1
    assert len(envelope(u * v, u, v, (None, 7), (0, 5))) == 2
    assert envelope(u * v, u, v, (None, None), (0, 5)) == []


def test_chords_of_the_square_hold_for_integers() -> None:
    for below in range(-5, 6):
        inequality = chord(u * u, u, below)
        slacks = {a: _slack(inequality, {"u": a}) for a in range(-9, 10)}
        assert min(slacks.values()) == 0
        assert [a for a, slack in slacks.items() if slack == 0] == [below, below + 1]
