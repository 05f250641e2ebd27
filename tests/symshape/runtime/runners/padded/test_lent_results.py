"""Borrowed results: right until the next call, without a copy, and poisoned afterwards where that
is checked.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import InputError, Options
from symshape.runtime.runners.padded.runner import PaddedRunner


def _borrowing(fn: Any, **options: Any) -> Any:
    return symshape.compile(
        fn, dynamic=True, runner="padded", options=Options(outputs="borrow", **options)
    )


def _program(x: torch.Tensor) -> Any:
    y = x @ x.t()
    return y, y.sum(1), (y > 0), y.argmax(0), x, x[1:], y.shape[0], y.view(-1) * 2


@pytest.mark.parametrize("check", [False, True])
def test_results_are_right_until_the_next_call(check: bool) -> None:
    compiled = _borrowing(_program, check_borrowed=check)
    for n in (5, 7, 8, 2, 6):
        x = torch.randn(n, 4)
        got, expected = compiled(x), _program(x)
        for mine, theirs in zip(got, expected, strict=True):
            if isinstance(theirs, torch.Tensor):
                torch.testing.assert_close(mine, theirs)
            else:
                assert mine == theirs
        assert got[4] is x
        assert got[5].data_ptr() == x[1:].data_ptr()


def test_nothing_is_copied() -> None:
    compiled = _borrowing(lambda x: x * 2 + 1)
    result = compiled(torch.ones(5, 4))
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    (bucket,) = entry.runner.buckets
    assert result.untyped_storage().nbytes() == 4 * bucket.made.caps["s0"] * bucket.made.caps["s1"]
    assert result.stride() == (bucket.made.caps["s1"], 1)


def test_a_result_used_too_late_is_poison() -> None:
    compiled = _borrowing(_program, check_borrowed=True)
    first = compiled(torch.randn(5, 4))
    part = first[0][1:]
    was = first[2].clone()
    compiled(torch.randn(6, 4))
    assert first[0].isnan().all()
    assert part.isnan().all(), "views of it, too"
    assert (first[2] == ~was).all()
    assert (first[3] == torch.iinfo(torch.int64).max).all()
    assert not first[4].isnan().any(), "the caller's own argument is not borrowed"
    second = compiled(torch.randn(5, 4))
    assert not second[0].isnan().any()


def test_a_constant_of_the_program_is_never_lent() -> None:
    table = torch.arange(3.0)

    def program(x: torch.Tensor) -> Any:
        return torch.tensor([1.0, 2.0]), table * 1, x * 2

    compiled = _borrowing(program)
    for n in (4, 5, 6):
        constant, product, doubled = compiled(torch.ones(n))
        assert constant.tolist() == [1, 2]
        assert product.tolist() == [0, 1, 2]
        assert doubled.tolist() == [2] * n
        constant.zero_()
        product.zero_()
        doubled.zero_()


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="outputs must be one of 'copy', 'borrow', not 'lend'"):
        Options(outputs="lend")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="graph_memory must be a positive int"):
        Options(graph_memory=0)
    with pytest.raises(InputError, match="is no amount"):
        symshape.compile(_program, options=Options(graph_memory="much"))
