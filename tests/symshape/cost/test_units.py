"""Amounts in words."""

from __future__ import annotations

import pytest

from symshape.cost.units import amount, shown
from symshape.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80 GB", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("1.5 kB", 1500),
        ("12", 12),
        ("3 MB", 3 * 10**6),
        ("2 Ki", 2048),
        ("9007199254740993", 2**53 + 1),  # no float
    ],
)
def test_bytes(text: str, value: int) -> None:
    assert amount(text, "bytes") == value


@pytest.mark.parametrize(
    "value",
    ["80 GFLOP", "much", "-3 GB", -3, float("inf"), None, True, "3 QB", "1e400", "1e9999999999 GB"],
)
def test_no_amount(value: object) -> None:
    with pytest.raises(InputError, match="bytes="):
        amount(value, "bytes")


def test_shown() -> None:
    assert [shown(n, "B") for n in (0, 999, 1000, 12_345_678)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "12.3 MB",
    ]
