"""Sources render themselves in the user's words."""

from __future__ import annotations

import pytest

from guards import IntArg, Size, Source, StorageOffset, Stride
from guards.sets.sources import spelled


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Size("x", 0), "x.size(0)"),
        (Size("kwargs['mask']", -1), "kwargs['mask'].size(-1)"),
        (Stride("batch[0].ids", 2), "batch[0].ids.stride(2)"),
        (StorageOffset("x"), "x.storage_offset()"),
        (IntArg("k"), "k"),
    ],
)
def test_text(source: Source, text: str) -> None:
    assert source.text() == text


def test_are_values() -> None:
    assert (
        len(
            {
                Size("x", 0),
                Size("x", 0),
                Size("x", 1),
                Stride("x", 0),
                StorageOffset("x"),
                IntArg("x"),
            }
        )
        == 5
    )
    with pytest.raises(AttributeError):
        Size("x", 0).dim = 1  # type: ignore[misc]


def test_spelled() -> None:
    assert spelled({"s0": Size("x", 1), "s1": "n"}) == {"s0": "x.size(1)", "s1": "n"}
