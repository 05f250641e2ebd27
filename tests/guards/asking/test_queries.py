"""The public doors: verdicts with models and reasons, and that none is wrong."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import guards
from guards import parse
from guards.asking.queries import decide, prove
from guards.errors import Contradiction, ParseError, RangeError
from guards.terms.fold import evaluate
from tests.oracles import contradicted
from tests.strategies import question


def test_a_verdict_has_models_or_a_reason() -> None:
    verdict = decide("x < y", ranges={"x": (1, 9), "y": (2, None)}, assume=["x % 2 == 0"])
    assert verdict.value is None
    assert verdict.fails is not None
    assert verdict.holds is not None
    assert verdict.model == verdict.fails
    condition = parse("x < y")
    for model, value in ((verdict.fails, False), (verdict.holds, True)):
        assert evaluate(condition, model) is value
        assert 1 <= model["x"] <= 9
        assert model["x"] % 2 == 0
    assert "depends" in verdict.reason
    assert "always" in decide("x >= 0").reason
    assert "never" in decide("x < 0").reason


def test_false_means_never() -> None:
    assert prove("x < 0") is False
    assert prove("x < 1") is None
    assert prove("x == 3", ranges={"x": (4, None)}) is False
    assert prove("x % 2 == 1", assume=["x % 4 == 2"]) is False


@pytest.mark.parametrize("ask", [prove, decide])
def test_a_range_for_a_name_that_is_not_mentioned_is_a_slip(ask: Callable[..., object]) -> None:
    with pytest.raises(
        RangeError, match=r"'seq', which is not among .* batch, seq_len; did you mean 'seq_len'"
    ):
        ask("seq_len > batch", ranges={"seq": (2, None)})
    with pytest.raises(RangeError, match="'b', which is not among the symbols a"):
        ask("a >= 0", ranges={"b": (1, 2)})
    ask("a >= 0", ranges={"a": (1, 2), "b": (1, 2)})  # all that is mentioned has one: no slip
    ask("a - b >= 0 - b", ranges={"a": (1, 2), "b": (1, 2)})  # mentioned, though it cancels
    ask("a >= 0", assume="b == a", ranges={"b": (1, 2)})


def test_symbols_absent_from_ranges_are_sizes() -> None:
    assert prove("a >= 0") is True
    assert prove("a >= 0", assume=["b >= 1"], ranges={"b": (1, 2)}) is True
    assert prove("a >= 0", ranges={"a": (None, None)}) is None


def test_the_functions_are_public_and_the_modules_importable() -> None:
    from guards import decide as function
    from guards.asking.questions import ask as asked

    assert function is decide
    assert guards.prove is prove
    assert guards.decide is function
    assert guards.ask is asked
    assert guards.parse("x") is guards.symbol("x")


def test_importing_needs_neither_torch_nor_a_solver() -> None:
    code = (
        "import guards, sys; assert guards.prove('(s + 7)//8*8 >= s') is True; assert not "
        "{'torch', 'sympy', 'z3'} & set(sys.modules), sys.modules.keys() & {'torch', 'sympy', 'z3'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=guards.__path__[0] + "/..")


def test_facts_that_divide_by_what_may_be_zero() -> None:
    # where it is defined, y is at least 1
    assert prove("x // y >= 0", assume=["x % y == 0"]) is True
    assert prove("x // y >= 1", assume=["x % y == 0"]) is None
    assert prove("x // (y - y + 1) == x") is True
    assert prove("y // x == 0", assume=["x == 0"]) is None


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("min(q, p) % p != q", "q == p"),
        ("-1 // p // ceildiv(p, q) <= q * p", "p*p == q"),
        ("p % (p - q) == p*p", "q == 2*p"),
        ("p*p // q != q", "q == 2*p"),
        ("p // (p - q) == p", "p == -q"),
        ("max(p, q) % min(p, q) == min(p, q)", "q == p"),
        ("(p - q) % max(p, q) != max(p, q)", "q == p"),
    ],
)
def test_points_of_a_verdict_divide_by_no_zero(text: str, known: str) -> None:
    # the equation cancels the divisor in the form that Z3 is asked about
    verdict = decide(text, ranges={"p": (-3, 4), "q": (-3, 4)}, assume=[known])
    asked, assumed = parse(text), parse(known)
    values = set()
    for p, q in itertools.product(range(-3, 5), repeat=2):
        with contextlib.suppress(ZeroDivisionError):
            if evaluate(assumed, {"p": p, "q": q}):
                values.add(evaluate(asked, {"p": p, "q": q}))
    assert verdict.value is None or values == {verdict.value}
    for point, value in ((verdict.fails, False), (verdict.holds, True)):
        if point is not None:
            assert evaluate(assumed, point) is True
            assert evaluate(asked, point) is value


def test_threads_may_ask_at_once() -> None:
    questions = [
        f"(x*{k} + y) % {k} == y % {k} and x*x + {k} > 0 and x*y*{k} >= x" for k in range(2, 40)
    ]
    wrong: list[str] = []

    def work() -> None:
        for text in questions:
            if prove(text, ranges={"x": (1, None), "y": (1, None)}) is not True:
                wrong.append(text)
            if (
                prove(
                    f"x*x*y + 1 != 2*x*y + y*y*x + {len(text)}", ranges={"x": (2, 40), "y": (2, 40)}
                )
                is False
            ):
                wrong.append("false")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_random_verdict_is_wrong() -> None:
    rng = random.Random(5)
    settled = 0
    for number in range(1500):
        asked = question(rng)
        try:
            verdict = prove(asked.query, ranges=asked.ranges, assume=asked.assume)
        except (ParseError, Contradiction):
            continue
        assert contradicted(asked, verdict, ask_z3=number % 25 == 0) is None
        settled += verdict is not None
    assert settled > 500


def test_verdicts_do_not_depend_on_history() -> None:
    texts = [f"(x*{k} + y*y) // {k} >= x" for k in range(2, 12)] + [
        "x*x >= y",
        "x*y*y >= x*y",
        "x % y < y",
    ]
    first = [decide(text, ranges={"x": (1, None), "y": (1, None)}).value for text in texts]
    again = [
        decide(text, ranges={"x": (1, None), "y": (1, None)}).value for text in reversed(texts)
    ]
    assert first == again[::-1]
