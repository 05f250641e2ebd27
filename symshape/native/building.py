"""Compiling the extensions that a wheel lacks: in the background, once for each version of torch.

A wheel cannot bring them: each fits one version of torch alone.  The first program that is compiled
starts a compiler at the lowest priority and waits for nothing: Python serves in this process, the
extensions in later ones.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

from symshape.environment_variables import COMPILER, NATIVE, NATIVE_CACHE
from symshape.native import cache, compiling, loader
from symshape.native.extensions import EXTENSIONS, FLAGS, Extension

NOW = "python -m symshape.native"
"""The command that compiles at once, and waits."""
_LOG = logging.getLogger("symshape.native")
_LEAVE_OUT = f"{NATIVE.name}=0 says that this is meant"
_CHECK = (
    "import importlib.util, sys, torch\n"
    "suffix, *names = sys.argv[1:]\n"
    "for name in names:\n"
    "    spec = importlib.util.spec_from_file_location(name, './' + name + suffix)\n"
    "    module = importlib.util.module_from_spec(spec)\n"
    "    spec.loader.exec_module(module)\n"
    "    assert getattr(module, 'TORCH', torch.__version__) == torch.__version__\n"
)
_begun = False


class CannotBuild(Exception):
    """The extensions cannot be compiled here; the message says why, and how to mend it."""


def build_missing() -> None:
    """Start compiling the extensions that this process lacks, in the background; the first call
    alone does anything.

    Says once, as a log record of ``symshape.native``, that a compiler runs or why Python goes on
    serving.
    """
    global _begun
    if _begun:
        return
    _begun = True
    missing = {each.extension.name for each in loader.found_so_far() if each.missing}
    if loader.mode() != "1" or not missing:
        return
    try:
        asked = plan()
        before = cache.report()
        if (
            before is not None
            and before.get("compiler") == asked["compiler"]
            and missing & before["errors"].keys()
        ):
            _LOG.warning("%s", failure(before))
            return
        _start(asked, again=cache.folder().exists())
    except (CannotBuild, OSError) as error:
        _LOG.warning(
            "symshape runs without its C++ part, which makes calls slower: %s (%s)",
            error,
            _LEAVE_OUT,
        )
        return
    _LOG.warning(
        "symshape compiles its C++ part for torch %s in the background, once, in about a minute: "
        "later processes use"
        " it, this one runs without (%s=0 leaves it out, `%s` compiles and waits)",
        *(torch.__version__, NATIVE.name, NOW),
    )


def why_missing() -> str:
    """Return why extensions are not compiled, or not yet, and what to do."""
    if loader.mode() == "built":
        return f"not compiled, and {NATIVE.name}=built starts no compiler: `{NOW}` does"
    report = cache.report()
    if report is not None and report["errors"]:
        return failure(report)
    try:
        _compiler()
    except CannotBuild as error:
        return str(error)
    return (
        f"not compiled yet: the first compiled program starts that in the background, `{NOW}` "
        "does it now"
    )


def failure(report: dict[str, Any]) -> str:
    """Return what to tell a user about extensions that did not compile, or an empty text where all
    did.
    """
    errors: dict[str, str] = report["errors"]
    if not errors:
        return ""
    first = next(iter(errors.values())).splitlines()[0]
    return (
        f"symshape runs without {len(errors)} of its {len(EXTENSIONS)} C++ extensions, which did "
        f"not compile: {first}"
        f" (all of it: {cache.folder() / cache.REPORT}; `{NOW}` tries again; {_LEAVE_OUT})"
    )


def plan() -> dict[str, Any]:
    """Return what :mod:`compiling` needs to know: the commands, how to try what they made, and
    where it belongs.

    Raises:
        CannotBuild: something that a compiler needs is missing.
        OSError: a source cannot be read.
    """
    compiler = _compiler()
    return {
        "folder": str(cache.folder()),
        "suffix": cache.SUFFIX,
        "report": cache.REPORT,
        "compiler": _identity(compiler),
        "commands": {each.name: _command(compiler, each) for each in EXTENSIONS},
        "check": [
            sys.executable,
            "-c",
            f"import sys; sys.path[:] = {sys.path!r}\n{_CHECK}",
            cache.SUFFIX,
        ],
    }


def _compiler() -> list[str]:
    """Return the words that start the compiler: ``CXX``, or the first usual one that is there."""
    if not sys.platform.startswith(("linux", "darwin")):
        raise CannotBuild(f"it is not made for {sys.platform}")
    if getattr(sys, "frozen", False) or not sys.executable:
        raise CannotBuild("this program carries a Python of its own, which can start no other")
    named = shlex.split(COMPILER.value())
    found = next(filter(shutil.which, named[:1] or ("c++", "g++", "clang++")), None)
    if found is None:
        wanted = f"CXX={named[0]} is not there" if named else "there is no C++ compiler"
        raise CannotBuild(f"{wanted}; install one (on Debian: apt install g++)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise CannotBuild("Python's headers are not installed (on Debian: apt install python3-dev)")
    if not (_torch_folder() / "include" / "c10").exists():
        raise CannotBuild(f"torch came without its headers ({_torch_folder() / 'include'})")
    return [found, *named[1:]]


def _identity(compiler: list[str]) -> list[Any]:
    """Return what tells one compiler from another: what failed is tried again with another one."""
    path = Path(shutil.which(compiler[0]) or compiler[0]).resolve()
    found = path.stat()
    return [*compiler, str(path), found.st_size, found.st_mtime_ns]


def _torch_folder() -> Path:
    return Path(torch.__file__).parent


def _command(compiler: list[str], extension: Extension) -> list[str]:
    """Return the command that compiles and links an extension in the folder where it runs."""
    folder = _torch_folder()
    linking = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    words = [*compiler, *FLAGS, "-fPIC", *linking, f"-I{sysconfig.get_path('include')}"]
    if extension.libraries:
        words += [
            f'-DSYMSHAPE_TORCH="{torch.__version__}"',
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            *(
                "-isystem",
                str(folder / "include"),
                "-isystem",
                str(folder / "include/torch/csrc/api/include"),
            ),
        ]
    words += [str(cache.PACKAGES / extension.source), "-o", f"{extension.name}{cache.SUFFIX}"]
    if extension.libraries:
        words += [f"-L{folder / 'lib'}", *(f"-l{each}" for each in extension.libraries)]
    return words


def _start(asked: dict[str, Any], *, again: bool) -> None:
    """Start the process that compiles; it lets go of this one within milliseconds.

    Raises:
        CannotBuild: it did not start, or the cache cannot be written.
    """
    root = cache.root()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotBuild(
            f"{root} cannot be made: {error.strerror}; {NATIVE_CACHE.name} names another folder"
        ) from None
    problem = cache.distrust(root / cache.key() / cache.REPORT) if cache.folder().exists() else None
    if problem is not None or not os.access(root, os.W_OK):
        raise CannotBuild(
            f"{problem or f'{root} cannot be written'}; {NATIVE_CACHE.name} names another folder"
        )
    command = [sys.executable, "-I", "-S", str(Path(compiling.__file__))]
    request = json.dumps({"plan": asked, "again": again}).encode()
    try:
        subprocess.run(
            command,
            input=request,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt at the keyboard is none of its
            timeout=30,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise CannotBuild(f"the process that compiles did not start ({error})") from None
