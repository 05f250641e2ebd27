"""Displays in notebooks: everything that was found is there, and nothing of the user's program
becomes markup.
"""

from __future__ import annotations

import linecache
import re
from html.parser import HTMLParser

import pytest
import torch

import symshape
from guards import Guard, GuardSet, Origin, parse
from guards.sets import html
from symshape.exploring.tables import traced_html

TAGS = {
    "div",
    "p",
    "b",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "code",
    "details",
    "summary",
    "pre",
}
HOSTILE = "<script>alert('x')</script>&<img src=x onerror=y>"


class _Reader(HTMLParser):
    """Collects texts by tag; refuses tags and attributes that we never write, and tags that do not
    nest.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"<{tag}> is not one of ours"
        assert {name for name, _ in attrs} <= {"style"}, attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open[-2:]):
            self.texts.setdefault(tag, []).append(data)


def read(text: str) -> dict[str, list[str]]:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader.texts


def test_the_reader_refuses_what_it_should() -> None:
    for bad in ("<b>", "</b>", "<script></script>", '<p onclick="x"></p>', "<b><p></b></p>"):
        with pytest.raises(AssertionError):
            read(bad)


def test_a_trace_shows_symbols_guards_lines_and_outputs() -> None:
    def join(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([a, b])
        return joined * 2 if joined.size(0) > 2 else joined

    shown = read(symshape.trace(join, torch.ones(3), torch.ones(4))._repr_html_())
    code = shown["code"]
    for expected in (
        "s0",
        "a.size(0)",
        "s0 + s1 > 2",
        "a.size(0) + b.size(0) > 2",
        "f32[s0 + s1]",
        "f32[s0]",
    ):
        assert expected in code, expected
    assert "return joined * 2 if joined.size(0) > 2 else joined" in code
    assert any("test_html.py:" in text for text in shown["td"])
    assert "aten.cat.default" in "".join(shown["pre"])


def test_unbacked_symbols_say_where_they_were_born() -> None:
    traced = symshape.trace(lambda x: (x > 0).nonzero(), torch.ones(3))
    cells = read(traced._repr_html_())["td"]
    assert "u0" in cells
    assert any("nonzero" in text and "born at test_html.py:" in text for text in cells), cells


def test_a_trace_without_tensors_or_guards() -> None:
    read(symshape.trace(lambda x: x, torch.ones(3), dynamic=False)._repr_html_())
    read(symshape.trace(lambda: torch.ones(3))._repr_html_())


def test_names_and_source_lines_of_the_user_are_text() -> None:
    line = f"def f(batch): return batch[{HOSTILE!r}] if batch[{HOSTILE!r}].size(0) > 2 else None\n"
    filename = f"{HOSTILE.replace('/', '')}.py"
    linecache.cache[filename] = (len(line), None, [line], filename)
    try:
        namespace: dict[str, object] = {}
        exec(compile(line, filename, "exec"), namespace)
        function = namespace["f"]
        function.__qualname__ = HOSTILE  # type: ignore[attr-defined]
        text = traced_html(symshape.trace(function, {HOSTILE: torch.ones(3)}))  # type: ignore[arg-type]
    finally:
        del linecache.cache[filename]
    shown = read(text)
    assert HOSTILE in shown["b"], "the function's name"
    assert any(HOSTILE in each for each in shown["code"]), "the argument's path"
    assert line.strip() in shown["code"], "the source line"
    assert any("onerror" in each and ".py:1" in each for each in shown["td"]), "the file's name"
    assert "<script" not in text


def test_a_set_of_guards() -> None:
    bad = Origin(f"{HOSTILE.replace('/', '')}.py", 3, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    guards = GuardSet((Guard(parse("s0 + s1 > 2"), bad), Guard(parse("s1 < 9"))), {"s0": (1, 64)})
    text = guards._repr_html_()
    shown = read(text)
    for condition in ("s0 >= 1", "s0 <= 64", "s0 + s1 > 2", "s1 <= 8"):
        assert condition in shown["code"], (condition, shown["code"])
    assert HOSTILE in shown["code"]
    assert f"{HOSTILE}: {HOSTILE}" in shown["td"]
    assert shown["caption"] == ["guards (4)"]
    assert "<script" not in text


def test_no_guards() -> None:
    assert read(GuardSet()._repr_html_())["caption"] == ["guards (0)"]


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="zip"):
        html.table(["a", "b"], [["1"]])


def test_a_compiled_function_shows_its_buckets_and_what_runs_eagerly() -> None:
    def fn(x: torch.Tensor) -> object:
        return (x[x > 0] * 2).sum(), x.sin().cos().tan().exp().abs().sqrt()  # <script>

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    for size in (5, 8, 30):
        compiled(torch.ones(size))
    told = compiled._repr_html_()
    assert "what serves entry 0" in told
    assert "<code>s0&lt;=6</code>" in told
    assert "<details><summary>piece 1: padded, 3 buckets</summary><pre>s0: padded to 6" in told
    assert "piece 2: eager</summary><pre>aten.index.Tensor: it reads data on the host" in told
    assert "<script" not in told


def test_tables_have_no_empty_column_and_a_trace_has_its_sizes() -> None:
    """Named sizes are not said twice, and calls that nobody counts are no zeros."""

    def tables(shown: str) -> list[list[list[str]]]:
        rows = [
            re.findall(r"<tr>(.*?)</tr>", each) for each in re.findall(r"<tbody>.*?</tbody>", shown)
        ]
        return [[re.findall(r"<td[^>]*>(.*?)</td>", row) for row in each] for each in rows]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.size(0) > 4 else x + 1

    compiled = symshape.compile(f, dynamic={"x": {0: symshape.Dim("rows")}})
    for n in (9, 3, 7):
        compiled(torch.ones(n))
    dynamo = torch.compile(f, backend="eager")
    for n in (9, 3):
        dynamo(torch.ones(n))
    traced = symshape.trace(f, torch.ones(9), dynamic={"x": {0: symshape.Dim("rows")}})
    for each in (compiled, dynamo, traced):
        shown = symshape.explore(each)._repr_html_()
        found = tables(shown)
        assert found
        for table in found:
            assert all(any(column) for column in zip(*table, strict=True)), table
        assert "in your words" not in shown
        assert (">calls</th>" in shown) is (each is compiled)
    history = tables(symshape.explore(compiled)._repr_html_())[-1]
    assert [row[:2] for row in history] == [["1", "trace"], ["2", "trace"], ["3", "new sizes"]]
    assert [row[2] for row in history[:2]] == ["<code>rows=9</code>", "<code>rows=3</code>"]
