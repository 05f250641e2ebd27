"""What ``torch.export`` made, compiled: its graphs call operators that take functions, and assert
what it assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import symshape
from symshape import UnsupportedError
from tests.symshape.tracing.flows import Real

W = nn.Parameter(torch.rand(4))


class Of(nn.Module):
    """A module of a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn
        self.w = W

    def forward(self, *args: Tensor) -> Any:
        return self.fn(self, *args)


def _branches(m: Any, x: Tensor) -> Any:
    def inner(a: Tensor) -> Any:
        return torch.cond(a.max() > 0.5, lambda b: b * 2, lambda b: b - m.w, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a.cos() * m.w, (x,))


def _sizes(m: Any, x: Tensor) -> Any:
    made = torch.cond(x.sum() > 0, lambda a: a[a[:, 0] > 0.5] * 2, lambda a: a * 1, (x,))
    return made.sum(0), made.size(0)


def _up_to(m: Any, x: Tensor, n: Tensor) -> Any:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.size(0))
    return x[:k] * 2


PROGRAMS: dict[str, Callable[..., Any]] = {
    "cond": _branches,
    "cond of sizes that data tell": _sizes,
    "while_loop": lambda m, x: Real.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * m.w), (torch.tensor(0), x)
    ),
    "scan": lambda m, x: Real.scan(lambda c, v: (c + v * m.w, c * v), torch.zeros(4), x),
    "found": lambda m, x: (x[x > 0.5] * 2, x[x[:, 0] > 0.5] @ x.t()),
    "cast": lambda m, x: ((x * 2).to(torch.bfloat16), (x * 3).long().unique()),
}


def _exported(fn: Callable[..., Any], *args: Tensor) -> nn.Module:
    sizes = [{0: torch.export.Dim.AUTO} if each.dim() else {} for each in args]
    with torch.no_grad():
        return torch.export.export(Of(fn), args, dynamic_shapes={"args": tuple(sizes)}).module()


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program(name: str) -> None:
    module, plain = _exported(PROGRAMS[name], torch.rand(5, 4)), Of(PROGRAMS[name])
    fast = symshape.compile(module, fullgraph=True, dynamic=True)
    for gradients in (False, True) if name not in ("found", "cast") else (False,):
        with torch.set_grad_enabled(gradients):
            for n in (5, 3, 9):
                for x in (torch.rand(n, 4), -torch.rand(n, 4)):
                    expected, got = pytree.tree_leaves(plain(x)), pytree.tree_leaves(fast(x))
                    for one, other in zip(expected, got, strict=True):
                        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    assert symshape.compiled_of(fast).stats().traces <= 2


def test_what_was_checked_is_checked() -> None:
    module = _exported(_up_to, torch.rand(5, 4), torch.tensor(3))
    fast = symshape.compile(module, fullgraph=True, dynamic=True)
    x = torch.rand(6, 4)
    for k in (2, 6, 0):
        assert torch.equal(fast(x, torch.tensor(k)), x[:k] * 2)
    for wrong in (module, fast):
        with pytest.raises(RuntimeError):
            wrong(x, torch.tensor(7))


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": torch.int64}, "dtype mismatch"),
    "device": ({"device": torch.device("meta")}, "device mismatch"),
    "layout": ({"layout": torch.sparse_coo}, "layout mismatch"),
    "sizes": ({"size": [4]}, "sizes mismatch"),
    "strides": ({"size": [3, 4], "stride": [1, 1]}, "strides mismatch"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_is_another(name: str) -> None:
    asked, why = METADATA[name]

    def fn(x: Tensor) -> Tensor:
        torch.ops.aten._assert_tensor_metadata(x, **asked)
        return x * 2

    for each in (fn, symshape.compile(fn, fullgraph=True)):
        with pytest.raises(RuntimeError, match=why):
            each(torch.rand(3, 4))


def test_metadata_that_are_these() -> None:
    def fn(x: Tensor) -> Tensor:
        cpu, n = torch.device("cpu"), x.size(0)
        torch.ops.aten._assert_tensor_metadata(
            x, [n, 4], [4, 1], torch.float32, device=cpu, layout=torch.strided
        )
        torch.ops.aten._assert_scalar(n < 9, "many")
        return x * 2

    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (3, 5):
        x = torch.rand(n, 4)
        assert torch.equal(fast(x), x * 2)
    assert fast.stats().traces == 1
    for each in (fn, fast):
        with pytest.raises(RuntimeError, match="many"):
            each(torch.rand(9, 4))


def test_functions_of_the_users_go_by_torchs_own_callers() -> None:
    """The operator itself checks nothing of what it is given."""
    with pytest.raises(UnsupportedError, match="chooses by a tensor's data"):
        symshape.compile(
            lambda x: torch.ops.higher_order.cond(
                x.sum() > 0, lambda a: (a * 2,), lambda a: (a * 1,), (x,)
            ),
            fullgraph=True,
        )(torch.rand(3))
