"""The ``.grad`` of tensors outside a traced program, read and set by the program and filled by
``backward()``.

``requires_grad`` of such tensors is handled as well; programs turn it off and on (for the other
player of a game).

Autograd puts gradients into the leaves of its graph without running Python code.  Here ``.grad`` is
treated as a slot of the tensor: its value is noted before the program or autograd touches it, and
restored at the end of the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from symshape.calls.variables import Gradient
from symshape.errors import Reason, UnsupportedError
from symshape.torch_internals import dispatch
from symshape.tracing.intercept.autograd import reached
from symshape.tracing.intercept.exchanges import exchanged, own
from symshape.tracing.state.record.loads import read_slot
from symshape.tracing.state.record.places import Attribute
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.record.values import hook_table
from symshape.tracing.symbolic.tensors import SymbolicTensor

_FIELD = "grad"
_FLAG = "requires_grad"
_plain: Any = torch.Tensor.grad
Tell = Callable[..., None]
"""The type of functions that call a function with this thread's recording and some arguments, if
code is recorded.
"""


class Gradients:
    """The gradients of tensors that a traced program did not make.

    Args:
        tell: calls a function with the recording.
        read_first: collects the gradients of earlier calls that the program reads.
    """

    def __init__(self, tell: Tell, read_first: list[Gradient] | None = None) -> None:
        self._tell = tell
        self._read_first = [] if read_first is None else read_first

    def read(self, tensor: torch.Tensor) -> Any:
        """Record the read of ``tensor.grad`` and return its value."""
        self._tell(_touch, tensor)
        found = _plain.__get__(tensor)
        if type(found) is torch.Tensor and found.layout is torch.strided:
            self._tell(_note_read, tensor, self._read_first)
        return found

    def write(self, tensor: torch.Tensor, value: Any) -> None:
        """Record the write ``tensor.grad = value`` and do it."""
        self._tell(_store, tensor)
        _plain.__set__(tensor, value)

    def delete(self, tensor: torch.Tensor) -> None:
        """Record and do ``del tensor.grad``, which sets it to None."""
        self.write(tensor, None)

    def require(self, tensor: torch.Tensor, required: bool) -> bool:
        """Set ``requires_grad`` of a tensor, and record that.  Return whether it had another value
        before.
        """
        self._tell(_touch, tensor, _FLAG)
        if tensor.requires_grad is required:
            return False
        self._tell(_store, tensor, _FLAG)
        tensor.requires_grad_(required)
        return True

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Return a context in which ``backward()`` records the tensors that will get gradients.

        (It replaces the private function through which torch's Python code calls the engine;
        checked on 2.11 to 2.13.)
        """
        engine = own(torch.autograd, "_engine_run_backward")
        thread = threading.get_ident()

        def run(outputs: Sequence[Any], *args: Any, accumulate_grad: bool, **kwargs: Any) -> Any:
            if accumulate_grad and threading.get_ident() == thread:
                self._about_to_run(outputs, args[3])
            return engine(outputs, *args, accumulate_grad=accumulate_grad, **kwargs)

        with exchanged((torch.autograd, "_engine_run_backward", run)):
            yield

    def _about_to_run(self, outputs: Iterable[Any], inputs: Sequence[Any]) -> None:
        for leaf in inputs or leaves(outputs):
            if type(leaf) is not SymbolicTensor and isinstance(leaf, torch.Tensor):
                self._tell(_accumulate, leaf)
            elif type(leaf) is SymbolicTensor and leaf._value in leaf._tracer.arguments:
                raise UnsupportedError(
                    "the function calls backward(), which sets the gradient of an argument; return "
                    "torch.autograd.grad(...) instead, or detach that argument",
                    reason=Reason.LEFT_GRADIENTS,
                )


def leaves(outputs: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors that would get gradients if autograd ran backwards from some tensors or
    edges of its graph.
    """
    with dispatch.DisableTorchFunction():
        nodes = [getattr(each, "grad_fn", None) or getattr(each, "node", None) for each in outputs]
        found = [
            each for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is None
        ]
    variables = (getattr(node, "variable", None) for node in reached(nodes))
    return found + [each for each in variables if isinstance(each, torch.Tensor)]


def _touch(recorder: Recorder, tensor: torch.Tensor, field: str = _FIELD) -> None:
    """Record that the field of a tensor is about to be read."""
    name = f"{recorder.tensors.get(id(tensor), 'a tensor')}.{field}"
    _note(recorder, tensor, name, field)
    read_slot(recorder, tensor, field, name)


def _note_read(recorder: Recorder, tensor: torch.Tensor, found: list[Gradient]) -> None:
    name = f"{recorder.tensors.get(id(tensor), 'a tensor')}.{_FIELD}"
    found.append(Gradient.of(tensor, _FIELD, name))


def _note(recorder: Recorder, tensor: torch.Tensor, name: str, field: str) -> None:
    key = id(tensor), field
    if key not in recorder.slots:
        recorder.slots[key] = Attribute(tensor, field, getattr(tensor, field), name)


def _store(recorder: Recorder, tensor: torch.Tensor, field: str = _FIELD) -> None:
    """Record that the field of a tensor is about to be set."""
    _note(recorder, tensor, f"{recorder.tensors.get(id(tensor), 'a tensor')}.{field}", field)
    recorder.stored.add((id(tensor), field))


def _accumulate(recorder: Recorder, leaf: torch.Tensor) -> None:
    """Record that autograd is about to read a leaf's gradient, to write it, and to call the leaf's
    hooks.
    """
    _touch(recorder, leaf)
    _store(recorder, leaf)
    name = recorder.tensors.get(id(leaf), "a tensor")
    for table in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(leaf, table, None)
        recorder.place(Attribute(leaf, table, hooks, f"hooks of {name}"))
        if hooks:
            hook_table(recorder, f"hooks of {name}", hooks)
