from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.runtime.padding.result_rows import Row

TORCH: str

class Launch:
    repeated: int
    def __new__(
        cls,
        positions: tuple[int, ...],
        buffers: tuple[torch.Tensor, ...],
        true_sizes: Any,
        each: tuple[torch.Tensor, ...],
        places: tuple[int, ...],
        lifted: tuple[torch.Tensor, ...],
        replay: Callable[[], object],
        tensors: tuple[torch.Tensor, ...],
        results: tuple[Row, ...],
        worth: int,
        least: int,
        /,
    ) -> Launch: ...
    def __call__(self, leaves: Sequence[Any], numbers: tuple[int, ...], /) -> list[Any] | None: ...
