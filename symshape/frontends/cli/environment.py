"""The environment: the versions and devices that results depend on."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

import torch

from guards.terms.term import Term
from symshape.exploring.tables import Table
from symshape.native import cache
from symshape.native.building import why_missing
from symshape.native.extensions import EXTENSIONS
from symshape.native.loader import found

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
