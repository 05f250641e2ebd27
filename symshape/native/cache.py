"""The folder of compiled extensions: one for each version of the sources, of torch and of Python.

A folder appears under its name when all in it is compiled and was imported once; it is never
written again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import stat
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

from symshape.environment_variables import NATIVE_CACHE
from symshape.native.extensions import EXTENSIONS, FLAGS

REPORT = "report.json"
"""The name of the file that says what the compiler answered; without it a folder counts as not
there.
"""
PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that holds the package ``symshape``."""
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def root() -> Path:
    """Return ``SYMSHAPE_NATIVE_CACHE``, or this user's folder for caches."""
    named = NATIVE_CACHE.value()
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("symshape", appauthor=False) / "native"


@functools.cache
def key() -> str:
    """Return the name of the folder for these sources, this torch and this Python."""
    version = torch.__version__
    torch_build = (
        version,
        *(getattr(torch.version, name, None) for name in ("git_version", "cuda", "hip")),
    )
    python_build = (SUFFIX, platform.machine(), sys.platform)
    parts = (torch_build, torch.compiled_with_cxx11_abi(), python_build, FLAGS, EXTENSIONS)
    digest = hashlib.sha256(repr(parts).encode())
    for path in (file for each in EXTENSIONS for file in each.files):
        digest.update((PACKAGES / path).read_bytes())
    name = re.sub(r"[^0-9A-Za-z.]+", "-", version)
    return f"torch-{name}-{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def folder() -> Path:
    """Return the folder for these sources, this torch and this Python, whether it is there or not.

    Raises:
        OSError: a source is missing or cannot be read.
    """
    return root() / key()


def is_cached(place: str) -> bool:
    """Return whether a file is in the cache."""
    return root() in Path(place).parents


def report() -> dict[str, Any] | None:
    """Return what the compiler answered: ``errors`` by the name of the extension, ``compiler``;
    None before it ran.
    """
    path = folder() / REPORT
    if distrust(path) is not None:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("errors"), dict) else None


def distrust(path: Path) -> str | None:
    """Return why a file of the cache is not to be used: another user can write it; None where all
    is well.

    Code is loaded from these files, so the file, its folder and the root must be this user's (or
    the administrator's) and written by nobody else.
    """
    for each in (path, path.parent, path.parent.parent):
        try:
            found = each.stat(follow_symlinks=each != path)
        except OSError as error:
            return f"{each}: {error.strerror}"
        if found.st_uid not in (os.geteuid(), 0):
            return f"{each} belongs to another user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{each} can be written by other users"
    return None if stat.S_ISREG(path.stat(follow_symlinks=False).st_mode) else f"{path} is no file"
