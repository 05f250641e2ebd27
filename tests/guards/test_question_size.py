"""Large questions: the work and the text grow with the question, not with its square and not
exponentially.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from guards import GuardSet, bounds, from_sympy, parse, prove, simplify, smtlib, to_sympy
from guards.terms.term import Term, interned
from tests.counting import calls, undisturbed


def greatest(count: int) -> str:
    return f"max({', '.join(f's{i}' for i in range(count))})"


def chain(count: int, word: str = " and ") -> str:
    return word.join(f"s{i} < s{i + 1}" for i in range(count))


def links(count: int) -> list[str]:
    return [f"s{i} < s{i + 1}" for i in range(count)]


QUESTIONS: dict[str, Callable[[int], object]] = {
    "prove max": lambda n: prove(f"{greatest(n)} > 1"),
    "simplify max": lambda n: simplify(greatest(n)),
    "bounds max": lambda n: bounds(greatest(n)),
    "simplify and": lambda n: simplify(chain(n)),
    "simplify or": lambda n: simplify(chain(n, " or ")),
    "smtlib max": lambda n: smtlib(parse(greatest(n)) > 1),
    "negate": lambda n: GuardSet(*links(n)).negate(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_twice_the_question_is_hardly_more_than_twice_the_work(name: str) -> None:
    ask = QUESTIONS[name]
    ask(8)  # what is loaded once
    with undisturbed():
        _, less = calls(lambda: ask(64))
    with undisturbed():
        _, more = calls(lambda: ask(128))
    assert more <= 3 * less


def test_a_max_of_thousands_leaves_few_terms_behind() -> None:
    before = interned()
    assert prove(f"{greatest(3000)} > 1") is None
    assert prove(f"{greatest(30)} >= s7") is True
    assert interned() - before < 20_000


def quotients(count: int) -> Term:
    """A quotient of a quotient, and so on, by symbols: SMT-LIB writes each with a choice by the
    divisor's sign.
    """
    term = parse("x")
    for i in range(count):
        term = (term + i) // parse(f"d{i}")
    return term


@pytest.mark.parametrize(
    ("small", "large"),
    [(parse(greatest(18)) > 1, parse(greatest(150)) > 1), (quotients(4) > 1, quotients(30) > 1)],
)
def test_a_script_is_as_long_as_its_formula(small: Term, large: Term) -> None:
    times = len(large.symbols) / len(small.symbols)
    assert len(smtlib(large)) <= 1.5 * times * len(smtlib(small))


def test_scripts_mean_what_their_formulas_mean() -> None:
    z3 = pytest.importorskip("z3")
    formulas = [
        parse("max(a, b, c, 3) == b and a > c"),
        parse("min(a, b, c) == 2 and max(a // b, c) == 7"),
        (quotients(3) >= 2),
        parse("max(a, b + 1, c // a, 4) < 2*a"),
    ]
    for formula in formulas:
        solver = z3.Solver()
        solver.from_string(smtlib(formula))
        assert solver.check() == z3.sat, formula
        model = solver.model()
        names = sorted(symbol.name for symbol in formula.symbols)
        values = {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names}
        assert GuardSet(formula).holds(values), (formula, values)


def test_a_max_of_many_travels_to_sympy_and_back() -> None:
    for formula in (parse(greatest(150)) > 1, parse(greatest(40)) <= parse("min(x, y, s1, s2, 9)")):
        assert from_sympy(to_sympy(formula)) is formula


def test_only_some_of_many_parts_are_seen_together() -> None:
    """A part that its nearest ones imply goes from a long conjunction too, and nothing else
    does.
    """
    text = f"{chain(40)} and s3 < s5"
    simple = simplify(text)
    assert simple is parse(chain(40))
    with undisturbed():
        wide = simplify(" and ".join(f"s0 != {i}" for i in range(60)))
    assert len(wide.args) == 60
