"""Inductor's code for one graph: compiled, serialized for another process, and loaded, by torch's
private names.

The names were read on 2.11 and 2.13 and run on 2.13.  The bytes are a pickle of AOTAutograd's own
saved form, with Inductor's Python source and C++ or Triton in it: to load them is to run code, so
load only trusted bytes.  Inductor stores the built kernels in its own cache folder
(TORCHINDUCTOR_CACHE_DIR); without it they are built again.
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

from symshape.environment_variables import INDUCTOR_CACHE
from symshape.torch_internals import dispatch

Code = Callable[..., Any]
"""Runs on tensors and integers in order, and returns the flat list of outputs."""

_ALIKE = {"fallback_random": True}
"""Inductor's options for eager's random numbers: its own kernels draw others from the same seed."""

NO_OPTIONS: Mapping[str, Any] = {}


def compiled(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    mode: Any,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Code:
    """Compile a graph with Inductor for these fake inputs of ``mode`` and these options, without
    caches.

    An artefact from a cache lacks its assumptions about sizes, which ``mode.shape_env`` is asked
    for later: torch's caches restore only assumptions on integers that are inputs themselves (seen
    on 2.13).
    """
    with _compiling(mode, {**options, "force_disable_caches": True}) as compile_fx:
        return compile_fx(module, inputs)  # type: ignore[no-any-return]


def compiled_to_keep(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    mode: Any,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> tuple[Code, bytes | None]:
    """Compile like :func:`compiled`, with the backward pass; return the code and its bytes, if
    serializable.
    """
    import torch.compiler.config

    from symshape.torch_internals import inductor_config

    # AOTAutograd serializes only cacheable code.  The unique tag keeps it from finding an entry in
    # a cache.
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
            # the code may hold something that cannot be pickled
            with contextlib.suppress(Exception):
                content = pickle.dumps(write())
                _without_copy(content)
    return code, content


def _without_copy(content: bytes) -> None:
    """Delete AOTAutograd's own cache file of these bytes, whose key is used only once.

    The file's name is the digest of its content, so no other file is deleted.
    """
    folder = Path(INDUCTOR_CACHE.value() or os.devnull, "aotautograd")  # torch sets it
    name = base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()
    for path in folder.glob(f"*/{name}"):
        path.unlink()
        path.parent.rmdir()


def loaded(content: bytes) -> Code:
    """Load the bytes that :func:`compiled_to_keep` wrote, in another process.  This runs code in
    them.
    """
    from torch._functorch._aot_autograd.aot_autograd_result import deserialize_bundled_cache_entry

    from symshape.torch_internals import inductor_config

    with inductor_config.inductor.patch(_ALIKE):
        return deserialize_bundled_cache_entry(pickle.loads(content))


def prepare_to_load() -> None:
    """Import the modules that loading needs, which takes longer than loading (a second or so)."""
    import symshape.torch_internals.inductor  # noqa: F401


def made_for() -> str:
    """Return a digest of the flags and threads that code depends on, besides graph, inputs and
    torch's version.
    """
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
    from symshape.torch_internals.dynamo import TracingContext, tracing
    from symshape.torch_internals.inductor import compile_fx

    context: AbstractContextManager[Any] = tracing(TracingContext(mode))
    # Outside of modes: torch's runtime enters a mode of its own around the first call of a graph
    # (2.11).
    with dispatch.modes_disabled(), context, inductor_config.inductor.patch({**_ALIKE, **options}):
        yield compile_fx
