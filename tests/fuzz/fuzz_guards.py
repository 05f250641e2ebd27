"""Every public door of ``guards``, asked at random: no exception but its own, no hang, no answer
that a point denies.

A case puts one random question, with ranges and assumptions, to one door: ``prove``, ``decide``,
``simplify``, ``bounds``, ``solve``, facts, the regions of guard sets, certificates, explanations,
trees, storage and printing. What it raises must be a class of ``guards.errors``; it may take five
seconds of the processor; and what it answers must agree with Python's arithmetic on the texts, at
points drawn at random from the ranges and assumptions.
"""

from __future__ import annotations

import json
import pickle
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import guards
from guards.asking.assumptions import facts_from
from guards.asking.caches import clear_caches
from guards.facts.definedness import satisfied
from guards.terms.fold import evaluate
from guards.terms.term import interned
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.oracles import SPACE, Question, Range, code
from tests.strategies import NAMES, assumption, condition, integer, law, range_of_symbol, relation

LONGEST = 5.0
"""Seconds of the processor that a question may take."""
DRAWS = 40
"""Points drawn for a question."""
Point = dict[str, int]


class _TooLong(BaseException):
    """The time of a question is over (no ``Exception``, so that nobody handles it)."""


@contextmanager
def _in_time(what: str) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        yield
    except _TooLong:
        raise Counterexample(f"{what}: longer than {LONGEST:.0f} s") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# -- what is asked ---------------------------------------------------------------------------------


def some_integer(rng: random.Random, names: Sequence[str]) -> str:
    """A random integer expression: sometimes deep, sometimes with huge numbers or rarer
    functions.
    """
    kind = rng.random()
    if kind < 0.7:
        return integer(rng, names, rng.choice([1, 2, 2, 3]))
    a, b = integer(rng, names, 1), integer(rng, names, 1)
    if kind < 0.75:
        return (
            f"{rng.choice(['ceildiv', 'truncdiv', 'truncmod'])}({a}, "
            f"{rng.choice([b, '2', '7', '(-3)'])})"
        )
    if kind < 0.8:
        return f"clamp({a}, {b}, {rng.choice(names)})"
    if kind < 0.85:
        return f"abs({a}) - ({b}) // {rng.choice(names)}"
    if kind < 0.95:
        huge = rng.choice([2**31, 2**53 + 1, 2**63 - 1, 2**64, 10**30])
        return f"({a}) {rng.choice(['+', '*', '//', '%', '-'])} {huge}"
    return integer(rng, names, 4)


def some_condition(rng: random.Random, names: Sequence[str]) -> str:
    """A random condition; now and then of deep or huge parts, or of other conditions."""
    kind = rng.random()
    if kind < 0.6:
        return condition(rng, names)
    if kind < 0.75:
        return (
            f"{some_integer(rng, names)} {rng.choice(['==', '!=', '<', '>='])} "
            f"{some_integer(rng, names)}"
        )
    if kind < 0.8:
        return f"{rng.choice(names)} <= {integer(rng, names, 1)} < {integer(rng, names, 1)}"
    connective = rng.choice(["and", "or"])
    parts = [relation(rng, names, 1) for _ in range(rng.randint(2, 4))]
    text = f" {connective} ".join(f"({part})" for part in parts)
    return text if kind < 0.9 else f"not ({text}) or ({law(rng, names)})"


def asked(rng: random.Random) -> Question:
    """A random question; its assumptions are as odd as its query."""
    names = NAMES[: rng.randint(1, 3)]
    ranges = {name: range_of_symbol(rng) for name in names if rng.random() < 0.9}
    if rng.random() < 0.05:
        ranges[rng.choice(names)] = rng.choice(
            [(2**62, None), (None, -(2**40)), (0, 2**63), (3, 3), (None, 0)]
        )
    makers = (assumption, assumption, law, some_condition)
    assume = tuple(rng.choice(makers)(rng, names) for _ in range(rng.choice([0, 0, 1, 1, 2, 3])))
    return Question.about(some_condition(rng, names), ranges, assume)


# -- what is known of it ---------------------------------------------------------------------------


def _draw(rng: random.Random, pair: Range) -> int:
    low, high = pair
    if low is None:
        low = -8 if high is None else high - 12
    return rng.randint(low, low + 12 if high is None else min(high, low + 12))


def drawn(rng: random.Random, question: Question, *more: str) -> Iterator[tuple[Point, list[Any]]]:
    """Points that the ranges and assumptions allow, each with the values of some texts; none that
    divides by zero.
    """
    wanted = [code(text) for text in more]
    assumed = [code(text) for text in question.assume]
    for _ in range(DRAWS):
        point = {name: _draw(rng, question.ranges.get(name, (0, None))) for name in NAMES}
        try:
            if all(eval(text, SPACE, dict(point)) for text in assumed):
                yield point, [eval(text, SPACE, dict(point)) for text in wanted]
        except ZeroDivisionError:
            continue


def _value(term: guards.Term, point: Mapping[str, int]) -> Any:
    """The value of a term at a point; None where it is undefined."""
    try:
        return evaluate(term, point)
    except ZeroDivisionError:
        return None


def _deny(question: Question, what: str, point: Point) -> None:
    raise Counterexample(f"{question}\n{what}, but see {point}")


# -- the doors -------------------------------------------------------------------------------------


def proving(rng: random.Random, question: Question) -> str:
    verdict = guards.prove(question.query, ranges=question.ranges, assume=question.assume)
    if verdict is not None:
        for point, (truth,) in drawn(rng, question, question.query):
            if bool(truth) is not verdict:
                _deny(question, f"it is {verdict}", point)
    return "unknown" if verdict is None else "settled"


def deciding(rng: random.Random, question: Question) -> str:
    verdict = guards.decide(question.query, ranges=question.ranges, assume=question.assume)
    if verdict.value is not None:
        for point, (truth,) in drawn(rng, question, question.query):
            if bool(truth) is not verdict.value:
                _deny(question, f"decide says {verdict}", point)
    for wanted, point in ((True, verdict.holds), (False, verdict.fails)):
        if point is None:
            continue
        try:
            truth = bool(eval(code(question.query), SPACE, {**dict.fromkeys(NAMES, 0), **point}))
            assumed = all(
                eval(code(text), SPACE, {**dict.fromkeys(NAMES, 0), **point})
                for text in question.assume
            )
        except ZeroDivisionError:
            continue
        inside = all(
            _within(point[name], pair) for name, pair in question.ranges.items() if name in point
        )
        if truth is not wanted or not inside or (not assumed and set(point) >= set(NAMES)):
            _deny(question, f"decide says that it is {wanted} there", point)
    return "unknown" if verdict.value is None else "settled"


def _within(value: int, pair: Range) -> bool:
    return (pair[0] is None or value >= pair[0]) and (pair[1] is None or value <= pair[1])


def simplifying(rng: random.Random, question: Question) -> str:
    text = question.query if rng.random() < 0.5 else some_integer(rng, NAMES)
    facts = facts_from(question.ranges, question.assume)
    term = guards.parse(text)
    made = guards.simplify(term, facts)
    for point, (value,) in drawn(rng, question, text):
        got = _value(made, point)
        if got is not None and got != value and _value(term, point) is not None:
            _deny(question, f"simplify({text!r}) is {made}", point)
    return "simplified" if made is not term else "simplified to itself"


def bounding(rng: random.Random, question: Question) -> str:
    text = some_integer(rng, NAMES)
    low, high = guards.bounds(text, ranges=question.ranges, assume=question.assume)
    for point, (value,) in drawn(rng, question, text):
        least = None if low is None else _value(low, point)
        most = None if high is None else _value(high, point)
        if (least is not None and least > value) or (most is not None and most < value):
            _deny(question, f"bounds({text!r}) are {low} and {high}", point)
    return "bounded" if low is not None or high is not None else "no bounds"


def solving(rng: random.Random, question: Question) -> str:
    facts = facts_from(question.ranges, question.assume)
    name = rng.choice(NAMES)
    found = guards.solve(question.query, name, facts)
    # with the divisors that a term folds away
    asked = [guard.term for guard in guards.GuardSet(question.query)]
    for point, _ in drawn(rng, question):
        if all(satisfied(each, point) for each in asked) is not satisfied(found, point):
            _deny(question, f"solved for {name}: {found}", point)
    return "solved"


def knowing(rng: random.Random, question: Question) -> str:
    facts = facts_from(question.ranges, question.assume)
    term = guards.parse(some_integer(rng, NAMES))
    interval, canonical = facts.interval(term), facts.canonical(term)
    guards.ask(
        facts,
        guards.parse(question.query)
        if guards.parse(question.query).is_bool
        else guards.parse("x > 0"),
    )
    for point, _ in drawn(rng, question):
        value, same = _value(term, point), _value(canonical, point)
        if value is not None and (value not in interval or same not in (None, value)):
            _deny(question, f"{term} is in {interval} and canonically {canonical}", point)
    return "known"


def read_set(question: Question, *texts: str) -> guards.GuardSet:
    """The guard set of the question's ranges and some texts."""
    return guards.GuardSet.read(*texts, ranges=question.ranges)


def regions(rng: random.Random, question: Question) -> str:
    first = read_set(question, question.query)
    second = read_set(question, *question.assume)
    name = rng.choice(NAMES)
    satisfiable, shadow, small = first.is_satisfiable(), first.project(name), second.minimise()
    implied, disjoint, less = (
        first.implies(second),
        first.disjoint(second),
        first.difference(second),
    )
    certificate = guards.certify(second, [first])
    for point in _points(rng, question):
        in_first, in_second = first.holds(point), second.holds(point)
        wrong = {
            "is_satisfiable": in_first and satisfiable is False,
            f"project({name}): {shadow}": in_first and not shadow.guard_set.holds(point),
            "minimise": small.holds(point) is not in_second,
            "implies": implied is True and in_first and not in_second,
            "disjoint": disjoint is True and in_first and in_second,
            "difference": less.holds(point) is not (in_first and not in_second),
            "certify": certificate.covered is True and in_second and not in_first,
        }
        for what, is_wrong in wrong.items():
            if is_wrong:
                _deny(question, f"{what} of GuardSet.read(query) and GuardSet.read(*assume)", point)
    missed = certificate.counterexample
    if missed is not None and (not second.holds({**dict.fromkeys(NAMES, 0), **missed})):
        _deny(question, "certify's counterexample is outside the contract", dict(missed))
    return "regions"


def _points(rng: random.Random, question: Question) -> Iterator[Point]:
    """Points that the ranges allow, whatever the assumptions say."""
    for _ in range(DRAWS):
        yield {name: _draw(rng, question.ranges.get(name, (0, None))) for name in NAMES}


def sampling(rng: random.Random, question: Question) -> str:
    whole = read_set(question, question.query, *question.assume)
    for point in whole.sample(3, seed=rng.randrange(9)):
        if not whole.holds(point):
            _deny(question, "a sample is outside the set", point)
    core, free = whole.core(), whole.negate()
    for point in _points(rng, question):
        if whole.holds(point) and (core is not None or free.holds(point)):
            _deny(question, f"core {core}, negation {free}", point)
    return "sampled" if core is None else "contradictory set"


def explaining(rng: random.Random, question: Question) -> str:
    first, second = read_set(question, question.query), read_set(question, *question.assume)
    for point in list(_points(rng, question))[:2]:
        told = guards.explain(first, {**point, **dict.fromkeys(set(first.symbols) - set(point), 0)})
        if (told is None) is not first.holds(point):
            _deny(question, f"explain says {told}", point)
        if (
            told is not None
            and told.nearest is not None
            and not first.holds({**point, **told.nearest.values})
        ):
            _deny(question, f"the nearest passing input is not one: {told}", point)
    apart = guards.distinguish(first, second)
    if apart.only_first is not None and not first.holds(
        {**dict.fromkeys(NAMES, 0), **apart.only_first}
    ):
        _deny(question, f"distinguish: {apart}", dict(apart.only_first))
    conflict = guards.explain_conflict(first, second)
    for point in _points(rng, question):
        if conflict is not None and first.holds(point) and second.holds(point):
            _deny(question, f"conflict: {conflict}", point)
    return "explained"


def dispatching(rng: random.Random, question: Question) -> str:
    sets = [
        read_set(question, text)
        for text in (question.query, *question.assume, some_condition(rng, NAMES))
    ]
    tree: guards.Tree[int] = guards.Tree(NAMES)
    for index, each in enumerate(sets):
        tree.insert(each, index)
    check = guards.compile_check(sets[0], NAMES).check
    for point in _points(rng, question):
        values = tuple(point[name] for name in NAMES)
        wanted = next((i for i, each in enumerate(sets) if each.holds(point)), None)
        if tree.lookup(values) != wanted or check(values) is not sets[0].holds(point):
            _deny(
                question,
                f"the tree answers {tree.lookup(values)}, not {wanted}; the check {check(values)}",
                point,
            )
        if wanted is None:
            guards.explain_miss(tree.miss(values))
            break
    return "dispatched"


def writing(rng: random.Random, question: Question) -> str:
    whole = read_set(question, question.query, *question.assume)
    again = guards.from_json(guards.to_json(whole))
    if again != whole or pickle.loads(pickle.dumps(whole)) != whole:
        raise Counterexample(f"{question}: stored and read again it is {again}")
    for guard in whole.guards:
        guards.latex(guard.term)
        guards.smtlib(guard.term)
        json.dumps(str(guard.term))
        back = guards.parse(str(guard.term))
        for point in _points(rng, question):
            values = _value(guard.term, point), _value(back, point)
            if values[0] is not values[1] and None not in values:
                _deny(question, f"{guard.term!s} is read back as {back}", point)
    return "written"


DOORS: Mapping[Callable[[random.Random, Question], str], int] = {
    proving: 8,
    deciding: 4,
    simplifying: 4,
    bounding: 3,
    solving: 4,
    knowing: 3,
    regions: 1,
    sampling: 1,
    explaining: 1,
    dispatching: 2,
    writing: 3,
}
_DOORS, _WEIGHTS = list(DOORS), list(DOORS.values())


def case(rng: random.Random) -> str:
    """One question to one door."""
    question = asked(rng)
    door = rng.choices(_DOORS, _WEIGHTS)[0]
    if interned() > 200_000:
        clear_caches()
    try:
        with _in_time(f"{question}\n{door.__name__}"):
            return door(rng, question)
    except guards.GuardsError as error:
        return f"refused: {type(error).__name__}"
    except Counterexample:
        raise
    except Exception as error:
        error.add_note(f"{door.__name__}: {question}")
        raise


def kind_of(error: Exception) -> str:
    """What a failure is about, in a few words: the exception and where it came from, or what was
    contradicted.
    """
    if isinstance(error, Counterexample):
        return " ".join(str(error).splitlines()[-1].split()[:3])
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {frames[-1].name}" if frames else type(error).__name__


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer."""
    parser = fuzz_parser(__doc__, count=100_000, smoke=400)
    parser.add_argument(
        "--go-on", action="store_true", help="count failures by kind, one of each shown, and go on"
    )
    args = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}

    def tried(rng: random.Random) -> str:
        try:
            return case(rng)
        except Exception as error:
            if not args.go_on:
                raise
            kind = kind_of(error)
            counts[f"times {kind}"] += 1
            examples.setdefault(
                kind, f"\nFAILED {kind}\n{''.join(traceback.format_exception(error))}"
            )
            return "failed"

    seen = (
        "unknown",
        "settled",
        "simplified",
        "bounded",
        "solved",
        "known",
        "regions",
        "sampled",
        "explained",
    )
    outcome = fuzz("guards", tried, args, must_see=(*seen, "dispatched", "written"), counts=counts)
    outcome.failures += examples.values()
    return outcome


if __name__ == "__main__":
    raise SystemExit(bool(main().failures))
