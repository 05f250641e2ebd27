"""Autograd's own state: hooks on saved tensors and on nodes, levels of forward mode, switches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from symshape.torch_internals.private import needed, optional

# its functions are looked up at each use: a trace replaces some of them
saving: Any = needed("torch._C._autograd")
top_saving_hooks: Callable[[bool], Any] = optional(
    "torch._C._autograd._top_saved_tensors_default_hooks", lambda ignore_tracing: None
)
"""``top_saving_hooks(True)``: the innermost saved-tensor hooks; None if there are none."""
current_node: Callable[[], Any] = optional("torch._C._current_autograd_node", lambda: None)
"""``current_node()``: the autograd node that this thread's backward is in; None outside of a
backward.
"""
keeps_graph: Callable[[], bool] = optional(
    "torch._C._autograd._get_current_graph_task_keep_graph", lambda: True
)
"""``keeps_graph()``: whether the backward that runs in this thread keeps the saved tensors."""
HookMixin: Any = needed("torch.autograd.function._HookMixin")
enter_dual_level: Callable[[], int] = needed("torch._C._enter_dual_level")
exit_dual_level: Callable[..., None] = needed("torch._C._exit_dual_level")
set_grad: Callable[[bool], None] = needed("torch._C._set_grad_enabled")
InferenceMode: Callable[[bool], AbstractContextManager[object]] = needed("torch._C._InferenceMode")
is_multithreading: Callable[[], bool] = needed("torch._C._is_multithreading_enabled")
set_multithreading: Callable[[bool], None] = needed("torch._C._set_multithreading_enabled")
