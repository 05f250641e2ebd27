"""Tensors that autograd saved and hands out again, whose history a graph would lose.

Autograd saves a result as a detached copy and restores the copy's history where backward needs it.
The trace sees the detaching, twice, and nothing of the history. Without gradients of gradients this
does not matter. With them (``create_graph=True``), the graph has to use the result itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs
import torch

from symshape.errors import Reason, UnsupportedError
from symshape.graph.steps import Value
from symshape.torch_internals import autograd, dispatch
from symshape.tracing.symbolic.tensors import SymbolicTensor

_History = tuple[int, int]
"""The sequence number of the autograd node that made a tensor (in this thread), and which result it
is.
"""


@attrs.define(eq=False)
class _Detached:
    """A detached value.

    Attributes:
        root: the value with a history, of which this is a copy (or a copy of a copy …); None where
            there is none.
        history: the history of ``root``.
        written: whether something wrote to its memory afterwards.
    """

    root: Value | None
    history: _History | None
    written: bool = False


class SavedResults:
    """The detached values of one trace.

    Args:
        told: the values on which the program itself set ``requires_grad``.
    """

    def __init__(self, told: Collection[Value]) -> None:
        self._told = told
        self._found: dict[Value, _Detached] = {}
        self._hooked = False  # whether hooks may recreate a leaf that autograd saved
        self._by_memory: dict[object, list[_Detached]] = {}

    def detached(self, value: Value, tensor: torch.Tensor, source: Value) -> None:
        """Record that ``value`` was made by detaching ``tensor``, whose value is ``source``."""
        history, before = _history(tensor), self._found.get(source)
        if history is not None:
            made = _Detached(source, history)
        else:
            made = (
                _Detached(None, None) if before is None else _Detached(before.root, before.history)
            )
        self._found[value] = made
        self._hooked |= autograd.saving._top_saved_tensors_default_hooks(True) is not None
        self._by_memory.setdefault(value.storage, []).append(made)

    def written(self, values: Iterable[Value]) -> None:
        """Record that an op wrote to these values: a detached one may have a history of its own
        now.
        """
        for value in values:
            for each in self._by_memory.get(value.storage, ()):
                each.written = True

    def of(self, tensor: SymbolicTensor) -> Value:
        """Return the value that a graph uses for a tensor, so that gradients flow through it.

        Raises:
            UnsupportedError: the tensor has a history, and which result of the graph's has the same
                is not known.
        """
        value = tensor._value
        found = self._found.get(value)
        if found is None or not _requires_grad(tensor) or value in self._told:
            return value
        history = _history(tensor)
        if (
            history is not None
            and history == found.history
            and not found.written
            and found.root is not None
        ):
            return found.root
        if history is None and not self._hooked:
            return value  # requires_grad was set unseen, in a gradient of the program's own
        if (
            history is not None
            and history != found.history
            and (found.written or _is_custom(tensor))
        ):
            return value
        raise UnsupportedError(
            "the function computes gradients of gradients through a tensor that autograd saved and "
            "that was recomputed or overwritten since (a checkpoint, "
            "torch.autograd.graph.saved_tensors_hooks); a compiled graph would lose them; compute "
            "them without the checkpoint or the hooks",
            reason=Reason.LOST_GRADIENTS,
        )


def _requires_grad(tensor: SymbolicTensor) -> bool:
    with dispatch.DisableTorchFunction():  # our own read, not the program's
        return tensor.requires_grad


def _history(tensor: torch.Tensor) -> _History | None:
    with dispatch.DisableTorchFunction():
        node = tensor.grad_fn
        return None if node is None else (node._sequence_nr(), tensor.output_nr)


def _is_custom(tensor: SymbolicTensor) -> bool:
    """Return whether an ``autograd.Function`` made a tensor: it may return what it detached."""
    with dispatch.DisableTorchFunction():
        return isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction)
