"""cuDNN's recurrent layers, whose sizes are held against torch's own on the meta device: no CPU has
the kernels.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from meta_fns.errors import ShapeError

RNN = torch.ops.aten._cudnn_rnn.default
LSTM, GRU = 2, 3  # cuDNN's numbers


def _call(mode: int, first: bool, both: bool, packed: tuple[int, ...] = ()) -> list[Any]:
    ways = 2 if both else 1
    batch = packed[0] if packed else 3
    sound = (sum(packed), 6) if packed else (batch, 7, 6) if first else (7, batch, 6)
    gates = 4 if mode == LSTM else 3
    weights = [
        s
        for _ in range(2 * ways)
        for s in ((gates * 5, 6), (gates * 5, 5), (gates * 5,), (gates * 5,))
    ]
    state = (2 * ways, batch, 5)
    tensors = [torch.empty(size, device="meta") for size in (sound, state, *weights)]
    cell = torch.empty(state, device="meta") if mode == LSTM else None
    rest = [mode, 5, 0, 2, first, 0.0, False, both, list(packed), None]
    return [tensors[0], tensors[2:], 4, None, tensors[1], cell, *rest]


def _specs(args: list[Any]) -> list[Any]:
    def spec(each: Any) -> Any:
        return TensorSpec.of(each) if isinstance(each, torch.Tensor) else each

    return [[spec(each) for each in arg] if isinstance(arg, list) else spec(arg) for arg in args]


@pytest.mark.parametrize("mode", [LSTM, GRU])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("first", "packed"), [(True, ()), (False, ()), (False, (3, 2, 2, 1))])
def test_sizes_are_torchs_own(mode: int, both: bool, first: bool, packed: tuple[int, ...]) -> None:
    args = _call(mode, first, both, packed)
    mine, theirs = meta_fns.infer(RNN, _specs(args), {}), RNN(*args)
    assert isinstance(mine, (list, tuple))
    for each, other in zip(mine[:3], theirs[:3], strict=True):
        assert isinstance(each, TensorSpec)
        assert tuple(each.sizes) == tuple(other.shape)
        assert each.dtype is other.dtype


def test_states_of_another_batch_are_refused() -> None:
    args = _call(GRU, True, False)
    args[4] = torch.empty(2, 4, 5, device="meta")
    with pytest.raises(ShapeError, match="hx"):
        meta_fns.infer(RNN, _specs(args), {})
