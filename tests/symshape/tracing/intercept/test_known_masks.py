"""Masks that let everything through, or are causal, are left out; every other one stays, whatever
it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import symshape
from symshape.tracing.intercept import known_masks

Mask = Callable[[int, int], torch.Tensor]
FAR = 2**63 - 1


@pytest.fixture(autouse=True)
def _on_the_cpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_masks, "KERNELS_DIFFER_ON", frozenset({"cpu", "cuda"}))


def test_on_the_cpu_the_program_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [
        _kind(_trace(_masked(each["ones" if each is TRUE else "offsets"])))
        for each in (TRUE, CAUSAL)
    ] == ["a mask", "a mask"]


def _count(n: int) -> torch.Tensor:
    return torch.arange(n)


def _packed(positions: torch.Tensor) -> torch.Tensor:
    """Causal within each text, as transformers finds texts that lie in a row behind each other."""
    b, n = positions.shape
    number = (torch.diff(positions, prepend=positions[:, :1] - 1) != 1).cumsum(-1)
    batch, rows, columns = (
        torch.arange(b)[:, None, None],
        _count(n)[None, :, None],
        _count(n)[None, None],
    )
    return ((rows >= columns) & (number[batch, rows] == number[batch, columns]))[:, None]


def _written(b: int, n: int) -> torch.Tensor:
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[0, 1:] = False
    return mask


def _written_through_a_view(b: int, n: int) -> torch.Tensor:
    mask = torch.ones(n, n, dtype=torch.bool)
    mask.view(-1)[1:2].logical_not_()
    return mask


TRUE: dict[str, Mask] = {
    "positions": lambda b, n: (_count(n)[None, None, :, None] >= 0).expand(b, -1, n, n),
    "an offset of 0": lambda b, n: ((_count(n) + 0)[:, None] >= 0).expand(n, n),
    "later positions": lambda b, n: (_count(n) + 3)[:, None] > torch.zeros(1, n, dtype=torch.int64),
    "differences": lambda b, n: (_count(n)[None] - _count(n)[:, None] - n * 0 < n).expand(n, n),
    "ones": lambda b, n: torch.ones(b, 1, n, n, dtype=torch.bool),
    "full": lambda b, n: torch.full((1, n), True),
    "both": lambda b, n: torch.ones(n, n, dtype=torch.bool) & (_count(n) < n),
    "either": lambda b, n: (_count(n)[None] > 3) | (_count(n)[None] >= 0),
    "of two": lambda b, n: torch.arange(n, n + n)[:, None] > _count(n),
}
CAUSAL: dict[str, Mask] = {
    "rows and columns": lambda b, n: _count(n)[:, None] >= _count(n),
    "the other way round": lambda b, n: _count(n) <= _count(n)[:, None],
    "not later": lambda b, n: ~(_count(n) > _count(n)[:, None]),
    "before the next": lambda b, n: _count(n) < _count(n)[:, None] + 1,
    "offsets": lambda b, n: ((_count(n) + 5)[None, None, :, None] >= (_count(n) + 5)).expand(
        b, -1, n, n
    ),
    "and all": lambda b, n: (
        torch.ones((), dtype=torch.bool) & (_count(n)[:, None] - _count(n) >= 0)
    ),
    "packed": lambda b, n: _packed(_count(n)[None].expand(b, n)),
}
OTHER: dict[str, Mask] = {
    "all but the next key": lambda b, n: _count(n)[:, None] + 1 >= _count(n),
    "from the end": lambda b, n: _count(n)[:, None] <= _count(n),
    "window": lambda b, n: (_count(n)[:, None] >= _count(n)) & (_count(n)[:, None] - _count(n) < 3),
    "every second": lambda b, n: torch.arange(0, 2 * n, 2)[:, None] >= _count(n),
    "causal in another order": lambda b, n: (
        (_count(n)[:, None] >= _count(n).flip(0)) | (_count(n) < 1)
    ),
    "causal among texts": lambda b, n: _packed((_count(n) % 4)[None].expand(b, n)),
    "all but the first key": lambda b, n: (_count(n) > 0).expand(n, n),
    "wraps around": lambda b, n: ((_count(n) + FAR) + 1 > 0).expand(n, n) | (_count(n) == 0),
    "wraps around twice": lambda b, n: (_count(n) + FAR >= 0).expand(n, n) | (_count(n) < 1),
    "written": _written,
    "written through a view": _written_through_a_view,
    "an offset too far": lambda b, n: (_count(n) - 1 >= 0).expand(n, n) | (_count(n) == 0)[:, None],
    "numbers": lambda b, n: torch.zeros(n, n) - torch.eye(n),
}


def _masked(mask: Mask) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(x, x, x, attn_mask=mask(x.shape[0], x.shape[2]))

    return run


def _trace(run: Callable[[torch.Tensor], torch.Tensor]) -> symshape.Traced:
    return symshape.trace(run, torch.randn(3, 2, 6, 8), dynamic={"x": {0: "batch", 2: "length"}})


def _kind(traced: symshape.Traced) -> str:
    """What is left of the mask."""
    (attention,) = (node for node in traced.graph.nodes if "dot_product" in str(node.op))
    if attention.kwargs.get("attn_mask") is not None:
        return "a mask"
    return "causal" if attention.args[4:5] == (True,) else "nothing"


@pytest.mark.parametrize(
    ("left", "name"),
    [
        *(("nothing", name) for name in TRUE),
        *(("causal", name) for name in CAUSAL),
        *(("a mask", name) for name in OTHER),
    ],
)
def test_values_are_those_of_eager(left: str, name: str) -> None:
    run = _masked({**TRUE, **CAUSAL, **OTHER}[name])
    traced = _trace(run)
    assert _kind(traced) == left
    for batch, length in ((3, 6), (5, 9), (2, 17)):
        x = torch.randn(batch, 2, length, 8)
        torch.testing.assert_close(traced(x), run(x))


def test_the_next_call_has_another_mask() -> None:
    """Calls that look alike are repeated from each other; what their masks hold is no part of how
    they look.
    """

    def run(x: torch.Tensor) -> torch.Tensor:
        for limit in (-1, 2, -1, 3, 99):
            x = x + scaled_dot_product_attention(
                x, x, x, attn_mask=(_count(x.shape[2]) > limit).expand(x.shape[2], -1)
            )
        return x

    traced = _trace(run)
    masks = [
        node.kwargs.get("attn_mask") for node in traced.graph.nodes if "dot_product" in str(node.op)
    ]
    assert [each is None for each in masks] == [True, False, True, False, False]
    x = torch.randn(4, 2, 11, 8)
    torch.testing.assert_close(traced(x), run(x))


def test_a_mask_that_does_not_fit_is_refused_as_in_eager() -> None:
    with pytest.raises(RuntimeError, match="size"):
        _trace(_masked(lambda b, n: torch.ones(n, n + 1, dtype=torch.bool)))


def test_a_mask_of_one_dimension_is_refused_as_in_eager() -> None:
    run = _masked(lambda b, n: torch.ones(n, dtype=torch.bool))
    for call in (run, lambda x: symshape.trace(run, x)):
        with pytest.raises((RuntimeError, IndexError)):
            call(torch.randn(5, 2, 7, 8))


def test_fewer_queries_than_keys() -> None:
    """As many of each for certain, or the mask stays: attention would begin to count at the first
    key.
    """

    def run(x: torch.Tensor) -> torch.Tensor:
        last = x[:, :, 2:]
        mask = _count(last.shape[2])[:, None] >= _count(x.shape[2])
        return scaled_dot_product_attention(last, x, x, attn_mask=mask)

    traced = _trace(run)
    assert _kind(traced) == "a mask"
    x = torch.randn(4, 2, 9, 8)
    torch.testing.assert_close(traced(x), run(x))


def test_causal_attention() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[2]
        return scaled_dot_product_attention(
            x, x, x, torch.ones(n, n, dtype=torch.bool), is_causal=True
        )

    x = torch.randn(4, 2, 9, 8)
    try:
        expected = run(x)
    except RuntimeError as error:  # torch 2.14 refuses both together
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            _trace(run)
    else:
        torch.testing.assert_close(_trace(run)(x), expected)


def test_a_mask_that_is_written_between_two_layers() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        mask = _count(x.shape[2])[:, None] >= _count(x.shape[2])
        x = scaled_dot_product_attention(x, x, x, attn_mask=mask)
        mask[:, 0] = False
        mask[0, 0] = True
        return scaled_dot_product_attention(x, x, x, attn_mask=mask)

    traced = _trace(run)
    masks = [
        node.kwargs.get("attn_mask") for node in traced.graph.nodes if "dot_product" in str(node.op)
    ]
    assert [each is None for each in masks] == [True, False]
    x = torch.randn(4, 2, 11, 8)
    torch.testing.assert_close(traced(x), run(x), equal_nan=True)
