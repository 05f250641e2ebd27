"""Fields and methods of tensors by which a program reads or changes autograd state, as a trace
handles them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import torch
from torch.utils.hooks import RemovableHandle

from symshape.calls.questions import Question
from symshape.errors import Reason, UnsupportedError
from symshape.graph.steps import Step
from symshape.torch_internals import autograd, dispatch, functorch, pytree
from symshape.tracing.intercept.exchanges import exchanged
from symshape.tracing.symbolic.tensors import SymbolicTensor, Telling

_grad: Any = torch.Tensor.grad
_requires_grad: Any = torch.Tensor.requires_grad
_data_attribute: Any = torch.Tensor.data
_version: Any = torch.Tensor._version


class Gradients(Protocol):
    """The gradients of tensors around the program."""

    def read(self, tensor: torch.Tensor) -> Any:
        """``tensor.grad``."""

    def write(self, tensor: torch.Tensor, value: Any) -> None:
        """``tensor.grad = value``."""

    def delete(self, tensor: torch.Tensor) -> None:
        """``del tensor.grad``."""

    def require(self, tensor: torch.Tensor, required: bool) -> bool:
        """Set whether ``tensor`` requires gradients; return whether that changed the recorded
        state.
        """


def of_real_tensors(gradients: Gradients, own: Telling) -> dict[Any, Callable[..., Any]]:
    """Return the replacements for functions that read or change gradients of real tensors, mostly
    parameters.
    """

    def require(tensor: torch.Tensor, requires_grad: Any = True) -> torch.Tensor:
        requires_grad = (
            bool(requires_grad) if type(requires_grad) is torch.SymBool else requires_grad
        )
        if not tensor.is_leaf or type(requires_grad) is not bool:
            return tensor.requires_grad_(requires_grad)  # torch refuses this
        if gradients.require(tensor, requires_grad):
            own.tell(tensor, requires_grad)
        return tensor

    def set_flag(tensor: torch.Tensor, value: Any) -> None:
        require(tensor, value)

    return {
        torch.Tensor.requires_grad_: require,
        _requires_grad.__set__: set_flag,
        _grad.__get__: gradients.read,
        _grad.__set__: gradients.write,
        _grad.__delete__: gradients.delete,
        _version.__get__: _refuse_version,
    }


def _refuse_version(tensor: torch.Tensor) -> Any:
    raise UnsupportedError(
        "the function reads Tensor._version of a tensor created outside it, which a compiled graph "
        "does not guard; pass the number as an argument",
        reason=Reason.AUTOGRAD_STATE,
    )


def _unless_made_here(attribute: Any, what: str, reason: Reason) -> Callable[..., Any]:
    """Return ``attribute`` for tensors that the program made.

    For other tensors the call raises ``UnsupportedError``: a graph would not repeat a side effect,
    and a value that was read would be stale.
    """

    def use(tensor: torch.Tensor, *args: Any) -> Any:
        made_here = type(tensor) is SymbolicTensor and tensor._value not in tensor._tracer.arguments
        if made_here or functorch.is_wrapped(tensor):  # torch.func.grad makes its own
            return attribute(tensor, *args)
        raise UnsupportedError(
            f"the function {what} of a tensor created outside it, which a compiled graph would not "
            "repeat; do that outside the function, or pass the gradient as an argument",
            reason=reason,
        )

    return use


def _requiring(attribute: Any, what: str) -> Callable[..., Any]:
    """Return the setter ``attribute`` for tensors that the program made; record each tensor that it
    changes.

    Setting the flag to its current value changes nothing.
    """
    inner = _unless_made_here(attribute, what, Reason.AUTOGRAD_STATE)

    def use(tensor: torch.Tensor, requires_grad: Any = True) -> Any:
        if tensor.requires_grad is requires_grad:
            return attribute(tensor, requires_grad)
        result = inner(tensor, requires_grad)
        if type(tensor) is SymbolicTensor:
            tensor._tracer.own.require(tensor, tensor.requires_grad)
        return result

    return use


def _set_data(tensor: torch.Tensor, value: Any) -> None:
    raise UnsupportedError(
        "the function assigns to Tensor.data, which a compiled graph would not repeat; write into "
        "the tensor instead: tensor.data.copy_(value)",
        reason=Reason.ASSIGNED_DATA,
    )


OF_ANY_TENSOR: dict[Any, Callable[..., Any]] = {
    _requires_grad.__set__: _requiring(_requires_grad.__set__, "sets requires_grad"),
    torch.Tensor.requires_grad_: _requiring(torch.Tensor.requires_grad_, "calls requires_grad_()"),
    _data_attribute.__set__: _set_data,
}
"""The replacements for autograd methods of any tensor, real ones included, by method."""


def _refuse_transformed(tensor: SymbolicTensor, what: str) -> None:
    """Refuse to read autograd state under ``vmap`` or ``jvp``, whose wrapper hides the state of the
    tensor inside.

    Raises:
        UnsupportedError: such a transform is around the call.
    """
    if tensor._tracer.own.transformed():
        raise UnsupportedError(
            f"the function {what} of a tensor that it creates, inside a transform of torch.func "
            "(grad, vmap …) "
            "that may change the answer; compile the function that applies the transform",
            reason=Reason.TRANSFORMS,
        )


def _tracked(tensor: SymbolicTensor) -> bool:
    """Return whether the program made the tensor, and it requires gradients or inference mode is
    on.
    """
    made = tensor._value not in tensor._tracer.arguments
    return made and (tensor.requires_grad or torch.is_inference_mode_enabled())


def _reads_requires_grad(tensor: SymbolicTensor) -> Any:
    """Return ``tensor.requires_grad``. The key of each call guards the flag of an argument."""
    if _tracked(tensor):
        _refuse_transformed(tensor, "reads Tensor.requires_grad")
    return _requires_grad.__get__(tensor)


def _refuse_for_gradients(method: Any, what: str, reason: Reason) -> Callable[..., Any]:
    """Return ``method``, refused for tensors that require gradients: a graph has no op that repeats
    the change.
    """

    def use(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not tensor.requires_grad:
            if method is torch.Tensor.detach_ and type(tensor) is SymbolicTensor:
                _refuse_transformed(tensor, "calls Tensor.detach_()")
            return method(tensor, *args, **kwargs)
        raise UnsupportedError(
            f"the function calls {what} of a tensor that requires gradients, which a compiled "
            "graph would not repeat; do that outside the function, or train through "
            "torch.compile(backend='symshape')",
            reason=reason,
        )

    return use


def _for_backward(method: Any, what: str) -> Callable[..., Any]:
    """Return ``method``, which changes what backward does with a gradient, for tensors that the
    program made.
    """
    refuse = _refuse_for_gradients(method, what, Reason.HOOKS)

    def use(tensor: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
        if tensor._value in tensor._tracer.arguments:
            return refuse(tensor, *args, **kwargs)
        result = method(tensor, *args, **kwargs)
        if tensor.requires_grad:
            tensor._tracer.own.hooked(tensor, retained=method is torch.Tensor.retain_grad)
        return result

    return use


def _history(attribute: Any, name: str) -> Callable[..., Any]:
    """Return the reader of an autograd field of a tensor.

    Fields of arguments that may differ between calls without a guard are refused.
    """

    def read(tensor: SymbolicTensor) -> Any:
        argument = tensor._value in tensor._tracer.arguments
        if argument and (tensor.requires_grad or name not in ("is_leaf", "grad_fn")):
            raise UnsupportedError(
                f"the function reads Tensor.{name} of an argument, which a compiled graph does not "
                "guard; read it outside the function",
                reason=Reason.AUTOGRAD_STATE,
            )
        if _tracked(tensor):
            _refuse_transformed(tensor, f"reads Tensor.{name}")
        if name in ("_version", "_base") and tensor._tracer.untracked_views.of(tensor._value):
            raise UnsupportedError(
                f"the function reads Tensor.{name} of a tensor and has views of it, without "
                "gradients",
                reason=Reason.AUTOGRAD_STATE,
            )
        return attribute(tensor)

    return read


def gradients(*args: Any, **kwargs: Any) -> Any:
    """Compute ``torch.autograd.grad``; refuse arguments of the program that have hooks, which
    stand-ins lack.
    """
    for tensor in pytree.tree_leaves((args, kwargs)):
        if type(tensor) is SymbolicTensor:
            for position, original in list(tensor._tracer.originals.values()):
                if tensor._tracer.note(Question(position, "hooked"), original):
                    raise UnsupportedError(
                        "the function computes gradients, and an argument has hooks, which a "
                        "compiled graph would not call; register the hooks on a tensor that the "
                        "function creates, or outside the function",
                        reason=Reason.HOOKS,
                    )
            break
    return torch.autograd.grad(*args, **kwargs)


OF_STAND_INS: dict[Any, Callable[..., Any]] = {
    _requires_grad.__get__: _reads_requires_grad,
    _grad.__get__: _unless_made_here(_grad.__get__, "reads the gradient", Reason.ASSIGNED_DATA),
    _grad.__set__: _unless_made_here(_grad.__set__, "sets the gradient", Reason.ASSIGNED_DATA),
    _grad.__delete__: _unless_made_here(
        _grad.__delete__, "deletes the gradient", Reason.ASSIGNED_DATA
    ),
    torch.autograd.grad: gradients,
}
"""The replacements for autograd methods of symbolic tensors, by method."""

for _name, _reason in (
    ("detach_", Reason.AUTOGRAD_STATE),
    ("register_post_accumulate_grad_hook", Reason.HOOKS),
):
    OF_STAND_INS[getattr(torch.Tensor, _name)] = _refuse_for_gradients(
        getattr(torch.Tensor, _name), f"Tensor.{_name}()", _reason
    )
for _name in ("retain_grad", "register_hook"):
    OF_STAND_INS[getattr(torch.Tensor, _name)] = _for_backward(
        getattr(torch.Tensor, _name), f"Tensor.{_name}()"
    )
for _name in ("is_leaf", "grad_fn", "_version", "_base"):
    _getting: Any = getattr(torch.Tensor, _name).__get__
    OF_STAND_INS[_getting] = _history(_getting, _name)


# -- Hooks that a program registers with autograd: on graph nodes, on tensors, and on tensors saved
# for backward.
#
# A graph of ATen ops repeats none of them. A backward pass inside the program runs, with its
# hooks, during the trace. Where a result leaves the program and is differentiated outside, its
# hooks would be lost.
_TENSOR: Any = torch.Tensor
_MIXIN: Any = autograd.HookMixin  # C++ asks its `_register_hook` for every hook of a node
_SAVING: Any = autograd.saving  # `saved_tensors_hooks` and its kin begin and end there
_AGAIN = ("torch.utils.checkpoint", "_checkpoint_hook.")
_AS_SAVED = (
    ("torch.utils.checkpoint", "_recomputation_hook."),
    ("torch.autograd.graph", "save_on_cpu."),
)
"""Torch's own saved-tensor hooks under which backward computes the same as without hooks."""


class _Look(Exception):
    """A probe given to a node as a hook: the node shows its hooks to the probe, which is never
    registered.
    """

    hooks: Any = None


def reached(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield the autograd nodes that run in a backward pass from ``roots``."""
    waiting, seen = list(roots), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions]


class AutogradHooks:
    """The autograd hooks that one trace's program registers.

    Args:
        steps: returns the steps that the trace has so far.

    Attributes:
        own: whether the program installed saved-tensor hooks of its own.
        again: the ranges of steps that checkpoints recompute in backward.
    """

    def __init__(self, steps: Callable[[], Sequence[Step]]) -> None:
        self._steps = steps
        self._given: list[tuple[dict[int, Any], int]] = []
        self._kept: dict[int, dict[int, Any]] = {}
        self._handles: list[RemovableHandle] = []
        self._left: list[RemovableHandle] = []
        self._of_tensors: list[Any] = []  # the autograd nodes that made them; leaves themselves
        self._retaining: list[Any] = []
        self._saving: list[tuple[Any, int]] = []
        self.own = False
        self.again: list[tuple[int, int]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the hooks that this thread registers inside; at the end remove those on nodes and
        real tensors.
        """
        register = _MIXIN.__dict__["_register_hook"]
        push = _SAVING._push_saved_tensors_default_hooks
        pop = _SAVING._pop_saved_tensors_default_hooks
        thread = threading.get_ident()

        def registered(hooks: Any, hook: Any) -> Any:
            hooks, handle = register.__func__(hooks, hook)
            if threading.get_ident() == thread:
                self._given.append((hooks, handle.id))
            return hooks, handle

        def pushed(pack: Any, unpack: Any) -> None:
            push(pack, unpack)
            if threading.get_ident() == thread:
                self._saving.append((pack, len(self._steps())))

        def popped() -> None:
            pop()
            if threading.get_ident() == thread and self._saving:
                self._saved_by(*self._saving.pop())

        try:
            with exchanged(
                (_MIXIN, "_register_hook", staticmethod(registered)),
                (_SAVING, "_push_saved_tensors_default_hooks", pushed),
                (_SAVING, "_pop_saved_tensors_default_hooks", popped),
            ):
                yield
        finally:
            for handle in self._handles:
                RemovableHandle.remove(handle)
            for hooks, key in self._given:
                if hooks.pop(key, None) is not None:
                    self._kept[id(hooks)] = hooks

    def looks(self) -> tuple[int, ...]:
        """Return a count of everything that was recorded."""
        noted = (self._given, self._kept, self._handles, self._of_tensors, self._saving, self.again)
        return (self.own, *map(len, noted))

    def on_tensor(self, tensor: torch.Tensor, retained: bool) -> None:
        """Record that a tensor that the program made has a hook, or retains its gradient."""
        with dispatch.DisableTorchFunction():  # our own read, not the program's
            node: Any = tensor.grad_fn
        self._of_tensors.append(tensor if node is None else node)
        if retained:
            self._retaining.append(self._of_tensors[-1])

    def retains(self, nodes: Iterable[Any]) -> bool:
        """Return whether one of these nodes made a tensor that retains its gradient."""
        return any(each is node for node in nodes for each in self._retaining)

    def of_real_tensors(self) -> dict[Any, Callable[..., RemovableHandle]]:
        """Return replacements for functions that add hooks to real tensors, so that a trace leaves
        no hooks behind.
        """
        return {
            each: partial(self._registered, each)
            for each in (_TENSOR.register_hook, _TENSOR.register_post_accumulate_grad_hook)
        }

    def _registered(self, register: Callable[..., RemovableHandle], *args: Any) -> RemovableHandle:
        handle = register(*args)
        self._handles.append(handle)
        self._left.append(handle)
        handle.remove = partial(self._removed, handle)  # type: ignore[method-assign]
        return handle

    def _removed(self, handle: RemovableHandle) -> None:
        self._left = [each for each in self._left if each is not handle]
        RemovableHandle.remove(handle)

    @property
    def left(self) -> bool:
        """Return whether the program left hooks on tensors around it."""
        return bool(self._left)

    def _saved_by(self, pack: Any, start: int) -> None:
        module, name = getattr(pack, "__module__", ""), getattr(pack, "__qualname__", "")
        if module == _AGAIN[0] and name.startswith(_AGAIN[1]):
            self.again.append((start, len(self._steps())))
        elif not any(module == each and name.startswith(of) for each, of in _AS_SAVED):
            self.own = True

    def on(self, nodes: Iterable[Any]) -> bool:
        """Return whether the program hooked one of these nodes, or a tensor that they made or
        accumulate into.
        """
        found = list(nodes)
        if self._of_tensors:
            those = {id(each) for each in self._of_tensors}
            if any(
                id(each) in those or id(getattr(each, "variable", None)) in those for each in found
            ):
                return True
        return bool(self._kept) and any(
            id(_hooks_of(register)) in self._kept
            for node in found
            for register in (node.register_hook, node.register_prehook)
        )


def _hooks_of(register: Callable[[Any], Any]) -> Any:
    """Return the dictionary of hooks to which ``register``, a method of a node, would add one."""
    own = _MIXIN.__dict__["_register_hook"]

    def shown(hooks: Any, hook: Any) -> Any:
        if type(hook) is not _Look:  # another thread's
            return own.__func__(hooks, hook)
        hook.hooks = hooks
        raise hook

    look = _Look()
    with suppress(_Look), exchanged((_MIXIN, "_register_hook", staticmethod(shown))):
        register(look)
    return look.hooks
