"""Emptying the caches: memory does not grow, and answers stay the same."""

from __future__ import annotations

from guards.asking.assumptions import facts_from
from guards.asking.caches import clear_caches
from guards.asking.ladder import Effort
from guards.asking.queries import prove
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms.arithmetic import symbol
from guards.terms.boolean import ge, le

x = symbol("x")


def test_everything_is_made_anew() -> None:
    kept = facts_from({"s": (3, 9)}, ["s % 2 == 0"])
    assert facts_from({"s": (3, 9)}, ["s % 2 == 0"]) is kept
    clear_caches()
    made = facts_from({"s": (3, 9)}, ["s % 2 == 0"])
    assert made is not kept
    assert made == kept


def test_facts_that_somebody_holds_keep_their_answers() -> None:
    facts = Facts().with_symbol(x, 3)
    assert ask(facts, ge(x, 3)) is True
    clear_caches()
    assert ge(x, 3) in facts._answers
    assert ask(facts, ge(x, 3)) is True
    assert symbol("x") is x


def test_memory_does_not_grow_with_the_number_of_questions() -> None:
    import gc

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
