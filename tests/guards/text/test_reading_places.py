"""What guards print is read back: where a size is read is the name of a symbol."""

from __future__ import annotations

import pytest

from guards import Guard, ParseError, RangeError, parse, prove, symbol
from guards.sets.sources import Size, StorageOffset, Stride
from guards.text.reader import names_in

SOURCES = (
    Size("x", 0),
    Size("kwargs['mask']", 1),
    Size("batch[0].ids", 2),
    Size("self.cache[1]['k']", 3),
    Stride("x", 10),
    StorageOffset("args[1]"),
)


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_sources_are_read_back(source: Size | Stride | StorageOffset) -> None:
    term = parse(f"{source.text()} // 8 + n")
    assert {s.name for s in term.symbols} == {source.text(), "n"}
    assert symbol(source.text()) in term.symbols
    assert names_in(str(term)) == {source.text(), "n"}


def test_a_printed_guard_is_the_same_guard_over_places() -> None:
    guard = Guard(parse("s0 * s1 > max(s0, 8) and s0 % 8 == 0"))
    printed = guard.text({"s0": "x.size(0)", "s1": "kwargs['mask'].size(1)"})
    read = parse(printed)
    assert read is guard.term.subs(
        {"s0": symbol("x.size(0)"), "s1": symbol("kwargs['mask'].size(1)")}
    )
    assert parse(str(read)) is read


def test_places_take_ranges_and_are_sizes() -> None:
    assert prove("x.size(0) >= 0") is True
    assert prove("x.shape[0] > 1", ranges={"x.size(0)": (2, None)}) is True
    with pytest.raises(RangeError, match=r"did you mean 'x\.size\(0\)'"):
        prove("x.size(0) > 1", ranges={"x.size(1)": (2, None)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.size(-1) > 0", "counted from the front"),
        ("x.size() > 0", "counted from the front"),
        ("x.size(n) > 0", "counted from the front"),
        ("x.shape[n] > 0", "counted from the front"),
        ("x.size(0, 1) > 0", "counted from the front"),
        ("x.size(dim=0) > 0", "counted from the front"),
        ("x.storage_offset(1) > 0", "takes nothing"),
        ("math.size(0) > 0", "math is a module"),
        ("f(x).size(0) > 0", "Call expression is not allowed"),
        ("x.__class__.size(0) > 0", "'__class__' is not allowed"),
        ("x['\\\\'].size(0) > 0", "Subscript expression is not allowed"),
        ("x.numel() > 0", "cannot be called"),
    ],
)
def test_what_is_no_place(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        parse(text)


@pytest.mark.parametrize(
    "name", ["x.size(0) + 1", "x..k", "", "x.size(0).size(1)", "x[y]", "1x", "x;y"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be an identifier or a place"):
        symbol(name)
