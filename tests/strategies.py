"""Generators of integer expressions, conditions and questions: plain random ones, and Hypothesis
strategies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.fold import evaluate
from guards.terms.term import Term
from tests.oracles import Question, Range

NAMES = ("x", "y", "z")
CONSTANTS = ("1", "2", "3", "4", "5", "6", "7", "8", "12", "16")


def _pick(rng: random.Random, names: Sequence[str]) -> str:
    return rng.choice(names)


def integer(rng: random.Random, names: Sequence[str] = NAMES, depth: int = 2) -> str:
    """The text of a random integer expression."""
    if depth <= 0 or rng.random() < 0.2:
        return _pick(rng, names) if rng.random() < 0.8 else str(rng.randint(-4, 9))
    kind = rng.randrange(15)
    a = integer(rng, names, depth - 1)
    if kind < 3:
        return f"({a} + {integer(rng, names, depth - 1)})"
    if kind < 5:
        return f"({a} - {integer(rng, names, depth - 1)})"
    if kind == 5:
        return f"{rng.choice(CONSTANTS)}*({a})"
    if kind == 6:
        return f"({a})*({integer(rng, names, depth - 1)})"
    if kind < 9:
        return f"({a})//{_divisor(rng, names)}"
    if kind < 11:
        return f"({a})%{_divisor(rng, names)}"
    if kind < 13:
        return f"{rng.choice(['min', 'max'])}({a}, {integer(rng, names, depth - 1)})"
    if kind == 13:
        return f"({a} if {relation(rng, names, 1)} else {integer(rng, names, depth - 1)})"
    return f"({a} + {rng.randint(-8, 8)})"


def _divisor(rng: random.Random, names: Sequence[str]) -> str:
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(CONSTANTS)
    if kind < 0.65:
        return f"(-{rng.choice(CONSTANTS)})"
    if kind < 0.9:
        return _pick(rng, names)
    return f"({integer(rng, names, 1)})"


def relation(rng: random.Random, names: Sequence[str] = NAMES, depth: int = 2) -> str:
    """The text of a random comparison."""
    left = integer(rng, names, depth)
    right = integer(rng, names, depth - 1) if rng.random() < 0.6 else str(rng.randint(-3, 20))
    return f"{left} {rng.choice(['==', '<=', '<', '>=', '>', '!='])} {right}"


_LAWS = (
    "({a} // {d}) * {d} <= {a}",
    "(({a} + {d} - 1) // {d}) * {d} >= {a}",
    "{a} % {d} < {d}",
    "{a} % {d} == {a} - {d} * ({a} // {d})",
    "({a} + {b} * {d}) // {d} == {a} // {d} + {b}",
    "({a} + {b} * {d}) % {d} == {a} % {d}",
    "({a} // {d}) // {e} == {a} // ({d} * {e})",
    "min({a}, {b}) + max({a}, {b}) == {a} + {b}",
    "min({a} + {b}, {a} + {c}) == {a} + min({b}, {c})",
    "max({a}, {b}) >= {a}",
    "{a} // {d} <= {a}",
    "{a} * {b} >= {a}",
    "{a} * {b} + 1 >= {a} + {b}",
    "({a} * {d}) % {d} == 0",
    "({a} * {b} + {a}) // ({b} + 1) == {a}",
    "({d} * {a} + {b}) // ({d} * {e}) == {a} // {e}",
    "({a} % ({d} * {e})) // {d} == ({a} // {d}) % {e}",
    "{a} // {d} <= {b} // {d}",
    "{a} * {a} >= {a}",
    "({a} if {a} <= {b} else {b}) == min({a}, {b})",
    "{a} % ({d} * {e}) % {d} == {a} % {d}",
    "{a} // {d} + ({a} + 1) // {d} <= 2 * {a}",
)


def law(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """The text of a condition that often (not always) holds: these lead deciders into their
    corners.
    """
    atoms = {key: integer(rng, names, rng.choice([0, 0, 0, 1])) for key in "abc"}
    atoms["d"] = _divisor(rng, names)
    atoms["e"] = _divisor(rng, names)
    text = rng.choice(_LAWS).format(**atoms)
    if rng.random() < 0.2:  # bend it
        text = text.replace(
            rng.choice(["<=", ">=", "==", "//", "%", "+"]),
            rng.choice(["<=", ">=", "==", "//", "%", "+"]),
            1,
        )
    return text


def condition(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """The text of a random condition."""
    kind = rng.random()
    if kind < 0.45:
        return law(rng, names)
    if kind < 0.85:
        return relation(rng, names)
    if kind < 0.93:
        return (
            f"({relation(rng, names, 1)}) {rng.choice(['and', 'or'])} ({relation(rng, names, 1)})"
        )
    return f"not ({relation(rng, names, 1)})"


def assumption(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """The text of a condition as programs and people assume them."""
    a, b = rng.choice(names), rng.choice(names)
    kind = rng.randrange(12)
    if kind < 2:
        return f"{a} % {rng.choice(CONSTANTS)} == {rng.choice(['0', '0', '0', '1', '2'])}"
    if kind == 2:
        return f"{a} == {b}{rng.choice(['', ' + 1', ' - 2', '*2', ' // 2'])}"
    if kind == 3:
        return (
            f"{a} {rng.choice(['<', '<=', '>=', '>'])} "
            f"{b}{rng.choice(['', ' + 3', ' * 2', ' - 1'])}"
        )
    if kind == 4:
        return f"{a} != {rng.choice([b, '0', '1'])}"
    if kind == 5:
        return (
            f"{a} // {rng.choice(CONSTANTS)} {rng.choice(['==', '<=', '>='])} "
            f"{rng.choice([b, '2', '3'])}"
        )
    if kind == 6:
        return f"{a} % {b} == 0"
    if kind == 7:
        return f"({a} + {b}) % {rng.choice(CONSTANTS)} == 0"
    if kind == 8:
        return (
            f"{a} * {b} {rng.choice(['==', '<=', '>='])} "
            f"{rng.choice([rng.choice(names), '12', '16'])}"
        )
    if kind == 9:
        return f"max({a}, {b}) <= {rng.choice([rng.choice(names), '9'])}"
    if kind == 10:
        return f"{a} == {rng.randint(0, 6)} or {a} == {b}"
    return relation(rng, names, 1)


def range_of_symbol(rng: random.Random) -> Range:
    """A random range; mostly those of sizes."""
    kind = rng.randrange(10)
    if kind < 2:
        return (0, None)
    if kind < 5:
        return (1, None)
    if kind == 5:
        return (2, None)
    if kind == 6:
        return (None, None)
    if kind == 7:
        return (-rng.randint(0, 6), rng.choice([None, rng.randint(0, 7)]))
    lo = rng.randint(0, 3)
    return (lo, lo + rng.randint(0, 8))


def term_under_facts(rng: random.Random) -> tuple[Term, Facts] | None:
    """A random term and facts; None where the text is refused or the facts contradict
    themselves.
    """
    names = NAMES[: rng.randint(1, 3)]
    ranges = {name: range_of_symbol(rng) for name in names}
    try:
        term = parse(condition(rng, names) if rng.random() < 0.5 else integer(rng, names, 3))
        return term, facts_from(ranges, [assumption(rng, names) for _ in range(rng.randint(0, 2))])
    except (ParseError, Contradiction):
        return None


def values_differ(
    rng: random.Random, term: Term, made: Term, facts: Facts, points: int = 25
) -> Iterator[bool]:
    """Whether two terms differ, at random points that the facts allow and where both are
    defined.
    """
    symbols = facts.symbols | term.symbols
    for _ in range(points):
        point = {
            symbol.name: rng.randint(-6, 14)
            for symbol in sorted(symbols, key=lambda each: each.order)
        }
        if any(point[symbol.name] not in facts.declared(symbol) for symbol in symbols):
            continue
        try:
            if all(evaluate(known, point) for known in facts.conditions):
                yield evaluate(made, point) != evaluate(term, point)
        except ZeroDivisionError:
            continue


def question(rng: random.Random, names: Sequence[str] = NAMES) -> Question:
    """A random question."""
    used = names[: rng.randint(1, len(names))]
    ranges = {name: range_of_symbol(rng) for name in used if rng.random() < 0.9}
    assumed = tuple(assumption(rng, used) for _ in range(rng.choice([0, 0, 0, 1, 1, 2])))
    return Question.about(condition(rng, used), ranges, assumed)


def questions() -> st.SearchStrategy[Question]:
    """Questions for Hypothesis (it shrinks the seed; the fuzzer prints reproducers)."""
    return st.integers(0, 2**48).map(lambda seed: question(random.Random(seed)))


def integers(names: Sequence[str] = NAMES) -> st.SearchStrategy[str]:
    """Texts of integer expressions that Hypothesis can shrink."""
    leaf = st.sampled_from(names) | st.integers(-9, 20).map(lambda value: f"({value})")
    divisor = (
        st.sampled_from(CONSTANTS) | st.sampled_from(names) | st.sampled_from(["(-2)", "(-3)"])
    )

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            st.tuples(inner, st.sampled_from(["//", "%"]), divisor).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
                lambda t: f"{t[0]}({t[1]}, {t[2]})"
            ),
            st.tuples(inner, inner, inner).map(
                lambda t: f"({t[0]} if {t[1]} <= {t[2]} else {t[1]})"
            ),
        )

    return st.recursive(leaf, extend, max_leaves=6)


def conditions(names: Sequence[str] = NAMES) -> st.SearchStrategy[str]:
    """Texts of conditions that Hypothesis can shrink."""
    relations = st.tuples(
        integers(names), st.sampled_from(["==", "!=", "<=", "<", ">=", ">"]), integers(names)
    ).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    return relations | st.tuples(relations, st.sampled_from(["and", "or"]), relations).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    )
