"""Results of a captured graph, tried without a device: a "replay" writes into the static memory
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from symshape.runtime.runners.cuda.static_outputs import Outputs, Unfit

WEIGHT = torch.ones(3)


def results(fn: Callable[[torch.Tensor], Any]) -> None:
    """Compares results of two replays with what eager answers: values, layout, sharing,
    independence of each other.
    """
    static = torch.zeros(4, 3)
    flat = list(fn(static))
    outputs = Outputs(flat, {1: static}, [WEIGHT])
    memory = {t.untyped_storage()._cdata: t for t in flat if isinstance(t, torch.Tensor)}
    kept = []
    for value in (1.0, 2.0):
        leaf = torch.full((4, 3), value)
        static.copy_(leaf)
        again = list(fn(static))  # the replay: the same results into the same memory
        for then, now in zip(flat, again, strict=True):
            if (
                isinstance(then, torch.Tensor)
                and then.untyped_storage()._cdata != now.untyped_storage()._cdata
            ):
                then.as_strided(
                    (then.untyped_storage().nbytes() // then.element_size(),), (1,), 0
                ).copy_(
                    now.as_strided((now.untyped_storage().nbytes() // now.element_size(),), (1,), 0)
                )
        ours, eager = outputs((None, leaf)), list(fn(leaf))
        kept.append((ours, eager))
        for now, then in zip(ours, eager, strict=True):
            if not isinstance(then, torch.Tensor):
                assert now == then
                continue
            assert now.stride() == then.stride()
            assert now.storage_offset() == then.storage_offset()
            lifted = then.untyped_storage()._cdata == WEIGHT.untyped_storage()._cdata
            assert lifted or now.untyped_storage()._cdata not in memory
        for i, a in enumerate(ours):
            for j, b in enumerate(ours):
                if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                    assert (a is b) == (eager[i] is eager[j])
                    shared = eager[i].untyped_storage()._cdata == eager[j].untyped_storage()._cdata
                    assert (a.untyped_storage()._cdata == b.untyped_storage()._cdata) == shared
    for ours, eager in kept:
        assert all(
            torch.equal(a, b)
            for a, b in zip(ours, eager, strict=True)
            if isinstance(a, torch.Tensor)
        )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: [x + 1],
        lambda x: [x, x[1:], x.t()],
        lambda x: [WEIGHT, WEIGHT[:2], 3, None],
        lambda x: [y := x * 2, y],
        lambda x: [y := x * 2, y[1:], y[0]],
        lambda x: [(x * 2)[:, 1]],
        lambda x: [(x * 2)[1:, 1:]],
        lambda x: [(x.sum(0, keepdim=True)).expand(4, 3)],
        lambda x: [x.new_zeros(0, 3), (x * 2)[:0]],
        lambda x: [(x * 2).t()],
        lambda x: list((x * 2).split(2)),
    ],
)
def test_results_are_eagers_in_memory_of_their_own(fn: Callable[[torch.Tensor], Any]) -> None:
    results(fn)


def test_an_input_is_answered_itself() -> None:
    static, leaf = torch.zeros(4), torch.ones(8)[2:6]
    outputs = Outputs([static, static[1:]], {0: static}, [])
    same, view = outputs((leaf,))
    assert same is leaf
    assert view.data_ptr() == leaf[1:].data_ptr()


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: [x.view(torch.int32)], "another dtype"),
        (lambda x: [y := x + 1, y.view(torch.int32)], "different dtypes"),
        (lambda x: [torch.complex(x, x).conj()], "lazily"),
    ],
)
def test_what_cannot_be_answered(fn: Callable[[torch.Tensor], Any], reason: str) -> None:
    static = torch.zeros(4)
    with pytest.raises(Unfit, match=reason):
        Outputs(fn(static), {0: static}, [])


def test_a_view_of_a_detached_input_asks_for_no_gradients() -> None:
    static, leaf = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    outputs = Outputs([static.view(12), static.view(4, 3)], {0: static}, [], detached=[1])
    with torch.no_grad():
        followed, cut = outputs([leaf])
    assert (followed.requires_grad, cut.requires_grad) == (True, False)
    assert followed.data_ptr() == cut.data_ptr() == leaf.data_ptr()
