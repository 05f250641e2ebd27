"""Findings about this installation, each with what to do: ``symshape doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import torch

from guards.terms.term import Term
from symshape.environment_variables import INTERPRETED, NATIVE_CACHE, STORE
from symshape.exploring.tables import Table
from symshape.native import cache
from symshape.native.building import why_missing
from symshape.native.extensions import EXTENSIONS
from symshape.native.loader import found
from symshape.store.disk import default_path
from symshape.torch_internals.private import NEWEST, OLDEST, refusal, warn_of_version


@attrs.frozen
class Finding:
    """The state of one part of the installation.

    Attributes:
        part: the part.
        state: its state.
        advice: the action that repairs the state; empty where nothing is to be done.
    """

    part: str
    state: str
    advice: str = ""


def findings() -> list[Finding]:
    """Return the findings of each part, in the order in which to repair them."""
    return [_torch(), _python(), _guards(), *_native(), _native_cache(), _cuda(), _store()]


def findings_table(shown: list[Finding]) -> Table:
    """Return the findings as a table; *fine* where nothing is to be done."""
    return Table(
        "doctor",
        ("part", "state", "what to do"),
        tuple((f.part, f.state, f.advice or "fine") for f in shown),
    )


def _torch() -> Finding:
    version = str(torch.__version__)
    refused = refusal()
    if refused is not None:
        return Finding(
            "torch",
            f"{version}: {refused}",
            "install another torch; until then functions run eagerly",
        )
    said: list[str] = []
    warn_of_version(version, lambda message, *_, **__: said.append(str(message)))
    advice = f"install torch {OLDEST} to {NEWEST} if a feature is missing" if said else ""
    return Finding("torch", version, advice)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    slow = sys.version_info[:2] == (3, 13)
    return Finding(
        "Python",
        version,
        "use 3.11 or 3.12 if the look-up of large modules is too slow" if slow else "",
    )


def _guards() -> Finding:
    file = sys.modules[Term.__module__].__file__
    if file is None or file.endswith(".py"):
        advice = (
            "install a C compiler and install symshape again: compiled, guards is about "
            "three times as fast"
        )
        return Finding(
            "guards", "interpreted", f"unset {INTERPRETED.name}" if INTERPRETED.is_on() else advice
        )
    return Finding("guards", "compiled by mypyc")


def _native() -> Iterator[Finding]:
    every = [found(each.name) for each in EXTENSIONS]
    without = [each for each in every if each.module is None]
    state = f"{len(every) - len(without)} of {len(every)} extensions serve"
    if not without:
        yield Finding("C++", state)
    if any(each.missing for each in without):
        yield Finding("C++", state, why_missing())
    for reason in dict.fromkeys(each.why for each in without if not each.missing):
        yield Finding(
            "C++",
            f"{state}: {reason}",
            "remove the cause; Python serves until then, which makes calls slower",
        )


def _native_cache() -> Finding:
    path = cache.root()
    if not _writable(path):
        return Finding(
            "C++ cache",
            f"{path} cannot be written",
            f"name a folder of yours in {NATIVE_CACHE.name}",
        )
    count = sum(1 for _ in path.glob(f"*/{cache.REPORT}"))
    return Finding("C++ cache", f"{path}: {count} builds")


def _writable(path: Path) -> bool:
    """Return whether files can be written to a folder, or the folder can be made."""
    return os.access(next(each for each in (path, *path.parents) if each.exists()), os.W_OK)


def _cuda() -> Finding:
    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
        return Finding("CUDA", f"{torch.cuda.device_count()} devices: {', '.join(sorted(names))}")
    if torch.version.cuda is None:
        return Finding("CUDA", "torch is built for the CPU alone")
    return Finding(
        "CUDA",
        f"torch is built for CUDA {torch.version.cuda}, but no device is seen",
        "check nvidia-smi",
    )


def _store() -> Finding:
    path = Path(default_path())
    if not _writable(path):
        return Finding(
            "store", f"{path} cannot be written", f"name a folder of yours in {STORE.name}"
        )
    count = sum(1 for _ in path.rglob("*.entry")) if path.exists() else 0
    return Finding("store", f"{path}: {count} entries")


# -- The environment: the versions and devices that results depend on.
_PACKAGES = ("symshape", "torch", "attrs", "sympy", "z3-solver", "transformers", "triton")


def versions_table(device: torch.device | None = None) -> Table:
    """Return the versions of Python and of the packages, the devices, and ``device`` as the one in
    use.

    Without ``device``, also the reasons why Python code serves in place of C++.
    """
    return Table("environment", ("what", "which"), tuple(_rows(device)))


def _rows(device: torch.device | None) -> Iterator[tuple[str, str]]:
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, "not installed"
    compiled = sys.modules[Term.__module__].__file__
    yield (
        "guards",
        "interpreted" if compiled is None or compiled.endswith(".py") else "compiled by mypyc",
    )
    yield from _native_rows(explained=device is None)
    yield "CPU threads", str(torch.get_num_threads())
    for index in range(torch.cuda.device_count()):
        yield f"cuda:{index}", f"{torch.cuda.get_device_name(index)} (CUDA {torch.version.cuda})"
    if not torch.cuda.is_available():
        yield "cuda", "none"
    if device is not None:
        yield "running on", str(device)


def _native_rows(*, explained: bool) -> Iterator[tuple[str, str]]:
    """Yield how many extensions in C++ serve; if ``explained``, also why Python serves for the
    others.
    """
    every = [found(each.name) for each in EXTENSIONS]
    serving = [each for each in every if each.module is not None]
    cached = sum(cache.is_cached(each.place) for each in serving)
    yield (
        "C++",
        f"{len(serving)} of {len(every)} extensions serve"
        + (f", {cached} from the cache" if cached else ""),
    )
    if not explained:
        return
    reasons = dict.fromkeys(
        why_missing() if each.missing else each.why for each in every if each.module is None
    )
    for reason in reasons:
        yield "Python serves", reason
    if cached or reasons:
        yield "C++ cache", str(cache.root())
