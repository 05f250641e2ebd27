"""Which ops stay within the memory of their arguments: those that were called to find out, and no
others.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import MemorySafety, check_memory, memory_safety
from symshape.graph.fast_calls import within_memory

aten, R = torch.ops.aten, torch.rand
NAN = torch.full((3, 3), float("nan"))
WEIGHTS = [R(16, 3), R(16, 4), R(16), R(16)]
LSTM = (True, 1, 0.0, True, False, True)
POOL = ([1, 3], [1, 2], [0, 0], [1, 1], False)
REFUSED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "eigenvalues of NaN": (aten._linalg_eigvals.default, (NAN,)),
    "eigenvalues of infinity": (aten._linalg_eigvals.default, (NAN.nan_to_num(nan=float("inf")),)),
    "attention with a value that is too short": (
        aten.scaled_dot_product_attention.default,
        (R(2, 2, 3, 4), R(2, 2, 5, 4), R(2, 2, 1, 4)),
    ),
    "attention of no queries": (
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        (R(4, 4, 0, 8), R(4, 4, 6, 8), R(4, 4, 6, 8)),
    ),
    "states of a smaller batch": (
        aten.lstm.input,
        (R(5, 2, 3), [R(1, 2, 4), R(1, 2, 4)], WEIGHTS, *LSTM),
    ),
    "a pooled index beyond the input": (
        aten.max_pool2d_with_indices_backward.default,
        (R(1, 2, 1, 1), R(1, 2, 1, 3), *POOL, torch.full((1, 2, 1, 1), 7)),
    ),
    "windows of fewer dimensions": (
        aten.unfold_backward.default,
        (R(5, 5, 3), [5, 5, 5, 5], 2, 3, 1),
    ),
    "windows of a smaller tensor": (aten.unfold_backward.default, (R(2, 3, 3), [9, 5], 1, 3, 1)),
    "fewer windows": (aten.unfold_backward.default, (R(4, 2, 3), [4, 9], 1, 3, 1)),
    "shorter windows": (aten.unfold_backward.default, (R(4, 3, 2), [4, 5], 1, 3, 1)),
    "steps backwards": (aten.unfold_backward.default, (R(4, 3, 3), [4, 5], 1, 3, -1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_end_the_process_are_refused(name: str) -> None:
    op, args = REFUSED[name]
    assert memory_safety(op) is MemorySafety.CHECKED
    with pytest.raises(meta_fns.MetaError):
        check_memory(op, args, {})


def test_data_are_checked_at_each_call_of_one_size() -> None:
    call = within_memory(aten._linalg_eigvals.default)
    assert call(torch.eye(3)).shape == (3,)
    with pytest.raises(meta_fns.MetaError, match="NaN"):
        call(NAN)


def test_right_calls_of_checked_ops_are_admitted() -> None:
    check_memory(
        aten.scaled_dot_product_attention.default, (R(2, 2, 3, 4), R(2, 2, 5, 4), R(2, 2, 5, 4)), {}
    )
    check_memory(aten.lstm.input, (R(2, 5, 3), [R(1, 2, 4), R(1, 2, 4)], WEIGHTS, *LSTM), {})
    x = R(1, 2, 1, 3)
    pooled, indices = aten.max_pool2d_with_indices.default(x, *POOL)
    check_memory(aten.max_pool2d_with_indices_backward.default, (pooled, x, *POOL, indices), {})
    for x, dim, size, step in (
        (R(4, 9), 1, 3, 2),
        (R(4, 9), -2, 4, 1),
        (R(5), 0, 5, 1),
        (R(3, 0), 0, 2, 1),
    ):
        windows = x.unfold(dim, size, step)
        check_memory(aten.unfold_backward.default, (windows, list(x.shape), dim, size, step), {})


@pytest.mark.parametrize(
    "name", ["convolution_overrideable", "cudnn_grid_sampler", "resize", "segment_reduce"]
)
def test_public_ops_that_nobody_called_are_not_safe(name: str) -> None:
    packet = getattr(aten, name)
    assert memory_safety(getattr(packet, packet.overloads()[0])) is MemorySafety.UNSAFE


def test_ops_in_place_and_copies_of_views_count_like_their_op() -> None:
    ops = (aten.add_.Tensor, aten.permute_copy.default, aten.random_.default, aten.view.default)
    assert {memory_safety(each) for each in ops} == {MemorySafety.SAFE}
