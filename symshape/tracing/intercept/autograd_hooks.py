"""Hooks that a program registers with autograd: on graph nodes, on tensors, and on tensors saved
for backward.

A graph of ATen ops repeats none of them. A backward pass inside the program runs, with its hooks,
during the trace. Where a result leaves the program and is differentiated outside, its hooks would
be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from symshape.graph.steps import Step
from symshape.torch_internals import autograd, dispatch

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
        push, pop = (
            _SAVING._push_saved_tensors_default_hooks,
            _SAVING._pop_saved_tensors_default_hooks,
        )
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

        _MIXIN._register_hook = staticmethod(registered)
        _SAVING._push_saved_tensors_default_hooks, _SAVING._pop_saved_tensors_default_hooks = (
            pushed,
            popped,
        )
        try:
            yield
        finally:
            _MIXIN._register_hook = register
            _SAVING._push_saved_tensors_default_hooks, _SAVING._pop_saved_tensors_default_hooks = (
                push,
                pop,
            )
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
    _MIXIN._register_hook = staticmethod(shown)
    try:
        register(look)
    except _Look:
        pass
    finally:
        _MIXIN._register_hook = own
    return look.hooks
