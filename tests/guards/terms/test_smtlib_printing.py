"""SMT-LIB: what Z3 reads from the script means the same as the term."""

from __future__ import annotations

import random

import z3

from guards.asking.reading import parse
from guards.errors import ParseError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq
from guards.terms.fold import evaluate
from guards.terms.smtlib_printing import smtlib
from tests.guards.terms.test_printing import grown
from tests.strategies import condition


def test_a_script_means_the_same() -> None:
    """Z3 reads the script; its answer is compared with trying values."""
    rng = random.Random(12)
    satisfiable = unsatisfiable = 0
    for _ in range(250):
        try:
            term = parse(condition(rng))
        except ParseError:
            continue
        if not term.is_bool or not term.symbols:
            continue
        ranges: dict[str, tuple[int | None, int | None]] = {s.name: (-3, 4) for s in term.symbols}
        names = sorted(ranges)
        found = False
        for number in range(8 ** len(names)):
            point = {name: number // 8**i % 8 - 3 for i, name in enumerate(names)}
            try:
                found = found or evaluate(term, point) is True
            except ZeroDivisionError:
                continue
        solver = z3.Solver()
        solver.from_string(smtlib(term, ranges=ranges))
        answer = solver.check()
        assert answer == (z3.sat if found else z3.unsat), term
        satisfiable += found
        unsatisfiable += not found
    assert satisfiable > 50
    assert unsatisfiable > 10


def test_names_are_quoted() -> None:
    script = smtlib(parse("div + let >= 1"), ranges={"div": (-5, None)})
    solver = z3.Solver()
    solver.from_string(script)
    assert solver.check() == z3.sat
    assert "|div|" in script
    assert "(- 5)" in script


def test_scripts_of_huge_terms_are_as_long_as_their_graphs() -> None:
    term = grown(20)
    value = evaluate(term, {"s0": 7})
    for sought, answer in ((value, z3.sat), (value + 1, z3.unsat)):
        script = smtlib(eq(term, sought), eq(symbol("s0"), 7))
        solver = z3.Solver()
        solver.from_string(script)
        assert solver.check() == answer
        assert len(script) < 10_000
