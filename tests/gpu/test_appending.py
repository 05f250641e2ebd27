"""What is put behind a padded cache where it lies: the kernel against torch's ops, and whole
decoders against eager.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import symshape
from symshape import Options, events
from symshape.runtime.runners.padded import cache_append_op
from symshape.runtime.runners.padded.cache_append_op import (
    APPENDED_IN_PLACE,
    _by_ops,
    kernel_compiles,
    write_by_kernel,
)
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.bench.streams import decode
from tests.meta_fns.padding.poison import assert_same, poison

DTYPES = (
    *(
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.bool,
    ),
    torch.float8_e4m3fn,
)
CAP = 37


def filled(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """A tensor of any bytes, NaN and the like among them."""
    if dtype is torch.bool:
        return torch.randint(0, 2, sizes, device="cuda").bool()
    rows = torch.randint(
        0, 256, (*sizes[:-1], sizes[-1] * dtype.itemsize), dtype=torch.uint8, device="cuda"
    )
    return rows.view(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.equal(bits(found), bits(expected))


def _plain(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, 3, 2, CAP + more, 8), filled(dtype, 3, 2, more, 8), 2


def _of_one(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, CAP + more), filled(dtype, more), 0


def _one_of_two(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Keys and values beside each other, and new ones out of one product."""
    return filled(dtype, 3, 2, 4, CAP + more, 8)[:, 1], filled(dtype, 3, 3, 4, more, 8)[:, 2], 2


def _heads_inside(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return (
        filled(dtype, 3, CAP + more, 5, 8).transpose(1, 2),
        filled(dtype, 3, more, 5, 8).transpose(1, 2),
        2,
    )


def _wide(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, 2, CAP + more, 700), filled(dtype, 2, more, 700), 1


def _odd(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, 3, CAP + more, 11)[:, :, :7], filled(dtype, 3, more, 9)[:, :, 1:8], 1


def _repeated(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, 3, 2, CAP + more, 8), filled(dtype, 3, 1, more, 8).expand(3, 2, more, 8), 2


def _last(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    return filled(dtype, 3, 4, CAP + more), filled(dtype, 3, 4, more), 2


def _many_dims(dtype: torch.dtype, more: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """More than the kernel takes: torch's ops serve."""
    whole = filled(dtype, 3, 5, 3, CAP + more, 8)[:2, :3, :2]
    return whole, filled(dtype, 2, 4, 3, more, 9)[:, :3, :2, :, :8], 3


LAYOUTS = (_plain, _of_one, _one_of_two, _heads_inside, _wide, _odd, _repeated, _last, _many_dims)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.__name__.strip("_"))
def test_the_kernel_writes_what_the_ops_write(
    layout: Callable[..., tuple[torch.Tensor, ...]], dtype: torch.dtype
) -> None:
    assert kernel_compiles(), "this torch compiles no CUDA source"
    fill = filled(dtype, 1)[0]
    for more in (1, 3):
        for start in (0, 1, 16, CAP - 1, CAP):
            whole, behind, dim = layout(dtype, more)
            length = whole.size(dim)
            expected = whole.clone()
            place = torch.tensor(start, device="cuda")
            expected.narrow(dim, start, length - start).copy_(fill)
            expected.narrow(dim, start, more).copy_(behind)
            by_ops = whole.clone()
            if dtype.itemsize > 1 or not dtype.is_floating_point:  # torch copies no float8 by index
                _by_ops(by_ops, behind, place, fill, dim)
                assert same(by_ops, expected)
            served = write_by_kernel(whole, behind, place, fill, dim)
            assert served == (layout is not _many_dims)
            if served:
                assert same(whole, expected), (more, start)


@pytest.mark.parametrize("more", [1, 3])
def test_the_op_leaves_what_is_before_and_beside_it(more: int) -> None:
    memory = torch.full((2, 2, 3, CAP + more, 8), torch.nan, device="cuda")
    before = memory.clone()
    first = memory.narrow(3, 0, CAP)[1, 0]
    behind = torch.randn(3, more, 8, device="cuda")
    made = APPENDED_IN_PLACE(
        first, [behind], torch.tensor(5, device="cuda"), torch.zeros((), device="cuda"), 1
    )
    assert (made.data_ptr(), made.shape) == (first.data_ptr(), (3, CAP + more, 8))
    expected = before[1, 0]
    expected[:, 5 : 5 + more] = behind
    expected[:, 5 + more :] = 0
    torch.testing.assert_close(memory, before, rtol=0, atol=0, equal_nan=True)


def _sizes(count: int) -> list[tuple[int, int]]:
    """Batches and lengths that grow and shrink, of a few buckets."""
    rng = random.Random(3)
    found = [
        (3, 40),
        (3, 47),
        (2, 33),
        (4, 48),
        (1, 34),
        (3, 48),
        (4, 33),
        (3, 1),
        (2, 64),
        (2, 49),
    ]
    return found + [(rng.randint(1, 6), rng.randint(2, 70)) for _ in range(count - len(found))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_steps_of_a_decoder(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    stream = decode(torch.device("cuda"), dtype, True)
    compiled = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(max_cuda_graphs=128)
    )
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    pairs = []
    try:
        with torch.no_grad():
            for number, sizes in enumerate(_sizes(120)):
                for entry in compiled.entries:
                    assert isinstance(entry.runner, PaddedRunner)
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                arguments = stream.arguments(sizes)
                pairs.append((compiled(*arguments), stream.run(*arguments)))
    finally:
        unsubscribe()
    assert not fallbacks
    for number, (mine, theirs) in enumerate(pairs):
        for a, b in zip(mine, theirs, strict=True):
            assert_same(a, b, f"call {number}", tolerance=1e-3 if dtype is torch.float32 else 1e-1)
    buckets = [bucket for entry in compiled.entries for bucket in entry.runner.buckets]
    assert any(bucket.memory.extra for bucket in buckets), "appended in new memory"


def test_the_cache_is_there_once() -> None:
    """What a replay allocates could not hold it again, and the kernel wrote to it."""
    stream = decode(torch.device("cuda"), torch.bfloat16, False)
    compiled = symshape.compile(stream.run, dynamic=True, runner="padded")
    with torch.no_grad():
        compiled(*stream.arguments((32, 500)))
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    (bucket,) = entry.runner.buckets
    _, cache = bucket.buffers
    assert cache.shape[-2] == 513
    assert bucket.recording is not None
    assert (bucket.recording.reserved or 0) < cache.nbytes
    assert not cache_append_op._failed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8], ids=str)
def test_large_copies_in_wider_elements(dtype: torch.dtype) -> None:
    """Into a buffer and out of it, with gaps in both: the same elements, and in integers of 8
    bytes.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    for number, (rows, length) in enumerate(((60, 500), (50, 400), (64, 512), (49, 385))):
        x = torch.randint(-50, 50, (rows, length, 64), device="cuda").to(dtype)
        for entry in compiled.entries:
            for bucket in entry.runner.buckets:
                poison(bucket.buffers[0], number)
        assert torch.equal(compiled(x), x * 2)
    x = torch.ones(55, 450, 64, device="cuda", dtype=dtype)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as seen:
        compiled(x)
    assert sum(event.name == "aten::view" for event in seen.events()) == 4
