"""The reader: what it accepts, and that hostile text gets a clear error, quickly, without being run."""

from __future__ import annotations

import contextlib
import os
import random
import string
import sys
import time

import pytest

from guards.errors import GuardsError, ParseError
from guards.terms import arithmetic, boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE, TRUE
from guards.terms.fold import evaluate
from guards.terms.term import Op
from guards.text.reader import FUNCTIONS, MAX_LENGTH, lost_divisors, parse
from tests.oracles import SPACE

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
        ("x & 12", "4*(x // 4 % 4)"),
        ("5 & x", "x % 2 + 4*(x // 4 % 2)"),
        ("x & -8", "x - x % 8"),
        ("x & ~7", "x - x % 8"),
        ("x | 7", "x - x % 8 + 7"),
        ("x | 0", "x"),
        ("x ^ 1", "x + 1 - 2*(x % 2)"),
        ("x ^ -1", "~x"),
        ("(x ^ x) + (y | y) + (x & x)", "x + y"),
        ("12 ^ 10 | 1", "7"),
        ("bitwise_and(x, 7)", "x % 8"),
        ("bitwise_or(x, 1)", "x | 1"),
        ("bitwise_xor(x, 6)", "x ^ 6"),
        ("shift_left(x, 2) + shift_right(y, 1)", "4*x + y // 2"),
        ("if_then_else(x < y, x, 3)", "x if x < y else 3"),
        ("flm(x, 4) + floorDiv(x, 3)", "x % 4 + x // 3"),
        ("rem(x, 4)", "truncmod(x, 4)"),
        ("trunc(x / y)", "truncdiv(x, y)"),
        ("int(x / 4)", "truncdiv(x, 4)"),
        ("TruncToInt(IntTrueDiv(x, 4))", "truncdiv(x, 4)"),
        ("TruncToInt(x) + CeilToInt(y) + Identity(x) + int(y > 3)", "2*x + y + (1 if y > 3 else 0)"),
        ("IntTrueDiv(2*x, 2) + 6*y/3", "x + 2*y"),
        ("math.ceil(x / 4) + math.floor(y / 2)", "ceildiv(x, 4) + y // 2"),
        ("torch.sym_max(x, y)", "max(x, y)"),
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
        ("Piecewise((x, x > 0), (0, x <= 0))", "x if x > 0 else 0"),
        ("Piecewise((1, x > 3), (2, x < 5))", "1 if x > 3 else 2"),
    ],
)
def test_spellings(text: str, same: str) -> None:
    one, other = parse(text), parse(same)
    if one is not other:  # a choice between conditions has no single form: the two must agree everywhere
        from guards.ask.ladder import prove

        assert one.is_bool, (one, other)
        every = dict.fromkeys(("x", "y"), (-4, 9))
        assert prove(
            boolean.and_(boolean.or_(one, boolean.not_(other)), boolean.or_(boolean.not_(one), other)), ranges=every
        )


def test_truncation_follows_c() -> None:
    for a in range(-9, 10):
        for b in (-4, -3, -1, 1, 2, 5):
            values = {"x": a, "y": b}
            assert evaluate(parse("truncdiv(x, y)"), values) == int(a / b)
            assert evaluate(parse("truncmod(x, y)"), values) == a - b * int(a / b)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("truncdiv(-x, y)", "-truncdiv(x, y)"),
        ("truncdiv(x, -y)", "-truncdiv(x, y)"),
        ("truncdiv(x*z, -3*y*z)", "truncdiv(-x, 3*y)"),
        ("truncdiv(truncdiv(x, y), z)", "truncdiv(x, y*z)"),
        ("truncdiv(2*truncdiv(x, 2), 6)", "truncdiv(x, 6)"),
        ("truncdiv(truncmod(x, 6*y), -3*y)", "-truncmod(truncdiv(x, 3*y), 2)"),
        ("truncmod(-x, y)", "-truncmod(x, y)"),
        ("truncmod(x, -y)", "truncmod(x, y)"),
        ("truncmod(x*z, 2*y*z)", "z*truncmod(x, 2*y)"),
        ("truncmod(truncmod(x, 6*y), 3*y)", "truncmod(x, 3*y)"),
        ("truncmod(2*truncdiv(truncmod(x, 20), 2), 4)", "2*truncdiv(truncmod(x, 4), 2)"),
        ("truncdiv(x - y, x - y) + truncmod(y - x, x - y)", "1"),
        ("truncdiv(6*x*y, -3*y)", "-2*x"),
    ],
)
def test_truncation_has_a_normal_form(text: str, same: str) -> None:
    assert parse(text) is parse(same)


def test_truncation_and_bits_are_what_python_computes() -> None:
    """Random nested formulas, negative operands and divisors included."""
    rng = random.Random(3)
    atoms = ("x", "y", "-x", "2*y", "6*x", "x*y", "x + y + 1", "-3*z", "7", "-6")

    def formula(depth: int) -> str:
        kind = rng.random()
        if not depth or kind < 0.2:
            return rng.choice(atoms)
        if kind < 0.75:
            divisor = formula(depth - 1) if rng.random() < 0.3 else rng.choice(("2", "-4", "6", "y", "x*z", "-z", "12"))
            return f"{rng.choice(('truncdiv', 'truncmod'))}({formula(depth - 1)}, {divisor})"
        if kind < 0.9:
            return f"({formula(depth - 1)} {rng.choice('&|^')} {rng.randint(-40, 40)})"
        return f"({formula(depth - 1)} {rng.choice('+-*')} {formula(depth - 1)})"

    compared = refused = 0
    for _ in range(1200):
        text = formula(rng.choice((1, 2, 2, 3)))
        try:
            term = parse(text)
        except ParseError:  # a divisor is 0
            refused += 1
            continue
        for _ in range(6):
            point = {name: rng.randint(-20, 20) for name in ("x", "y", "z")}
            try:
                wanted = eval(text, SPACE, point)
            except ZeroDivisionError:
                continue
            assert evaluate(term, point) == wanted, (text, point)
            compared += 1
    assert compared > 4000
    assert refused < 40


def test_constants() -> None:
    assert parse("True") is TRUE
    assert parse("not True") is FALSE
    assert parse("2 + 3 < 6") is TRUE
    assert parse("-7 // 2") is arithmetic.const(-4)


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
        ("x / y", "write //"),
        ("x @ y", "MatMult"),
        ("x | y", "neither side is a constant"),
        ("x & y", "neither side is a constant"),
        ("x ^ y", "neither side is a constant"),
        (f"x & {int('01' * 70, 2)}", "runs of bits"),
        ("x << y", "number of bits to shift by"),
        ("x >> -1", "number of bits to shift by"),
        ("shift_left(x, y)", "number of bits to shift by"),
        ("div(x, y)", "write floordiv or truncdiv"),
        ("cmod(x, y)", "write truncmod"),
        ("IntTrueDiv(x, 2)", "a fraction here"),
        ("floor(IntTrueDiv(x))", "takes 2"),
        ("os.floor(x)", "cannot be called"),
        ("math.system(x)", "cannot be called"),
        ("math.floor.x(y)", "cannot be called"),
        ("min([])", "at least 1"),
        ("min([*x])", "plain operands"),
        ("all([x])", "condition is needed"),
        ("truncdiv(x, 0)", "division by zero"),
        ("x > 0 && y > 0", "not a Python expression"),
        ("x > 0 || y > 0", "not a Python expression"),
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
        ("Piecewise((1, x < 0))", "value, condition"),
        ("Piecewise((1, x < 0), (2, x > 0))", "must be True"),
        ("Piecewise((1, x < 0), (2, y >= 0))", "must be True"),
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
    if sys.version_info < (3, 12):  # Python's own parser gives up
        with pytest.raises(ParseError, match="nested too deeply"):
            parse("x" + " + 1" * 9000)
    else:
        assert parse("x" + " + 1" * 9000) is x + 9000


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("x % (3*x - x) == 0", ("2*x",)),
        ("Mod(5*x, 4*x) == 0", ("4*x",)),
        ("x*y // y == x // z", ("y",)),
        ("x // y == x % y", ()),
        ("x % (2*x) == 0 or x == 0", ()),
        ("(x % (2*x) if x > 0 else 0) == 0", ()),
        ("8*x // 4 == y", ()),
    ],
)
def test_divisors_that_cancel_are_remembered(text: str, lost: tuple[str, ...]) -> None:
    assert lost_divisors(text) == tuple(parse(divisor) for divisor in lost)


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
