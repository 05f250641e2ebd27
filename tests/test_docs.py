"""The README's code runs, and every public name says what it does."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.discovery import REPOSITORY

README = REPOSITORY / "README.md"
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"

# A block is run unless the line before it is a comment that says why not: <!-- not run: needs CUDA -->
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n\n?)?```(?P<language>python|pycon)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@attrs.frozen
class Block:
    """A code block of a Markdown file."""

    language: str
    code: str
    line: int
    reason: str | None


def blocks(text: str) -> list[Block]:
    """All Python blocks of a Markdown text; `line` is the line of the first line of code."""
    return [
        Block(match["language"], match["code"], text.count("\n", 0, match.start("code")) + 1, match["reason"])
        for match in FENCE.finditer(text)
    ]


def plain(block: Block) -> str:
    """The statements of a block, without prompts and expected output."""
    if block.language == "python":
        return block.code
    return "".join(example.source for example in doctest.DocTestParser().get_examples(block.code))


def test_blocks_are_found() -> None:
    text = "x\n```python\na = 1\n```\n\n<!-- not run: slow -->\n```python\nb\n```\n"
    text += "```sh\nls\n```\n```pycon\n>>> 1\n1\n```\n"
    found = blocks(text)
    assert [(block.code, block.line, block.reason) for block in found] == [
        ("a = 1\n", 3, None),
        ("b\n", 8, "slow"),
        (">>> 1\n1\n", 14, None),
    ]
    assert plain(found[2]) == "1\n"


@pytest.mark.parametrize("path", [README, CONTRIBUTING], ids=lambda path: path.name)
def test_every_block_compiles(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("```python") + text.count("```pycon") == len(found), "a Python block is not closed or is indented"
    for block in found:
        compile("\n" * (block.line - 1) + plain(block), str(path), "exec")


def test_readme_runs() -> None:
    """All blocks of the README in order, in one namespace and a process of its own, as a reader would paste them.

    Lines of the code are lines of the README, so that the origins symshape reports (file, line, source) can be read.
    """
    found = [block for block in blocks(README.read_text(encoding="utf-8")) if block.reason is None]
    assert found, "the README shows no code"
    run = subprocess.run(
        [sys.executable, "-m", "tests.test_docs"],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


@pytest.mark.parametrize("name", ["guards", "meta_fns", "symshape"])
def test_public_names_have_docstrings(name: str) -> None:
    package = importlib.import_module(name)
    assert inspect.getdoc(package), f"{name} has no docstring"
    public = package.__all__
    assert len(set(public)) == len(public), f"{name}.__all__ lists a name twice"
    missing = [each for each in public if not hasattr(package, each)]
    assert not missing, f"{name}.__all__ names what is not there: {missing}"
    silent = [f"{name}.{path}" for each in public for path in _silent(each, getattr(package, each))]
    assert not silent, f"public names without a docstring: {', '.join(silent)}"


def _silent(name: str, value: object) -> list[str]:
    """The name, and for a class its public methods and properties, where they have no docstring of their own."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return []  # a constant; its meaning is its module's to tell
    silent = [] if _own_docstring(value) else [name]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        for attribute, member in vars(value).items():
            inner = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            described = inspect.isfunction(inner) or isinstance(inner, property)
            if described and not attribute.startswith("_") and not inspect.getdoc(inner):
                silent.append(f"{name}.{attribute}")
    return silent


def _own_docstring(value: object) -> bool:
    # A frozen attrs class without a docstring would inherit its base's; that says nothing about the class.
    return bool((getattr(value, "__doc__", None) or "").strip())


def _run_readme() -> int:
    """Run the README's blocks; the number of examples whose output differs."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    failed = 0
    for block in blocks(README.read_text(encoding="utf-8")):
        if block.reason is not None:
            continue
        if block.language == "pycon":
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            test = doctest.DocTestParser().get_doctest(block.code, namespace, "README.md", str(README), block.line - 1)
            failed += doctest.DocTestRunner(optionflags=flags).run(test, clear_globs=False).failed
            namespace |= test.globs
        else:
            exec(compile("\n" * (block.line - 1) + block.code, str(README), "exec"), namespace)
    return failed


if __name__ == "__main__":
    sys.exit(1 if _run_readme() else 0)
