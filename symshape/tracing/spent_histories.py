"""Histories that ran backward inside a program, which gave back what they had saved: to run them once more fails.

Steps of training return such a loss.  A graph that kept its ops' history would keep what they saved, step after step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from symshape.tracing.gradients import reached


class _Spent(torch.autograd.Function):
    """A tensor whose history has run backward."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory."""
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Fails as eager does."""
        raise RuntimeError(
            "Trying to backward through the graph a second time: the compiled function ran backward() on this result; "
            "specify retain_graph=True there if you need to backward through it again"
        )


def as_spent(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with a history that cannot run backward."""
    return _Spent.apply(torch.empty((), requires_grad=True), tensor.detach())  # type: ignore[no-any-return]


class SpentHistories:
    """Of one trace: autograd's nodes that ``backward()`` began at and left without what they had saved."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []

    def __contains__(self, node: Any) -> bool:
        return any(each is node for each in self._nodes)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, what this thread runs backward is noted.

        (Where torch's Python code hands over to the engine, a private name; checked on 2.11 to 2.13.)
        """
        namespace = vars(torch.autograd)
        engine, thread = namespace["_engine_run_backward"], threading.get_ident()

        def run(outputs: Sequence[Any], *args: Any, accumulate_grad: bool, **kwargs: Any) -> Any:
            result = engine(outputs, *args, accumulate_grad=accumulate_grad, **kwargs)
            kept, inputs = args[1], args[3]
            if accumulate_grad and not kept and not inputs and threading.get_ident() == thread:
                self._note(outputs)
            return result

        namespace["_engine_run_backward"] = run
        try:
            yield
        finally:
            namespace["_engine_run_backward"] = engine

    def _note(self, outputs: Iterable[Any]) -> None:
        with torch._C.DisableTorchFunction():
            nodes = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor)]
        self._nodes += [each for each in nodes if each is not None and any(map(_saves, reached([each])))]


def _saves(node: Any) -> bool:
    """Whether an operator's node saves tensors for backward."""
    return any(name.startswith("_raw_saved_") for name in dir(type(node)) if name != "_raw_saved_tensors")
