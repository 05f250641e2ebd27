"""Eager torch as the oracle of meta_fns: sampled tensors with odd layouts, and the comparison of
one call.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import meta_fns
from meta_fns import TensorSpec

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8)
ALL_DTYPES = (*FLOATS, *INTS, torch.bool, torch.complex64)


def values(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor of harmless values (ones: valid as index, divisor, exponent, shift)."""
    return torch.ones(tuple(sizes), dtype=dtype)


def odd_tensor(
    rng: random.Random, sizes: Sequence[int], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor of these sizes in an odd layout.

    One of: contiguous, permuted, sliced, stepped, offset, expanded, channels last.
    """
    sizes = list(sizes)
    n = len(sizes)
    kind = rng.choice(
        ("plain", "plain", "permuted", "sliced", "stepped", "offset", "expanded", "last")
    )
    if n == 0 or kind == "plain":
        return values(sizes, dtype)
    if kind == "permuted":
        order = list(range(n))
        rng.shuffle(order)
        inverse = sorted(range(n), key=order.__getitem__)
        return values([sizes[i] for i in order], dtype).permute(inverse)
    dim = rng.randrange(n)
    if kind == "sliced":
        return values([s + 2 * (i == dim) for i, s in enumerate(sizes)], dtype).narrow(
            dim, 1, sizes[dim]
        )
    if kind == "stepped":
        wide = values([s * 2 if i == dim else s for i, s in enumerate(sizes)], dtype)
        return wide[(slice(None),) * dim + (slice(None, None, 2),)]
    if kind == "offset":
        count = 1
        for size in sizes:
            count *= size
        return values([count + 3], dtype)[3:].view(sizes)
    if kind == "expanded":
        return values([1 if i == dim else s for i, s in enumerate(sizes)], dtype).expand(sizes)
    if n == 4:
        return values(sizes, dtype).to(memory_format=torch.channels_last)
    return values(sizes, dtype).transpose(0, -1).contiguous().transpose(0, -1)


def odd_sizes(rng: random.Random, dims: Sequence[int] = (0, 1, 2, 3, 4)) -> list[int]:
    """Sizes with zeros and ones among them."""
    return [rng.choice((0, 1, 1, 2, 3, 4, 5)) for _ in range(rng.choice(tuple(dims)))]


def broadcastable(rng: random.Random, sizes: Sequence[int]) -> list[int]:
    """Sizes that broadcast with ``sizes`` (mostly)."""
    picked = [rng.choice((s, s, s, 1)) for s in sizes]
    return picked[rng.randint(0, len(picked)) :] if rng.random() < 0.3 else picked


def describe(value: Any) -> Any:
    """What is compared of an output."""
    if isinstance(value, (torch.Tensor, TensorSpec)):
        spec = value if isinstance(value, TensorSpec) else TensorSpec.of(value)
        return (spec.sizes, spec.strides, spec.storage_offset, spec.dtype, spec.device)
    if isinstance(value, (tuple, list)):
        return [describe(item) for item in value]
    return value


def eager(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """What eager returns, or the error that it raises, with below-autograd semantics (as at
    dispatch level).
    """
    clones = tree_map_only(torch.Tensor, _layout_clone, (list(args), dict(kwargs)))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return op(*clones[0], **clones[1]), None
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            return None, error


def _layout_clone(tensor: torch.Tensor) -> torch.Tensor:
    """The same metadata on storage of its own, so that in-place ops do not spoil the argument."""
    if not tensor.numel() and not tensor.untyped_storage().nbytes():
        return tensor.detach()
    storage = tensor.untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype)
    return fresh.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def check_call(overload: Any, *args: Any, refusals: bool = True, **kwargs: Any) -> bool:
    """Assert that ``infer`` says what eager does, in all metadata; or refuses where eager refuses.
    True if eager accepted.

    ``refusals=False`` lets ``infer`` accept what eager refuses.
    """
    op = meta_fns.core.registry.resolve(overload)
    expected, error = eager(op, args, kwargs)
    text = f"{op}({describe(list(args))}, {describe(list(kwargs.items()))})"
    if error is not None:
        if refusals:
            try:
                got = meta_fns.infer(op, args, kwargs)
            except meta_fns.ShapeError:
                return False
            raise AssertionError(
                f"{text}: eager refuses ({str(error)[:200]}), infer gives {describe(got)}"
            )
        return False
    try:
        got = meta_fns.infer(op, args, kwargs)
    except meta_fns.ShapeError as refusal:
        raise AssertionError(
            f"{text}: infer refuses ({refusal}), eager gives {describe(expected)}"
        ) from refusal
    assert describe(got) == describe(expected), (
        f"{text}:\n infer {describe(got)}\n eager {describe(expected)}"
    )
    return True


def overlapping(
    rng: random.Random, sizes: Sequence[int], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor of these sizes whose elements share memory, as windows do: strides that are too
    small, or equal.
    """
    strides = [rng.choice((0, 1, 1, 2, 3, 6)) for _ in sizes]
    reach = sum(max(size - 1, 0) * stride for size, stride in zip(sizes, strides, strict=True))
    return values([reach + 1], dtype).as_strided(list(sizes), strides)
