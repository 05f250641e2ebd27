"""Calls of ``autograd.Function.apply`` as they are seen, in torch's way of each version."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import pytest
import torch

import symshape
from symshape.torch_internals import functions

R = torch.randn
KIND: Any = type(torch.autograd.Function)
of_python = pytest.mark.skipif(
    functions.APPLY is None, reason="Function.apply is a method of C in this torch"
)


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, most: float = 0.5) -> torch.Tensor:
        ctx.most = most
        ctx.save_for_backward(x)
        return x.clamp(-most, most)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= ctx.most) * 3, None


class SetUp(torch.autograd.Function):
    order: tuple[str, ...] = ()

    @staticmethod
    def forward(x: torch.Tensor, by: int = 2) -> Any:  # type: ignore[override]
        return Clip.apply(x, 9.0) * by, x.sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        SetUp.order += ("set up",)
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
        return gradient * ctx.by, None


clip = Clip.apply


class Seen:
    def __init__(self, refuse: type | None = None) -> None:
        self.begun: list[type] = []
        self.ended: list[tuple[type, tuple[Any, ...], Mapping[str, Any], Any, Any]] = []
        self._refuse = refuse

    def begin(self, cls: type) -> functions.End | None:
        self.begun.append(cls)

        def end(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, node: Any) -> None:
            SetUp.order += (f"end {cls.__name__}",)
            self.ended.append((cls, args, kwargs, result, node))

        return None if cls is self._refuse else end


@pytest.mark.parametrize("call", [lambda x: Clip.apply(x, 0.5), lambda x: clip(x, 0.5)])
def test_by_whatever_name(call: Any) -> None:
    seen, x = Seen(), R(4, requires_grad=True)
    with functions.calls_watched(seen.begin):
        result = call(x)
    ((cls, args, kwargs, said, node),) = seen.ended
    assert (cls, args, dict(kwargs)) == (Clip, (x, 0.5), {})
    assert said is result
    assert (result.grad_fn if node is None else node) is result.grad_fn
    result.sum().backward()
    assert torch.equal(x.grad, 3.0 * (x.abs() <= 0.5))  # type: ignore[arg-type]
    assert Clip.apply(x).requires_grad
    assert len(seen.ended) == 1


def test_a_call_ends_after_its_context_is_set_up() -> None:
    seen, x, SetUp.order = Seen(), R(4, requires_grad=True), ()
    with functions.calls_watched(seen.begin):
        first, second = SetUp.apply(x, 3)
    assert seen.begun == [SetUp, Clip]
    assert SetUp.order == ("end Clip", "set up", "end SetUp")
    assert [
        each is other for each, other in zip(seen.ended[1][3], (first, second), strict=True)
    ] == [True, True]
    first.sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 3.0))  # type: ignore[arg-type]


def test_without_gradients_there_is_no_node() -> None:
    seen = Seen()
    with functions.calls_watched(seen.begin):
        Clip.apply(R(4))
    assert [each[4] for each in seen.ended] == [None]


def test_a_call_that_nobody_asks_the_end_of() -> None:
    seen, x = Seen(refuse=Clip), R(4, requires_grad=True)
    with functions.calls_watched(seen.begin):
        assert Clip.apply(x).requires_grad
    assert (seen.begun, seen.ended) == ([Clip], [])


def test_an_error_ends_nothing() -> None:
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    seen = Seen()
    with functions.calls_watched(seen.begin):
        with pytest.raises(ValueError, match="no"):
            Raises.apply(R(3))
        clip(R(3))
    assert [each[0] for each in seen.ended] == [Clip]


def test_one_watch_in_another() -> None:
    outer, inner = Seen(), Seen()
    with functions.calls_watched(outer.begin):
        clip(R(3))
        with functions.calls_watched(inner.begin):
            clip(R(3))
        clip(R(3))
    assert (len(outer.ended), len(inner.ended)) == (2, 1)


def test_torch_is_as_it_was_afterwards() -> None:
    apply = torch.autograd.Function.__dict__["apply"]
    code = functions.APPLY and functions.APPLY.__code__
    symshape.trace(lambda x: Clip.apply(x, 0.5), R(3, requires_grad=True))
    assert torch.autograd.Function.__dict__["apply"] is apply
    assert "__getattribute__" not in vars(KIND)
    if functions.APPLY is not None:
        assert functions.APPLY.__code__ is code
        assert code is not None
        assert code.co_filename.endswith("function.py")
        assert vars(torch.autograd.function)["symshape_apply"] is functions.unwatched


@of_python
def test_a_thread_that_began_to_call_a_function_while_another_traced() -> None:
    traced = symshape.trace(lambda x: clip(x, 2.0) * 2, R(3).requires_grad_())
    assert functions.APPLY is not None
    names, closure = functions.APPLY.__globals__, functions.APPLY.__closure__
    begun = FunctionType(functions.REPLACEMENT.__code__, names, "apply", None, closure)
    x = R(3).requires_grad_()
    begun(Clip, x, 2.0).sum().backward()
    assert x.grad is not None
    other = x.detach().clone().requires_grad_()
    traced(other).sum().backward()
    assert other.grad is not None
    assert torch.equal(2 * x.grad, other.grad)


@pytest.mark.skipif(
    functions.APPLY is not None, reason="one function of Python serves all threads in this torch"
)
def test_other_threads_are_not_watched() -> None:
    seen, results = Seen(), []
    thread = threading.Thread(target=lambda: results.append(Clip.apply(R(3, requires_grad=True))))
    with functions.calls_watched(seen.begin):
        thread.start()
        thread.join()
    assert not seen.begun
    assert results[0].requires_grad
