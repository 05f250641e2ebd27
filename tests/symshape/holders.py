"""An object that tests pass as an argument: a tensor, an index, a list, a number."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


@dataclasses.dataclass
class Holder:
    """An argument that is flattened."""

    x: torch.Tensor
    index: torch.Tensor
    kept: list[Any]
    n: int = 1

    @classmethod
    def of(cls, n: int, index: int, kept: list[Any] | None = None) -> Holder:
        return cls(
            torch.arange(float(n)), torch.tensor([index]), [torch.ones(2)] if kept is None else kept
        )
