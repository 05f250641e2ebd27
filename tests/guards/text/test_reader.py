"""The reader: what it accepts, and that hostile text gets a clear error, quickly, without being
run.
"""

from __future__ import annotations

import ast
import contextlib
import os
import random
import string
import time

import pytest

from guards.asking.reading import parse
from guards.errors import GuardsError, ParseError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE
from guards.terms.term import Op
from guards.text.functions import FUNCTIONS
from guards.text.grammar import FORMS
from guards.text.reader import MAX_LENGTH

x, y = symbol("x"), symbol("y")


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
    longest = "x" + " + 1" * 9000
    try:
        ast.parse(longest)
    except (RecursionError, MemoryError):  # Python's own parser gives up: 3.11, 3.12.1
        with pytest.raises(ParseError, match="nested too deeply"):
            parse(longest)
    else:
        assert parse(longest) is x + 9000


def test_nothing_is_run(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"{tmp_path}/ran"
    for text in (
        f"__import__('os').mkdir({marker!r})",
        f"open({marker!r}, 'w')",
        f"exec('open({marker!r})')",
    ):
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
    words += [
        *FUNCTIONS,
        *FORMS,
        "lambda",
        "import",
        "__builtins__",
        "\u00e9",
        "\u2028",
        "\x00",
        "0x1f",
        "1_000",
        "1e5",
        "3j",
    ]
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


def test_only_text_is_read() -> None:
    # interpreted, compiled
    with pytest.raises((ParseError, TypeError), match=r"text is needed|str object expected"):
        parse(3)  # type: ignore[arg-type]
