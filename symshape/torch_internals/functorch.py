"""The transforms of ``torch.func``: the stack of the active ones, and the tensors that they
wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from symshape.torch_internals.private import needed

interpreters: Callable[[], Any] = needed("torch._C._functorch.peek_interpreter_stack")
interpreter_stack: Callable[[], Any] = needed("torch._C._functorch.get_interpreter_stack")
interpreters_cleared: Callable[[], AbstractContextManager[Any]] = needed(
    "torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack"
)
current_interpreter: Callable[[], Any] = needed(
    "torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter"
)
is_wrapped: Callable[[Any], bool] = needed("torch._C._functorch.is_functorch_wrapped_tensor")
is_batched: Callable[[Any], bool] = needed("torch._C._functorch.is_batchedtensor")
is_gradient_wrapper: Callable[[Any], bool] = needed("torch._C._functorch.is_gradtrackingtensor")
unwrapped: Callable[[Any], Any] = needed("torch._C._functorch.get_unwrapped")
level_of: Callable[[Any], int] = needed("torch._C._functorch.maybe_get_level")
with_batch_dim: Callable[[Any, int, int], Any] = needed("torch._C._functorch._add_batch_dim")
without_batch_dim: Callable[[Any, int, int, int], Any] = needed(
    "torch._C._functorch._remove_batch_dim"
)
vmap_level: Callable[[Any, str], AbstractContextManager[int]] = needed(
    "torch._functorch.vmap.vmap_increment_nesting"
)
vmapped: Callable[[Any], Any] = needed("torch._C._functorch.CVmapInterpreterPtr")
TransformType: Any = needed("torch._C._functorch.TransformType")
layers: Callable[[], int] = needed("torch._C._functorch.get_dynamic_layer_stack_depth")
undo_layers_to: Callable[[int], None] = needed(
    "torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth"
)
