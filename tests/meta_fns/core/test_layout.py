"""Contiguity and memory formats: eager's on ints; on symbols by structure, with questions where
that is silent.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch._prims_common import suggest_memory_format

from meta_fns import ShapeError
from meta_fns.core import layout
from tests.meta_fns.eager import odd_sizes, odd_tensor, overlapping
from tests.meta_fns.symbolic import at, guards_at, symbols

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def tensors(tries: int = 2000) -> list[torch.Tensor]:
    """Tensors in odd layouts, those whose elements share memory among them."""
    rng = random.Random(0)
    made = []
    for _ in range(tries):
        sizes = odd_sizes(rng, (0, 1, 2, 3, 4, 4, 5))
        made.append(overlapping(rng, sizes) if rng.random() < 0.3 else odd_tensor(rng, sizes))
    return made


def test_strides_of_formats() -> None:
    rng = random.Random(0)
    for _ in range(300):
        sizes = odd_sizes(rng, (0, 1, 2, 3, 4, 5))
        assert layout.contiguous_strides(sizes) == torch.empty(sizes).stride()
        for given in (None, torch.contiguous_format, torch.channels_last, torch.channels_last_3d):
            try:
                expected = torch.empty(
                    sizes, memory_format=given or torch.contiguous_format
                ).stride()
            except RuntimeError:
                with pytest.raises(ShapeError, match=r"needs [45] dimensions"):
                    layout.strides_of_format(sizes, given)
            else:
                assert layout.strides_of_format(sizes, given) == expected
    with pytest.raises(ShapeError, match="preserve"):
        layout.strides_of_format((2,), torch.preserve_format)


def test_contiguity_is_what_eager_answers() -> None:
    seen = set()
    for tensor in tensors():
        sizes, strides = tuple(tensor.size()), tensor.stride()
        fresh = torch.empty(sizes).stride() == strides
        assert layout.canonical(sizes, strides) is fresh
        contiguous = layout.is_contiguous(sizes, strides)
        assert contiguous is tensor.is_contiguous()
        seen.add((fresh, contiguous))
        if len(sizes) in LAST:
            form = LAST[len(sizes)]
            last = layout.is_channels_last(sizes, strides, form)
            assert last is tensor.is_contiguous(memory_format=form), (sizes, strides)
            seen.add(last)
        assert layout.suggested_format(sizes, strides) is suggest_memory_format(tensor), (
            sizes,
            strides,
        )
    assert seen == {(True, True), (False, True), (False, False), True, False}


def test_channels_last_is_of_one_rank() -> None:
    assert not layout.is_channels_last((2, 3, 4), (12, 1, 3), torch.channels_last)
    assert not layout.is_channels_last((2, 3, 4, 5), (60, 1, 15, 3), torch.channels_last_3d)
    assert not layout.is_channels_last_strides((2, 3, 4), (12, 1, 3))


def test_structure_asks_nothing() -> None:
    env, (a, b, c, d) = symbols(2, 3, 4, 5)
    strides = layout.contiguous_strides((a, b, c, d))
    for values in ((2, 3, 4, 5), (0, 1, 3, 2), (7, 0, 0, 1)):
        named = {f"s{i}": value for i, value in enumerate(values)}
        assert at(strides, named) == torch.empty(values).stride()
    assert layout.canonical((a, b, c, d), strides)
    assert layout.is_contiguous((a, b, c, d), strides)
    assert layout.suggested_format((a, b, c, d), strides) is torch.contiguous_format
    assert layout.is_channels_last(
        (a, b, c, d), layout.channels_last_strides((a, b, c, d)), torch.channels_last
    )
    for sizes in ((a, b, 2), (a, 2, 1), (2, a, 2), (a, 1, b)):
        assert layout.canonical(sizes, layout.contiguous_strides(sizes))
    assert not layout.canonical((a, b, 2), (b, 2, 1))
    assert not env.guards


def test_what_structure_leaves_open_is_asked() -> None:
    """A transposed matrix is contiguous where a size is 1, or the matrix empty."""
    for hints in ((2, 3), (1, 3), (0, 3)):
        env, (a, b) = symbols(*hints)
        answer = layout.is_contiguous((a, b), (1, a.at_least_one()))
        assert answer is torch.ones(hints[::-1]).t().is_contiguous()
        assert env.guards
        for values in ((0, 0), (0, 2), (1, 1), (1, 4), (4, 1), (2, 2), (5, 6)):
            if guards_at(env, *values):
                assert torch.ones(values[::-1]).t().is_contiguous() is answer


def test_suggested_format_of_symbols() -> None:
    env, (n, c, h, w) = symbols(2, 3, 4, 5)
    sizes = (n, c, h, w)
    assert (
        layout.suggested_format(sizes, layout.channels_last_strides(sizes)) is torch.channels_last
    )
    for values in (
        (2, 3, 4, 5),
        (1, 3, 4, 5),
        (2, 1, 4, 5),
        (2, 3, 1, 1),
        (0, 3, 4, 5),
        (2, 0, 4, 5),
        (1, 1, 1, 1),
    ):
        tensor = torch.empty_strided(
            values, torch.empty(values, memory_format=torch.channels_last).stride()
        )
        if guards_at(env, *values):
            assert suggest_memory_format(tensor) is torch.channels_last, values
    assert guards_at(env, 2, 3, 4, 5)
    assert guards_at(env, 6, 7, 8, 9)


@pytest.mark.parametrize("channels", [1, 2])
def test_suggested_format_of_overlapping_symbols(channels: int) -> None:
    """Pixels that lie closer to one another than they are wide are not channels last."""
    env, (n, h, w) = symbols(2, 4, 5)
    sizes = (n, channels, h, w)
    found = layout.suggested_format(sizes, (h * w, 1, w, 1))
    seen = 0
    for values in itertools.product((1, 2, 5), repeat=3):
        if guards_at(env, *values):
            rows, columns = values[1:]
            tensor = torch.empty_strided(
                (values[0], channels, rows, columns), (rows * columns, 1, columns, 1)
            )
            assert suggest_memory_format(tensor) is found, values
            seen += 1
    assert seen > 3
