"""The rewrite table: every law proven, every row seen to fire, and no rewrite that changes a
value.
"""

from __future__ import annotations

import ast
import random
from itertools import product

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.facts.law import Rule
from guards.facts.rewrite_rules import RULES
from guards.facts.rewriting import rewritten
from guards.terms.fold import evaluate
from tests.oracles import Question, by_z3, names_in, tried

BY_NAME = {rule.name: rule for rule in RULES}

# For each row: a term it rewrites, under which assumptions (all symbols are at least 1), and what
# comes out.
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
    (
        "choices by one condition",
        "(x if x > y else z) + (1 if x > y else 2)",
        (),
        "x + 1 if x > y else z + 2",
    ),
    ("choices by one condition", "z*(x if x > y else 3) + z*(-x if x > y else -3) + y", (), "y"),
    (
        "a choice at the border",
        "(x // y if x <= 1 else -((1 - x)//y) + 1 // y)",
        (),
        "-((1 - x)//y) + 1 // y",
    ),
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


# What Z3 does not see by itself: a row follows from these instances of other statements (rows, or
# lemmas below), each `(statement, what stands for its names)`. It is used only as
# `where implies law`, so that it cannot assume too much.
Instance = tuple[str, dict[str, str]]
LEMMAS: dict[str, tuple[str, str, tuple[Instance, ...]]] = {
    "less than a period is no multiple": (
        "(u % m == 0) == (u == 0)",
        "m != 0 and -abs(m) < u < abs(m)",
        (),
    ),
    "remainder of a sum": (
        "(a + b) % n == (a % n + b % n) % n",
        "n != 0",
        (
            (
                "multiples of the divisor vanish",
                {"b": "n", "q": "a // n + b // n", "r": "a % n + b % n"},
            ),
        ),
    ),
    "remainder of a product": (
        "(a * b) % n == (a % n) * (b % n) % n",
        "n != 0",
        (
            (
                "multiples of the divisor vanish",
                {"b": "n", "q": "a // n * b + b // n * (a % n)", "r": "(a % n) * (b % n)"},
            ),
        ),
    ),
    # The sum of (a + r) // n over r = 0 ... n - 1 is a: it is at a = 0, and grows by one with a.
    "shifted quotients of 0": ("r // n == 0", "0 <= r < n", ()),
    "shifted quotients of a + 1": ("(a + n) // n == a // n + 1", "n > 0", ()),
    "shifts beyond a period": ("(a + n*j + i) // n == j + (a + i) // n", "n > 0", ()),
}
FOLLOWS: dict[str, tuple[Instance, ...]] = {
    "quotient of a remainder": (
        ("multiples of the divisor come out", {"b": "b", "q": "-c * (a // (b*c))", "r": "a"}),
        ("quotient of a quotient", {"a": "a", "b": "b", "c": "c"}),
    ),
    "two remainders equal": (
        (
            "multiples of the divisor vanish",
            {"b": "g*m", "q": "a // m - b // n", "r": "g*(a % m) + k - h*(b % n)"},
        ),
        ("less than a period is no multiple", {"u": "g*(a % m) + k - h*(b % n)", "m": "g*m"}),
    ),
    "two remainders unequal": (
        (
            "multiples of the divisor vanish",
            {"b": "m", "q": "a // m - b // m", "r": "a % m - b % m"},
        ),
    ),
}
# What the row about constant remainders is asked, for every divisor it is for.
POLYNOMIALS = ("a*a", "a*a + a", "a*a*a - a", "a*a*a + 5*a", "a*b*(a + b)", "a*a - b*b", "a*b + 1")


class _Put(ast.NodeTransformer):
    """Expressions in the place of names."""

    def __init__(self, put: dict[str, str]) -> None:
        self.put = put

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(self.put[node.id], mode="eval").body if node.id in self.put else node


def _statement(name: str) -> tuple[str, str]:
    return LEMMAS[name][:2] if name in LEMMAS else (BY_NAME[name].law, BY_NAME[name].where)


def _instance(name: str, put: dict[str, str]) -> str:
    law, where = _statement(name)
    assert set(names_in(law, where)) - {"abs"} <= put.keys(), f"{name} has other names"
    return ast.unparse(_Put(put).visit(ast.parse(f"implies({where}, {law})", mode="eval")))


def _proven(law: str, *given: str) -> bool:
    """By Z3, for all integers."""
    names = names_in(law, *given)
    return by_z3(Question(law, dict.fromkeys(names, (None, None)), given), 200_000_000) is True


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_law_fails_where_it_is_tried(rule: Rule) -> None:
    """Python's arithmetic says what Z3's translation says below."""
    names = names_in(rule.law, rule.where)
    holds, fails = tried(
        Question(rule.law, dict.fromkeys(names, (None, None)), (rule.where,)),
        8 if len(names) < 5 else 4,
    )
    assert fails is None, f"{rule.law} fails at {fails}"
    assert holds is not None


# All rows but the one whose text is a case of a law about polynomials:
# test_constant_remainders_are_proven has it.
@pytest.mark.parametrize(
    "name", [*LEMMAS, *(name for name in BY_NAME if name != "a constant remainder")]
)
def test_every_law_is_proven(name: str) -> None:
    law, where = _statement(name)
    instances = LEMMAS[name][2] if name in LEMMAS else FOLLOWS.get(name, ())
    for used, _ in instances:  # proven without help themselves: no circle
        assert used not in FOLLOWS, used
        assert used not in LEMMAS or not LEMMAS[used][2], used
    assert _proven(law, where, *[_instance(*each) for each in instances])


def test_the_helps_are_of_rows_that_exist() -> None:
    assert FOLLOWS.keys() <= BY_NAME.keys()
    assert not LEMMAS.keys() & BY_NAME.keys()


@pytest.mark.parametrize("number", range(2, 17))
def test_constant_remainders_are_proven(number: int) -> None:
    """The law in general: a polynomial leaves what it leaves of its symbols' remainders (the two
    lemmas, over sums and products). So trying all remainders decides, which is what the row does;
    here it agrees with Z3, one divisor a case.
    """
    rule = BY_NAME["a constant remainder"]
    rewrites = 0
    for polynomial in (*POLYNOMIALS, BY_NAME["a constant remainder"].law.partition(" % ")[0]):
        names = names_in(polynomial)
        residues = list(product(range(number), repeat=len(names)))
        left = {
            eval(polynomial, {}, dict(zip(names, values, strict=True))) % number
            for values in residues
        }
        term = parse(f"({polynomial}) % {number}")
        if term.op is not rule.head:
            continue  # the constructors saw it
        made = rule.apply(
            facts_from(dict.fromkeys(names, (None, None))).component(term), term, rewritten
        )
        if len(residues) <= 256:
            assert (made is None) is (len(left) > 1), polynomial
        if made is None:
            continue
        rewrites += 1
        assert evaluate(made, {}) == left.pop()
        for values in residues:  # Z3 takes one class of values after the other
            classes = [f"{n} % {number} == {value}" for n, value in zip(names, values, strict=True)]
            assert _proven(f"({polynomial}) % {number} == {made}", *classes), (polynomial, values)
    assert rewrites >= (1 if number in (2, 3, 6) else 0)


@pytest.mark.parametrize("number", range(2, 9))
def test_shifted_quotients_add_up(number: int) -> None:
    """The row, one divisor a case, against values of one period: `a` and the sum both grow by it
    over a period.
    """
    rng = random.Random(number)
    shifts = [r + number * rng.randint(-2, 2) for r in range(number)]
    text = " + ".join(f"(x + {shift}) // {number}" for shift in shifts)
    term = parse(f"{text} + z")
    component = facts_from({"x": (None, None), "z": (None, None)}).component(term)
    made = BY_NAME["shifted quotients"].apply(component, term, rewritten)
    assert made is not None
    assert made is parse(f"x + z + {sum(shift // number for shift in shifts)}")
    for value in range(-number, 2 * number):
        assert evaluate(term, {"x": value, "z": 5}) == evaluate(made, {"x": value, "z": 5})


@pytest.mark.parametrize(
    ("name", "text", "assumed", "wanted"), FIRES, ids=[f"{row[0]}: {row[1]}" for row in FIRES]
)
def test_every_row_fires(name: str, text: str, assumed: tuple[str, ...], wanted: str) -> None:
    names = names_in(text, *assumed)
    facts = facts_from(dict.fromkeys(names, (1, None)), assumed)
    term = parse(text)
    component = facts.component(term)
    rule = BY_NAME[name]
    assert term.op is rule.head, term
    assert rule.apply(component, term, rewritten) is parse(wanted)
    compared = 0
    least = {symbol.name: component.bounds(symbol)[0] or 1 for symbol in term.symbols}
    for values in range(6 ** len(names)):
        point = {n: least.get(n, 1) + values // 6**i % 6 for i, n in enumerate(names)}
        if all(evaluate(c, point) for c in facts.conditions):
            assert evaluate(term, point) == evaluate(parse(wanted), point)
            compared += 1
    assert compared >= 3


def test_the_table_of_firing_rows_is_complete() -> None:
    assert {row[0] for row in FIRES} == set(BY_NAME)
