"""Compiles the reasoning of ``guards`` with mypyc where a C compiler is at hand; everything else is in pyproject.toml.

The modules are ordinary Python and run as such where nothing was compiled, with the same answers and about a third of
the speed.  SYMSHAPE_COMPILE=0 leaves compiling out, =1 makes a failure to compile an error; unset, a failure is told
and what was made goes.  `make` builds in place.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "terms/arithmetic",
    "terms/boolean",
    "terms/division",
    "terms/extremes",
    "terms/fold",
    "terms/printing",
    "terms/term",
    "domains/congruence",
    "domains/interval_arithmetic",
    "text/functions",
    "text/grammar",
    "text/operators",
    "text/reader",
    "text/transcript",
    "facts/component",
    "facts/equations",
    "facts/facts",
    "facts/learning",
    "facts/propagate",
    "facts/ranges",
    "facts/replacing",
    "facts/law",
    "facts/laws_of_choice",
    "facts/laws_of_division",
    "facts/laws_of_relations",
    "facts/laws_of_sums",
    "facts/rewrite_rules",
    "facts/rewriting",
    "deciders/case_split",
    "deciders/linear",
    "deciders/linear_refutation",
    "deciders/local_search",
    "deciders/witnesses",
    "ask/ladder",
    "ask/reading",
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
        made: list[Extension] = mypycify(paths, opt_level="3", debug_level="0", group_name="guards.compiled")
    except SystemExit as error:  # how mypyc ends where the types are not right
        if WANTED == "1":
            raise
        print(f"guards stays interpreted: mypyc refuses ({error})", file=sys.stderr)
        return []
    for source in {source for extension in made for source in extension.sources if "__native" in source}:
        _keep_docstrings(HERE / source)
    return made


def _keep_docstrings(source: Path) -> None:
    """Writes docstrings into the C that mypyc made: it writes signatures only (as seen with mypy 2.4)."""
    docs: dict[str, str] = {}
    for name in COMPILED:
        _collect(name.rpartition("/")[2], ast.parse((HERE / "guards" / f"{name}.py").read_text(encoding="utf-8")), docs)

    def after_signature(found: re.Match[str]) -> str:
        return f"{found[1].removesuffix('NULL')} {_c_string(docs.get(found[2], ''))}{found[3]}"

    text = source.read_text(encoding="utf-8")
    signature = r'PyDoc_STR\((?:"(?:[^"\\]|\\.)*--\\n\\n"|NULL)'
    text = re.sub(rf"(\(PyCFunction\)CPyPy_(\w+),[^\"]*{signature})(\))", after_signature, text)
    text = re.sub(rf"(CPyType_(\w+)_template_ = {{[^\"]*\"\w+\",[^\"]*{signature})(\))", after_signature, text)
    text = re.sub(
        r"(\(getter\)(\w+)_get_(\w+),\s*NULL, )NULL(, NULL})",
        lambda found: f"{found[1]}{_c_string(docs.get(f'{found[2]}___{found[3]}', ''))}{found[4]}",
        text,
    )
    source.write_text(text, encoding="utf-8")


def _collect(prefix: str, tree: ast.AST, docs: dict[str, str]) -> None:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{prefix}___{node.name}"  # as mypyc writes it
            docs[name] = ast.get_docstring(node) or ""
            _collect(name, node, docs)


def _c_string(text: str) -> str:
    escaped = "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in text.encode())
    return f'"{escaped}"'


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
