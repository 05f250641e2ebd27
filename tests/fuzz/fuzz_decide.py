"""Decisions: random facts and questions, and every verdict against Python's own arithmetic and
against Z3 from text.

A verdict True or False is wrong when one point within the ranges and assumptions says otherwise, or
when Z3 proves the opposite.  Two cases in three ask with cheap effort only (no SymPy, no Z3), so
that our own rungs are what is tested.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from guards.asking.assumptions import facts_from
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.asking.reading import parse
from guards.errors import Contradiction, ParseError
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.oracles import contradicted, tried
from tests.strategies import question


def case(rng: random.Random) -> str:
    """One question."""
    asked = question(rng)
    try:
        facts = facts_from(asked.ranges, asked.assume)
        condition = parse(asked.query)
    except Contradiction:
        holds, fails = tried(asked)
        if holds is not None or fails is not None:
            raise Counterexample(
                f"{asked}: called contradictory, but {holds or fails} satisfies it"
            ) from None
        return "contradictory"
    except ParseError:
        return "not readable"
    if not condition.is_bool:
        return "not a condition"
    full = rng.random() < 0.33
    only = rng.choice([None, None, True, False])
    verdict = ask(facts, condition, effort=Effort.FULL if full else Effort.CHEAP, only=only)
    wrong = contradicted(asked, verdict, ask_z3=rng.random() < 0.02)
    if wrong is not None:
        raise Counterexample(f"{wrong} (effort {'FULL' if full else 'CHEAP'}, only={only})")
    interval = facts.interval(condition.args[0]) if condition.op in _RELATIONS else None
    if interval is not None and interval.empty and not facts.contradictory:
        holds, fails = tried(asked)
        if holds is not None or fails is not None:
            raise Counterexample(f"{asked}: the interval of {condition.args[0]} is empty")
    return "proved" if verdict is True else "refuted" if verdict is False else "unknown"


def _relations() -> frozenset[object]:
    from guards.terms.term import Op

    return frozenset((Op.LE, Op.EQ, Op.NE))


_RELATIONS = _relations()


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Run the fuzzer."""
    return run_fuzzer(
        "decide",
        __doc__,
        argv,
        case,
        count=100_000,
        smoke=300,
        must_see=("proved", "refuted", "unknown"),
    )


if __name__ == "__main__":
    raise SystemExit(bool(main().failures))
