"""Certificates: a proof that nothing can miss, or a call that does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guards import GuardSet, certify
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, gt, le

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
    """As many parts as there are entries and gaps, about: no part is cut where it need not be."""
    static = certify({"s0": (0, 299)}, [GuardSet([eq(S0, index)]) for index in range(300)])
    assert static.covered is True
    assert static.parts <= 2 * 300
    grid = [
        GuardSet([gt(S0, 8 * i), le(S0, 8 * i + 8), gt(S1, 16 * j), le(S1, 16 * j + 16)])
        for i in range(12)
        for j in range(12)
    ]
    covered = certify({"s0": (1, 96), "s1": (1, 192)}, grid)
    assert covered.covered is True
    assert covered.parts <= 2 * 144
    beyond = certify({"s0": (1, 96), "s1": (1, 193)}, grid)
    assert beyond.counterexample is not None
    assert beyond.parts <= 2 * 144


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


@pytest.mark.parametrize(
    ("texts", "missed"),
    [
        (["s0 % 2 == 0", "s0 % 4 == 1", "s0 % 4 == 3"], None),
        (["s0 % 2 == 0", "s0 % 4 == 1", "s0 % 8 == 3"], "s0 % 8 == 7"),
        (["s0 % 2 == 0", "s0 % 3 != 0", "s0 % 6 == 3"], None),
        (["s0 % 2 == 0", "s0 % 3 != 0", "s0 % 12 == 3"], "s0 % 12 == 9"),
        (["s0 // 8 % 2 == 0", "s0 // 8 % 2 == 1"], None),
        (["s0 <= s1", "s0 >= s1 + 2"], "s0 == s1 + 1"),
        (["s0 * s1 <= 63", "s0 > 8", "s1 > 8"], "s0 == 8 and s1 == 8"),
        (["s0 // s1 <= 4", "s0 >= 5*s1"], None),
        (["s0 // s1 <= 4", "s0 // s1 >= 5"], "s1 == 0"),
        (["s0 // s1 <= 4", "s0 // s1 >= 5", "s1 == 0"], None),
        (["s0 % s1 == 0", "s0 % s1 != 0"], "s1 == 0"),
        (["min(s0, s1) >= 3", "max(s0, s1) <= 2"], "min(s0, s1) <= 2 and max(s0, s1) >= 3"),
    ],
)
def test_only_the_union_covers(texts: list[str], missed: str | None) -> None:
    entries = [GuardSet.read(text) for text in texts]
    found = certify({}, entries)
    assert found.covered is (missed is None)
    if missed is not None:
        assert found.counterexample is not None
        values = {"s0": 0, "s1": 0, **found.counterexample}
        assert GuardSet.read(missed).holds(values), found
        assert not any(entry.holds(values) for entry in entries)


@given(st.integers(0, 2**40))
def test_ranges_and_remainders_without_bounds(seed: int) -> None:
    """Beyond the largest bound everything repeats, so that trying that far decides: and so does the
    certificate.
    """
    rng = random.Random(seed)
    texts = []
    for _ in range(rng.randint(1, 7)):
        number = rng.choice([1, 2, 2, 3, 4, 6])
        parts = [f"s0 % {number} {rng.choice(['==', '==', '!='])} {rng.randrange(number)}"]
        parts += [f"s0 >= {rng.randrange(12)}"] * rng.randrange(2) + [
            f"s0 <= {rng.randrange(6, 30)}"
        ] * rng.randrange(2)
        texts.append(" and ".join(parts))
    entries = [GuardSet.read(text) for text in texts]
    contract = GuardSet.read(
        *rng.choice([[], ["s0 % 2 == 0"], ["s0 >= 3"], ["s0 % 4 == 1", "s0 <= 40"]])
    )
    found = certify(contract, entries)
    open_ones = [
        n
        for n in range(60)
        if contract.holds({"s0": n}) and not any(e.holds({"s0": n}) for e in entries)
    ]
    assert found.covered is not None
    assert found.covered is (not open_ones), (texts, open_ones)
    if found.counterexample is not None:
        assert contract.holds(found.counterexample)
        assert not any(entry.holds(found.counterexample) for entry in entries)


def test_two_dimensions_by_trying() -> None:
    rng = random.Random(4)
    certified = 0
    for _ in range(40):
        cut, other = rng.randint(2, 10), rng.randint(2, 10)
        entries = [
            GuardSet.read(f"s0 <= {cut}", f"s1 <= {other}"),
            GuardSet.read(f"s0 > {cut}", "s0 + s1 <= 20"),
            GuardSet.read(f"s1 > {other}", "s0 * s1 <= 100"),
            GuardSet.read(
                f"s0 + s1 > {rng.choice([20, 20, 21])} or s0 * s1 > {rng.choice([100, 100, 90])}"
            ),
        ]
        rng.shuffle(entries)
        found = certify({"s0": (0, 24), "s1": (0, 24)}, entries)
        points = [{"s0": a, "s1": b} for a in range(25) for b in range(25)]
        missed = [point for point in points if not any(entry.holds(point) for entry in entries)]
        assert found.covered is (not missed)
        assert not missed or dict(found.counterexample or {}) in missed
        certified += not missed
    assert 5 < certified < 40


def test_what_is_not_known_is_not_a_proof() -> None:
    """Nothing small is missed, and the solver cannot tell whether anything is: neither yes nor no
    is said.
    """
    found = certify(
        dict.fromkeys(("s0", "s1"), (1, None)), [GuardSet.read("s0 * s0 != 2 * s1 * s1")]
    )
    assert found.covered is None
    assert not found
    assert found.counterexample is None
    limits = [f"not known: the limit on Z3's {which} was reached" for which in ("work", "time")]
    # the second where the machine is busy: it ends what counts no steps
    assert str(found) in limits


def test_a_small_counterexample_is_found_where_cutting_goes_on_and_on() -> None:
    contract = GuardSet.read("y % 3 == 2", ranges={"x": (0, None), "y": (1, None), "z": (1, None)})
    entry = GuardSet.read("not ((min(y, z) > -4) or ((y + x) < z)) or ((z + z * x) % x == z % x)")
    found = certify(contract, [entry])
    assert found.covered is False
    assert found.counterexample is not None
    assert contract.holds(found.counterexample)
    assert not entry.holds(found.counterexample)
    assert found.parts <= 64


@pytest.mark.parametrize(
    ("contract", "entry"),
    [
        (
            ["y % 16 == y - 16 * (y // 16)", "z > x + 3"],
            "y // 4 > 9 or (y + z * (y // 16)) % (y // 16) == y % (y // 16)",
        ),
        ([], "z % (y * 12) % y == z % y"),
    ],
)
def test_no_part_is_cut_twice_by_the_same(contract: list[str], entry: str) -> None:
    """Facts cannot take such a condition in: it stays open in the part where it holds."""
    declared = GuardSet.read(*contract, ranges={"x": (0, None), "y": (0, None), "z": (None, None)})
    served = GuardSet.read(entry)
    found = certify(declared, [served])
    assert found.parts <= 40
    assert found.covered is not True
    missed = {**dict.fromkeys("xyz", 0), **(found.counterexample or {})}
    assert found.covered is None or (declared.holds(missed) and not served.holds(missed))
