"""Certificates: a proof that nothing can miss, or a call that does."""

from __future__ import annotations

from time import perf_counter

import pytest

from guards import GuardSet, certify
from guards.exprs import eq, gt, le, symbol

S0, S1 = symbol("s0"), symbol("s1")


def bucket(index: int, step: int = 8) -> GuardSet:
    return GuardSet([gt(S0, step * index), le(S0, step * index + step)])


def test_both_sides_of_a_branch() -> None:
    found = certify({}, [GuardSet.read("s0 + s1 > 2"), GuardSet.read("s0 + s1 <= 2")])
    assert found.covered is True
    assert found
    assert found.counterexample is None


def test_the_missing_side_is_the_counterexample() -> None:
    found = certify({}, [GuardSet.read("s0 + s1 > 2")])
    assert found.covered is False
    assert not found
    assert found.counterexample is not None
    assert sum(found.counterexample.values()) <= 2
    assert str(found).startswith("no entry serves s0 = ")


def test_no_entries() -> None:
    assert certify({"s0": (3, 5)}, []).counterexample == {"s0": 3}


def test_empty_contract() -> None:
    assert certify({"s0": (5, 3)}, []).covered is True
    assert certify(GuardSet.read("s0 > 3", "s0 < 2"), []).covered is True


def test_contract_with_conditions() -> None:
    entries = [GuardSet.read("s0 % 16 == 0"), GuardSet.read("s0 % 16 == 8")]
    assert certify(GuardSet.read("s0 % 8 == 0"), entries).covered is True
    missed = certify(GuardSet.read("s0 % 4 == 0"), entries)
    assert missed.covered is False
    assert missed.counterexample is not None
    assert missed.counterexample["s0"] % 8 == 4


@pytest.mark.parametrize("count", [1, 7, 64])
def test_buckets(count: int) -> None:
    entries = [bucket(index) for index in range(count)]
    assert certify({"s0": (1, 8 * count)}, entries).covered is True
    gone = count // 2
    found = certify({"s0": (1, 8 * count)}, entries[:gone] + entries[gone + 1 :])
    assert found.counterexample is not None
    assert 8 * gone < found.counterexample["s0"] <= 8 * gone + 8
    beyond = certify({"s0": (1, None)}, entries).counterexample
    assert beyond is not None
    assert beyond["s0"] > 8 * count


def test_hundreds_of_static_entries_and_a_grid() -> None:
    start = perf_counter()
    assert certify({"s0": (0, 299)}, [GuardSet([eq(S0, index)]) for index in range(300)]).covered is True
    grid = [
        GuardSet([gt(S0, 8 * i), le(S0, 8 * i + 8), gt(S1, 16 * j), le(S1, 16 * j + 16)])
        for i in range(12)
        for j in range(12)
    ]
    assert certify({"s0": (1, 96), "s1": (1, 192)}, grid).covered is True
    assert certify({"s0": (1, 96), "s1": (1, 193)}, grid).counterexample is not None
    assert perf_counter() - start < 20  # about 0.5 s on a quiet machine


def test_products() -> None:
    entries = [GuardSet.read("s0 * s1 >= 100"), GuardSet.read("s0 < 10"), GuardSet.read("s1 < 10")]
    assert certify({}, entries).covered is True


def test_division_by_zero_is_a_miss() -> None:
    """`s0 % s1 >= 0` serves every call but those with s1 == 0."""
    found = certify({}, [GuardSet.read("s0 % s1 >= 0")])
    assert found.covered is False
    assert found.counterexample is not None
    assert found.counterexample["s1"] == 0
    assert certify({"s1": (1, None)}, [GuardSet.read("s0 % s1 >= 0")]).covered is True


def test_symbol_of_one_entry_alone() -> None:
    found = certify({"s0": (0, 9)}, [GuardSet.read("s1 > 4"), GuardSet.read("s0 > 2", "s1 <= 4")])
    assert found.counterexample is not None
    assert found.counterexample["s0"] <= 2
    assert found.counterexample["s1"] <= 4
