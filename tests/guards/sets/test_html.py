"""Tables: whatever the texts are, they are shown and not run."""

from __future__ import annotations

from html.parser import HTMLParser

from guards.sets.html import table

NASTY = "<script>alert('x')</script> & \"quoted\""


class _Read(HTMLParser):
    """The rows of a table, and the tags around its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1].append((self.open[-1], data))


def _read(text: str) -> _Read:
    reader = _Read()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_texts_come_back_as_they_were() -> None:
    reader = _read(table(["a", NASTY], [["1", NASTY], ["x < y", "2"]], code=["a"]))
    assert reader.rows == [
        [("th", "a"), ("th", NASTY)],
        [("code", "1"), ("td", NASTY)],
        [("code", "x < y"), ("td", "2")],
    ]


def test_empty_cells_hold_no_code() -> None:
    assert "<code>" not in table(["a"], [[""]], code=["a"])


def test_caption() -> None:
    assert "<caption" not in table(["a"], [])
    shown = table(["a"], [], caption=NASTY)
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
