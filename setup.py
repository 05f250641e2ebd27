"""Compile the reasoning of ``guards`` with mypyc, if there is a C compiler; everything else is in
pyproject.toml.

If torch is installed, the C++ extensions of symshape/native/extensions.py are compiled too.  The
pages of errors go from docs/ into the package.

The modules are ordinary Python and run as such where nothing was compiled, with the same answers
and about a third of the speed.  SYMSHAPE_COMPILE=0 leaves compiling out, =1 makes a failure to
compile an error; unset, a failure is told and what was made goes.  `make` builds in place.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COMPILED = (
    "terms/arithmetic",
    "terms/boolean",
    "terms/case_distinction",
    "terms/comparison",
    "terms/division",
    "terms/extremes",
    "terms/fold",
    "terms/overloading",
    "terms/printing",
    "terms/term",
    "domains/congruence",
    "domains/interval_arithmetic",
    "domains/linear_form",
    "text/functions",
    "text/grammar",
    "text/operators",
    "text/reader",
    "text/reading_places",
    "text/transcript",
    "facts/completion",
    "facts/component",
    "facts/equations",
    "facts/facts",
    "facts/learning",
    "facts/propagate",
    "facts/ranges",
    "facts/law",
    "facts/laws_of_choice",
    "facts/laws_of_division",
    "facts/laws_of_relations",
    "facts/laws_of_sums",
    "facts/rewrite_rules",
    "facts/rewriting",
    "deciders/case_split",
    "deciders/chains",
    "deciders/independence",
    "deciders/linear",
    "deciders/linear_refutation",
    "deciders/linear_relaxation",
    "deciders/local_search",
    "deciders/product_lemmas",
    "deciders/pushing",
    "deciders/witnesses",
    "asking/assumptions",
    "asking/climb",
    "asking/ladder",
    "asking/queries",
    "asking/questions",
    "asking/rungs",
    "asking/reading",
)
HERE = Path(__file__).resolve().parent
WANTED = os.environ.get("SYMSHAPE_COMPILE", "")
PART = os.environ.get("SYMSHAPE_PART", "")
BUILDING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install"}


def extensions() -> list[Extension]:
    """Return the extensions to compile: none if they are not wanted, or if this run only asks for
    metadata.
    """
    if WANTED == "0" or BUILDING.isdisjoint(sys.argv):
        return []
    os.chdir(HERE)
    if PART == "native":
        return native()
    paths = [f"guards/{name}.py" for name in COMPILED]
    try:
        from mypyc.build import mypycify

        made: list[Extension] = mypycify(
            paths, opt_level="3", debug_level="0", group_name="guards.compiled"
        )
    except (
        Exception,
        SystemExit,
    ) as error:  # it ends so where the types are not right; another version may differ
        if WANTED == "1":
            raise
        _tell("mypyc refuses", error)
        return []
    return [*made, docstrings(), *([] if PART == "guards" else native())]


def native() -> list[Extension]:
    """Return the extensions of ``symshape/native/extensions.py``, for the torch that is installed
    and for no other.

    There are none without torch and its headers, as where pip builds a wheel: they are compiled on
    first use then.
    """
    table = HERE / "symshape/native/extensions.py"
    try:
        import torch
    except ImportError:
        return []
    folder = Path(torch.__file__).parent
    if not table.exists() or not (folder / "include" / "c10").exists():
        return []
    listed = runpy.run_path(str(table))
    return [
        Extension(
            each.name,
            [each.source],
            include_dirs=[str(folder / "include"), str(folder / "include/torch/csrc/api/include")],
            library_dirs=[str(folder / "lib")],
            libraries=list(each.libraries),
            define_macros=[("SYMSHAPE_TORCH", f'"{torch.__version__}"')],
            depends=list(each.files),
            extra_compile_args=list(listed["FLAGS"]),
            language="c++",
            optional=WANTED != "1",  # a compiler that cannot: Python's way serves
        )
        for each in listed["EXTENSIONS"]
    ]


def docstrings() -> Extension:
    """Return the extension that adds docstrings to the compiled modules (guards/docstrings.c);
    mypyc omits them.
    """
    rows = []
    for name in COMPILED:
        tree = ast.parse((HERE / "guards" / f"{name}.py").read_text(encoding="utf-8"))
        module = f"guards.{name.replace('/', '.')}"
        rows += [f'{{"{module}", "{path}", {_c_string(text)}}},' for path, text in documented(tree)]
    build = HERE / "build"
    build.mkdir(exist_ok=True)
    (build / "docstrings_table.h").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return Extension("guards.docstrings", ["guards/docstrings.c"], include_dirs=["build"])


def documented(
    node: ast.Module | ast.ClassDef | ast.FunctionDef, path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a module and of its classes, methods and functions, by path ("Class
    method").
    """
    text = ast.get_docstring(node)
    if text is not None:
        yield path, text
    for inner in [] if isinstance(node, ast.FunctionDef) else node.body:
        if isinstance(inner, ast.FunctionDef | ast.ClassDef):
            yield from documented(inner, f"{path} {inner.name}".strip())


def _c_string(text: str) -> str:
    escaped = "".join(
        chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{escaped}"'


def _tell(what: str, error: BaseException) -> None:
    print(f"guards stays interpreted: {what} ({type(error).__name__}: {error})", file=sys.stderr)


class Build(build_ext):
    """A build that compiles all modules or none: half of them would not import."""

    def finalize_options(self) -> None:
        """Compile one extension on each core: those that include torch take a quarter of a minute
        each.
        """
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Compile, or say why not and go on without."""
        try:
            super().run()
        except Exception as error:
            if WANTED == "1":
                raise
            _tell("compiling failed", error)
            for extension in self.extensions:
                for path in (
                    self.get_ext_fullpath(extension.name),
                    HERE / self.get_ext_filename(extension.name),
                ):
                    Path(path).unlink(missing_ok=True)
            self.extensions = []


class BuildPackages(build_py):
    """A build that takes the pages of errors from docs/ into the package, for
    ``symshape error``.
    """

    def run(self) -> None:
        """Copy the packages, and the pages beside the command that prints them; an editable install
        reads docs/.
        """
        super().run()
        if not self.editable_mode:
            for page in (HERE / "docs" / "errors").glob("*.md"):
                target = Path(self.build_lib) / "symshape/frontends/cli/error_pages" / page.name
                self.mkpath(str(target.parent))
                self.copy_file(str(page), str(target))


setup(ext_modules=extensions(), cmdclass={"build_ext": Build, "build_py": BuildPackages})
