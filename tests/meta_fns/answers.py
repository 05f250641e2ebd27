"""A context for rules whose data is known to the test."""

from __future__ import annotations

from typing import Any

import torch


class Answers:
    """The context of a rule whose data is known: it gives out the number of elements that masks
    select.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def new_size(self, lower: Any, upper: Any) -> int:
        size = self.sizes.pop(0)
        assert size >= lower
        assert upper is None or size <= upper
        return size

    def count_of(self, counted: Any, lower: Any, upper: Any) -> int:
        return self.new_size(lower, upper)

    def new_int(self, lower: Any, upper: Any) -> Any:
        return int

    def new_float(self) -> Any:
        return float

    def new_bool(self) -> Any:
        return bool


def mask_counts(func: Any, args: Any) -> list[int]:
    """How many elements each mask among the indices of ``index`` selects."""
    if str(func).split(".")[1] not in (
        "index",
        "_unsafe_index",
        "index_put",
        "index_put_",
        "_unsafe_index_put",
    ):
        return []
    masks = [
        t for t in args[1] if isinstance(t, torch.Tensor) and t.dtype in (torch.bool, torch.uint8)
    ]
    with torch.utils._python_dispatch._disable_current_modes():
        return [int(torch.count_nonzero(mask)) for mask in masks]
