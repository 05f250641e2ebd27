"""Names of symbols, their hints, and where they are read."""

from __future__ import annotations

import pytest

from guards.sets.sources import Size
from guards.terms import arithmetic
from symshape.graph.program import Symbol
from symshape.tracing.symbolic.env import ShapeEnv, Symbols


def test_names_that_are_taken() -> None:
    env = ShapeEnv()
    env.symbols.reserve(["u0", "f0", "u2"])
    assert [str(env.new_unbacked()) for _ in range(2)] == ["u1", "u3"]
    assert str(env.new_float().term) == "f1"


def test_symbols_in_order_with_their_hints() -> None:
    symbols = Symbols()
    symbols.add(Symbol(arithmetic.symbol("b"), 3, (Size("x", 0),)))
    symbols.add(Symbol(arithmetic.symbol("u0"), None))
    symbols.add(Symbol(arithmetic.symbol("a"), 5, (Size("x", 1),)))
    assert list(symbols) == ["b", "u0", "a"]
    assert len(symbols) == 3
    assert symbols.hints == {"b": 3, "a": 5}
    assert "u0" in symbols
    with pytest.raises(KeyError):
        symbols["s0"]


def test_a_symbol_that_is_read_in_two_places() -> None:
    symbols = Symbols()
    symbols.add(Symbol(arithmetic.symbol("s0"), 3, (Size("x", 0),)))
    symbols.add_source("s0", Size("y", 1))
    assert symbols["s0"].sources == (Size("x", 0), Size("y", 1))
    assert symbols["s0"].hint == 3
