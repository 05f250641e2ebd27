"""Torch's dispatcher: its keys, and the dispatch and function modes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from symshape.torch_internals.private import needed, optional

DisableTorchFunction: Callable[[], AbstractContextManager[object]] = needed(
    "torch._C.DisableTorchFunction"
)
disabled_torch_function: Any = needed("torch._C._disabled_torch_function_impl")
has_kernel: Callable[[str], bool] = needed("torch._C._dispatch_has_kernel")
has_kernel_for: Callable[[str, Any], bool] = needed(
    "torch._C._dispatch_has_kernel_for_dispatch_key"
)
included_keys: Callable[[], Any] = needed("torch._C._dispatch_tls_local_include_set")
excluded_keys: Callable[[], Any] = needed("torch._C._dispatch_tls_local_exclude_set")
keys_forced: Callable[[Any, Any], AbstractContextManager[object]] = needed(
    "torch._C._ForceDispatchKeyGuard"
)
python_dispatcher: Callable[[], AbstractContextManager[object]] = needed(
    "torch._dispatch.python.enable_python_dispatcher"
)

any_autocast: Callable[[], bool] = needed("torch._C._is_any_autocast_enabled")
is_jit_tracing: Callable[[], bool] = needed("torch._C._is_tracing")
function_mode_count: Callable[[], int] = needed("torch._C._len_torch_function_stack")
function_modes: Callable[[], list[Any]] = needed("torch.overrides._get_current_function_mode_stack")
pop_function_mode: Callable[[], Any] = needed("torch._C._pop_torch_function_stack")
push_function_mode: Callable[[Any], None] = needed("torch._C._push_on_torch_function_stack")
dispatch_mode_count: Callable[[], int] = needed("torch._C._len_torch_dispatch_stack")
dispatch_modes: Callable[[], list[Any]] = needed(
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
)
modes_disabled: Callable[[], AbstractContextManager[Any]] = needed(
    "torch.utils._python_dispatch._disable_current_modes"
)
python_dispatch: Any = needed("torch.utils._python_dispatch")
note_mode_in_cpp: Callable[[bool], object] = optional(
    "torch._C._dynamo.guards.set_is_in_mode_without_ignore_compile_internals", lambda inside: None
)
"""Tell C++ whether a mode is entered that does not ignore compile internals."""

find_dispatch_rule: Any = optional("torch._library.simple_registry.find_torch_dispatch_rule", None)
"""Finds the rule of an op for a dispatch mode: C++ calls it.  None where this torch has none."""

if TYPE_CHECKING:
    from torch._C import DispatchKey as DispatchKey
    from torch.utils._device import DeviceContext as DeviceContext
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
else:
    DispatchKey = needed("torch._C.DispatchKey")
    DeviceContext = needed("torch.utils._device.DeviceContext")
    TorchDispatchMode = needed("torch.utils._python_dispatch.TorchDispatchMode")


def tracers_own_modes() -> list[Any]:
    """Return the active modes of torch's own tracers: of fake, functional and proxy tensors.

    Torch asks them after every other mode, whichever was entered last.
    """
    return [mode for mode in dispatch_modes() if getattr(mode, "_mode_key", None) is not None]
