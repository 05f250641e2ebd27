"""The scripts that make pages: tables of names, cells of benchmarks, and the index of all pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.pages import benchmarks, prose, public_names, streams, walking
from tests.pages.markdown import DOCS, hooks, links, listed_pages, notebook_pages


def test_the_index_links_every_page() -> None:
    text = hooks().inside((DOCS / "index.md").read_text(encoding="utf-8"))
    linked = {target.partition("#")[0] for target in links(text)}
    assert set(listed_pages()) - linked == {"index.md"}


@pytest.mark.parametrize("words", ["recompile", "falls back", "memory do CUDA graphs take"])
def test_the_index_has_the_words_that_readers_search(words: str) -> None:
    assert words in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Return ``a | b``.  Raise nothing.", "Return `a \\| b`."),
        (
            "One of :class:`symshape.Dim`,\nsee e.g. this. Two.",
            "One of `symshape.Dim`, see e.g. this.",
        ),
        ("No full stop\n\nSecond paragraph.", "No full stop"),
    ],
)
def test_the_first_sentence_of_a_docstring(text: str, sentence: str) -> None:
    assert public_names.first_sentence(text) == sentence


@pytest.mark.parametrize("package", ["symshape", "guards", "meta_fns"])
def test_every_public_name_has_a_row_with_a_meaning(package: str) -> None:
    rows = [
        re.split(r"(?<!\\) \| ", row.strip("| "))
        for row in public_names.names_table(package).splitlines()[2:]
    ]
    assert rows
    assert all(len(row) == 3 and row[2] for row in rows)


def test_every_recorded_run_says_what_it_is() -> None:
    page = benchmarks.page()
    assert re.findall(r"^### (.+)\n\n\S", page, re.MULTILINE) == re.findall(
        r"^### (.+)$", page, re.MULTILINE
    )


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


def test_a_total_far_above_the_others_does_not_flatten_them() -> None:
    assert streams._most_shown([8.8, 112.6, 7.7, 5.1]) == 8.8
    assert streams._most_shown([8.8, 20.0, 7.7]) == 20.0
    assert streams._most_shown([1.0, 112.6]) == 112.6
    assert streams._within([0.0, 5.0, 20.0, 30.0], 10.0) == [(0, 0.0), (1, 5.0), (1 + 5 / 15, 10.0)]


def test_the_picture_of_the_readme_compares_four() -> None:
    found = streams.compared()
    assert set(found.seconds) == set(streams.PEERS)
    text = streams.picture(found)
    assert all(
        f"{words}, {found.total(peer):.1f} s" in text for peer, words in streams.PEERS.items()
    )
    assert found.sizes in text
    assert found.device in text


@pytest.mark.parametrize(
    ("source", "page"),
    [
        ("[a](../notebooks/01_x.ipynb)", "[a](notebooks/01_x.md)"),
        ("[a](../../notebooks/01_x.ipynb#y)", "[a](../notebooks/01_x.md#y)"),
        ("[a](../../tests/x.py), [b](plan.md)", "[a](../../tests/x.py), [b](plan.md)"),
    ],
)
def test_links_of_pages_to_notebooks_lead_to_their_pages(source: str, page: str) -> None:
    assert hooks().inside(source) == page


def _notebook(path: Path, *cells: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"cells": list(cells)}))
    return path


def _code_cell(source: str, output: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": [source], "metadata": metadata, "outputs": [output]}


def test_a_notebook_as_a_page(tmp_path: Path) -> None:
    text, pictures = hooks().notebook_page(
        _notebook(
            tmp_path / "n.ipynb",
            {"cell_type": "markdown", "source": ["# T\n", "[a](../docs/start.md) [b](02_y.ipynb)"]},
            _code_cell("print(1)", {"output_type": "stream", "text": ["1\n"]}),
            _code_cell(
                "f",
                {
                    "output_type": "execute_result",
                    "data": {"text/html": ["<p>x</p>"], "text/plain": "x"},
                },
            ),
            _code_cell(
                "m",
                {
                    "output_type": "execute_result",
                    "data": {"text/markdown": ["| a |"], "text/plain": "x"},
                },
            ),
            _code_cell(
                "%matplotlib inline\nplot()",
                {
                    "output_type": "display_data",
                    "data": {"image/png": "QUJD", "text/plain": ["<Figure>"]},
                },
                alt="A plot",
                jupyter={"source_hidden": True},
            ),
        )
    )
    assert text == (
        "# T\n[a](../start.md) [b](02_y.md)\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
        '```python\nf\n```\n\n<div class="output"><p>x</p></div>\n\n```python\nm\n```\n\n| a |\n\n'
        '??? example "Code"\n\n    ```python\n    plot()\n    ```\n\n![A plot](n-1.png)\n'
    )
    assert pictures == {"n-1.png": b"ABC"}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"output_type": "display_data", "data": {"image/png": "QUJD"}}, "no description"),
        ({"output_type": "error", "ename": "ValueError"}, "ValueError"),
    ],
)
def test_notebooks_that_are_no_page(output: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        hooks().notebook_page(_notebook(tmp_path / "n.ipynb", _code_cell("x", output)))


@pytest.mark.parametrize("path", notebook_pages().values(), ids=lambda path: path.stem)
def test_each_notebook_opens_with_a_question_and_ends_with_what_to_try(path: Path) -> None:
    text, _ = hooks().notebook_page(path)
    headings = re.findall(
        r"^#+ .*",
        re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    assert headings[0].endswith("?")
    assert headings[-1] == "## Try"


@pytest.mark.parametrize("question", walking.QUESTIONS, ids=lambda each: each.text)
def test_a_reader_who_goes_by_words_finds_the_answer(question: walking.Question) -> None:
    assert walking.walk(question).found


def test_an_answer_that_is_not_there_is_not_found() -> None:
    lost = walking.walk(walking.Question("is my padding safe?", "no page says this"))
    assert (lost.found, lost.clicks) == (False, walking.CLICKS)


BACKGROUND = {
    "How it works",
    "How much works",
    "Measured",
    "What stays free",
    "`torch.cond`, `while_loop`, `scan`, `associative_scan`",
    "Objects that are split",
}
"""Sections of the sharp bits that explain, and have no symptom of their own."""


@pytest.mark.parametrize(
    "path", sorted((DOCS / "sharp-bits").glob("[!i]*.md")), ids=lambda path: path.stem
)
def test_each_sharp_bit_is_a_symptom_its_cause_and_the_way_out(path: Path) -> None:
    sections = re.split(r"^##+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(sections) > 4
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        lacking = [
            word
            for word in ("symptom", "cause", "way out")
            if not re.search(rf"^[-|].*{word}", text, _ANY)
        ]
        assert title in BACKGROUND or not lacking, f"{path.name}, {title}: no {lacking}"


_ANY = re.MULTILINE | re.IGNORECASE
_LONG = " ".join(["word"] * (prose.WORDS + 1))


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("A plain sentence. Another one.", []),
        ("What padding copies is here.", [("opener",)]),
        ("(Where no rule fits, it is refused.)", [("opener",)]),
        ("What does padding copy?", []),
        (f"{_LONG}.", [(f"{prose.WORDS + 1} words",)]),
        (f"{_LONG[5:]}.", []),
        (f"Short. [{_LONG}](page.md).", [(f"{prose.WORDS + 1} words",)]),
        ("It is so that those of which it is one are its own.", [("pronouns",)]),
        ("The data lie in memory.", [("'lie in'",)]),
        ("A list:\n\n- What is one item.\n- Two.", [("opener",)]),
        ("| what | why |\n|---|---|\n| what fits | it hangs on sizes |", [("'hangs on'",)]),
        (
            (
                "# What a heading says\n\n```python\n# What code says.\n```\n\n`What code says.` "
                "is code."
            ),
            [],
        ),
        ("> What a quote says.", [("opener",)]),
        ("<!-- generated: x -->\nWhat a script writes.\n<!-- end -->\n", []),
        ("# T\n<!-- This page is made by x -->\n\nWhat a script writes.", []),
        ("Take sizes, e.g. those of a batch. Wherever.", []),
    ],
)
def test_hard_sentences(text: str, reasons: list[tuple[str, ...]]) -> None:
    assert [each.reasons for each in prose.hard(text)] == reasons


def test_hard_sentences_have_lines() -> None:
    text = "# T\n\nPlain.\n\n```sh\nls\n```\n\n- One.\n- What two says.\n"
    assert [(each.line, each.text) for each in prose.hard(text)] == [(10, "What two says.")]
