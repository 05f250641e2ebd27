"""Terms: canonical form, identity, depth, memory."""

from __future__ import annotations

import gc
import pickle
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.ask.reading import parse
from guards.terms import arithmetic, boolean, division
from guards.terms.arithmetic import add, symbol
from guards.terms.boolean import FALSE, TRUE, eq, ge, gt, le, lt, ne, not_
from guards.terms.division import mod
from guards.terms.extremes import maximum, minimum
from guards.terms.fold import evaluate
from guards.terms.term import Op, Term, interned
from tests.oracles import SPACE, code
from tests.strategies import condition, conditions, integer, integers

x, y, z = symbol("x"), symbol("y"), symbol("z")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + y", "y + x"),
        ("(x + 1)*(x - 1)", "x*x - 1"),
        ("2*x + 2*y <= 5", "x + y <= 2"),
        ("x < y", "y >= x + 1"),
        ("x == y", "y - x == 0"),
        ("not (x <= y)", "y < x"),
        ("(x // 2) // 3", "x // 6"),
        ("(x // 2 + 1) // 3", "(x + 2) // 6"),
        ("x % 12 % 4", "x % 4"),
        ("(8*x + 5) // 8", "x"),
        ("(6*x) // 4", "(3*x) // 2"),
        ("(2*x*y) // (4*y)", "x // 2"),
        ("(x*y) % (x*z)", "x*(y % z)"),
        ("min(x, y, min(z, x))", "min(z, y, x)"),
        ("max(x + z, y + z)", "max(x, y) + z"),
        ("min(-x, -y)", "-max(x, y)"),
        ("max(2*x + 2, 2*y + 2)", "2*max(x, y) + 2"),
        ("min(x, x + 3)", "x"),
        ("min(x + 3, 8)", "min(x, 5) + 3"),
        ("x % -5", "-((-x) % 5)"),
        ("x // -3", "(-x) // 3"),
        ("x < 3 and x < 3", "x < 3"),
        ("x if 1 < 2 else y", "x"),
        ("x == 1 and not (x == 1)", "False"),
        ("x == 1 or x != 1", "True"),
        ("2*x == 2*y + 1", "False"),
    ],
)
def test_equal_terms_are_one_object(one: str, other: str) -> None:
    assert parse(one) is parse(other)


@settings(max_examples=300, deadline=None)
@given(integers(), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_constructors_keep_the_value_of_integers(text: str, a: int, b: int, c: int) -> None:
    point = {"x": a, "y": b, "z": c}
    try:
        wanted = eval(code(text), SPACE, point)
        term = parse(text)
    except (ZeroDivisionError, ValueError):
        return
    assert evaluate(term, point) == wanted


@settings(max_examples=300, deadline=None)
@given(conditions(), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_constructors_keep_the_value_of_conditions(text: str, a: int, b: int, c: int) -> None:
    point = {"x": a, "y": b, "z": c}
    try:
        wanted = bool(eval(code(text), SPACE, point))
        term = parse(text)
        found = evaluate(term, point)
    except (ZeroDivisionError, ValueError):
        return
    assert found is wanted
    assert evaluate(not_(term), point) is not wanted


def test_many_random_terms_keep_their_value() -> None:
    rng = random.Random(7)
    compared = 0
    for _ in range(4000):
        text = condition(rng) if rng.random() < 0.5 else integer(rng, depth=3)
        try:
            term = parse(text)
        except ValueError:
            continue
        wanted = code(text)
        for _ in range(4):
            point = {name: rng.randint(-12, 30) for name in ("x", "y", "z")}
            try:
                expected = eval(wanted, SPACE, point)
            except ZeroDivisionError:
                continue
            assert evaluate(term, point) == expected, (text, point)
            compared += 1
    assert compared > 8000


def test_operators_and_python_integers() -> None:
    assert 1 + x is x + 1
    assert x - x is arithmetic.ZERO
    assert 3 - x is arithmetic.sub(3, x)
    assert 2 * x is x * 2
    assert -x is arithmetic.mul(-1, x)
    assert x // 2 is division.floordiv(x, 2)
    assert 7 // x is division.floordiv(7, x)
    assert x % 2 is mod(x, 2)
    assert 7 % x is mod(7, x)
    assert add(x, True) is x + 1


def test_relations_round_towards_the_integers() -> None:
    assert le(3 * x, 7) is le(x, 2)
    assert ge(3 * x, 7) is ge(x, 3)
    assert lt(2 * x, 5) is le(x, 2)
    assert gt(2 * x, 5) is ge(x, 3)
    assert eq(4 * x, 6) is FALSE
    assert ne(4 * x, 6) is TRUE


def test_kinds_are_kept_apart() -> None:
    with pytest.raises(TypeError, match="integer term"):
        add(x, le(x, y))
    with pytest.raises(TypeError, match="condition is needed"):
        not_(x)
    with pytest.raises(TypeError, match=r"integer term|Term, int"):  # the second is what a compiled module says
        add(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"condition is needed|Term, bool"):
        boolean.and_(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="identifier"):
        symbol("not a name")
    with pytest.raises(ValueError, match="operand"):
        minimum()
    with pytest.raises(ZeroDivisionError):
        x // 0
    with pytest.raises(ZeroDivisionError):
        mod(x, 0)


def test_the_order_of_symbols_counts_numbers() -> None:
    names = ["s10", "s2", "s1", "u0", "a"]
    assert [s.name for s in sorted(map(symbol, names), key=lambda s: s.order)] == ["a", "s1", "s2", "s10", "u0"]


def test_a_deep_term_is_safe() -> None:
    term = x
    for step in range(3000):
        term = maximum((term + step) // (y + 1), z - step)
    assert term.depth > 3000
    assert term.symbols == {x, y, z}
    assert term is maximum(term, term)
    again = term + 1
    assert again - 1 is term
    condition = le(term, 5)
    assert not_(not_(condition)) is condition
    both = boolean.and_(condition, le(term + y, 7))
    assert both.op is Op.AND
    assert evaluate(both, {"x": 1, "y": 2, "z": 3}) in (True, False)


def test_shared_parts_do_not_blow_up() -> None:
    term = x
    for _ in range(300):
        term = boolean.ite(le(term, y), term % 7 + 1, term // 2)
    assert evaluate(term, {"x": 5, "y": 3}) >= 0
    assert not_(not_(le(term, 1))) is le(term, 1)


def test_terms_are_forgotten() -> None:
    def make() -> None:
        for number in range(20_000):
            assert (x + number) // (y + number) is not None

    make()
    boolean.release()
    gc.collect()
    before = interned()
    make()
    boolean.release()
    gc.collect()
    assert interned() <= before + 100


def test_pickling_keeps_identity() -> None:
    term = parse("(x + 7) // 8 * 8 >= max(x, y) and x % 3 == 1")
    assert pickle.loads(pickle.dumps(term)) is term


def test_threads_agree_on_identity() -> None:
    made: list[list[Term]] = []

    def work() -> None:
        made.append([(x + n) // (y + n % 7) for n in range(3000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in made[1:] for a, b in zip(made[0], other, strict=True))
