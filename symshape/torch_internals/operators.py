"""Functions of torch without a public name: C++ ones behind ``torch`` and ``torch.nn.functional``,
and switches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.torch_internals.dispatch import function_mode_count
from symshape.torch_internals.private import needed, optional

variable_functions: Any = needed("torch._C._VariableFunctions")
nn: Any = needed("torch._C._nn")
may_overlap_itself: Callable[[Any], int] = optional(
    "torch._debug_has_internal_overlap", lambda tensor: 2
)
"""Return quickly whether elements of a tensor share memory: 0 no, 1 yes, 2 too hard to decide."""
LINEAR_IS_A_VIEW = torch.torch_version.TorchVersion(torch.__version__) < "2.15"
"""True if a linear layer with a bias answers a view of its folded product: an unsafe view since
2.15.
"""
calling_ops: str = optional("torch._ops.__file__", "")
"""The file of the code that calls overloads of ops."""
torch_function_enabled: Callable[[], bool] = optional(
    "torch._C._is_torch_function_enabled", lambda: False
)
softmax: Any = needed("torch._softmax")
asserting: Any = optional("torch._assert", None)
is_causal_mask: Any = optional("torch.nn.modules.transformer._detect_is_causal_mask", None)
"""The function that tells the layers of ``nn.Transformer`` whether their mask is causal."""
checking: Any = needed("torch._check_with")
"""The function that ``torch._check`` and its kin call, whose frame knows the message."""
wrapped_in_a_warning: str = optional("torch._check_is_size.__code__.co_filename", "")
"""The file of the wrapper of torch's deprecated functions."""

foreach_classes: tuple[list[type], ...] = (
    optional("torch.utils._foreach_utils._foreach_supported_types", []),
    optional("torch.optim.optimizer._foreach_supported_types", []),
)
"""The classes whose tensors get kernels for many tensors at once by default: in clipping, and in
optimizers.
"""

whole_layers: tuple[Any, ...] = tuple(
    each
    for each in (
        optional(f"torch.{name}", None)
        for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
    )
    if each is not None
)
attention_switches: tuple[Callable[[], Any], ...] = (
    needed("torch._C._get_flash_sdp_enabled"),
    needed("torch._C._get_mem_efficient_sdp_enabled"),
    needed("torch._C._get_math_sdp_enabled"),
    needed("torch._C._get_cudnn_sdp_enabled"),
)
attention_order: Callable[[], Any] = needed("torch._C._get_sdp_priority_order")
is_cudnn: Callable[[], bool] = needed("torch._C._get_cudnn_enabled")

sym_sqrt: Callable[..., Any] = optional("torch.sym_sqrt", None) or needed("torch._sym_sqrt")
sym_functions: dict[str, Callable[..., Any]] = {
    name: needed(f"torch._sym_{name}") for name in ("cos", "sin", "tanh", "atan", "log2")
}


class _Call:
    """A call that torch makes where its C++ hands warnings to Python: as an overridden ``relu``."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        call = args[0]
        return call.function(*call.args, **call.kwargs)


def telling_warnings(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function of C++; its warnings reach Python's ``warnings`` when it has returned.

    An op called by itself prints them to the standard error stream.
    """
    if function_mode_count() or not torch_function_enabled():
        return function(*args, **kwargs)
    return torch.relu(_Call(function, args, kwargs))  # type: ignore[arg-type]
