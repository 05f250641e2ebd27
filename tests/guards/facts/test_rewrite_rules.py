"""The rewrite table: every law proven, every row seen to fire, and no rewrite that changes a value."""

from __future__ import annotations

import pytest

from guards.ask.ladder import facts_from
from guards.ask.reading import parse
from guards.facts.law import Rule
from guards.facts.rewrite_rules import RULES
from guards.facts.rewriting import rewritten
from guards.terms.fold import evaluate
from tests.oracles import Question, by_z3, names_in, tried

BY_NAME = {rule.name: rule for rule in RULES}

# For each row: a term it rewrites, under which assumptions (all symbols are at least 1), and what comes out.
FIRES: list[tuple[str, str, tuple[str, ...], str]] = [
    ("quotient of a value in one period", "x // (x + y)", (), "0"),
    ("quotient of a value in one period", "x // 8", ("x >= 8", "x <= 15"), "1"),
    ("quotient of a value in one period", "(x - y) // y", ("x < y",), "-1"),
    ("quotient of a value in one period", "(x + y) // y", ("x < y",), "1"),
    ("remainder of a value in one period", "x % (x + y)", (), "x"),
    ("remainder of a value in one period", "x % y", ("x >= y", "x < 2*y"), "x - y"),
    ("multiples of the divisor come out", "(x*y + z) // y", (), "x + z // y"),
    ("multiples of the divisor come out", "(x*y + x) // (y + 1)", (), "x"),
    ("multiples of the divisor vanish", "(x*y + z) % y", (), "z % y"),
    ("quotient of a quotient", "(x // y) // z", (), "x // (y*z)"),
    ("quotient of a remainder", "(x % (y*z)) // y", (), "(x // y) % z"),
    ("quotient of a remainder", "(x % 12) // 4", (), "(x // 4) % 3"),
    ("remainder of a remainder", "(x % (y*z)) % y", (), "x % y"),
    ("a remainder in a remainder", "(2*(x % (y*z)) + z) % y", (), "(2*x + z) % y"),
    ("a remainder in a remainder", "((x % y)*(z % y) + z) % y", (), "(x*(z % y) + z) % y"),
    ("fine part of a quotient", "(8*x + y) // 16", ("y <= 7",), "x // 2"),
    ("fine part of a quotient", "(x*y + z) // (2*y)", ("z < y",), "x // 2"),
    ("fine part of a remainder", "(8*x + y) % 16", ("y <= 7",), "8*(x % 2) + y"),
    ("a remainder in disguise", "x + y - 8*(x // 8)", (), "x % 8 + y"),
    ("a remainder in disguise", "x*z + y - y*z*(x//y)", (), "z*(x % y) + y"),
    ("a constant remainder", "(x*x*x + 5*x) % 6", (), "0"),
    ("a constant remainder", "(x*y*(x + y) + 1) % 2", (), "1"),
    ("a remainder and its quotient", "x % y + y*(x//y) + z", (), "x + z"),
    ("a remainder and its quotient", "8*((x + 7)//8) - (-x) % 8 + z", (), "x + z"),
    ("shifted quotients", "x//3 + (x + 1)//3 + (x + 2)//3 + z", (), "x + z"),
    ("shifted quotients", "2*((y - x)//2) + (1 + y - x)//2", (), "y - x + (y - x)//2"),
    ("choices by one condition", "(x if x > y else z) + (1 if x > y else 2)", (), "x + 1 if x > y else z + 2"),
    ("choices by one condition", "z*(x if x > y else 3) + z*(-x if x > y else -3) + y", (), "y"),
    ("a choice at the border", "(x // y if x <= 1 else -((1 - x)//y) + 1 // y)", (), "-((1 - x)//y) + 1 // y"),
    ("a choice at the border", "y // z if x <= 5 else y // z - x + 6", ("x <= 6",), "y // z"),
    ("an operand of min that never wins", "min(x, y)", ("x >= y",), "y"),
    ("an operand of max that never wins", "max(x, 1)", (), "x"),
    ("min absorbs max", "min(x, max(x, y))", (), "x"),
    ("max absorbs min", "max(x, min(x, y))", (), "x"),
    ("a choice that is known", "x if x > y else z", ("x >= y + 1",), "x"),
    ("a choice that is min", "x if x <= y else y", (), "min(x, y)"),
    ("a choice that is min", "x if x >= y else y", (), "max(x, y)"),
    ("a quotient at most", "x // y <= z", (), "x - y*z < y"),
    ("a quotient at most", "x // y >= z", (), "x >= y*z"),
    ("a quotient equal", "x // y == z", (), "x - y*z >= 0 and x - y*z < y"),
    ("a quotient unequal", "x // y != z", (), "x - y*z < 0 or x - y*z >= y"),
    ("a common factor of an order", "x*z <= y*z", (), "x <= y"),
    ("a common factor of an equation", "x*z == y*z", (), "x == y"),
    ("a common factor of a difference", "x*z != y*z", (), "x != y"),
    ("two remainders equal", "x % 8 == y % 8", (), "(x - y) % 8 == 0"),
    ("two remainders equal", "x % y == z % y", (), "(x - z) % y == 0"),
    ("two remainders equal", "2*(y % 4) + 1 == x % 8", (), "(x - 2*y - 1) % 8 == 0"),
    ("two remainders unequal", "x % 8 != y % 8", (), "(x - y) % 8 != 0"),
    ("remainders that cancel", "x % y + y*(x // y % z) == x % (y*z)", (), "True"),
    ("remainders that cancel", "x % y + y*(x // y % z) == x % (y*z) + 1", (), "False"),
    ("remainders that do not cancel", "x % y + y*(x // y % z) != x % (y*z)", (), "False"),
    ("an order of remainders", "x % y + y*(x // y % z) <= x % (y*z)", (), "True"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_law_holds(rule: Rule) -> None:
    names = names_in(rule.law, rule.where)
    question = Question(rule.law, dict.fromkeys(names, (None, None)), (rule.where,))
    holds, fails = tried(question, 8)
    assert fails is None, f"{rule.law} fails at {fails}"
    assert holds is not None
    answer = by_z3(question, 500_000)
    assert answer is not False


def test_most_laws_are_proven_by_z3() -> None:
    proven = 0
    for rule in RULES:
        names = names_in(rule.law, rule.where)
        proven += by_z3(Question(rule.law, dict.fromkeys(names, (None, None)), (rule.where,)), 2_000_000) is True
    assert proven >= 0.6 * len(RULES), proven


@pytest.mark.parametrize(("name", "text", "assumed", "wanted"), FIRES, ids=[f"{row[0]}: {row[1]}" for row in FIRES])
def test_every_row_fires(name: str, text: str, assumed: tuple[str, ...], wanted: str) -> None:
    names = names_in(text, *assumed)
    facts = facts_from(dict.fromkeys(names, (1, None)), assumed)
    term = parse(text)
    component = facts.component(term)
    rule = BY_NAME[name]
    assert term.op is rule.head, term
    assert rule.apply(component, term, rewritten) is parse(wanted)
    compared = 0
    for values in range(6 ** len(names)):
        point = {n: 1 + values // 6**i % 6 for i, n in enumerate(names)}
        if all(evaluate(c, point) for c in facts.conditions):
            assert evaluate(term, point) == evaluate(parse(wanted), point)
            compared += 1
    assert compared >= 1 or "x <= 15" in assumed


def test_the_table_of_firing_rows_is_complete() -> None:
    assert {row[0] for row in FIRES} == set(BY_NAME)
