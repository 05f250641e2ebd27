"""Inductor's code for one graph: compiled, as bytes that another process loads, and loaded.  Torch's private names.

They were read on 2.11 and 2.13 and run on 2.13.  Bytes are a pickle of AOTAutograd's own saved form, with Inductor's
Python source and C++ or Triton in it: to load them is to run code, so load only what you, or who you trust, wrote.
Inductor keeps the built kernels in its own folder of caches (TORCHINDUCTOR_CACHE_DIR); without it they are built again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import pickle
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from symshape.tracing.lifting import outside_modes

Code = Callable[..., Any]
"""On tensors and integers in order; answers the flat list of outputs."""

_ALIKE = {"fallback_random": True}
"""Random numbers come from eager's kernels: Inductor's own draw others from the same seed."""

NO_OPTIONS: Mapping[str, Any] = {}


def compiled(
    module: torch.fx.GraphModule, inputs: Sequence[Any], mode: Any, options: Mapping[str, Any] = NO_OPTIONS
) -> Code:
    """What Inductor makes of a graph with these fake inputs of ``mode`` and these options, whatever caches hold.

    An artefact from a cache comes without what it assumed of the sizes, which ``mode.shape_env`` is asked for later:
    torch's caches add only what is about integers that are inputs of their own (seen on 2.13).
    """
    with _compiling(mode, {**options, "force_disable_caches": True}) as compile_fx:
        return compile_fx(module, inputs)  # type: ignore[no-any-return]


def compiled_to_keep(
    module: torch.fx.GraphModule, inputs: Sequence[Any], mode: Any, options: Mapping[str, Any] = NO_OPTIONS
) -> tuple[Code, bytes | None]:
    """The same, its backward pass too, and as bytes; None where torch cannot write them."""
    import torch.compiler.config

    from symshape.torch_internals import inductor_config

    # AOTAutograd writes only what it would cache.  Under a name of its own nothing is found in a cache.
    named = {"cache_key_tag": f"symshape {secrets.token_hex(16)}", "force_disable_caches": False}
    whole = {
        "enable_autograd_cache": True,
        "bundled_autograd_cache": True,
        "force_non_lazy_backward_lowering": True,
        "strict_autograd_cache": False,
    }
    with torch.compiler.config.patch(named), inductor_config.functorch.patch(whole):  # type: ignore[attr-defined]
        with _compiling(mode, {**options, "force_disable_caches": False}) as compile_fx:
            code = compile_fx(module, inputs)
        write = getattr(code, "serialize", None)
        content = None
        if write is not None:
            with contextlib.suppress(Exception):  # whatever does not go into a pickle
                content = pickle.dumps(write())
                _without_copy(content)
    return code, content


def _without_copy(content: bytes) -> None:
    """Removes AOTAutograd's own file of it, in torch's folder of caches: nobody looks for a key that is used once.

    The file is called by the digest of what is in it, so that no other one is meant.
    """
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", os.devnull), "aotautograd")  # torch sets it
    name = base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()
    for path in folder.glob(f"*/{name}"):
        path.unlink()
        path.parent.rmdir()


def loaded(content: bytes) -> Code:
    """What :func:`compiled_to_keep` wrote, in another process.  Runs code that is in it."""
    from torch._functorch._aot_autograd.aot_autograd_result import deserialize_bundled_cache_entry

    from symshape.torch_internals import inductor_config

    with inductor_config.inductor.patch(_ALIKE):
        return deserialize_bundled_cache_entry(pickle.loads(content))


def prepare_to_load() -> None:
    """Imports what loading needs, which takes longer than loading (a second or so)."""
    import symshape.torch_internals.inductor  # noqa: F401


def made_for() -> str:
    """On what code depends beside its graph, its inputs and torch's version: a digest of flags and threads."""
    from symshape.torch_internals import inductor_config

    matmul = torch.backends.cuda.matmul
    parts = [
        inductor_config.inductor.get_hash().hex(),
        inductor_config.functorch.get_hash().hex(),
        torch.get_num_threads(),
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextlib.contextmanager
def _compiling(mode: Any, options: dict[str, Any]) -> Any:
    from symshape.torch_internals import inductor_config
    from symshape.torch_internals.compile_context import TracingContext, tracing
    from symshape.torch_internals.inductor import compile_fx

    context: AbstractContextManager[Any] = tracing(TracingContext(mode))
    # Outside of modes: torch's own runtime has one of its own around the first call of a graph (2.11).
    with outside_modes(), context, inductor_config.inductor.patch({**_ALIKE, **options}):
        yield compile_fx
