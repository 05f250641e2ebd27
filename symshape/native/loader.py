"""The one importer of the C++ extensions: each from beside its source, or from this user's cache.

``SYMSHAPE_NATIVE=0`` leaves all of them out, ``SYMSHAPE_NATIVE=built`` uses what is there and never
starts a compiler.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import torch

from symshape.environment_variables import NATIVE
from symshape.native import cache
from symshape.native.extensions import EXTENSIONS, Extension


@attrs.frozen
class Found:
    """One extension, as this process uses it.

    Attributes:
        extension: which.
        module: the compiled module; None where Python serves.
        place: the file that it was loaded from.
        why: why Python serves; empty where it does not.
        missing: whether compiling it would help.
    """

    extension: Extension
    module: ModuleType | None = None
    place: str = ""
    why: str = ""
    missing: bool = False


_found: dict[str, Found] = {}


def load(name: str) -> Any:
    """Return the compiled module of this name; None where Python is to serve, as :func:`found`
    explains.
    """
    return found(name).module


def found(name: str) -> Found:
    """Return where the extension of this name was found, and look for it the first time."""
    if name not in _found:
        _found[name] = _look(next(each for each in EXTENSIONS if each.name == name))
    return _found[name]


def found_so_far() -> tuple[Found, ...]:
    """Return the extensions that this process has asked for."""
    return tuple(_found.values())


def mode() -> str:
    """Return the mode that ``SYMSHAPE_NATIVE`` sets: ``"0"``, ``"built"``, or ``"1"`` for anything
    else.
    """
    named = NATIVE.value().strip().lower()
    return {"0": "0", "off": "0", "false": "0", "no": "0", "built": "built"}.get(named, "1")


def _look(extension: Extension) -> Found:
    if mode() == "0":
        return Found(extension, why=f"{NATIVE.name}=0")
    if extension.name in sys.modules and sys.modules[extension.name] is None:
        return Found(extension, why="its import is blocked in sys.modules")
    beside, why = _load(extension, importlib.util.find_spec(extension.name))
    if beside is not None:
        return Found(extension, beside, str(beside.__file__))
    try:
        path = cache.folder() / f"{extension.name}{cache.SUFFIX}"
    except OSError as error:
        return Found(extension, why=f"{why}; and its source cannot be read ({error})")
    if not path.exists():
        return Found(extension, why=why, missing=True)
    problem = cache.distrust(path)
    if problem is not None:
        return Found(extension, why=problem)
    cached, why = _load(extension, importlib.util.spec_from_file_location(extension.name, path))
    return Found(extension, cached, str(path)) if cached is not None else Found(extension, why=why)


def _load(extension: Extension, spec: ModuleSpec | None) -> tuple[ModuleType | None, str]:
    """Return a module that fits this torch, or None and why there is none."""
    if spec is None or spec.loader is None:
        return None, "not compiled"
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        return None, f"{Path(spec.origin or '').name} cannot be loaded: {error}"
    built_for = getattr(module, "TORCH", torch.__version__)
    if built_for != torch.__version__:
        return None, f"compiled for torch {built_for}"
    sys.modules[extension.name] = module
    return module, ""
