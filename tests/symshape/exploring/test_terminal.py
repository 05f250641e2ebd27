"""Tables in a terminal: texts are shown as they are, rows beyond the limit are counted."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from symshape.exploring.tables import Table
from symshape.exploring.terminal import terminal_table


def drawn(table: Table, limit: int | None = None, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(table, limit=limit))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_brackets_of_source_lines_are_not_markup() -> None:
    text = drawn(
        Table(
            "[bold]t[/]",
            ("line",),
            (("return mask[batch, kv] [/red] [link=x]y",),),
            code=frozenset({"line"}),
        )
    )
    assert "return mask[batch, kv] [/red] [link=x]y" in text
    assert "[bold]t[/]" in text


@pytest.mark.parametrize("width", [100, 12])
def test_control_characters_are_escaped(width: int) -> None:
    order = "\x1b[31m"
    text = drawn(
        Table(order, ("[b]a", order), ((order, "1\n2"),), numbers=frozenset({order})), 9, width
    )
    assert "\x1b" not in text
    assert "\\x1b[31m" in text
    assert width < 100 or "[b]a" in text


def test_rows_beyond_the_limit_are_counted() -> None:
    text = drawn(Table("t", ("a wide column",), tuple((str(n),) for n in range(100, 110))), limit=3)
    assert "102" in text
    assert "103" not in text
    assert "and 7 more" in text


WORDS = st.lists(st.text("abcde*()._:", min_size=1, max_size=30), max_size=6).map(" ".join)


@given(
    st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.sampled_from([40, 60, 80])
)
def test_no_word_is_broken_that_fits_the_width(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    columns = ("operator", "bytes moved", "FLOP a byte")
    text = drawn(Table("a table", columns, tuple(rows), code=frozenset(columns[:1])), width=width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = text.split()
    missing = [word for row in rows for cell in row for word in cell.split() if word not in words]
    assert not missing, text


@given(
    st.lists(st.tuples(WORDS, st.integers(0, 10**9).map("{:,} MB".format)), min_size=1, max_size=5)
)
def test_numbers_stay_on_one_line(rows: list[tuple[str, str]]) -> None:
    text = drawn(
        Table("a table", ("what", "how many"), tuple(rows), numbers=frozenset({"how many"})),
        width=40,
    )
    assert all(number in text for _, number in rows)


LONG = "aten._scaled_dot_product_flash_attention_for_cpu.default"
FORMULA = "1024*batch*length*length + 4608*batch*length"


def test_what_does_not_fit_in_columns_is_shown_row_by_row() -> None:
    columns = ("op", "calls", "FLOPs", "FLOP", "empty")
    table = Table(
        "cost", columns, ((LONG, "4", FORMULA, "888 k", ""),), numbers=frozenset({"calls", "FLOP"})
    )
    assert [line.strip() for line in drawn(table, width=80).splitlines() if line.strip()] == [
        "cost",
        LONG,
        "calls: 4   FLOP: 888 k",
        f"FLOPs: {FORMULA}",
    ]
    (heading,) = [line for line in drawn(table, width=160).splitlines() if "calls" in line]
    assert heading.split() == ["op", "calls", "FLOPs", "FLOP", "empty"]


@pytest.mark.parametrize("width", [60, 200])
def test_rows_are_counted_either_way(width: int) -> None:
    table = Table("cost", ("op", "FLOPs"), ((LONG, FORMULA),) * 5)
    text = drawn(table, limit=2, width=width)
    assert (text.count(LONG), "and 3 more" in text) == (2, True)
