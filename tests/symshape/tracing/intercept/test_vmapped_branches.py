"""``torch.cond`` under ``torch.vmap``: what a loop over the examples computes, in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from symshape import UnsupportedError
from tests.symshape.tracing.flows import Plain, Real, compiled

SIZES = (3, 5, 9, 2, 1)
LINEAR = torch.nn.Linear(3, 3)


# -- of one example: (operators, an example, the whole), of (3,) and (n, 3)
def each_its_own(m: Any, r: Tensor, x: Tensor) -> Any:
    return m.cond(r.sum() > 0, lambda a: LINEAR(a), lambda a: a.cos(), (r,))


def each_its_own_of_several(m: Any, r: Tensor, x: Tensor) -> Any:
    w = x.mean(0)
    return m.cond(
        r.sum() > 0,
        lambda: {"a": r * w, "b": (r.sum(), 3)},
        lambda: {"a": r + w, "b": (r.mean(), 3)},
    )


def one_for_all(m: Any, r: Tensor, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda a: LINEAR(a), lambda a: a.cos(), (r,))


def one_for_all_of_several(m: Any, r: Tensor, x: Tensor) -> Any:
    w = x.mean(0)
    return m.cond(x.sum() > 0, lambda: (r.sin() * w, x.sum(0)), lambda: (r.cos() + x.sum(), w * 1))


def constants(m: Any, r: Tensor, x: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda a: a.sin(), lambda a: torch.ones(3), (r,))


def one_in_another(m: Any, r: Tensor, x: Tensor) -> Any:
    inner: Callable[[Tensor], Any] = lambda a: m.cond(  # noqa: E731
        a[0] > 0.3, lambda b: b * 2, lambda b: b - 1, (a,)
    )
    return m.cond(x.sum() > 0, inner, lambda a: a.cos(), (r,))


def writing_to_its_own(m: Any, r: Tensor, x: Tensor) -> Any:
    return m.cond(r.sum() > 0, lambda a: (a * 1).add_(1), lambda a: a.cos(), (r,))


PROGRAMS: list[Callable[..., Any]] = [
    *(
        each_its_own,
        each_its_own_of_several,
        one_for_all,
        one_for_all_of_several,
        constants,
        one_in_another,
    ),
    writing_to_its_own,
]


def _one_by_one(fn: Callable[..., Any], x: Tensor) -> Any:
    def stacked(*leaves: Any) -> Any:
        return torch.stack(leaves) if isinstance(leaves[0], Tensor) else torch.tensor(leaves)

    return pytree.tree_map(stacked, *[fn(Plain, row, x) for row in x])


def _inputs() -> list[Tensor]:
    return [
        each for n in SIZES for each in (torch.rand(n, 3), -torch.rand(n, 3), torch.randn(n, 3))
    ]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_every_example(fn: Callable[..., Any]) -> None:
    def of_tensors(result: Any) -> Any:  # vmap takes nothing else
        return pytree.tree_map(
            lambda leaf: leaf if isinstance(leaf, Tensor) else torch.tensor(leaf), result
        )

    fast = compiled(lambda x: torch.vmap(lambda r: of_tensors(fn(Real, r, x)))(x))
    for x in _inputs():
        got, expected = fast(x), _one_by_one(fn, x)
        assert pytree.tree_structure(got) == pytree.tree_structure(expected)
        for one, other in zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True):
            torch.testing.assert_close(one, other)
    assert fast.stats().traces <= 2  # a single example


def test_as_torchs_own() -> None:
    torch._dynamo.reset()

    def batched(x: Tensor) -> Any:
        every = x.sum() > 0
        return (
            torch.vmap(
                lambda r: torch.cond(r.sum() > 0, torch.sin, torch.cos, (r,)), in_dims=1, out_dims=1
            )(x),
            torch.vmap(
                lambda r: torch.cond(every, torch.sin, torch.cos, (r,)), in_dims=1, out_dims=1
            )(x),
        )

    fast = compiled(batched)
    for x in (torch.rand(3, 5), torch.rand(3, 4) - 0.5):
        for expected, got in zip(batched(x), fast(x), strict=True):
            assert torch.equal(expected, got)
            assert expected.stride() == got.stride()


@pytest.mark.parametrize("fn", [each_its_own, one_for_all])
def test_gradients(fn: Callable[..., Any]) -> None:
    fast = compiled(lambda x: torch.vmap(lambda r: fn(Real, r, x))(x))
    for x in _inputs():
        found = []
        for run in (fast, lambda x: _one_by_one(fn, x)):
            mine = x.clone().requires_grad_()
            LINEAR.zero_grad()
            (run(mine) ** 2).sum().backward()
            found.append(
                (mine.grad, torch.zeros(3, 3) if LINEAR.weight.grad is None else LINEAR.weight.grad)
            )
        torch.testing.assert_close(found[0], found[1])


def test_levels() -> None:
    def fn(x: Tensor) -> Any:
        def of_rows(rows: Tensor) -> Tensor:
            down = rows.sum() > 0
            return torch.vmap(
                lambda r: torch.cond(down, lambda: r.sin() * rows.sum(), lambda: r.cos(), ())
            )(rows)

        return torch.vmap(of_rows)(torch.stack([x, x - 0.5]))

    fast = compiled(fn)
    for x in _inputs():
        both = [each.sin() * each.sum() if each.sum() > 0 else each.cos() for each in (x, x - 0.5)]
        torch.testing.assert_close(fast(x), torch.stack(both))


def _writes(r: Tensor) -> Any:
    return torch.cond(r.sum() > 0, lambda a: a.add_(1) * 2, lambda a: a * 3, (r,))


def _writes_outside(r: Tensor) -> Any:
    kept: list[int] = []
    return torch.cond(r.sum() > 0, lambda a: (kept.append(1), a * 2)[1], lambda a: a * 3, (r,))


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "gradients": (
        torch.func.grad(lambda x: torch.cond(x.sum() > 0, lambda: x * 2, lambda: x * 1).sum()),
        "under a transform of torch.func",
    ),
    "writes": (
        lambda x: torch.vmap(_writes)(x.clone()),
        "writes in place to a tensor created outside it",
    ),
    "writes outside": (
        torch.vmap(_writes_outside),
        "which would happen only in calls that run this function",
    ),
    "other sizes": (
        torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda: r[:2] * 1, lambda: r * 1)),
        "of other sizes or another dtype",
    ),
    "other dtypes": (
        torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda: r.double(), lambda: r * 1)),
        "of other sizes or another dtype",
    ),
    "other numbers": (
        torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda: (r * 1, 2), lambda: (r * 1, 3))[0]),
        "returns 2 where",
    ),
    "several bools": (
        torch.vmap(lambda r: torch.cond(r[:1] > 0, lambda: r * 2, lambda: r * 1)),
        "more than one bool for each example",
    ),
    "a loop": (
        torch.vmap(lambda r: Real.while_loop(lambda a: a.sum() < 9, lambda a: (a * 2 + 1,), (r,))),
        "while_loop is called under a transform",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    fn, why = REFUSED[name]
    with pytest.raises(UnsupportedError, match=why):
        compiled(fn)(torch.rand(3, 3))
