"""Decisions that real traces ask for, asked again: ours, PyTorch's ShapeEnv and JAX's symbolic
dimensions in one run.

The questions are recorded while symshape traces the models of the main job with every dimension
dynamic.  A decision starts from two sizes that exist already and ends with the truth of their
relation; where it is left open and a branch of the program depends on it, what it adds to the facts
is part of it.  Every round asks each stream about symbols that nobody has seen, so what a system
remembers helps it within a stream and not between rounds.  Everybody runs in one thread, whose CPU
time is taken: a decision is too short to be measured by a clock that other processes can stop.

- *guards*: `ask`, and `Facts.assume` where the answer was open.
- *symshape ShapeEnv*: the same with hints, recorded guards and their origins, as a trace does it.
- *torch ShapeEnv*: `SymNode.guard_bool` where a branch depends on it, else `statically_known_true`;
  nothing is specialised.
- *JAX*: the comparison, in a scope made beforehand that knows the facts of that moment, sizes from
  1 up (JAX knows no others). *guards, sizes from 1* has the same facts, made beforehand too.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import thread_time_ns
from types import CodeType
from typing import Any

import attrs
import torch

from guards.asking.ladder import RUNGS
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.sets.sources import IntArg, Size
from guards.terms import boolean, division, extremes
from guards.terms.printing import text
from symshape.dims import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from tests.bench.peers import Jax, Prepared, Torch, Unsupported, calls
from tests.bench.recorded import Asked, Assumed, Declared, Stream, record
from tests.bench.report import NotHere, Report, bench_parser
from tests.bench.timing import Timing
from tests.models import MODELS
from tests.oracles import Question

OPERATORS: dict[str, Any] = {
    "__builtins__": {},
    "eq": boolean.eq,
    "noteq": boolean.ne,
    "lt": boolean.lt,
    "lte": boolean.le,
    "gt": boolean.gt,
    "gte": boolean.ge,
    "floordiv": division.floordiv,
    "mod": division.mod,
    "minimum": extremes.minimum,
    "maximum": extremes.maximum,
    "and_": boolean.and_,
    "or_": boolean.or_,
    "not_": boolean.not_,
    "ite": boolean.ite,
}


@attrs.frozen
class Decision:
    """What one new decision took and gave. Units: `ns` in nanoseconds."""

    ns: int
    decided: bool
    failed: bool = False  # the peer broke off; not counted among its times


@attrs.frozen
class Relation:
    """A question as the last operator and its operands, which exist before the clock starts."""

    operator: str
    operands: tuple[CodeType, ...]

    @classmethod
    def of(cls, asked: Asked) -> Relation:
        """Reads a question from its text."""
        import ast

        call = ast.parse(calls(text(asked.condition)), mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        operands = tuple(compile(ast.unparse(part), "<question>", "eval") for part in call.args)
        return cls(call.func.id, operands)

    def values(self, operators: dict[str, Any], known: Mapping[str, Any]) -> list[Any]:
        """The operands in somebody's terms."""
        return [eval(operand, operators, known) for operand in self.operands]


def read(stream: Stream) -> Iterator[Relation]:
    """All questions of a stream, read at once: reading between decisions would leave each with cold
    caches.
    """
    return iter([Relation.of(asked) for asked in stream.questions])


Decisions = list[Decision]


def by_guards(stream: Stream) -> Decisions:
    """Ours, by the reasoning package alone."""
    found: Decisions = []
    relations = read(stream)
    facts = Facts()
    known: dict[str, Any] = {}
    for event in stream.events:
        if isinstance(event, Declared):
            facts = facts.with_symbol(event.symbol, event.low, event.high)
            known[event.symbol.name] = event.symbol
        elif isinstance(event, Assumed):
            start = thread_time_ns()
            facts = facts.assume(event.condition)
            took = thread_time_ns() - start
            if found:
                found[-1] = attrs.evolve(found[-1], ns=found[-1].ns + took)
        else:
            relation = next(relations)
            operands = relation.values(OPERATORS, known)
            make = OPERATORS[relation.operator]
            effort, only = event.effort, event.only
            start = thread_time_ns()
            answer = ask(facts, make(*operands), effort=effort, only=only)
            took = thread_time_ns() - start
            assert answer is event.answer, event
            found.append(Decision(took, answer is not None))
    return found


def by_environment(stream: Stream) -> Decisions:
    """Ours, as a trace asks: hints, and guards recorded with their origin."""
    found: Decisions = []
    relations = read(stream)
    env = ShapeEnv()
    known: dict[str, Any] = {}
    for event in stream.events:
        if isinstance(event, Declared):
            name = event.symbol.name
            assert event.hint is not None
            if event.low is None:
                env.new_integer(name, event.hint, IntArg(name), Policy.AUTO)
            else:
                env.new_symbol(name, event.hint, Size(name, 0), Policy.AUTO)
            known[name] = event.symbol
        elif isinstance(event, Asked):
            relation = next(relations)
            operands = relation.values(OPERATORS, known)
            make = OPERATORS[relation.operator]
            decide = env.evaluate if event.guarding else env.known
            before = len(env.guards)
            start = thread_time_ns()
            answer = decide(make(*operands))
            took = thread_time_ns() - start
            found.append(Decision(took, answer and len(env.guards) == before))
    return found


def by_torch(peer: Torch) -> Callable[[Stream], Decisions]:
    """PyTorch's ShapeEnv."""
    statically_known_true = peer.shapes.statically_known_true

    def run(stream: Stream) -> Decisions:
        found: Decisions = []
        relations = read(stream)
        env = peer.environment()
        known: dict[str, Any] = {}
        for event in stream.events:
            if isinstance(event, Declared):
                assert event.hint is not None
                known[event.symbol.name] = peer.symbol(
                    env, event.symbol.name, event.hint, size=event.low is not None
                )
            elif isinstance(event, Asked):
                relation = next(relations)
                operands = relation.values(peer.operators, known)
                make = peer.operators[relation.operator]
                before = len(env.guards)
                start = thread_time_ns()
                condition = make(*operands)
                if type(condition) is bool:
                    answer = condition
                elif event.guarding:
                    answer = condition.node.guard_bool("", 0)
                else:
                    answer = statically_known_true(condition)
                took = thread_time_ns() - start
                found.append(Decision(took, bool(answer) and len(env.guards) == before))
        return found

    return run


def from_one(stream: Stream) -> Iterator[tuple[Asked, Facts, Prepared]]:
    """Each question with its facts where all sizes are at least 1, as ours and as text."""
    lows = [event for event in stream.events if isinstance(event, Declared)]
    events = tuple(
        attrs.evolve(event, low=max(1, event.low))
        if isinstance(event, Declared) and event.low is not None
        else event
        for event in stream.events
    )
    ranges = {
        event.symbol.name: (None if event.low is None else max(1, event.low), event.high)
        for event in lows
    }
    for facts, asked in attrs.evolve(stream, events=events).facts():
        assume = tuple(text(condition) for condition in facts.conditions)
        names = {symbol.name for symbol in asked.condition.symbols}
        names |= {symbol.name for condition in facts.conditions for symbol in condition.symbols}
        known = {name: limits for name, limits in ranges.items() if name in names}
        yield (
            asked,
            facts,
            Prepared.of(Question(text(asked.condition), known, assume), stream.hints),
        )


def by_guards_from_one(stream: Stream) -> Decisions:
    """Ours with the facts that JAX has."""
    found: Decisions = []
    relations = read(stream)
    for asked, facts, _ in list(from_one(stream)):
        relation = next(relations)
        operands = relation.values(
            OPERATORS, {symbol.name: symbol for symbol in asked.condition.symbols}
        )
        make = OPERATORS[relation.operator]
        effort, only = asked.effort, asked.only
        start = thread_time_ns()
        answer = ask(facts, make(*operands), effort=effort, only=only)
        found.append(Decision(thread_time_ns() - start, answer is not None))
    return found


def by_jax(peer: Jax) -> Callable[[Stream], Decisions]:
    """JAX's symbolic dimensions, one scope for each state of the facts."""

    def run(stream: Stream) -> Decisions:
        found: Decisions = []
        scopes: dict[tuple[Any, ...], dict[str, Any]] = {}
        relations = read(stream)
        for _, _, prepared in list(from_one(stream)):
            key = (prepared.names, prepared.texts[1:])
            known = scopes[key] = scopes.get(key) or peer.environment(prepared)
            relation = next(relations)
            operands = relation.values(peer.operators, known)
            make = peer.operators[relation.operator]
            start = thread_time_ns()
            try:
                answer = make(*operands)
            except Unsupported:
                found.append(Decision(thread_time_ns() - start, decided=False, failed=True))
                continue
            found.append(Decision(thread_time_ns() - start, answer is not None))
        return found

    return run


def main(argv: Sequence[str] | None = None) -> Report:
    """Records, then asks everybody in turn."""
    args = bench_parser(__doc__).parse_args(argv)
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise NotHere("the models come from transformers: pip install 'symshape[models]'") from None
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.ERROR)
    report = Report("stream", device="cpu")
    streams = [record(model) for model in (MODELS[:2] if args.smoke else MODELS)]
    who: dict[str, Callable[[Stream], Decisions]] = {
        "guards": by_guards,
        "symshape ShapeEnv": by_environment,
        "torch ShapeEnv": by_torch(Torch(backed=True)),
        "guards, sizes from 1": by_guards_from_one,
    }
    try:
        who["JAX"] = by_jax(Jax())
    except ImportError as error:
        report.note(f"JAX is not installed here ({error}), so it was not asked")
    rounds = 1 if args.smoke else 6
    taken: dict[str, dict[str, Decisions]] = {
        name: {stream.name: [] for stream in streams} for name in who
    }
    for number in range(-1, rounds):
        for position, stream in enumerate(streams):
            for letter, (name, decide) in zip("abcde", who.items(), strict=False):
                decisions = undisturbed(
                    decide, stream.renamed(f"r{number + 1}_{position}{letter}_")
                )
                assert len(decisions) == len(stream.questions), (
                    name,
                    len(decisions),
                    len(stream.questions),
                )
                if number >= 0:  # the round before only warms the process
                    new = [
                        d for d, asked in zip(decisions, stream.questions, strict=True) if asked.new
                    ]
                    taken[name][stream.name] += new
    show(report, streams, taken, rounds)
    return report


def undisturbed(decide: Callable[[Stream], Decisions], stream: Stream) -> Decisions:
    """One stream, with the garbage collector held back."""
    gc.collect()
    gc.disable()
    try:
        return decide(stream)
    finally:
        gc.enable()


def show(
    report: Report, streams: Sequence[Stream], taken: dict[str, dict[str, Decisions]], rounds: int
) -> None:
    """Tables and goals."""
    every = {name: [d for found in parts.values() for d in found] for name, parts in taken.items()}
    times = {name: Timing.of(d.ns for d in found if not d.failed) for name, found in every.items()}
    table = report.table(
        "a new decision, µs", "who", "median", "p99", "mean", "decided without a guard, %"
    )
    for name, time in times.items():
        mean = _total(every[name]) / time.samples / 1e3
        table.row(
            name,
            time.median,
            time.p99,
            mean,
            100 * sum(d.decided for d in every[name]) / len(every[name]),
        )
    kinds = report.table("a new decision by what ours came to, µs (median)", "who", *KINDS)
    for name, parts in taken.items():
        kinds.row(name, *(_median(parts, streams, rounds, kind) for kind in KINDS))
    medians = report.table("median by model, µs", "model", "new decisions", *taken)
    for stream in streams:
        each = [
            Timing.of(d.ns for d in taken[name][stream.name] if not d.failed).median
            for name in taken
        ]
        medians.row(stream.name, len(taken["guards"][stream.name]) // rounds, *each)
    rungs = Counter(asked.rung for stream in streams for asked in stream.questions)
    new = rungs.total() - rungs["memo"]
    ladder = report.table("what settled the decisions", "rung", "decisions", "% of the new ones")
    for rung in RUNGS:
        if rungs[rung]:
            ladder.row(rung, rungs[rung], None if rung == "memo" else 100 * rungs[rung] / new)
    for name, least in (("guards", 30.0), ("symshape ShapeEnv", 10.0)):
        report.goal(
            f"torch ShapeEnv / {name}, medians",
            times["torch ShapeEnv"].median / times[name].median,
            at_least=least,
        )
        report.goal(
            f"torch ShapeEnv / {name}, totals",
            _total(every["torch ShapeEnv"]) / _total(every[name]),
            at_least=least,
        )
    if "JAX" in times:
        mine = "guards, sizes from 1"
        report.goal("JAX / guards, medians", times["JAX"].median / times[mine].median, at_least=2.0)
        failed = sum(d.failed for d in every["JAX"]) // rounds
        report.note(
            f"JAX broke off {failed} decisions with a RecursionError; they are not among its times"
        )
    report.goal(
        "new decisions for which Z3 was not asked, %", 100 * (1 - rungs["z3"] / new), at_least=95.0
    )
    report.note(
        "'points' and 'unknown' are decisions left open: shown to depend on the values, or not "
        "looked at further"
    )
    report.note(
        "'unknown' is only allowed where the trace asked for cheap steps alone; nothing hangs on "
        "those answers"
    )


KINDS = ("settled by the facts", "left a guard", "not known, nothing recorded")


def _kind(asked: Asked) -> str:
    return KINDS[0] if asked.answer is not None else KINDS[1] if asked.guarding else KINDS[2]


def _median(
    parts: dict[str, Decisions], streams: Sequence[Stream], rounds: int, kind: str
) -> float | None:
    """The median over the decisions of one kind, µs."""
    chosen: list[int] = []
    for stream in streams:
        kinds = [_kind(asked) for asked in stream.questions if asked.new] * rounds
        pairs = zip(parts[stream.name], kinds, strict=True)
        chosen += [
            decision.ns for decision, found in pairs if found == kind and not decision.failed
        ]
    return Timing.of(chosen).median if chosen else None


def _total(decisions: Decisions) -> int:
    return sum(decision.ns for decision in decisions if not decision.failed)
