"""The scripts that make pages: tables of names, cells of benchmarks, and the index of all pages."""

from __future__ import annotations

import re

import pytest

from tests.pages import benchmarks, public_names, streams
from tests.pages.markdown import DOCS, links, listed_pages


def test_the_index_links_every_page() -> None:
    linked = {target.partition("#")[0] for target in links((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert set(listed_pages()) - linked == {"index.md"}


@pytest.mark.parametrize("words", ["recompile", "falls back", "memory do CUDA graphs take"])
def test_the_index_has_the_words_that_readers_search(words: str) -> None:
    assert words in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Return ``a | b``.  Raise nothing.", "Return `a \\| b`."),
        ("One of :class:`symshape.Dim`,\nsee e.g. this. Two.", "One of `symshape.Dim`, see e.g. this."),
        ("No full stop\n\nSecond paragraph.", "No full stop"),
    ],
)
def test_the_first_sentence_of_a_docstring(text: str, sentence: str) -> None:
    assert public_names.first_sentence(text) == sentence


@pytest.mark.parametrize("package", ["symshape", "guards", "meta_fns"])
def test_every_public_name_has_a_row_with_a_meaning(package: str) -> None:
    rows = [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in public_names.names_table(package).splitlines()[2:]]
    assert rows
    assert all(len(row) == 3 and row[2] for row in rows)


def test_every_recorded_run_says_what_it_is() -> None:
    page = benchmarks.page()
    assert re.findall(r"^### (.+)\n\n\S", page, re.MULTILINE) == re.findall(r"^### (.+)$", page, re.MULTILINE)


def test_cells_are_on_one_line() -> None:
    for line in benchmarks.page().splitlines():
        assert not line.startswith("|") or line.endswith("|"), line


def test_a_stream_is_ahead_from_the_call_after_which_it_is_never_behind() -> None:
    def stream(ours: list[float]) -> streams.Stream:
        return streams.Stream("x", "x.json", "device", "torch", {"eager": [1.0] * 4, "ours": ours})

    assert stream([3.0, 0.5, 0.25, 0.0]).ahead_from == 4
    assert stream([0.5, 0.5, 0.5, 0.5]).ahead_from == 1
    assert stream([3.0, 1.0, 1.0, 1.0]).ahead_from is None
    assert stream([3.0, 0.5, 0.25, 0.25]).last_ratio == 1.0
