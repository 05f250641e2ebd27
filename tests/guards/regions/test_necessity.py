"""What is shown to be needed is needed: Z3 never proves it from the others, and no set comes out
otherwise.
"""

from __future__ import annotations

import random

import pytest

from guards.errors import ParseError
from guards.regions import minimising
from guards.regions.minimising import needed
from guards.regions.necessity import shown
from guards.regions.satisfiability import facts_of
from guards.sets.guard_set import GuardSet
from guards.terms.term import Term
from tests.oracles import Question, by_z3, vacuous
from tests.strategies import assumption, range_of_symbol

NAMES = ("x", "y", "z", "w")


def _random(rng: random.Random) -> GuardSet | None:
    texts = [assumption(rng, NAMES) for _ in range(rng.randint(2, 6))]
    try:
        return GuardSet.read(*texts, ranges={name: range_of_symbol(rng) for name in NAMES})
    except (ParseError, TypeError):
        return None


def _shown(guards: GuardSet) -> set[int]:
    conditions = guards._terms()
    facts = facts_of(guards.ranges)
    for condition in conditions:
        facts = facts.assume(condition)
    if facts.contradictory:
        return set()
    return shown(facts, range(len(conditions)), conditions, [], guards.ranges)


@pytest.mark.slow
def test_what_is_shown_to_be_needed_is_not_implied() -> None:
    rng = random.Random(12)
    found = 0
    for _ in range(250):
        guards = _random(rng)
        if guards is None:
            continue
        texts = [str(condition) for condition in guards._terms()]
        for index in _shown(guards):
            others = tuple(text for position, text in enumerate(texts) if position != index)
            ranges = {name: (limits[0], limits[1]) for name, limits in guards.ranges.items()}
            question = Question(texts[index], ranges, others)
            assert by_z3(question, 200_000) is not True or vacuous(question, 200_000), (
                texts,
                index,
            )
            found += 1
    assert found > 150, found


def test_minimised_sets_are_those_that_proofs_alone_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(31)
    sets = [made for made in (_random(rng) for _ in range(80)) if made is not None]
    with_points = [needed(each._terms(), each.ranges) for each in sets]
    monkeypatch.setattr(minimising, "shown", lambda *_: set())
    proofs = [needed(each._terms(), each.ranges) for each in sets]
    differing = [
        pair for pair in zip(with_points, proofs, strict=True) if len(pair[0]) > len(pair[1])
    ]
    assert not differing, differing


def test_the_equations_of_a_cache_need_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As decoding with a cache leaves them: each layer's sizes are the first one's."""
    layers = range(1, 30)
    texts = [f"s{4 * i} == s0" for i in layers] + [f"s{4 * i + 1} == 2" for i in layers]
    texts += [f"s{4 * i + 2} == s{4 * i + 6}" for i in layers]
    guards = GuardSet.read(*texts)

    def refuse(*_: object) -> list[int]:
        raise AssertionError("a solver was asked")

    monkeypatch.setattr(minimising, "_together", refuse)
    monkeypatch.setattr(minimising, "ask", _only_cheap(minimising.ask))
    assert len(guards.minimise()) == len(texts)


def _only_cheap(ask: object) -> object:
    def cheap(*arguments: object, effort: int = 1, **others: object) -> object:
        assert effort == 0, "the whole ladder was asked"
        return ask(*arguments, effort=effort, **others)  # type: ignore[operator]

    return cheap


def test_what_others_imply_is_not_shown() -> None:
    guards = GuardSet.read("x >= 3", "x + y >= 2", "x == z", "z >= 1")
    conditions: tuple[Term, ...] = guards._terms()
    assert _shown(guards) <= {0, 2}
    assert {str(conditions[index]) for index in _shown(guards)} == {"x >= 3", "x == z"}
