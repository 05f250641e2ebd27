"""Compiles the reasoning of ``guards`` with mypyc where a C compiler is at hand; everything else is in pyproject.toml.

The modules are ordinary Python and run as such where nothing was compiled, with the same answers and about a third of
the speed.  SYMSHAPE_COMPILE=0 leaves compiling out, =1 makes a failure to compile an error; unset, a failure is told
and what was made goes.  `make` builds in place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "assuming",
    "cases",
    "congruence",
    "decide",
    "exprs",
    "facts",
    "fold",
    "intervals",
    "linear",
    "parse",
    "points",
    "refute",
    "rules",
    "scope",
)
HERE = Path(__file__).resolve().parent
WANTED = os.environ.get("SYMSHAPE_COMPILE", "")
BUILDING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install"}


def extensions() -> list[Extension]:
    """What is to be compiled: nothing when it is not wanted, or when this run only asks for metadata."""
    if WANTED == "0" or BUILDING.isdisjoint(sys.argv):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        if WANTED == "1":
            raise
        print("mypyc is not installed: guards stays interpreted", file=sys.stderr)
        return []
    os.chdir(HERE)
    paths = [f"guards/{name}.py" for name in COMPILED]
    try:
        return list(mypycify(paths, opt_level="3", debug_level="0", group_name="guards_compiled"))
    except SystemExit as error:  # how mypyc ends where the types are not right
        if WANTED == "1":
            raise
        print(f"guards stays interpreted: mypyc refuses ({error})", file=sys.stderr)
        return []


class Build(build_ext):
    """Compiles all or nothing: half of the modules would not import."""

    def run(self) -> None:
        """Compiles, or says why not and goes on without."""
        try:
            super().run()
        except Exception as error:
            if WANTED == "1":
                raise
            print(f"guards stays interpreted: {type(error).__name__}: {error}", file=sys.stderr)
            for extension in self.extensions:
                for path in (self.get_ext_fullpath(extension.name), HERE / self.get_ext_filename(extension.name)):
                    Path(path).unlink(missing_ok=True)
            self.extensions = []


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
