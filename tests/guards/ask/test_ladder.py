"""The ladder: what each rung settles, its limits, and that no verdict is wrong."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import guards
from guards.ask.ladder import RUNGS, Effort, ask, counters, decide, facts_from, prove, reset_counters
from guards.ask.reading import parse
from guards.deciders.case_split import refutes as refuted_by_cases
from guards.deciders.linear_refutation import refutes
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import eq, ge, le, lt, ne, not_
from guards.terms.extremes import maximum
from guards.terms.fold import evaluate
from tests.oracles import Question, contradicted
from tests.strategies import conditions, question

x, y = symbol("x"), symbol("y")


@pytest.mark.parametrize(
    ("rung", "query", "assumed"),
    [
        ("constant", "x + y == y + x", []),
        ("interval", "x + y >= 2", []),
        ("interval", "x % 8 < 8", []),
        ("interval", "(8*x if x < y else 12*y) != 6", []),
        ("known", "x % 4 == 0", ["x % 8 == 0"]),
        ("rules", "(x*y + x) // (y + 1) == x", []),
        ("linear", "x // 3 + x // 2 <= x", []),
        ("linear", "min(x, y) + max(x, y) == x + y", []),
        ("cases", "x*x % 4 <= 1", []),
        ("points", "x < y", []),
    ],
)
def test_each_rung_settles_its_own(rung: str, query: str, assumed: list[str]) -> None:
    ranges = {"x": (1, None), "y": (1, None)}
    reset_counters()
    verdict = decide(query, ranges=ranges, assume=assumed)
    assert verdict.rung == rung, verdict
    assert set(counters()) == set(RUNGS)
    if rung != "constant":
        assert counters()[rung] == 1


def test_z3_and_sympy_are_the_last_rungs() -> None:
    assert decide("x*x*x*x + y*y*y*y >= 2*x*x*y*y", ranges={"x": (None, None), "y": (None, None)}).rung in (
        "sympy",
        "cases",
    )
    assert prove("x*x + y*y != 3 + 4*z", ranges=dict.fromkeys("xyz", (None, None))) in (True, None)


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


def test_symbols_absent_from_ranges_are_sizes() -> None:
    assert prove("a >= 0") is True
    assert prove("a >= 0", ranges={"b": (1, 2)}) is True
    assert prove("a >= 0", ranges={"a": (None, None)}) is None


def test_only_one_answer() -> None:
    facts = Facts().with_symbol(x, 1)
    assert ask(facts, ge(x, 1), only=True) is True
    assert ask(facts, le(x * 2, x), only=False) is False
    condition = parse("(x + 7) // 8 * 8 >= x")
    assert ask(facts, condition, only=False, effort=Effort.CHEAP) in (None, True)
    assert ask(facts, condition, only=True, effort=Effort.CHEAP) is True
    assert ask(facts, lt(x, 7), only=True) is None
    assert ask(facts, lt(x, 7), only=False) is None


def test_asking_again_is_a_memory() -> None:
    facts = Facts().with_symbol(x, 1)
    condition = parse("x // 3 * 3 + x % 3 == x and x // 2 <= x")
    reset_counters()
    assert ask(facts, condition) is True
    assert ask(facts, condition) is True
    assert counters()["memo"] == 1
    undecided = lt(x, y)
    assert ask(facts, undecided, effort=Effort.CHEAP) is None
    before = counters()["memo"]
    assert ask(facts, undecided, effort=Effort.CHEAP) is None
    assert counters()["memo"] == before + 1


def test_contradictory_facts_answer_nothing() -> None:
    facts = Facts().assume(lt(x, y)).assume(lt(y, x))
    assert facts.contradictory
    assert ask(facts, le(x, 3)) is None
    with pytest.raises(Contradiction) as caught:
        prove("x <= 3", assume=["x < y", "y < x"])
    assert caught.value.conditions == ("x < y", "x > y")


def test_integers_are_no_questions() -> None:
    with pytest.raises(TypeError, match="condition"):
        ask(Facts(), x + 1)
    with pytest.raises(ParseError, match="condition"):
        prove("x + 1")


def test_the_functions_are_public_and_the_modules_importable() -> None:
    from guards import decide as function
    from guards.ask.ladder import ask as asked

    assert function is decide
    assert guards.prove is prove
    assert guards.decide is function
    assert asked is ask
    assert guards.parse("x") is x


def test_importing_needs_neither_torch_nor_a_solver() -> None:
    code = (
        "import guards, sys; assert guards.prove('(s + 7)//8*8 >= s') is True; "
        "assert not {'torch', 'sympy', 'z3'} & set(sys.modules), sys.modules.keys() & {'torch', 'sympy', 'z3'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=guards.__path__[0] + "/..")


def test_facts_that_divide_by_what_may_be_zero() -> None:
    assert prove("x // y >= 0", assume=["x % y == 0"]) in (True, None)
    assert prove("x // (y - y + 1) == x") is True
    assert prove("y // x == 0", assume=["x == 0"]) is None


def test_threads_may_ask_at_once() -> None:
    questions = [f"(x*{k} + y) % {k} == y % {k} and x*x + {k} > 0 and x*y*{k} >= x" for k in range(2, 40)]
    wrong: list[str] = []

    def work() -> None:
        for text in questions:
            if prove(text, ranges={"x": (1, None), "y": (1, None)}) is not True:
                wrong.append(text)
            if prove(f"x*x*y + 1 != 2*x*y + y*y*x + {len(text)}", ranges={"x": (2, 40), "y": (2, 40)}) is False:
                wrong.append("false")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_deep_questions_do_not_break_anything() -> None:
    term = x
    for step in range(400):
        term = maximum(term, y - step) // (y + 2)
    facts = Facts().with_symbol(x, 1).with_symbol(y, 1)
    assert ask(facts, ge(term, 0), effort=Effort.CHEAP) is True
    assert ask(facts, eq(term, 5), effort=Effort.CHEAP) in (None, False)
    assert facts.assume(le(term, 9)).interval(term).hi == 9


def test_large_conjunctions_do_not_break_anything() -> None:
    text = " and ".join(f"s{i} + s{i + 1} >= s{i}" for i in range(300))
    assert prove(text) is True
    many = Facts()
    for i in range(300):
        many = many.assume(le(symbol(f"t{i}"), symbol(f"t{i + 1}")))
    assert not many.contradictory
    assert ask(many, le(symbol("t3"), symbol("t4"))) is True
    assert ask(many, le(symbol("t0"), symbol("t5"))) is True


@settings(max_examples=250, deadline=None)
@given(conditions(), st.sampled_from([(0, None), (1, None), (-3, 6), (None, None)]))
def test_no_verdict_is_wrong(text: str, pair: tuple[int | None, int | None]) -> None:
    asked = Question(text, {"x": pair, "y": pair, "z": pair})
    try:
        parse(text)
    except ParseError:
        return
    verdict = ask(facts_from(asked.ranges), parse(text), effort=Effort.CHEAP)
    assert contradicted(asked, verdict, window=8) is None


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


def test_linear_questions_about_a_box_are_decided_completely() -> None:
    rng = random.Random(5)
    symbols = [symbol(name) for name in "abc"]
    seen = 0
    for _ in range(3_000):
        facts = Facts()
        ranges = []
        for each in symbols:
            low = rng.randint(-3, 4)
            ranges.append(range(low, low + rng.randint(1, 5)))
            facts = facts.with_symbol(each, low, ranges[-1][-1])
        for _ in range(rng.choice((0, 0, 1, 3))):
            facts = facts.assume(rng.choice((ge, le, ne, ne, eq))(rng.choice(symbols), rng.randint(-3, 6)))
        if facts.contradictory:
            continue
        total = sum((rng.choice((-2, -1, 0, 1, 1, 3)) * each for each in symbols), const(rng.randint(-6, 6)))
        asked = rng.choice((le, eq, ne))(total, 0)
        points = [dict(zip("abc", values, strict=True)) for values in itertools.product(*ranges)]
        allowed = [point for point in points if all(evaluate(known, point) for known in facts.conditions)]
        truths = {evaluate(asked, point) for point in allowed}
        if truths:
            seen += 1
            assert ask(facts, asked) is (None if len(truths) == 2 else truths.pop()), (facts, asked)
    assert seen > 2_000


def test_refuting_rungs_agree_with_each_other() -> None:
    facts = facts_from({"x": (1, None), "y": (1, None)}, ["x <= y"])
    component = facts.component(x + y)
    for text in ("x*x <= y*y", "x // 3 <= y // 3", "x*y >= x", "max(x, y) == y"):
        formula = not_(parse(text))
        assert refutes(component, formula) or refuted_by_cases(component, formula), text
        assert not refutes(component, parse(text)), text
        assert not refuted_by_cases(component, parse(text)), text
    assert refuted_by_cases(component, ne((x * x + x) % 2, 0))


def test_verdicts_do_not_depend_on_history() -> None:
    texts = [f"(x*{k} + y*y) // {k} >= x" for k in range(2, 12)] + ["x*x >= y", "x*y*y >= x*y", "x % y < y"]
    first = [decide(text, ranges={"x": (1, None), "y": (1, None)}).value for text in texts]
    again = [decide(text, ranges={"x": (1, None), "y": (1, None)}).value for text in reversed(texts)]
    assert first == again[::-1]


def test_memory_does_not_grow_with_the_number_of_questions() -> None:
    import gc

    from guards.ask.ladder import clear_caches
    from guards.terms.term import interned

    def work(start: int) -> None:
        for number in range(start, start + 1200):
            prove(
                f"(s + {number}) // {number % 50 + 2} * {number % 50 + 2} <= s + {number}",
                ranges={"s": (number % 9, None)},
            )
            facts = Facts().with_symbol(x, 1).assume(le(x, symbol(f"n{number}")))
            ask(facts, le(x, symbol(f"n{number}") + number), effort=Effort.CHEAP)

    work(0)
    clear_caches()
    gc.collect()
    before = interned()
    work(5000)
    clear_caches()
    gc.collect()
    assert interned() <= before + 400
