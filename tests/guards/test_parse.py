"""The reader: what it accepts, and that hostile text gets a clear error, quickly, without being run."""

from __future__ import annotations

import contextlib
import os
import random
import string
import time

import pytest

from guards import exprs
from guards.errors import GuardsError, ParseError
from guards.exprs import FALSE, TRUE, Op, symbol
from guards.parse import FUNCTIONS, MAX_LENGTH, parse

x, y, z = symbol("x"), symbol("y"), symbol("z")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("FloorDiv(x, 2)", "x // 2"),
        ("floordiv(x, y)", "x // y"),
        ("Mod(x, 8)", "x % 8"),
        ("PythonMod(x, 8)", "x % 8"),
        ("ModularIndexing(x, 4, 8)", "(x // 4) % 8"),
        ("ceildiv(x, 8)", "-(-x // 8)"),
        ("cdiv(x, 8)", "-((-x) // 8)"),
        ("floor(x / 4)", "x // 4"),
        ("ceil(x / 4)", "-(-x // 4)"),
        ("Min(x, y, 3)", "min(x, min(3, y))"),
        ("Max(x, y)", "max(y, x)"),
        ("abs(x)", "max(x, -x)"),
        ("clamp(x, 0, 9)", "min(max(x, 0), 9)"),
        ("x ** 2", "x * x"),
        ("Pow(x, 3)", "x*x*x"),
        ("Add(x, y, 1)", "x + y + 1"),
        ("Mul(2, x, y)", "2*x*y"),
        ("x << 3", "8*x"),
        ("x >> 2", "x // 4"),
        ("x & 7", "x % 8"),
        ("Eq(x, y)", "x == y"),
        ("Ne(x, y)", "x != y"),
        ("Lt(x, y)", "x < y"),
        ("Ge(x, y)", "x >= y"),
        ("And(x < y, y < 5)", "x < y and y < 5"),
        ("(x < y) & (y < 5)", "x < y and y < 5"),
        ("(x < y) | (y < 5)", "x < y or y < 5"),
        ("~(x < y)", "x >= y"),
        ("Not(x < y)", "not (x < y)"),
        ("implies(x > 3, x > 1)", "x <= 3 or x > 1"),
        ("(x > 3) >> (x > 1)", "x <= 3 or x > 1"),
        ("(x > 3) == (y > 1)", "(x > 3 and y > 1) or (x <= 3 and y <= 1)"),
        ("1 <= x < 5", "x >= 1 and x <= 4"),
        ("ite(x < y, x, 3)", "x if x < y else 3"),
        ("where(x < y, x < 3, y < 3)", "(x < y and x < 3) or (x >= y and y < 3)"),
        ("Piecewise((1, x < 0), (2, True))", "1 if x < 0 else 2"),
        ("(x > 0) + (y > 0) <= 2", "(1 if x > 0 else 0) + (1 if y > 0 else 0) <= 2"),
        ("  x  +\n y ", "x + y"),
        ("True and x < 1", "x < 1"),
        ("-x + +y", "y - x"),
        ("~x", "-x - 1"),
    ],
)
def test_spellings(text: str, same: str) -> None:
    one, other = parse(text), parse(same)
    if one is not other:  # a choice between conditions has no single form: the two must agree everywhere
        from guards.decide import prove

        assert one.is_bool, (one, other)
        every = dict.fromkeys(("x", "y"), (-4, 9))
        assert prove(exprs.and_(exprs.or_(one, exprs.not_(other)), exprs.or_(exprs.not_(one), other)), ranges=every)


def test_truncation_follows_c() -> None:
    from guards.fold import evaluate

    for a in range(-9, 10):
        for b in (-4, -3, -1, 1, 2, 5):
            values = {"x": a, "y": b}
            assert evaluate(parse("truncdiv(x, y)"), values) == int(a / b)
            assert evaluate(parse("truncmod(x, y)"), values) == a - b * int(a / b)


def test_constants() -> None:
    assert parse("True") is TRUE
    assert parse("not True") is FALSE
    assert parse("2 + 3 < 6") is TRUE
    assert parse("-7 // 2") is exprs.const(-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a Python expression"),
        ("x +", "not a Python expression"),
        ("x = 3", "not a Python expression"),
        ("import os", "not a Python expression"),
        ("x; y", "not a Python expression"),
        ("x\0", "not readable|not a Python expression"),
        ("__import__('os').system('true')", "cannot be called"),
        ("__import__", "'__import__' is not allowed"),
        ("__class__", "'__class__' is not allowed"),
        ("x.__class__", "Attribute"),
        ("x.real", "Attribute"),
        ("().__class__.__mro__[1].__subclasses__()", "not allowed|cannot be called"),
        ("x[0]", "Subscript"),
        ("[x for x in y]", "ListComp"),
        ("lambda: x", "Lambda"),
        ("(yield x)", "Yield|not a Python expression"),
        ("(x := 3)", "NamedExpr"),
        ("f'{x}'", "JoinedStr"),
        ("'text'", "not an integer"),
        ("1.5", "not an integer"),
        ("None", "not an integer"),
        ("x / 2", "write //"),
        ("x @ y", "MatMult"),
        ("x | 3", "BitOr"),
        ("x & 6", "BitAnd"),
        ("x ^ y", "BitXor"),
        ("x is y", "compare"),
        ("x in y", "compare"),
        ("eval(x)", "function 'eval' is not known"),
        ("open(x)", "'open' is not known"),
        ("min()", "at least 1"),
        ("Mod(x)", "takes 2"),
        ("min(*x)", "plain operands"),
        ("min(x, key=y)", "plain operands"),
        ("min(x, default=3)", "plain operands"),
        ("(min)(x)(y)", "cannot be called"),
        ("x and y", "condition is needed"),
        ("not x", "condition is needed"),
        ("3 if x else 4", "condition is needed"),
        ("x ** y", "exponent"),
        ("x ** -1", "exponent"),
        ("x ** 65", "exponent"),
        ("2 ** 10 ** 10", "exponent"),
        ("x // 0", "division by zero"),
        ("x % (3 - 3)", "division by zero"),
        ("1" + "0" * 5000, "bits|not a Python|not readable|digits"),
        ("Piecewise((1, x < 0))", "must be True"),
        ("Piecewise(1, 2)", "value, condition"),
        ("... + x", "not an integer"),
        ("x if x > 0", "not a Python expression"),
    ],
)
def test_what_is_not_accepted_gets_a_clear_error(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert isinstance(caught.value, GuardsError)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_LENGTH + 1),
        "(" * 5000 + "x" + ")" * 5000,
        "-" * 20000 + "x",
        "not " * 5000 + "x < 1",
        "min(" * 900 + "x" + ")" * 900,
        "x" + " if x > 0 else y" * 2000,
        "(x + y + z) ** 64 * (x - y + 2*z) ** 64",
        "((x ** 60) ** 60) ** 60",
        "*".join(f"(x{i} + y{i})" for i in range(60)),
        "(2 ** 64) ** 64 * (2 ** 64) ** 64",
        "x << 100000",
        "9" * 49_000,
    ],
)
def test_hostile_sizes_are_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ParseError):
        parse(text)
    assert time.perf_counter() - began < 2


def test_long_chains_are_fine() -> None:
    assert parse(" + ".join(f"x{i % 50}" for i in range(700))).op is Op.ADD
    assert parse(" and ".join(f"x{i} >= {i}" for i in range(2000))).op is Op.AND
    assert parse("x" + " + 1" * 700) is x + 700
    assert parse("x" + " - 1 + y // 2" * 300) is x - 300 + 300 * (y // 2)
    assert parse(" == ".join(["(x < 1)"] * 3000)) is TRUE
    with pytest.raises(ParseError, match="nested too deeply"):  # Python's own parser gives up here
        parse("x" + " + 1" * 9000)


def test_nothing_is_run(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"{tmp_path}/ran"
    for text in (f"__import__('os').mkdir({marker!r})", f"open({marker!r}, 'w')", f"exec('open({marker!r})')"):
        with pytest.raises(ParseError):
            parse(text)
    assert not os.path.exists(marker)


def test_random_text_gives_a_term_or_a_parse_error() -> None:
    rng = random.Random(11)
    words = [
        *"xyz()+-*/%<>=!&|~,.:[]{}'\"\\\n\t ",
        "//",
        "**",
        "<=",
        ">=",
        "==",
        "and",
        "or",
        "not",
        "if",
        "else",
        "12",
    ]
    words += [*FUNCTIONS, "lambda", "import", "__builtins__", "\u00e9", "\u2028", "\x00", "0x1f", "1_000", "1e5", "3j"]
    read = 0
    for _ in range(4000):
        text = rng.choice(["", " "]).join(rng.choice(words) for _ in range(rng.randint(1, 12)))
        try:
            parse(text)
            read += 1
        except ParseError:
            pass
    assert read > 100
    for _ in range(500):
        text = "".join(rng.choice(string.printable) for _ in range(rng.randint(1, 200)))
        with contextlib.suppress(ParseError):
            parse(text)


def test_the_error_says_where() -> None:
    with pytest.raises(ParseError) as caught:
        parse("x + y.z")
    assert caught.value.position == 4
    assert "character 5" in str(caught.value)


def test_only_text_is_read() -> None:
    with pytest.raises((ParseError, TypeError), match=r"text is needed|str object expected"):  # interpreted, compiled
        parse(3)  # type: ignore[arg-type]
