"""Reading by index against eager."""

from __future__ import annotations

import random

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from tests.meta_fns.answers import Answers, mask_counts
from tests.meta_fns.eager import broadcastable, check_call, describe, eager, odd_sizes, odd_tensor


def zeros_like_layout(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.zero_() if tensor.numel() else tensor


def index_tensor(
    rng: random.Random, sizes: list[int], dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Indices of value 0, in an odd layout."""
    tensor = odd_tensor(rng, sizes, dtype)
    return zeros_like_layout(tensor)


def test_embedding_renorm() -> None:
    rng = random.Random(7)
    accepted = 0
    for _ in range(120):
        sizes = (
            [rng.choice((1, 2, 5)), rng.choice((0, 1, 4))] if rng.random() < 0.8 else odd_sizes(rng)
        )
        weight = torch.ones(
            sizes, dtype=rng.choice((torch.float32, torch.float64, torch.bfloat16, torch.int64))
        )
        indices = torch.zeros(odd_sizes(rng), dtype=rng.choice((torch.int64, torch.int32)))
        # what it says of no rows depends on the data
        empty = weight.dim() == 2 and not weight.size(0)
        accepted += check_call(
            "aten.embedding_renorm_.default", weight, indices, 1.0, 2.0, refusals=not empty
        )
    assert accepted > 40


def test_embedding() -> None:
    rng = random.Random(0)
    for _ in range(400):
        weight = odd_tensor(rng, [rng.randint(1, 5), rng.randint(0, 4)])
        if rng.random() < 0.1:
            weight = odd_tensor(rng, odd_sizes(rng))
        dtype = rng.choice((torch.int64, torch.int64, torch.int32, torch.float32))
        check_call(
            "aten.embedding.default",
            weight,
            index_tensor(rng, odd_sizes(rng), dtype),
            refusals=weight.numel() > 0,
        )


def test_index_select() -> None:
    rng = random.Random(0)
    for _ in range(500):
        tensor = odd_tensor(rng, [s or 1 for s in odd_sizes(rng)])
        index = index_tensor(rng, odd_sizes(rng, (0, 1, 1, 1, 2)))
        check_call(
            "aten.index_select.default",
            tensor,
            rng.randint(-tensor.dim(), max(tensor.dim() - 1, 0)),
            index,
        )


def test_gather() -> None:
    rng = random.Random(0)
    for _ in range(800):
        tensor = odd_tensor(rng, odd_sizes(rng))
        sizes = [
            rng.choice((s, s, max(s - 1, 0), s + 1 if rng.random() < 0.1 else s))
            for s in tensor.shape
        ]
        if rng.random() < 0.1:
            sizes = odd_sizes(rng)
        dim = rng.randint(-tensor.dim() - 1, tensor.dim())
        if -tensor.dim() <= dim < tensor.dim() and tensor.size(dim) == 0:
            continue
        dtype = rng.choice((torch.int64, torch.int64, torch.int32, torch.float32))
        check_call("aten.gather.default", tensor, dim, index_tensor(rng, sizes, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("masks", [False, True])
def test_index(masks: bool) -> None:
    rng = random.Random(masks)
    accepted = 0
    for _ in range(2500):
        sizes = odd_sizes(rng, (1, 2, 3, 4))
        tensor = odd_tensor(rng, sizes)
        common = odd_sizes(rng, (0, 1, 2))
        indices: list[torch.Tensor | None] = []
        used = 0
        while used < len(sizes) and rng.random() < 0.8:
            kind = rng.random()
            if kind < 0.4:
                indices.append(None)
            elif masks and kind < 0.7:
                width = rng.randint(1, min(2, len(sizes) - used))
                wanted = [s if rng.random() < 0.95 else s + 1 for s in sizes[used : used + width]]
                indices.append(torch.rand(wanted) < 0.5)
                used += width - 1
            else:
                picked = broadcastable(rng, common) if rng.random() < 0.95 else odd_sizes(rng)
                indices.append(index_tensor(rng, picked, rng.choice((torch.int64, torch.int32))))
            used += 1
        expected, error = eager(torch.ops.aten.index.Tensor, (tensor, indices), {})
        specs = [None if t is None else TensorSpec.of(t) for t in indices]
        counts = mask_counts("aten.index.Tensor", (tensor, indices))
        text = describe([tensor, *indices])
        try:
            got = meta_fns.infer(
                "aten.index.Tensor", (TensorSpec.of(tensor), specs), ctx=Answers(counts)
            )
        except meta_fns.ShapeError as refusal:
            if error is None:
                raise AssertionError(f"{text}: refused; eager {describe(expected)}") from refusal
            continue
        assert error is None, f"{text}: eager refuses: {error}; infer {describe(got)}"
        assert describe(got) == describe(expected), f"{text}: {describe(got)} {describe(expected)}"
        accepted += 1
    assert accepted > 500


def test_masks_need_a_context() -> None:
    with pytest.raises(meta_fns.DataDependentOutput):
        meta_fns.infer("aten.index.Tensor", (torch.ones(3), [torch.ones(3, dtype=torch.bool)]))


def test_item() -> None:
    for dtype, kind in (
        (torch.int64, int),
        (torch.float32, float),
        (torch.bool, bool),
        (torch.uint8, int),
    ):
        got = meta_fns.infer(
            "aten._local_scalar_dense.default", (torch.ones((), dtype=dtype),), ctx=Answers([])
        )
        assert got is kind
    with pytest.raises(meta_fns.ShapeError):
        meta_fns.infer("aten._local_scalar_dense.default", (torch.ones(2),), ctx=Answers([]))
    with pytest.raises(meta_fns.DataDependentOutput):
        meta_fns.infer("aten._local_scalar_dense.default", (torch.ones(()),))
