"""Copies in wider elements copy the same bytes, and are made only where they are the same bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from symshape.runtime.padding import wide_copies
from symshape.runtime.padding.wide_copies import copied, least_bytes, may_gain, widened

DTYPES = (
    *(
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.float16,
        torch.bfloat16,
        torch.float32,
    ),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, and for tensors of any size."""
    monkeypatch.setattr(wide_copies, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr(wide_copies, "LEAST", 1)


def filled(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """A tensor of any bytes, NaN and the like among them."""
    if dtype is torch.bool:
        return torch.randint(0, 2, sizes).bool()
    rows = torch.randint(0, 256, (*sizes[:-1], sizes[-1] * dtype.itemsize), dtype=torch.uint8)
    return rows.view(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def is_wide(target: torch.Tensor, source: torch.Tensor) -> bool:
    wide, read = widened(target, source)
    assert (wide is target) == (read is source)
    assert wide is target or (wide.dtype, read.dtype, wide.shape) == (
        torch.int64,
        torch.int64,
        read.shape,
    )
    return wide is not target


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bytes_of_every_dtype(dtype: torch.dtype) -> None:
    buffer, source = filled(dtype, 3, 6, 16), filled(dtype, 2, 5, 16)
    before, expected = buffer.clone(), buffer.clone()
    expected[:2, :5].copy_(source)
    part = buffer[:2, :5]
    assert is_wide(part, source)
    assert copied(part, source) is part
    assert same(buffer, expected)
    assert not same(buffer, before)
    out = torch.empty(2, 5, 16, dtype=dtype)
    assert same(copied(out, part), source)


Pair = Callable[[], tuple[torch.Tensor, torch.Tensor]]
H = torch.float16
OTHER: dict[str, Pair] = {
    "one block": lambda: (torch.zeros(4, 8, dtype=H), torch.ones(4, 8, dtype=H)),
    "another dtype": lambda: (
        torch.zeros(4, 8, dtype=H)[:3],
        torch.ones(3, 8, dtype=torch.bfloat16),
    ),
    "wide already": lambda: (torch.zeros(4, 6, 8)[:3, :2].double(), torch.ones(3, 2, 8).double()),
    "other sizes": lambda: (torch.zeros(4, 6, 8, dtype=H)[:3, :2], torch.ones(8, dtype=H)),
    "an odd row": lambda: (torch.zeros(4, 6, 7, dtype=H)[:3, :2], torch.ones(3, 2, 7, dtype=H)),
    "an odd stride of the target": lambda: (
        torch.zeros(4, 6, 9, dtype=H)[:3, :2, :8],
        torch.ones(3, 2, 8, dtype=H),
    ),
    "an odd stride of the source": lambda: (
        torch.zeros(4, 6, 8, dtype=H)[:3, :2],
        torch.ones(3, 2, 9, dtype=H)[..., :8],
    ),
    "an odd offset": lambda: (
        torch.zeros(4, 6, 12, dtype=H)[:3, :2, 2:10],
        torch.ones(3, 2, 8, dtype=H),
    ),
    "odd addresses": lambda: (
        torch.zeros(4, 6, 8, dtype=H)[:3, :2],
        torch.frombuffer(bytearray(2 * 48 + 2), dtype=H, offset=2).view(3, 2, 8),
    ),
    "columns": lambda: (
        torch.zeros(6, 8, 4, dtype=H)[:2, :, :3].transpose(1, 2),
        torch.ones(2, 3, 8, dtype=H),
    ),
    "repeated elements": lambda: (
        torch.zeros(4, 6, 8, dtype=H)[:3, :2],
        torch.ones(3, 2, 1, dtype=H).expand(3, 2, 8),
    ),
    "no dimension": lambda: (torch.zeros((), dtype=H), torch.ones((), dtype=H)),
    "negatives": lambda: (torch.zeros(4, 6, 8)[:3, :2], torch._neg_view(torch.ones(3, 2, 8))),
    "a class of its own": lambda: (
        torch.zeros(4, 6, 8)[:3, :2],
        torch.ones(3, 2, 8).as_subclass(Own),
    ),
}


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("name", OTHER)
def test_what_is_copied_as_it_is(name: str) -> None:
    target, source = OTHER[name]()
    assert not is_wide(target, source)
    expected = target.clone().copy_(source)
    assert torch.equal(copied(target, source), expected)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_conjugates() -> None:
    target, source = (
        torch.zeros(4, 6, 8, dtype=torch.complex32)[:3, :2],
        torch.ones(3, 2, 8).to(torch.complex32),
    )
    assert is_wide(target, source)
    assert not is_wide(target, source.conj())


def test_repeated_rows() -> None:
    target, source = torch.zeros(4, 6, 8, dtype=H)[:3, :2], torch.arange(8, dtype=H).expand(3, 2, 8)
    assert is_wide(target, source)
    assert torch.equal(copied(target, source), source)


def test_small_tensors_and_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, source = torch.zeros(4, 6, 8, dtype=H), torch.ones(3, 2, 8, dtype=H)
    assert least_bytes(CPU) == 1
    assert may_gain(buffer)
    assert not may_gain(buffer.double())
    monkeypatch.setattr(wide_copies, "LEAST", source.nbytes)
    assert is_wide(buffer[:3, :2], source)
    monkeypatch.setattr(wide_copies, "LEAST", source.nbytes + 1)
    assert not is_wide(buffer[:3, :2], source)
    assert may_gain(buffer)
    monkeypatch.setattr(wide_copies, "LEAST", 1)
    monkeypatch.setattr(wide_copies, "DEVICES", frozenset({"cuda"}))
    assert not is_wide(buffer[:3, :2], source)
    assert not may_gain(buffer)
    assert least_bytes(CPU) == 0
    assert least_bytes(torch.device("cuda")) == 1
