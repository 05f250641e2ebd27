"""A check that ``guards`` and ``meta_fns`` are symshape's own packages, made when this module is
imported.

A wheel of symshape installs three packages.  Another distribution (PyPI has a ``guards``) or a file
of the user's may have the same name: it may come first on ``sys.path``, or have been installed over
ours.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType

_WITNESSES = {"guards": ("GuardSet", "terms/term.py"), "meta_fns": ("TensorSpec", "core/spec.py")}
"""For each package a public name and a file that only ours has."""
_DISTRIBUTION = "symshape"


def check_own_packages() -> None:
    """Import ``guards`` and ``meta_fns``, and make sure that they are ours.

    Raises:
        ImportError: another package has the name; the message says which one, and how to mend it.
    """
    _check("guards", _guards)
    _check("meta_fns", _meta_fns)


def _guards() -> ModuleType:
    import guards

    return guards


def _meta_fns() -> ModuleType:
    import meta_fns

    return meta_fns


def _check(name: str, load: Callable[[], ModuleType]) -> None:
    try:
        module = load()
    except Exception as error:
        place = _place(name)
        others = list(_others(name))
        if place is None or (_is_ours(name, place) and not others):
            raise  # a defect of ours, or a dependency that is missing
        raise ImportError(_message(name, place, others), name=name, path=place) from error
    if not hasattr(module, _WITNESSES[name][0]):
        place = _place(name)
        raise ImportError(_message(name, place, list(_others(name))), name=name, path=place)


def _place(name: str) -> str | None:
    """Return the file or folder that ``import name`` finds, without running it."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return str(loaded)
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand
        return None
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _is_ours(name: str, place: str) -> bool:
    path = Path(place)
    return ((path if path.is_dir() else path.parent) / _WITNESSES[name][1]).exists()


def _others(name: str) -> Iterator[Distribution]:
    """Yield the installed distributions, except symshape, that declare this package."""
    known = {_DISTRIBUTION, "none"}  # a damaged distribution has no name
    for each in distributions():
        called = str(each.name).lower()
        if called in known:
            continue
        known.add(called)
        declared = (each.read_text("top_level.txt") or "").split()
        if name in declared or any(
            file.parts[0] in (name, f"{name}.py") for file in each.files or ()
        ):
            yield each


def _message(name: str, place: str | None, others: list[Distribution]) -> str:
    """Return which package took the name, where it is, and how to mend it."""
    begin = f"symshape cannot use its own package {name!r}:"
    again = f"pip install --force-reinstall --no-deps {_DISTRIBUTION}"
    if others:
        names = " and ".join(f"{each.name} {each.version}" for each in others)
        uninstall = " ".join(each.name for each in others)
        return (
            f"{begin} the distribution {names} has taken the name, at {place}.\n"
            f"  To mend it: pip uninstall {uninstall}, then {again}.\n"
            f"  A program that needs both needs an environment for each."
        )
    if place is not None and _is_ours(name, place):
        return (
            f"{begin} files of it are missing or were written over, at {place}.\n  To mend it: "
            f"{again}."
        )
    if place is None:
        return f"{begin} a module without a file has the name; it was put into sys.modules before."
    return (
        f"{begin} {place} has the name, and belongs to no installed distribution.\n"
        "  To mend it: rename that file or folder, or take its folder from sys.path (PYTHONPATH, "
        "the script's folder)."
    )


check_own_packages()
