"""Dropout and attention over sizes that only data tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from tests.symshape.eager import agree

R = torch.randn


def _calls(*kept: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(R(6, 8), torch.arange(6) < count) for count in kept]


def test_dropout() -> None:
    for training, p in ((True, 0.5), (True, 1.0), (False, 0.5), (True, 0.0)):

        def fn(x: torch.Tensor, m: torch.Tensor, training: bool = training, p: float = p) -> Any:
            return F.dropout(x[m], p, training) + 1

        _, seen = agree(fn, *_calls(4, 6, 1))
        assert seen == ["equal"] * 3


def test_gradients_go_through() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        return F.dropout(x[m], 0.5, True)

    x, m = R(6, 8, requires_grad=True), torch.arange(6) < 3
    traced = symshape.trace(fn, x, m)
    found = []
    for run in (fn, traced):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(run(x, m).square().sum(), x)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("shape", [(1, -1, 8), (1, 1, -1, 8), (-1, 8)])
def test_attention(shape: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        found = x[m]
        found = found.view([found.size(0) if size == -1 else size for size in shape])
        return F.scaled_dot_product_attention(found, found, found) * 2

    _, seen = agree(fn, *_calls(4, 6, 1))
    assert seen == ["equal"] * 3


def test_what_is_not_known_to_be_laid_out_in_order_is_taken_to_hold_several() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        found = x[m].view(1, -1, 2, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(found, found, found)

    _, seen = agree(fn, *_calls(4, 6, 2, 0))
    assert seen == ["equal"] * 3 + ["asserted"]


def _heads(rows: torch.Tensor) -> torch.Tensor:
    return rows.view(1, -1, 2, 4).transpose(1, 2)


@pytest.mark.parametrize(
    "attention",
    [
        lambda every, some: F.scaled_dot_product_attention(every, some, some),
        lambda every, some: F.scaled_dot_product_attention(some, every, every),
        lambda every, some: F.scaled_dot_product_attention(some, some, some, is_causal=True),
        lambda every, some: F.scaled_dot_product_attention(some, some, some, scale=0.3),
        lambda every, some: F.scaled_dot_product_attention(
            some, some, some, torch.zeros(some.size(2), some.size(2))
        ),
        lambda every, some: F.scaled_dot_product_attention(
            some, some[:, :1], some[:, :1], enable_gqa=True
        ),
        lambda every, some: F.scaled_dot_product_attention(some[0], some[0], some[0]),
        lambda every, some: F.scaled_dot_product_attention(*[some.transpose(0, 2)] * 3),
    ],
)
def test_attention_has_the_layout_of_eagers_kernel(attention: Any) -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        return attention(_heads(x), _heads(x[m]))

    compiled = symshape.compile(fn, dynamic=True)
    for rows, kept in ((6, 4), (7, 7), (9, 2), (5, 1), (4, 0)):
        call = R(rows, 8), torch.arange(rows) < kept
        found, eager = compiled(*call), fn(*call)
        torch.testing.assert_close(found, eager)
        assert found.stride() == eager.stride()
    assert compiled.stats().traces == 1
    assert compiled.stats().fallbacks == 0


def test_distances_choose_their_kernel_when_the_graph_runs() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        found = x[m]
        mode = "donot_use_mm_for_euclid_dist"
        return (
            torch.cdist(found, x),
            torch.cdist(found[None], found[None], 1.0),
            torch.cdist(x, found, 2.0, mode),
        )

    calls = [(R(n, 3), torch.arange(n) < kept) for n, kept in ((6, 4), (6, 0), (60, 50), (30, 1))]
    compiled = symshape.compile(fn, fullgraph=True)
    for x, m in calls:
        assert all(map(torch.equal, compiled(x, m), fn(x, m)))
    assert compiled.stats().traces <= 3

    def nearest(x: torch.Tensor) -> torch.Tensor:
        found = x[x.detach()[:, 0] > 0]
        return torch.cdist(found, x.detach() + 1).min(1).values

    trained = symshape.compile(nearest, fullgraph=True)
    for n in (5, 40, 7):
        x = R(n, 3)
        x[0, 0] = 1.0
        gradients = []
        for served in (trained, nearest):
            leaf = x.clone().requires_grad_()
            gradients.append(torch.autograd.grad(served(leaf).sum(), leaf)[0])
        assert torch.equal(*gradients)


def test_whether_tensors_are_equal_is_a_truth_of_data() -> None:
    def fn(x: torch.Tensor) -> Any:
        if not torch.equal(x, x):
            raise ValueError("not a number")
        if not torch.allclose(x.softmax(1).sum(1), torch.ones(x.shape[0])):
            raise RuntimeError("not normalised")
        return (
            x * 2,
            torch.equal(x, x[:2]),
            x.equal(x.clone()),
            x.allclose(x + 1, rtol=0.1),
            torch.allclose(x, x, 0.1),
        )

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (4, 5, 2, 9, 0):
        x = R(n, 3)
        (found, *answers), (expected, *wanted) = compiled(x), fn(x)
        assert torch.equal(found, expected)
        assert answers == wanted
        assert {type(each) for each in answers} == {bool}
    with pytest.raises(ValueError, match="not a number"):
        compiled(torch.full((5, 3), torch.nan))


@pytest.mark.parametrize(
    "sizes", [("b", 1, 1, "k"), (1, "h", "q", "k"), ("b", 1, "q", 1), (1, "k")]
)
def test_a_mask_that_is_broadcast_takes_the_fused_kernel(sizes: tuple[int | str, ...]) -> None:
    def call(b: int, q: int, k: int) -> tuple[torch.Tensor, ...]:
        known = {"b": b, "h": 2, "q": q, "k": k}
        mask = R([size if isinstance(size, int) else known[size] for size in sizes])
        return R(b, 2, q, 4), R(b, 2, k, 4), R(b, 2, k, 4), mask

    def fn(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    with torch.no_grad():
        traced, seen = agree(fn, call(2, 5, 6), call(3, 4, 7), call(5, 7, 7), dynamic=True)
    assert seen == ["equal"] * 3
    assert [str(node.op) for node in traced.graph.nodes] == [
        "aten._scaled_dot_product_flash_attention_for_cpu.default"
    ]


@pytest.mark.parametrize("heads", [(), (2, 3)])
def test_attention_of_heads_without_a_width(heads: tuple[int, ...]) -> None:
    """Whose scale is that of no number."""
    calls = [(R(*heads, *sizes),) for sizes in ((4, 2), (5, 0), (3, 2), (3, 0))]
    _, seen = agree(lambda q: F.scaled_dot_product_attention(q, q, q), *calls, dynamic=True)
    assert seen == ["equal", "refused", "equal", "refused"]


def test_backward_under_autocast_computes_again_without() -> None:
    """Autocast around backward is none around what was computed before it."""
    weight = torch.nn.Parameter(torch.randn(8, 8))

    def fn(x: torch.Tensor) -> torch.Tensor:
        rows = (x[x[:, 0] > 0] @ weight).view(1, 1, -1, 8)
        loss = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows).sin().sum()
        with torch.autocast("cpu", torch.bfloat16):
            return torch.autograd.grad(loss, [weight])[0]

    compiled = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (6, 9, 5):
        x = torch.randn(n, 8)
        x[0, 0] = 1.0
        torch.testing.assert_close(compiled(x), fn(x), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
@pytest.mark.parametrize("query", [(3, 4), (2, 3, 4), (1, 3, 4), (1, 2, 3, 4), (7, 1, 2, 3, 4)])
def test_a_mask_that_does_not_fit_the_scores(query: tuple[int, ...], kind: torch.dtype) -> None:
    """Eager adds the mask to the scores in place: it may not enlarge them."""
    q, k = R(*query), R(*query[:-2], 6, 4)
    attention = lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, mask)  # noqa: E731
    for sizes in ((3, 6), (1, 6), (5, 3, 6), (2, 3, 6), (5, 2, 3, 6), (1,) * 4 + (6,)):
        mask = R(*sizes) if kind is torch.float32 else R(*sizes) > -1
        expected = _shape_or_error(attention, q, k, mask)
        assert _shape_or_error(symshape.compile(attention), q, k, mask) == expected, sizes


def _shape_or_error(fn: Any, *args: torch.Tensor) -> Any:
    try:
        return fn(*args).shape
    except RuntimeError:
        return "an error"
