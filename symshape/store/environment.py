"""The environment that an entry assumes, beside what it read: versions of Python, torch and
symshape, torch's flags.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import guards
import meta_fns
from symshape import options
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


# -- The digest of symshape's own sources, cached until one of them changes.
#
# Reading some hundred files takes four times as long as asking for their inodes, sizes and
# times. The digest for these is cached in a folder of entries. ``ctime`` is among them, which no
# program can set: an edit that restores size and modification time is seen too.
Source = tuple[str, int, int, int, int]
"""Path, inode, size, and the times of the last write (mtime) and of the last change of metadata
(ctime).
"""

_SETTLED = 2_000_000_000
"""The time in nanoseconds after which another edit has another time stamp, on any file system."""


_made: list[str] = []


def sources_digest(kept: Path | None = None) -> str:
    """Return the digest of the sources of symshape, guards and meta_fns, even if compiled parts are
    used.

    It is made once in a process.

    Args:
        kept: see :func:`digest_of`.
    """
    if not _made:
        _made.append(digest_of(_folders(), kept))
    return _made[0]


def cache_digest(kept: Path) -> None:
    """Cache the digest for later processes in a folder that has none yet."""
    if not kept.exists():
        digest_of(_folders(), kept)


def _folders() -> list[str]:
    return [os.path.dirname(str(package.__file__)) for package in (guards, meta_fns, options)]


def digest_of(folders: Sequence[str], kept: Path | None) -> str:
    """Return the digest of all Python sources in some folders: of relative paths and contents.

    Args:
        folders: where they are.
        kept: where the digest is kept from process to process; None: it is not.
    """
    found = [sorted(_sources(folder)) for folder in folders]
    seen = hashlib.sha256(repr(found).encode()).hexdigest()
    known = None if kept is None else _known(kept, seen)
    if known is not None:
        return known
    digest = hashlib.sha256()
    for folder, sources in zip(folders, found, strict=True):
        for path, *_ in sources:
            digest.update(f"{path[len(folder) :]}\n".encode())
            with open(path, "rb") as file:
                digest.update(file.read())
    made = digest.hexdigest()
    newest = max(
        (max(written, changed) for each in found for *_, written, changed in each), default=0
    )
    settled = newest + _SETTLED < time.time_ns()
    if kept is not None and settled and found == [sorted(_sources(folder)) for folder in folders]:
        _keep(kept, f"{seen} {made}\n")
    return made


def _known(kept: Path, seen: str) -> str | None:
    """Return the cached digest, if it was made from the present files, and by this user or root."""
    try:
        handle = os.open(kept, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, encoding="ascii") as file:
            found = os.fstat(handle)
            if (
                found.st_uid not in (os.geteuid(), 0)
                or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                or not stat.S_ISREG(found.st_mode)
            ):
                return None
            then, _, made = file.read(200).partition(" ")
    except (OSError, ValueError):
        return None
    made = made.removesuffix("\n")
    return (
        made if then == seen and len(made) == 64 and set(made) <= set("0123456789abcdef") else None
    )


def _keep(kept: Path, content: str) -> None:
    """Write the digest whole, or not at all."""
    unfinished = kept.with_name(f"{kept.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        handle = os.open(
            unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(handle, "w", encoding="ascii") as file:
            file.write(content)
        os.replace(unfinished, kept)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _sources(folder: str) -> Iterator[Source]:
    with os.scandir(folder) as entries:
        for each in entries:
            name = each.name
            if name.endswith(".py"):
                found = os.stat(each.path)  # of what a link leads to, as what is read
                yield each.path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            elif "." not in name and name != "__pycache__" and each.is_dir():
                yield from _sources(each.path)
