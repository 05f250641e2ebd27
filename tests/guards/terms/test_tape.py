"""A tape computes what its terms mean, and doubles are exact where it says so."""

from __future__ import annotations

import random
from typing import Any

import pytest

from guards import GuardsError, parse, symbol
from guards.terms.fold import evaluate
from guards.terms.tape import EXACT, Tape, number, run_tape
from guards.terms.term import Term

TERMS = (
    "n // 8 * 8 + m % 3",
    "(n - m) // (m - 2) + (n - m) % (m - 2)",
    "min(n, m, 7) * max(n - m, 3)",
    "n * m * (n + 1) >= 40",
    "m == 0 or n % m == 0",
    "m != 0 and n // m < 5",
    "(n if n > m else m // n) == 4",
    "9007199254740993 * n + 1",
)


def run(tape: Tape, values: tuple[int, ...]) -> list[Any]:
    return run_tape(tape.steps, values)


def expected(term: Term, values: tuple[int, ...]) -> Any:
    try:
        return evaluate(term, dict(zip("nm", values, strict=True)))
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize("text", TERMS)
def test_computes_the_term(text: str) -> None:
    tape = Tape(["n", "m"])
    term = parse(text)
    register = tape.add(term)
    rng = random.Random(text)
    for _ in range(300):
        values = (
            rng.randint(-9, 9),
            rng.choice((0, 2, rng.randint(-9, 9), rng.randint(-(10**20), 10**20))),
        )
        assert run(tape, values)[register] == expected(term, values), values


def test_parts_are_shared() -> None:
    tape = Tape(["n", "m"])
    tape.add(parse("n // 8 * m"))
    before = len(tape.steps)
    assert tape.add(parse("n // 8 * m")) == before - 1
    tape.add(parse("n // 8 * m >= 3"))
    assert len(tape.steps) == before + 2  # the sum and the comparison


def test_deep_terms() -> None:
    term = symbol("n")
    for _ in range(1000):
        term = (term + term // 2) % 1000
    tape = Tape(["n"])
    register = tape.add(term)
    assert run(tape, (12345,))[register] == evaluate(term, {"n": 12345})


@pytest.mark.parametrize("text", TERMS)
def test_doubles_are_exact_as_far_as_it_says(text: str) -> None:
    tape = Tape(["n", "m"])
    tape.add(parse(text))
    most = tape.exact_up_to()
    if most < 0:
        assert "9007199254740993" in text
        return
    rng = random.Random(text)
    for _ in range(200):
        values = tuple(rng.choice((most, -most, most - 1, rng.randint(-most, most))) for _ in "nm")
        registers = run(tape, values)
        assert all(v is None or abs(v) < EXACT for v in registers)
        for kind, *operands in tape.steps:  # what is divided there, less the remainder
            if kind == "floordiv" and None not in (registers[operands[0]], registers[operands[1]]):
                a, b = (registers[each] for each in operands)
                assert b == 0 or abs(a - a % b) < EXACT


def test_a_symbol_without_a_slot() -> None:
    with pytest.raises(GuardsError, match="no slot gives the value of k"):
        Tape(["n"]).add(parse("n + k"))


def test_numbers_as_json_carries_them() -> None:
    assert number(EXACT - 1) == EXACT - 1
    assert number(-EXACT) == str(-EXACT)
