from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.runtime.padding.result_rows import Row

TORCH: str

class Copies:
    on: int
    def __new__(
        cls,
        graph: object,
        set_copy: int,
        set_enabled: int,
        launch: int,
        executable: int,
        context: int,
        nodes: tuple[int, ...],
        addresses: tuple[int, ...],
        device: int,
        /,
    ) -> Copies: ...
    def turn_off(self) -> None: ...

class Launch:
    repeated: int
    def __new__(
        cls,
        positions: tuple[int, ...],
        buffers: tuple[torch.Tensor, ...],
        stays: tuple[tuple[int, int], ...],
        true_sizes: Any,
        each: tuple[torch.Tensor, ...],
        places: tuple[int, ...],
        lifted: tuple[torch.Tensor, ...],
        replay: Callable[[], object],
        tensors: tuple[torch.Tensor, ...],
        results: tuple[Row, ...],
        worth: int,
        least: int,
        copies: Copies | None,
        /,
    ) -> Launch: ...
    def __call__(self, leaves: Sequence[Any], numbers: tuple[int, ...], /) -> list[Any] | None: ...
