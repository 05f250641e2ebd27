"""The operators that take functions are exchanged where torch's own code calls them, however a
program came by it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType

import pytest
import torch

import symshape
from symshape.errors import UnsupportedError
from symshape.tracing.intercept.control_flow import CONTROL_FLOW

_PARTIAL = functools.partial(torch.cond)


def _imported(x: torch.Tensor) -> torch.Tensor:
    from torch import cond

    return cond(x.sum() > 0, lambda: x * 2, lambda: x * 3)  # type: ignore[no-any-return]


WAYS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    _imported,
    lambda x: _PARTIAL(x.sum() > 0, lambda: x * 2, lambda: x * 3),
    lambda x: getattr(torch, "cond")(x.sum() > 0, lambda: x * 2, lambda: x * 3),  # noqa: B009
    lambda x: next(map(torch.cond, [x.sum() > 0], [lambda: x * 2], [lambda: x * 3])),
)


@pytest.mark.parametrize("fn", WAYS)
def test_ways_to_call_it(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for x in (torch.rand(3), -torch.rand(3), torch.rand(5)):
        assert torch.equal(fast(x), x * (2 if x.sum() > 0 else 3))
    assert fast.stats().traces == 1


def test_all_are_there() -> None:
    # torch.cond itself, for conditions that only the run tells; what has Dynamo compile
    assert len(CONTROL_FLOW) == 6


def test_outside_of_a_trace_they_are_torchs() -> None:
    for call in CONTROL_FLOW.values():
        with pytest.raises(TypeError):
            call()


def _on_any_device(code: CodeType) -> CodeType:
    """Torch's ``associative_scan`` without its question whether operands lie on a device that has a
    kernel for it.
    """
    consts = [
        _on_any_device(each) if isinstance(each, CodeType) else each for each in code.co_consts
    ]
    asked = ("cuda", "xpu")
    return code.replace(
        co_consts=tuple([(*asked, "cpu") if each == asked else each for each in consts])
    )


def test_scans_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    associative_scan = torch._higher_order_ops.associative_scan
    monkeypatch.setattr(associative_scan, "__code__", _on_any_device(associative_scan.__code__))

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        def combine(
            left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]
        ) -> tuple[torch.Tensor, ...]:
            return left[0] * right[0], right[0] * left[1] + right[1]

        found: torch.Tensor = associative_scan(combine, (a, b), dim=1, combine_mode="pointwise")[1]
        return found

    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for length in (3, 5, 9, 2, 40):
        given = torch.rand(4, length, 6), torch.randn(4, length, 6)
        assert torch.equal(fast(*given), fn(*given))
    assert fast.stats().traces <= 2, fast.explain_miss()
    given[0].requires_grad_()
    with pytest.raises(UnsupportedError, match="pointwise"):
        fast(*given)
    with torch.no_grad():
        assert torch.equal(fast(*given), fn(*given))
