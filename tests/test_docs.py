"""The pages for users (README.md, docs/): their code runs, their links lead somewhere, what is
generated is fresh.

Every public name says what it does.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from symshape import environment_variables
from symshape.frontends.logs import TOPICS
from tests.discovery import REPOSITORY
from tests.pages import generated, prose
from tests.pages.markdown import (
    CONTRIBUTING,
    DOCS,
    README,
    anchors,
    blocks,
    broken_links,
    commands,
    links,
    listed_pages,
    notebook_pages,
    pages,
    plain,
)

PAGES = pages()
TEXTS = [README, CONTRIBUTING, *PAGES]
README_BYTES = 8_000  # a reader takes in the first screens, and no more
CODE = ("guards", "meta_fns", "symshape")


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


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


def test_a_block_names_the_libraries_that_it_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tests.pages.running import run

    page = tmp_path / "page.md"
    page.write_text(
        "<!-- needs: torch, no_such_module -->\n```python\n1 / 0\n```\n\n"
        "<!-- needs: torch -->\n\n```python\n1 / 0\n```\n"
    )
    first, second = blocks(page.read_text())
    assert (first.needs, first.missing, second.needs, second.missing) == (
        ("torch", "no_such_module"),
        ["no_such_module"],
        ("torch",),
        [],
    )
    assert run(page) == 1
    assert "page.md:3: skipped, no_such_module cannot be imported" in capsys.readouterr().out


@pytest.mark.parametrize("path", TEXTS, ids=_name)
def test_every_block_compiles(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("```python") + text.count("```pycon") == len(found), (
        "a Python block is not closed or is indented"
    )
    for block in found:
        compile("\n" * (block.line - 1) + plain(block), str(path), "exec")


@pytest.mark.parametrize("paths", [[README], PAGES], ids=["README", "docs"])
def test_pages_run(paths: list[Path]) -> None:
    """All blocks of each page in order, in one namespace a page, as a reader would paste them."""
    found = [
        block
        for path in paths
        for block in blocks(path.read_text(encoding="utf-8"))
        if block.reason is None
    ]
    assert found, "the pages show no code"
    run = subprocess.run(
        [sys.executable, "-m", "tests.pages.running", *map(_name, paths)],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


def test_a_page_that_is_wrong_fails(tmp_path: Path) -> None:
    from tests.pages.running import run

    page = tmp_path / "page.md"
    page.write_text(
        "```pycon\n>>> 1 + 1\n3\n```\n\n```python\nraise ValueError\n```\n\n```python\na = 1\n```\n"
    )
    assert run(page) == 2


@pytest.mark.parametrize("path", [*TEXTS, *notebook_pages().values()], ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    assert not broken_links(path)


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: `x`\n[a](page.md#a-title-x) [b](page.md#b) ![c](no.svg) `[d](no.md)` "
        "[e](https://a.b)\n"
    )
    assert anchors(page.read_text()) == {"a-title-x"}
    assert links(page.read_text()) == ["page.md#a-title-x", "page.md#b", "no.svg", "https://a.b"]
    assert broken_links(page) == ["page.md#b: no such heading", "no.svg: no such file"]


def test_generated_pages_are_fresh() -> None:
    pytest.importorskip("typer")
    assert not generated.stale(), "run: make pages"


def test_no_page_has_a_hard_sentence() -> None:
    """What they are, ``tests/pages/prose.py`` says; it also prints them:
    ``python -m tests.pages.prose PAGE``.
    """
    found = [
        f"{name}:{each.line}: {each.reasons} {each.text}"
        for name, text in prose.texts().items()
        for each in prose.hard(text)
    ]
    assert not found, "\n".join(found)


def test_no_message_has_a_hard_part() -> None:
    """Of those that the product may show: ``make golden NAME=messages`` lists them."""
    lines = (
        (REPOSITORY / "tests" / "golden" / "messages.txt").read_text(encoding="utf-8").splitlines()
    )
    assert len(lines) > 1000
    found = [f"{each.reasons} {line}" for line in lines for each in prose.hard_message(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        ("a/b.py: InputError: x is no size; pass an int", []),
        (f"a/b.py: InputError: {' '.join(['word'] * 20)}; {' '.join(['word'] * 20)}", []),
        (f"a/b.py: InputError: {' '.join(['word'] * 26)}.", ["26 words"]),
        ("a/b.py: Option: What it holds.", ["opener"]),
        ("a/b.py: split: \\n    add mul (sub)", []),
        ("a/b.py: words: add mul sub", []),
    ],
)
def test_hard_parts_of_messages(line: str, reasons: list[str]) -> None:
    assert [reason for each in prose.hard_message(line) for reason in each.reasons] == reasons


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= README_BYTES


def test_the_versions_of_torch_are_those_of_the_code() -> None:
    from symshape.torch_internals.private import NEWEST, OLDEST

    for path in (README, DOCS / "start.md"):
        assert f"PyTorch {OLDEST} to {NEWEST}" in path.read_text(encoding="utf-8"), _name(path)


def test_the_navigation_lists_every_page_once() -> None:
    listed = listed_pages()
    assert sorted(listed) == sorted(
        [*(path.relative_to(DOCS).as_posix() for path in PAGES), *notebook_pages()]
    )
    assert len(set(listed)) == len(listed)


def test_every_error_has_a_page() -> None:
    from symshape import errors

    index = (DOCS / "errors" / "index.md").read_text(encoding="utf-8")
    classes = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    ]
    for name in set(classes) - {"SymShapeError"}:
        page = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() + ".md"
        assert f"[{name}]({page})" in index, f"docs/errors/index.md does not lead to {page}"
        assert (DOCS / "errors" / page).read_text(encoding="utf-8").startswith(f"# {name}\n")


@pytest.mark.parametrize(
    "path", sorted((DOCS / "errors").glob("*-[!f]*.md")), ids=lambda path: path.stem
)
def test_each_error_has_a_program_the_reason_and_a_mended_program(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:] if path.stem == "unsupported-error" else [text]
    for section in sections:
        programs = [block for block in blocks(section) if block.reason is None]
        assert len(programs) > 1, section.partition("\n")[0]
        assert "**Why.**" in section
        assert "mend" in section.lower()


@pytest.mark.parametrize(
    ("package", "page"), [("guards", "guards.md"), ("meta_fns", "meta-fns.md")]
)
def test_errors_of_the_lower_packages_are_listed(package: str, page: str) -> None:
    module = importlib.import_module(f"{package}.errors")
    text = (DOCS / "errors" / page).read_text(encoding="utf-8")
    names = {
        name
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert names, package
    assert all(f"`{name}`" in text or f"`{package}.{name}`" in text for name in names)


def test_environment_variables_are_read_through_their_list() -> None:
    """``guards`` and ``setup.py`` cannot import the list: they read names of their own, which are
    listed too.
    """
    own = {each.name for each in environment_variables.OWN}
    apart = {REPOSITORY / "guards" / "__init__.py", REPOSITORY / "setup.py"}
    files = {path for name in CODE for path in (REPOSITORY / name).rglob("*.py")} | apart
    literal = re.compile(r"(?:environ(?:\.get\(|\[)|getenv\()\s*[\"'](\w+)[\"']")
    read = {path: set(literal.findall(path.read_text(encoding="utf-8"))) for path in files}
    assert {path for path, names in read.items() if names} == apart
    assert set.union(*read.values()) < own
    assert set(re.findall(r"`(\w+)`", environment_variables.LOGS.values)) == {
        *TOPICS,
        "all",
        "json",
    }


@pytest.mark.parametrize(
    "each", [*environment_variables.OWN, *environment_variables.OTHERS], ids=lambda each: each.name
)
def test_a_variable_says_all(
    each: environment_variables.Variable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(attrs.astuple(each))
    monkeypatch.delenv(each.name, raising=False)
    assert (each.value(), each.is_set(), each.is_on()) == ("", False, False)
    monkeypatch.setenv(each.name, "0")
    assert (each.value(), each.is_set(), each.is_on()) == ("0", True, False)
    monkeypatch.setenv(each.name, "1")
    assert each.is_on()


def test_the_page_of_runners_has_each_of_them() -> None:
    from symshape.runtime.runners.choice import RUNNERS, RunnerName

    assert {*RUNNERS, "auto"} == set(get_args(RunnerName))
    text = (DOCS / "reference" / "runners.md").read_text(encoding="utf-8")
    assert all(
        f"| `{name}` |" in text and row.does and row.chosen and row.needs
        for name, row in RUNNERS.items()
    )


def test_the_page_of_files_has_each_format_with_its_version() -> None:
    from guards.sets import serialize
    from symshape.planning import bucket_plan
    from symshape.store import artefacts, certificates, entry_format

    trace_commands = pytest.importorskip("symshape.frontends.cli.trace_commands")
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    for module in (serialize, trace_commands, entry_format, certificates):
        assert f"| `{module.FORMAT}`, {module.VERSION} |" in text
    assert f"| `{artefacts._FORMAT}`, {artefacts._VERSION} |" in text
    assert f"| `{bucket_plan.FORMAT}` |" in text


def test_every_help_text_has_an_example() -> None:
    typer = pytest.importorskip("typer")
    from symshape.frontends.cli.commands import app

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(f"{words} {name}", inner)

    for words, command in below("symshape", typer.main.get_command(app)):
        example = re.search(r"Example: (symshape .+)", f"{command.help}")
        assert example, f"{words} --help shows no example"
        assert words in example[1], f"the example of {words} calls another command"


def test_commands_that_pages_show_exist() -> None:
    typer = pytest.importorskip("typer")
    from symshape.frontends.cli.commands import app

    root = typer.main.get_command(app)
    shown = [
        (_name(path), line) for path in TEXTS for line in commands(path.read_text(encoding="utf-8"))
    ]
    assert len(shown) > 5
    for page, line in shown:
        words, command = line.split()[1:], root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert command is not root, f"{page}: no such command: {line}"
        options = {name for each in command.params for name in each.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, (
            f"{page}: {line}"
        )


def test_docstrings_as_pages_have_their_doctests_as_code() -> None:
    text = (DOCS / "doctests.py").read_text(encoding="utf-8").replace("import griffe\n", "")
    namespace: dict[str, Any] = {"griffe": _Griffe, "__name__": "doctests"}
    exec(
        compile(text.replace("from __future__ import annotations\n", ""), "doctests.py", "exec"),
        namespace,
    )
    obj = _Object("Say :func:`one`.\n\n>>> a = 1\n>>> a\n1\n\nMore.\n")
    namespace["Doctests"]().on_object(obj=obj)
    assert obj.docstring.value == "Say `one`.\n\n```pycon\n>>> a = 1\n>>> a\n1\n```\n\nMore.\n"


class _Griffe:
    Extension = object
    Object = object


class _Object:
    def __init__(self, text: str) -> None:
        self.value = text

    @property
    def docstring(self) -> _Object:
        return self


@pytest.mark.parametrize("name", CODE)
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
    """The name, and for a class its public methods and properties, where they have no docstring of
    their own.
    """
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
    # A frozen attrs class without a docstring would inherit its base's; that says nothing about the
    # class.
    return bool((getattr(value, "__doc__", None) or "").strip())
