"""Code blocks, headings and links of Markdown files, and of notebooks as pages."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.discovery import REPOSITORY

README = REPOSITORY / "README.md"
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"
DOCS = REPOSITORY / "docs"
NOTEBOOKS = REPOSITORY / "notebooks"
SETTINGS = REPOSITORY / "mkdocs.yml"

# A block is run unless the line before it is a comment that says why not: <!-- not run: needs CUDA
# --> After <!-- needs: accelerate --> it is run where that module can be imported.
FENCE = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^\n]+?)|needs: (?P<needs>[\w., ]+)) -->\n\n?)?"
    r"```(?P<language>python|pycon)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_ANY_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")  # a picture that is a link has two
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


@attrs.frozen
class Block:
    """A code block of a Markdown file.

    Attributes:
        language: ``python`` or ``pycon``.
        code: its text.
        line: the line of the page on which the code begins.
        reason: why it is never run; None where it is.
        needs: the modules that it imports and that may be missing.
    """

    language: str
    code: str
    line: int
    reason: str | None
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """The needed modules that cannot be found here."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def pages() -> list[Path]:
    """Return all pages below docs/, sorted."""
    return sorted(DOCS.rglob("*.md"))


def blocks(text: str) -> list[Block]:
    """Return all Python blocks of a Markdown text; ``line`` is the line of the first line of
    code.
    """
    return [
        Block(
            match["language"],
            match["code"],
            text.count("\n", 0, match.start("code")) + 1,
            match["reason"],
            tuple((match["needs"] or "").replace(",", " ").split()),
        )
        for match in FENCE.finditer(text)
    ]


def plain(block: Block) -> str:
    """Return the statements of a block, without prompts and expected output."""
    if block.language == "python":
        return block.code
    return "".join(example.source for example in doctest.DocTestParser().get_examples(block.code))


def commands(text: str) -> Iterator[str]:
    """Yield the lines of shell blocks that call ``symshape``, without comments."""
    for match in re.finditer(
        r"^```(?:sh|bash)\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        for line in match["code"].replace("\\\n", " ").splitlines():
            if line.startswith("symshape "):
                yield re.split(r"\s+#", line)[0]


def links(text: str) -> list[str]:
    """Return the targets of the links and pictures of a text, but for those inside code."""
    return [
        match["target"]
        for match in _LINK.finditer(re.sub(r"`[^`\n]+`", "", _ANY_FENCE.sub("", text)))
    ]


def anchors(text: str) -> set[str]:
    """Return the anchors of a text's headings, as MkDocs makes them."""
    return {slug(match["title"]) for match in _HEADING.finditer(_ANY_FENCE.sub("", text))}


def slug(title: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", title.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def hooks() -> Any:
    """Return the module ``docs/hooks.py``, which MkDocs loads by its path."""
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def notebook_pages() -> dict[str, Path]:
    """Return the notebooks by the names that their pages have below docs/."""
    return {f"notebooks/{path.stem}.md": path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}


def page_text(name: str) -> str:
    """Return the text of a page that the navigation lists; that of a notebook is made from its
    cells.
    """
    notebook = notebook_pages().get(name)
    return (
        (DOCS / name).read_text(encoding="utf-8")
        if notebook is None
        else str(hooks().notebook_page(notebook)[0])
    )


def broken_links(path: Path) -> list[str]:
    """Return the links of a page that lead nowhere in this checkout.  Links to other sites are not
    followed.
    """
    broken = []
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join(
            "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "markdown"
        )
    for target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists():
            broken.append(f"{target}: no such file")
        elif (
            anchor
            and other.suffix == ".md"
            and anchor not in anchors(other.read_text(encoding="utf-8"))
        ):
            broken.append(f"{target}: no such heading")
    return broken


def listed_pages() -> list[str]:
    """Return the pages that the navigation of mkdocs.yml lists, in order."""
    return re.findall(
        r"^ +- (?:[^:\n]+: )?(\S+\.md)$", SETTINGS.read_text(encoding="utf-8"), re.MULTILINE
    )
