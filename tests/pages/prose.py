"""Hard sentences of pages, by the measure of docstrings: ``python -m tests.pages.prose [PAGE ...]``
(all).

A sentence counts as hard if it opens with a relative word, is longer than ``WORDS``, leans on
pronouns, or has a phrase that says nothing to a newcomer.  Paragraphs, quotes, items of lists and
cells of tables are read; a cell may be a phrase that opens with any word.  Code, headings and what
a script writes are not read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.discovery import REPOSITORY
from tests.pages.markdown import CONTRIBUTING, README, notebook_pages, pages

WORDS = 25
"""The most words of a sentence; code counts as one word, a link as the words that are read."""
PRONOUNS = 4
"""The most words of ``_PRONOUN`` in one sentence."""

_OPENER = re.compile(
    r"(What|Whether|Those|That|Of|Where|So|Such|Which|How|In which|By which|Between "
    r"which|As|Who|Whoever)\b"
)
_PRONOUN = re.compile(
    r"\b(it|its|that|those|what|which|such|so|one|ones|other|others|else|them|whose|there)\b",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(hangs? on|as it is|as they are|taken apart|the world|by turns|had a moment ago|lies? "
    r"in|tells? of|laps?|alike|apart|whoever|whatever it|left alone)\b",
    re.IGNORECASE,
)
_MADE = "<!-- This page is made by"
_MADE_PART = re.compile(r"<!-- generated: \w+ -->.*?<!-- end -->", re.DOTALL)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`+[^`\n]+`+")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
_NO_PROSE = re.compile(r"^ *(?:#|<|!\[|!!!|\?\?\?|\|[-: |]+\|$)")
_BEGINS = re.compile(rf"{_ITEM.pattern}|{_NO_PROSE.pattern}|\|")
_CELL = re.compile(r"(?<!\\)\|")
_END = re.compile(r"(?<=[.?!])[)*_\"”]*\s+")
_RECEIVER = re.compile(r"^\S+\.py: (?:\w+: )?")
_PUNCTUATED = re.compile(r"[.,:;()](\s|$)")
_SHORT = re.compile(r"\b(e\.g|i\.e|etc)\.")


@attrs.frozen
class Hard:
    """A hard sentence: the line of the page on which its paragraph begins, the reasons, and the
    text.
    """

    line: int
    reasons: tuple[str, ...]
    text: str


def hard(text: str) -> list[Hard]:
    """Return the hard sentences of a page, in order."""
    return [
        Hard(line, reasons, sentence)
        for line, sentence, in_cell in _read(text)
        if (
            reasons := tuple(
                reason for reason in _reasons(sentence) if not (in_cell and reason == "opener")
            )
        )
    ]


def count(text: str) -> int:
    """Return the number of sentences of a page, those in cells of tables among them."""
    return sum(1 for _ in _read(text))


def _read(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the sentences of a page, in order, each with its line, and whether a cell of a table
    has it.
    """
    for line, paragraph in paragraphs(text):
        in_cells = paragraph.startswith("|")
        for part in _CELL.split(paragraph.strip("| ")) if in_cells else [paragraph]:
            for sentence in sentences(part):
                yield line, sentence, in_cells


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, quotes, items and rows of tables of a page with their lines; none of a
    generated page.
    """
    if _MADE in text:
        return
    for pattern in (_FENCE, _MADE_PART, _COMMENT):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        if block.strip():
            yield from _items(block, line)
        line += block.count("\n")


def _items(block: str, line: int) -> Iterator[tuple[int, str]]:
    """Yield the parts of a block of lines that are prose: each item of a list, each row of a table,
    or the block.
    """
    kept: list[str] = []
    first = line
    for number, each in enumerate(block.splitlines(), line):
        if _BEGINS.match(each) and kept:
            yield first, "\n".join(kept)
            kept = []
        if _NO_PROSE.match(each):
            continue
        if not kept:
            first = number
        kept.append(_ITEM.sub("", each).removeprefix("> "))
    if kept:
        yield first, "\n".join(kept)


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph as they are read: links by their text, code as one
    word.
    """
    text = _LINK.sub(r"\1", _PICTURE.sub("", paragraph))
    code: list[str] = []

    def hide(found: re.Match[str]) -> str:
        code.append(found[0].replace(" ", "\N{NO-BREAK SPACE}"))
        return "\0"

    text = _SHORT.sub(
        lambda found: found[0].replace(".", "\1"), " ".join(_CODE.sub(hide, text).split())
    )
    words = iter(code)
    return [
        re.sub("\0", lambda _: next(words), each).replace("\1", ".").strip("*_ ")
        for each in _END.split(text)
        if each.strip()
    ]


def _reasons(sentence: str) -> Iterator[str]:
    """Yield the reasons why a sentence is hard; a question may open with any word."""
    plain = _CODE.sub("`x`", sentence).replace("**", "").lstrip('("“*_')
    words = [each for each in plain.split() if re.search(r"\w", each)]
    if _OPENER.match(plain) and "?" not in plain:
        yield "opener"
    if len(words) > WORDS:
        yield f"{len(words)} words"
    if len(_PRONOUN.findall(plain)) > PRONOUNS:
        yield "pronouns"
    if found := _VAGUE.search(plain):
        yield f"'{found[0]}'"


def hard_message(line: str) -> list[Hard]:
    """Return the hard parts of a line of ``tests/golden/messages.txt``: file, receiver and text.

    A message says what happened and what to do, parted by semicolons and colons: each part counts
    as a sentence. Fields are words.  Lists of names and generated code are no messages.
    """
    text = _RECEIVER.sub("", line).replace("\\n", "\n")
    if text.startswith("\n") or text.endswith(":") or not _PUNCTUATED.search(text):
        return []
    plain = re.sub(r"[;:] ", ". ", re.sub(r"\{[^}]*\}", "x", text))
    return [each for part in plain.splitlines() for each in hard(part)]


def texts() -> dict[str, str]:
    """Return the pages that people write, by their paths; of a notebook its Markdown, without what
    its code printed.
    """
    found = {path: path.read_text(encoding="utf-8") for path in (README, CONTRIBUTING, *pages())}
    for path in notebook_pages().values():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path] = "\n\n".join(
            "".join(each["source"]) for each in cells if each["cell_type"] == "markdown"
        )
    return {path.relative_to(REPOSITORY).as_posix(): text for path, text in found.items()}


def main(names: list[str]) -> int:
    """Print the hard sentences of the pages of these names, or of all; return 1 if there are
    any.
    """
    total = read = 0
    for name, text in texts().items():
        if names and name not in names:
            continue
        found = hard(text)
        total += len(found)
        read += count(text)
        for each in found:
            print(f"{name}:{each.line}: [{', '.join(each.reasons)}] {each.text}")
    print(f"{total} hard of {read} sentences")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main([Path(name).as_posix() for name in sys.argv[1:]]))
