"""Code for integers on terms: proof or an error, and what it requires is kept."""

from __future__ import annotations

import threading

import pytest

from guards import assuming, parse, symbol
from guards.errors import Contradiction, Undecided

n, k = symbol("n"), symbol("k")


def test_conditions_are_decided_by_what_is_assumed() -> None:
    with assuming("n >= 2*k", ranges={"k": (1, None)}):
        assert n > k
        assert not n < k
        assert n + 1 == 1 + n
        assert n != 0
        with pytest.raises(Undecided, match=r"k == 1 is not settled .* guards\.assuming"):
            bool(k == 1)
        assert not (k == 1).known()
        assert not (k == 1).guard_or_false()
        assert n.at_least_one() is n
    with pytest.raises(TypeError):
        bool(n > k)
    assert n.at_least_one() is parse("max(n, 1)")
    assert (n >= 0).known()  # a size


def test_what_is_required_is_kept_and_assumed_from_then_on() -> None:
    with assuming() as given:
        assert (n % 8 == 0).check()
        assert (n // 8 * 8 == n).check("follows")
        assert n // 8 * 8 == n
        assert (n < 0).check() is False
        assert given.required == [n % 8 == 0]
    with pytest.raises(Undecided, match="n % 8 == 0 is required"):
        (n % 8 == 0).check()


def test_blocks_nest_and_end_and_are_of_one_thread() -> None:
    seen: list[bool] = []
    with assuming("n > 5"):
        with assuming("n < 5"):
            assert n < 9
        assert n > 3
        thread = threading.Thread(target=lambda: seen.append((n > 3).known()))
        thread.start()
        thread.join()
    assert seen == [False]
    with pytest.raises(Contradiction), assuming("n > 5", "n < 3"):
        pass
