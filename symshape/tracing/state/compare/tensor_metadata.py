"""Check that tensors still have their metadata: ``Tensor.data`` can be assigned a tensor of another
shape or dtype.

Such an assignment writes no dictionary and counts no version, so each call checks each tensor.  Our
own loop over them is compiled (``compiled``, 10 to 20 ns a tensor).  Without it, torch's check of
tensors is used (100 to 250 ns), and without that, a comparison in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.calls.modes import modes
from symshape.tracing.state import compiled


class Metadata:
    """The metadata of some tensors at one moment.

    Attributes:
        tensors: the tensors.
        quick: a quick check whose True is exact; after False, call :meth:`holds`.
    """

    __slots__ = ("_checks", "_then", "quick", "tensors")

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)
        self._then = list(map(of_tensor, self.tensors))
        self._checks: dict[Any, Callable[..., bool]] = {}
        self.quick: Callable[[], bool] = bool if tensors else lambda: True  # bool() is a no

    def holds(self) -> bool:
        """Return whether all tensors still have that metadata."""
        if self.quick():
            return True
        if self._now() != self._then:
            return False
        self.quick = self._quick()
        return True

    def like(self, of: Callable[[Any], Any]) -> Metadata:
        """Return the same metadata for other tensors, which ``of`` returns for these; they must
        have it.
        """
        made = Metadata(())
        made.tensors, made._then = tuple(map(of, self.tensors)), self._then
        made.quick = bool if made.tensors else made.quick
        return made

    def would_hold(self, of: Callable[[Any], Any]) -> bool:
        """Return whether other tensors, which ``of`` returns for these, have the metadata of
        these.
        """
        return [of_tensor(of(tensor)) for tensor in self.tensors] == self._then

    def changed(self) -> list[torch.Tensor]:
        """Return the tensors that have other metadata now."""
        return [
            tensor
            for tensor, then in zip(self.tensors, self._then, strict=True)
            if of_tensor(tensor) != then
        ]

    def _now(self) -> list[tuple[Any, ...]]:
        return list(map(of_tensor, self.tensors))

    def _quick(self) -> Callable[[], bool]:
        """Return the quickest available check for the current metadata."""
        if compiled.METADATA is not None:
            try:
                check: Callable[[], bool] = compiled.METADATA(self.tensors).same
                return check
            except TypeError:  # a sparse tensor, or one of another tracer
                pass
        self._checks[modes()] = _of_torch(self.tensors)
        return self._checked_by_torch

    def _checked_by_torch(self) -> bool:
        check = self._checks.get(modes())  # torch's check depends on them
        return check is not None and check(*self.tensors)


def of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's class, dtype, device, ``requires_grad``, sizes and strides (or its
    layout).
    """
    if tensor.layout is not torch.strided:
        return (
            type(tensor),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            tensor.shape,
            tensor.layout,
        )
    if tensor.is_nested:  # it has no sizes to ask for
        return (
            type(tensor),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            tensor.numel(),
            tensor.layout,
        )
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        tensor.shape,
        tensor.stride(),
    )


def _of_torch(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return torch's own check of tensors' metadata, in C++; if unavailable, a check that always
    returns False.

    (A private name, checked on 2.11 to 2.13.)
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
        strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, RuntimeError, TypeError):
        return lambda *_: False
