"""The table of functions: each name means what the operators say, on terms and on Python's
integers.
"""

from __future__ import annotations

import random

import pytest

from guards.asking.reading import parse
from guards.terms.fold import evaluate
from guards.terms.term import Op
from guards.text.functions import CONDITION, FUNCTIONS
from tests.guards.text.agreement import say_the_same
from tests.oracles import SPACE


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("FloorDiv(x, 2)", "x // 2"),
        ("Mod(x, 8)", "x % 8"),
        ("PythonMod(x, 8)", "x % 8"),
        ("ModularIndexing(x, 4, 8)", "(x // 4) % 8"),
        ("cdiv(x, 8)", "-((-x) // 8)"),
        ("Min(x, y, 3)", "min(x, min(3, y))"),
        ("Max(x, y)", "max(y, x)"),
        ("abs(x)", "max(x, -x)"),
        ("clamp(x, 0, 9)", "min(max(x, 0), 9)"),
        ("Pow(x, 3)", "x*x*x"),
        ("Add(x, y, 1)", "x + y + 1"),
        ("Mul(2, x, y)", "2*x*y"),
        ("Eq(x, y)", "x == y"),
        ("Ne(x, y)", "x != y"),
        ("Lt(x, y)", "x < y"),
        ("Ge(x, y)", "x >= y"),
        ("And(x < y, y < 5)", "x < y and y < 5"),
        ("Not(x < y)", "not (x < y)"),
        ("implies(x > 3, x > 1)", "x <= 3 or x > 1"),
        ("ite(x < y, x, 3)", "x if x < y else 3"),
        ("where(x < y, x < 3, y < 3)", "(x < y and x < 3) or (x >= y and y < 3)"),
        ("bitwise_and(x, 7)", "x % 8"),
        ("bitwise_or(x, 1)", "x | 1"),
        ("bitwise_xor(x, 6)", "x ^ 6"),
        ("shift_left(x, 2) + shift_right(y, 1)", "4*x + y // 2"),
        ("if_then_else(x < y, x, 3)", "x if x < y else 3"),
        ("flm(x, 4) + floorDiv(x, 3)", "x % 4 + x // 3"),
        ("rem(x, 4)", "truncmod(x, 4)"),
        ("IntTrueDiv(2*x, 2) + 6*y/3", "x + 2*y"),
        ("bool(x)", "x != 0"),
        ("bool(x < 3)", "x < 3"),
        ("all([x < 3, y < 4])", "x < 3 and y < 4"),
        ("any((x < 3, y < 4))", "x < 3 or y < 4"),
        ("min([x, y]) + max((x, 3)) + sum([x, y])", "min(x, y) + max(x, 3) + x + y"),
        ("min_dim(x, y) + max_dim(x, y)", "min(x, y) + max(x, y)"),
        ("non_negative(x - 2)", "max(x - 2, 0)"),
        ("sign(x)", "min(max(x, -1), 1)"),
        ("pow_by_natural(x, 2)", "x*x"),
        ("Equality(x, y)", "x == y"),
        ("Unequality(x, y)", "x != y"),
        ("StrictLessThan(x, y)", "x < y"),
        ("LessThan(x, y)", "x <= y"),
        ("StrictGreaterThan(x, y)", "x > y"),
        ("GreaterThan(x, y)", "x >= y"),
    ],
)
def test_spellings(text: str, same: str) -> None:
    assert say_the_same(text, same)


def test_functions_compute_what_python_computes() -> None:
    """Every name that the oracle knows, on random small operands."""
    rng = random.Random(6)
    compared: set[str] = set()
    for name in sorted(FUNCTIONS.keys() & SPACE.keys()):
        row = FUNCTIONS[name]
        for _ in range(30):
            kinds = [
                row.operands[min(index, len(row.operands) - 1)] for index in range(row.most or 3)
            ]
            operands = [
                "x < y" if kind == CONDITION else rng.choice(("x", "y", "x - 2*y", "3"))
                for kind in kinds
            ]
            text = f"{name}({', '.join(operands)})"
            term = parse(text)
            for _ in range(5):
                point = {"x": rng.randint(-9, 9), "y": rng.choice((-3, -1, 1, 2, 5))}
                try:
                    wanted = eval(text, SPACE, point)
                except ZeroDivisionError:
                    continue
                assert evaluate(term, point) == wanted, (text, point)
                compared.add(name)
    assert len(compared) >= 15


def test_aliases_share_a_row() -> None:
    assert FUNCTIONS["FloorDiv"] is FUNCTIONS["floor_divide"]
    assert FUNCTIONS["truncmod"] is not FUNCTIONS["Mod"]
    assert parse("select(x < y, x < 3, y < 3)").op >= Op.TRUE
