"""The questions that real traces ask, recorded so that they can be asked again, of us and of
others.

``record(model)`` traces a model of ``tests/models.py`` and notes, in order, each symbol with its
hint, each question to the facts with its answer, and each condition that the trace assumed.  What
the trace remembers by itself is not asked, so all questions are new except the few that the facts
had answered already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import attrs
import torch

import symshape
from guards.asking.ladder import Effort, counters
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import arithmetic
from guards.terms.fold import substitute
from guards.terms.term import Term
from symshape.tracing import outputs
from symshape.tracing.symbolic import env, undecided
from tests.models import Model


@attrs.frozen
class Declared:
    """A symbol: its range and, unless it is unbacked, its value in the traced call."""

    symbol: Term
    low: int | None
    high: int | None
    hint: int | None


@attrs.frozen
class Asked:
    """A question: whether ``condition`` holds, given what was declared and assumed before it.

    Attributes:
        effort: what the trace would pay.
        only: the one answer that it was interested in.
        answer: what it was told.
        guarding: whether a guard was needed where the answer was None (`if size > 1:`), or the
            question was for an optimisation that is left out then.
        rung: what answered it, asked for the first time in the process; `memo` where the same trace
            had asked before.
    """

    condition: Term
    effort: Effort
    only: bool | None
    answer: bool | None
    guarding: bool
    rung: str = ""

    @property
    def new(self) -> bool:
        """Whether the facts had not answered it before in the same trace."""
        return self.rung != "memo"


@attrs.frozen
class Assumed:
    """A condition that became a fact."""

    condition: Term


Event = Declared | Asked | Assumed


@attrs.frozen
class Stream:
    """Everything that one trace asked, in order."""

    name: str
    events: tuple[Event, ...]

    @property
    def questions(self) -> list[Asked]:
        """The questions alone."""
        return [event for event in self.events if isinstance(event, Asked)]

    @property
    def hints(self) -> dict[str, int]:
        """The values of the symbols in the traced call."""
        declared = [event for event in self.events if isinstance(event, Declared)]
        return {event.symbol.name: event.hint for event in declared if event.hint is not None}

    def renamed(self, prefix: str) -> Stream:
        """The same stream about other symbols: nothing that is remembered about these ones
        helps.
        """
        others: dict[Term, Term] = {}
        for event in self.events:
            if isinstance(event, Declared):
                others[event.symbol] = arithmetic.symbol(prefix + event.symbol.name)

        def rename(event: Event) -> Event:
            if isinstance(event, Declared):
                return attrs.evolve(event, symbol=others[event.symbol])
            return attrs.evolve(event, condition=substitute(event.condition, others))

        return Stream(self.name, tuple(rename(event) for event in self.events))

    def facts(self) -> Iterator[tuple[Facts, Asked]]:
        """Each question with the facts at that time."""
        known = Facts()
        for event in self.events:
            if isinstance(event, Declared):
                known = known.with_symbol(event.symbol, event.low, event.high)
            elif isinstance(event, Assumed):
                known = known.assume(event.condition)
            else:
                yield known, event


class _Recorder:
    """Stands in for ``ask`` and notes what changed in the facts since the last question."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.symbols: set[Term] = set()
        self.conditions: set[Term] = set()

    def learn(self, facts: Facts) -> None:
        for symbol in sorted(facts.symbols - self.symbols, key=lambda each: each.order):
            declared = facts.declared(symbol)
            self.events.append(Declared(symbol, declared.lo, declared.hi, None))
            self.symbols.add(symbol)
        for condition in facts.conditions:
            if condition not in self.conditions:
                self.events.append(Assumed(condition))
                self.conditions.add(condition)

    def ask(
        self,
        facts: Facts,
        condition: Term,
        *,
        effort: Effort = Effort.FULL,
        only: bool | None = None,
    ) -> Any:
        self.learn(facts)
        answer = ask(facts, condition, effort=effort, only=only)
        self.events.append(Asked(condition, effort, only, answer, guarding=effort is Effort.FULL))
        return answer


@contextmanager
def _recording() -> Iterator[_Recorder]:
    recorder = _Recorder()
    with ExitStack() as patches:
        for asker in (env, outputs, undecided):
            patches.enter_context(mock.patch.object(asker, "ask", recorder.ask))
        yield recorder


def record(model: Model, batch: int = 2, size: int = 9) -> Stream:
    """The questions of one trace in which every dimension is dynamic."""
    built = model.build()
    arguments = model.call(batch, size)
    with torch.no_grad(), _recording() as recorder:
        traced = symshape.trace(built, **arguments)
    hints = {name: symbol.hint for name, symbol in traced.symbols.items()}
    events = tuple(
        attrs.evolve(event, hint=hints[event.symbol.name]) if isinstance(event, Declared) else event
        for event in recorder.events
    )
    rungs = iter(_rungs(Stream(model.name, events).renamed("first_")))
    events = tuple(
        attrs.evolve(event, rung=next(rungs)) if isinstance(event, Asked) else event
        for event in events
    )
    assert any(isinstance(event, Asked) for event in events), (
        f"the trace of {model.name} asked nothing"
    )
    return Stream(model.name, events)


def _rungs(stream: Stream) -> Iterator[str]:
    """What answers each question of a stream whose symbols this process has not seen."""
    for facts, asked in stream.facts():
        before = counters()
        answer = ask(facts, asked.condition, effort=asked.effort, only=asked.only)
        assert answer is asked.answer, (
            f"{asked.condition}: {asked.answer} when traced, {answer} when asked again"
        )
        yield next(
            (name for name, count in counters().items() if count != before[name]), "constant"
        )
