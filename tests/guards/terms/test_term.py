"""Terms: identity, order, depth, memory; random ones keep their value."""

from __future__ import annotations

import gc
import pickle
import random
import threading

import pytest

from guards.asking.reading import parse
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import le, not_
from guards.terms.extremes import maximum
from guards.terms.fold import evaluate
from guards.terms.term import Op, Term, children, interned, postorder
from tests.oracles import SPACE, code
from tests.strategies import condition, integer

x, y, z = symbol("x"), symbol("y"), symbol("z")


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


def test_the_order_of_symbols_counts_numbers() -> None:
    names = ["s10", "s2", "s1", "u0", "a"]
    assert [s.name for s in sorted(map(symbol, names), key=lambda s: s.order)] == [
        "a",
        "s1",
        "s2",
        "s10",
        "u0",
    ]


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


@pytest.mark.slow
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


def test_postorder_gives_operands_first_and_each_part_once() -> None:
    rng = random.Random(13)
    for _ in range(200):
        try:
            term = parse(condition(rng))
        except ValueError:
            continue
        seen: set[Term] = set()
        for part in postorder(term):
            assert part not in seen
            assert all(child in seen for child in children(part))
            seen.add(part)
        assert term in seen
        assert {part for part in seen if part.op is Op.SYMBOL} == term.symbols
        assert max(part.depth for part in seen) == term.depth
        assert not list(postorder(term, lambda part: True))
