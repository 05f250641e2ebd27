"""Programs: where integers are read, and their guards over the slots of a call."""

from __future__ import annotations

import torch

import symshape
from guards.sets.sources import IntArg, Size
from guards.terms import arithmetic, fold
from symshape.graph.program import Program, Slot, limits_of, slot_names, symbol_positions

R = torch.ones


def program(fn: object, *args: object) -> Program:
    return symshape.trace(fn, *args).program  # type: ignore[arg-type]


def test_the_first_slot_that_holds_a_symbol() -> None:
    s, t = arithmetic.symbol("s0"), arithmetic.symbol("s1")
    terms = (arithmetic.const(3), t, s, t, arithmetic.mul(s, t))
    found = symbol_positions([Slot(Size("x", d), term) for d, term in enumerate(terms)])
    assert found == {"s1": 1, "s0": 2}
    assert slot_names(3) == ("v0", "v1", "v2")


def test_what_a_source_can_read() -> None:
    assert limits_of(Size("x", 0)) == (0, None)
    assert limits_of(IntArg("n")) == (None, None)


def test_guards_over_slots_say_what_is_static_and_what_is_equal() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.size(0) > 2 else x

    found = program(fn, R(4, 3), R(4, 3))
    guards = found.slot_guards()
    names = slot_names(len(found.slots))
    values = {symbol.name: symbol.hint for symbol in found.symbols.values()}

    def slots(**sizes: int) -> dict[str, int]:
        here = {**values, **sizes}
        return {
            name: fold.evaluate(slot.term, here)
            for name, slot in zip(names, found.slots, strict=True)
        }

    def holds(at: dict[str, int]) -> bool:
        return all(fold.evaluate(guard.term, at) for guard in guards)

    assert holds(slots())
    at = slots()
    rows = [
        name
        for name, slot in zip(names, found.slots, strict=True)
        if slot.source == found.sources["s0"]
    ]
    assert not holds({**at, rows[0]: 2})
    for name, slot in zip(names, found.slots, strict=True):
        if slot.term.symbols and slot.term.name not in found.positions:
            assert not holds({**at, name: at[name] + 1})


def test_sources_of_symbols() -> None:
    found = program(lambda x: x[x > 0], R(4, 3))
    assert set(found.sources) == {name for name, symbol in found.symbols.items() if symbol.backed}
    assert [symbol.name for symbol in found.symbols.values() if not symbol.backed] == ["u0"]
    assert "u0" not in found.positions


def test_lifted_tensors() -> None:
    layer = torch.nn.Linear(3, 2)
    assert {id(each) for each in program(layer, R(4, 3)).lifted_tensors} == {
        id(layer.weight),
        id(layer.bias),
    }
