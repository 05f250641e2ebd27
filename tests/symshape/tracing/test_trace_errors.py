"""A defect of our own is told as one; errors of the program and of torch are theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import FallbackWarning, InternalError, events
from symshape.tracing import tracer
from symshape.tracing.trace_errors import defect

X = torch.ones(3, 4)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_defect_is_told_and_not_traced_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    traces: list[Any] = []

    def no_plan(op: Any) -> None:
        traces.append(op)

    monkeypatch.setattr(tracer, "plan_of", no_plan)
    message = (
        r"symshape itself failed while it traced _double \(at "
        r"test_trace_errors.py.*AttributeError: .*tracer.py:\d+"
    )
    with pytest.raises(InternalError, match=message):
        symshape.trace(_double, X)
    assert len(traces) == 1, "it was traced again"
    (told,) = [each for each in seen if isinstance(each, events.Defect)]
    assert told.function == "_double"
    assert told.place.startswith("symshape/tracing/tracer.py:")
    with pytest.raises(InternalError):
        symshape.compile(_double, fullgraph=True)(X)
    with pytest.warns(FallbackWarning, match="symshape itself failed"):
        assert torch.equal(symshape.compile(_double)(X), X * 2)
    unsubscribe()


def _missing(x: torch.Tensor) -> Any:
    return x.no_such_thing  # type: ignore[attr-defined]


def _unknown(x: torch.Tensor) -> Any:
    return no_such_name  # type: ignore[name-defined]  # noqa: F821


def _key(x: torch.Tensor) -> Any:
    return {"a": x}["b"]


def _position(x: torch.Tensor) -> Any:
    return x.shape[7]


def _dimension(x: torch.Tensor) -> Any:
    return x.size(7)


def _wrong_type(x: torch.Tensor) -> Any:
    return torch.add(x, "two")  # type: ignore[call-overload]


def _assertion(x: torch.Tensor) -> Any:
    assert x is None


def _no_number(x: torch.Tensor) -> Any:
    return 1 // 0


@pytest.mark.parametrize(
    "fn",
    [_missing, _unknown, _key, _position, _dimension, _wrong_type, _assertion, _no_number],
    ids=lambda fn: fn.__name__,
)
def test_errors_of_the_program_are_its_own(fn: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(Exception) as eager:  # noqa: PT011 - which one is what is asked
        fn(X)
    for served in (lambda: symshape.trace(fn, X), lambda: symshape.compile(fn, fullgraph=True)(X)):
        with pytest.raises(type(eager.value)) as mine:
            served()
        assert not isinstance(mine.value, symshape.SymShapeError)
        assert defect(mine.value) is None


def test_errors_that_are_no_defects() -> None:
    assert defect(RuntimeError("of torch")) is None
    assert defect(KeyError("never raised")) is None
