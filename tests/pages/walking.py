"""A simulated reader who finds an answer in the docs by words alone:
``python -m tests.pages.walking``.

The reader starts at the top of ``docs/index.md``.  It reads the lines in order, clicks the link of
the line that shares the most words with the question, and reads on from there until the answer.  On
a page that its link named without a section it goes to the heading that shares the most words.  It
knows nothing else, and no person took part: the figures say that answers are near, not that people
understand them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.pages.markdown import DOCS, README, anchors, slug

CLICKS, LINES = 2, 40
"""The most clicks, and the most lines that are read on the page with the answer."""

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]*)(?:#(?P<anchor>[^)\s]+))?\)")
_WORD = re.compile(r"[a-z]+|\d+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be by can do does for from how i if in is it its me my now of on or "
        "should so that the them this to was what when where which who why will with would you your"
    )
)
_ENDINGS = ("ing", "ed", "es", "s", "e")


@attrs.frozen
class Question:
    """A question of a reader, and words that only its answer has."""

    text: str
    answer: str


QUESTIONS = (
    Question("my batch of one recompiles, why?", "There are three reasons"),
    Question("how many MB do 32 graphs take?", "the largest"),
    Question("which sizes should I capture?", "symshape.plan("),
    Question("how do I stop it from tracing in production?", 'on_miss="error"'),
    Question("why is my model refused, what now?", "explain_fallback()"),
    Question("is my padding safe?", "audit_padding"),
)


@attrs.frozen
class Walk:
    """The way of the reader to an answer.

    Attributes:
        question: the question.
        way: the pages, with their sections, in the order in which they were opened.
        skimmed: the lines of the first page down to the link that was clicked.
        read: the lines of the last page down to the answer; None if it does not come.
    """

    question: str
    way: tuple[str, ...]
    skimmed: int
    read: int | None

    @property
    def clicks(self) -> int:
        """The number of links that were followed."""
        return len(self.way) - 1

    @property
    def found(self) -> bool:
        """Whether the answer came within :data:`CLICKS` and :data:`LINES`."""
        return self.read is not None


def words(text: str) -> frozenset[str]:
    """Return the words of a text without their endings, but for those that say nothing of its
    subject.
    """
    found = _WORD.findall(_LINK.sub(lambda link: link[0].partition("]")[0], text.lower()))
    return frozenset(_stem(each) for each in found if each not in _COMMON)


def _stem(word: str) -> str:
    ending = next(
        (each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) > 2), ""
    )
    return word.removesuffix(ending)


def likeness(asked: frozenset[str], line: str) -> float:
    """Return how much a line is about what is asked: the shared words, less a little for each other
    word.
    """
    offered = words(line)
    return len(asked & offered) - 0.01 * len(offered - asked)


def walk(question: Question, start: Path = DOCS / "index.md") -> Walk:
    """Return the way of the reader from a page to the answer."""
    asked = words(question.text)
    way, skimmed, page = [start.name], 0, start
    while True:
        lines = _lines(page.read_text(encoding="utf-8"))
        chosen = max(
            (number for number, line in enumerate(lines) if _onward(line, page)),
            key=lambda number: (likeness(asked, lines[number]), -number),
        )
        link = _onward(lines[chosen], page)[0]
        skimmed = skimmed or chosen + 1
        page = (page.parent / link["target"]).resolve()
        section = link["anchor"] or _best_section(page, asked)
        way.append(f"{page.relative_to(DOCS).as_posix()}#{section}".rstrip("#"))
        read = _lines_to(_from(page, section)[:LINES], question.answer)
        if read is not None or len(way) > CLICKS:
            return Walk(question.text, tuple(way), skimmed, read)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _onward(line: str, page: Path) -> list[re.Match[str]]:
    """Return the links of a line to other pages of the docs."""
    found = [link for link in _LINK.finditer(line) if link["target"].endswith(".md")]
    targets = [(page.parent / link["target"]).resolve() for link in found]
    return [
        link
        for link, target in zip(found, targets, strict=True)
        if DOCS in target.parents and target != page
    ]


def _best_section(path: Path, asked: frozenset[str]) -> str:
    """Return the anchor of the heading that is most about what is asked; empty for the top of the
    page.
    """
    titles = re.findall(r"^##+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    best = max(titles, key=lambda title: likeness(asked, title), default="")
    return slug(best) if best and asked & words(best) else ""


def _from(path: Path, section: str) -> list[str]:
    """Return the lines of a page from a section on."""
    text = path.read_text(encoding="utf-8")
    assert not section or section in anchors(text), f"{path.name} has no section {section}"
    lines = _lines(text)
    headed = [number for number, line in enumerate(lines) if line.startswith("#")]
    starts = [number for number in headed if slug(lines[number].lstrip("# ")) == section]
    return lines[starts[0] :] if section else lines


def _lines_to(lines: Sequence[str], answer: str) -> int | None:
    return next((number for number, line in enumerate(lines, 1) if answer in line), None)


def main() -> int:
    """Print the ways to the answers, from the index and from the README; return 1 if one from the
    index is too long.
    """
    walks = [walk(each) for each in QUESTIONS]
    for each in (*walks, *(walk(question, README) for question in QUESTIONS)):
        print(f"{each.question}: {' -> '.join(each.way)}")
        read = "not found" if each.read is None else f"{each.read} lines read"
        print(f"    {each.skimmed} lines skimmed, {each.clicks} clicks, {read}")
    print("a simulated reader; no person took part")
    return 0 if all(each.found for each in walks) else 1


if __name__ == "__main__":
    sys.exit(main())
