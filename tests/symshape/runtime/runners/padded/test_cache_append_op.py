"""What is put behind a padded cache where it lies: whatever lay there, and nothing beside it."""

from __future__ import annotations

import pytest
import torch

from symshape.runtime.runners.padded import cache_append_op
from symshape.runtime.runners.padded.cache_append_op import APPENDED_IN_PLACE

CAP = 6
LAYOUTS = {
    "behind each other": lambda more: (torch.empty(2, 3, CAP + more, 4), 2),
    "heads inside": lambda more: (torch.empty(2, CAP + more, 3, 4).transpose(1, 2), 2),
    "one of several": lambda more: (torch.empty(2, 2, 3, CAP + more, 4)[:, 1], 2),
    "the last dimension": lambda more: (torch.empty(2, 3, CAP + more), 2),
    "the first dimension": lambda more: (torch.empty(CAP + more, 2), 0),
    "nothing else": lambda more: (torch.empty(CAP + more), 0),
}


@pytest.mark.parametrize("parts", [(1,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_it_is_written_where_the_valid_part_ends(
    layout: str, parts: tuple[int, ...], dtype: torch.dtype
) -> None:
    more = sum(parts)
    for start in range(CAP + 1):
        whole, dim = LAYOUTS[layout](more)
        whole = whole.normal_().to(dtype)
        if dtype.is_floating_point:
            whole.narrow(dim, start, CAP + more - start).fill_(torch.nan)
        expected = whole.clone()
        sizes = [list(whole.shape) for _ in parts]
        rest = []
        for size, part in zip(sizes, parts, strict=True):
            size[dim] = part
            rest.append(torch.randn(size).to(dtype))
        fill = torch.tensor(1).to(dtype)
        expected.narrow(dim, start, CAP + more - start).fill_(fill)
        expected.narrow(dim, start, more).copy_(torch.cat(rest, dim))
        first = whole.narrow(dim, 0, CAP)
        made = APPENDED_IN_PLACE(first, rest, torch.tensor(start), fill, dim)
        assert (made.data_ptr(), made.stride(), made.shape) == (
            first.data_ptr(),
            first.stride(),
            whole.shape,
        )
        assert torch.equal(made, expected)
        assert torch.equal(whole, expected)


def test_nothing_beside_it_is_touched() -> None:
    memory = torch.full((2, 2, 3, CAP + 2, 4), torch.nan)
    first, new = memory.narrow(3, 0, CAP)[1, 0], torch.randn(3, 1, 4).expand(3, 2, 4)
    APPENDED_IN_PLACE(first, [new], torch.tensor(2), torch.tensor(7.0), 1)
    assert memory[0].isnan().all()
    assert memory[1, 1].isnan().all()
    assert memory[1, 0, :, :2].isnan().all()
    assert torch.equal(memory[1, 0, :, 2:4], new)
    assert (memory[1, 0, :, 4:] == 7).all()


def test_memory_that_does_not_go_on() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        APPENDED_IN_PLACE(
            torch.zeros(3, CAP), [torch.ones(3, 1)], torch.tensor(2), torch.tensor(0.0), 1
        )


def test_a_kernel_that_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fails(*args: object) -> bool:
        asked.append(1)
        raise RuntimeError("no compiler")

    class OnDevice(torch.Tensor):
        is_cuda = True  # type: ignore[assignment]

    monkeypatch.setattr(cache_append_op, "kernel_compiles", lambda: True)
    monkeypatch.setattr(cache_append_op, "write_by_kernel", fails)
    monkeypatch.setattr(cache_append_op, "_failed", [])
    whole = torch.zeros(3, CAP + 1).as_subclass(OnDevice)
    given = torch.ones(3, 1), torch.tensor(2), torch.tensor(0.0), 1
    assert not cache_append_op._by_kernel(whole, *given)
    assert not cache_append_op._by_kernel(whole, *given)
    assert len(asked) == 1
    assert cache_append_op._failed == ["RuntimeError: no compiler"]
