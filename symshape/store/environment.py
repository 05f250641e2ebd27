"""The environment that an entry assumes, beside what it read: versions of Python, torch and
symshape, torch's flags.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from symshape.store.source_digest import sources_digest
from symshape.tracing.state.record.torch_flags import matmul_precision

_TRUSTED = ("numpy", "sympy", "mpmath", "z3-solver")
"""Libraries whose code is trusted not to change within a version
(``tracing/state/instrument/trusted_code.py``).
"""


def environment() -> Mapping[str, Any]:
    """Return the environment: it must be the same in the process that made an entry and in the one
    that uses it.
    """
    return {**_of_process(), "torch's flags": _flags()}


@functools.cache
def _of_process() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {sys.version}",
        "machine": (
            f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        ),
        "torch": (
            f"{torch.__version__} {torch.version.git_version} {torch.version.cuda} "
            f"{torch.version.hip}"
        ),
        "symshape": sources_digest(),
        "libraries": [f"{name} {_version(name)}" for name in _TRUSTED],
        "optimised": sys.flags.optimize,
    }


def _version(name: str) -> str:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    # all of it takes ten times as long
    head, field, rest = (found.read_text("METADATA") or "").partition("\nVersion:")
    return rest.partition("\n")[0].strip() if field and "\n\n" not in head else found.version


def _flags() -> list[Any]:
    """Return the flags by which torch's own code chooses an algorithm, and which no trace
    records.
    """
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    return [
        *(
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
            cuda.cudnn_sdp_enabled(),
        ),
        *(bool(cudnn.enabled), bool(mkldnn.enabled)),
        *(torch.are_deterministic_algorithms_enabled(), matmul_precision()),
        torch.backends.mha.get_fastpath_enabled(),
    ]


def device_names(devices: Iterator[torch.device] | set[torch.device]) -> dict[str, str]:
    """Return the model of each accelerator among these devices, since kernels and their layouts
    depend on it.
    """
    found = {}
    for device in devices:
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            found[str(device)] = f"{properties.name} {properties.major}.{properties.minor}"
    return found
