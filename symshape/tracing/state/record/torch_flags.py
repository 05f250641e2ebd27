"""The flags of torch that functions return and set, in any module of torch; NumPy's settings.

Later calls ask again for the flags that a program reads, and for those by which torch chooses among
kernels of the graph.  A function is recognised by its identity, not by the name that the program
uses.  Functions that set a flag are refused.  (Flags that are attributes, those of
``torch.backends``, are handled where attributes are read.)
"""

from __future__ import annotations

import copyreg
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.backends.mha  # which torch does not import by itself

from symshape.torch_internals import pytree

Question = Callable[[], Any]


def matmul_precision() -> str:
    """Return ``torch.get_float32_matmul_precision()``, or a fixed text if it fails because newer
    flags were set.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "set for each backend"


def validation_of_distributions() -> bool:
    """Return whether distributions validate their arguments by default."""
    return bool(torch.distributions.Distribution._validate_args)


def numpy_settings() -> str:
    """Return NumPy's handling of floating-point errors and its print options, as text."""
    numpy = sys.modules.get("numpy")
    return "" if numpy is None else f"{numpy.geterr()} {numpy.get_printoptions()}"


def _classes(table: Mapping[type, Any]) -> str:
    return " ".join(f"{each.__module__}.{each.__qualname__}" for each in table)


def copied_classes() -> str:
    """Return the names of the classes that are copied and pickled by a function of their own."""
    return _classes(copyreg.dispatch_table)


def pytree_classes() -> str:
    """Return the names of the classes that torch flattens by a function of their own."""
    return _classes(pytree.SUPPORTED_NODES)


_ANSWERS = {
    "": "are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled "
    "get_num_threads get_deterministic_debug_mode get_num_interop_threads is_warn_always_enabled "
    "is_anomaly_enabled is_anomaly_check_nan_enabled get_default_device",
    "autograd.": "is_view_replay_enabled forward_ad._is_fwd_grad_enabled",
    "backends.": "mha.get_fastpath_enabled cuda.flash_sdp_enabled cuda.mem_efficient_sdp_enabled "
    "cuda.math_sdp_enabled cuda.cudnn_sdp_enabled cuda.fp16_bf16_reduction_math_sdp_allowed",
    "__future__.": "get_swap_module_params_on_conversion get_overwrite_module_params_on_conversion",
    "_C.": (
        "_get_flash_sdp_enabled _get_mem_efficient_sdp_enabled _get_math_sdp_enabled "
        "_get_cudnn_sdp_enabled"
    ),
}
_SETS = {
    "": "set_num_threads set_num_interop_threads use_deterministic_algorithms "
    "set_deterministic_debug_mode set_printoptions set_float32_matmul_precision set_warn_always "
    "set_flush_denormal set_default_device set_default_tensor_type set_autocast_enabled "
    "set_autocast_dtype set_autocast_cache_enabled set_anomaly_enabled",
    "backends.": "mha.set_fastpath_enabled mkldnn.set_flags cudnn.set_flags cuda.enable_flash_sdp "
    "cuda.enable_math_sdp "
    "cuda.enable_mem_efficient_sdp cuda.enable_cudnn_sdp cuda.allow_fp16_bf16_reduction_math_sdp",
    "__future__.": "set_swap_module_params_on_conversion set_overwrite_module_params_on_conversion",
}
_CHANGED_BY_TRACES = {"": "is_autocast_cache_enabled", "autograd.": "is_multithreading_enabled"}


def _found(names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the functions with these names that this version of torch has; keys are prefixes of the
    names.
    """
    for name in [
        f"{before}{name}" for before, several in names.items() for name in several.split()
    ]:
        try:
            yield name, operator.attrgetter(name)(torch)
        except AttributeError:
            continue


_read = dict(_found(_ANSWERS))
_AUTOCAST = {
    f"get_autocast_dtype of {kind}": partial(torch.get_autocast_dtype, kind)
    for kind in ("cpu", "cuda")
}
_OWN = {
    each.__name__: each
    for each in (
        *(matmul_precision, validation_of_distributions, numpy_settings),
        *(copied_classes, pytree_classes),
    )
}
_PYTHONS = {"get_int_max_str_digits": sys.get_int_max_str_digits}
FLAGS: Mapping[str, Question] = {**_read, **_AUTOCAST, **_OWN, **_PYTHONS}
"""By name, the questions that are recorded: none of them warns or takes long."""
_names: dict[int, tuple[str, ...]] = {
    **{id(function): (name,) for name, function in {**_read, **_PYTHONS}.items()},
    id(torch.get_autocast_dtype): tuple(_AUTOCAST),
    id(torch.get_autocast_cpu_dtype): tuple(_AUTOCAST)[:1],
    id(torch.get_autocast_gpu_dtype): tuple(_AUTOCAST)[1:],
    id(torch.get_float32_matmul_precision): (matmul_precision.__name__,),
}
_setters = {id(function): name for name, function in _found(_SETS)}
_changed_by_traces = {id(function): name for name, function in _found(_CHANGED_BY_TRACES)}
_OF_ATTENTION = (
    *("_C._get_flash_sdp_enabled", "_C._get_math_sdp_enabled"),
    *("_C._get_mem_efficient_sdp_enabled", "_C._get_cudnn_sdp_enabled"),
)


def of_attention(device: torch.device) -> tuple[str, ...]:
    """Return the names of the flags by which fused attention chooses its kernel.

    On the CPU these are two (``sdp_utils_cpp.cpp``).  The order in which torch tries the kernels is
    left out: torch itself sets it at the first call on CUDA, and the results do not depend on it.
    """
    return _OF_ATTENTION[:2] if device.type == "cpu" else _OF_ATTENTION


def now() -> dict[str, Any]:
    """Return all flags with their current values."""
    return {name: question() for name, question in FLAGS.items()}


def of_class(kind: type) -> tuple[str, ...]:
    """Return the names of the flags that objects of a class of torch or NumPy depend on."""
    if issubclass(kind, torch.autocast):  # it casts to the default dtype if it is given none
        return tuple(_AUTOCAST)
    if kind.__module__.startswith("torch.distributions."):
        return (validation_of_distributions.__name__,)
    return _of_numpy(kind)


def _of_numpy(value: Any) -> tuple[str, ...]:
    return (numpy_settings.__name__,) if _home(value).partition(".")[0] == "numpy" else ()


def _home(value: Any) -> str:
    return getattr(value, "__module__", None) or ""


def read_by(function: Any) -> tuple[str, ...]:
    """Return the names of the flags that a function returns."""
    if _home(function) == "torch.utils._pytree":
        return (pytree_classes.__name__,)
    return _names.get(id(function)) or _of_numpy(function)


def refusal(function: Any) -> str:
    """Return the reason, in words, why a program that calls a function cannot be traced; empty if
    it can.
    """
    name = _setters.get(id(function))
    if name is not None:
        return (
            f"calls torch.{name}, which a compiled graph would not repeat; do that outside the "
            "function"
        )
    name = _changed_by_traces.get(id(function))
    return (
        ""
        if name is None
        else (
            f"calls torch.{name}, whose answer is different while a function is traced; call it "
            "outside the function"
        )
    )
