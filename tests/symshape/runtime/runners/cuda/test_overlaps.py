"""Which tensors may share elements, against what is written through them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from symshape.runtime.runners.cuda.overlaps import overlap, overlaps_itself

STRIDED = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3)


def _view(memory: torch.Tensor, dims: list[tuple[int, int]], offset: int) -> torch.Tensor:
    return memory.as_strided([size for size, _ in dims], [stride for _, stride in dims], offset)


def _places(view: torch.Tensor) -> list[int]:
    """The positions in memory of the elements of a view of ``arange``."""
    return view.reshape(-1).tolist()


@settings(max_examples=300, deadline=None)
@given(STRIDED, STRIDED, st.integers(0, 60), st.integers(0, 60))
def test_what_shares_an_element_is_found(
    a: list[tuple[int, int]], b: list[tuple[int, int]], at: int, other: int
) -> None:
    memory = torch.arange(200)
    one, two = _view(memory, a, at), _view(memory, b, other)
    if len(set(_places(one))) < one.numel():
        assert overlaps_itself(one)
        assert overlap([(one, True)], [])
    if set(_places(one)) & set(_places(two)):
        assert overlap([(one, True), (two, False)], [])
        assert overlap([(one, False), (two, True)], [])


def test_what_is_apart_is_not() -> None:
    memory = torch.zeros(2, 5, 4)
    assert not overlap([(memory[0], True), (memory[1], True)], [torch.zeros(3)])
    assert not overlap([(memory[:, 1:3], False), (memory[0, :2], False)], [])
    assert overlap([(memory[0], True)], [memory[1]]), "a buffer in the same storage"
    assert not overlaps_itself(memory.transpose(0, 2)[::2])
    assert not overlap([(memory[:0], True), (memory[:0], True)], [])
