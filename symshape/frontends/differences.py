"""The reasons why a call does not fit a program, in the caller's words, and the nearest program of
a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import attrs

from guards.sets.guard_set import GuardSet
from symshape.calls.arguments import Call, LeafKey, TensorKey, skeleton
from symshape.calls.modes import Modes
from symshape.calls.modes import modes as modes_now
from symshape.calls.questions import Question, answers
from symshape.graph.program import Program, slot_names
from symshape.runtime.cache import EntryCache
from symshape.runtime.entry import Entry


def structure_differences(
    program: Program,
    call: Call,
    modes: Modes | None = None,
    changes: Sequence[str] | None = None,
    answered: Mapping[Question, Hashable] | None = None,
) -> list[str]:
    """Return how a call's structure differs from the traced one: tree, dtypes, devices, constants,
    modes, module state.

    ``modes`` are torch's modes at the time of the call, ``changes`` the changes in the program's
    state by then, ``answered`` the call's answers to the program's questions. Each defaults to the
    present one.
    """
    modes = modes_now() if modes is None else modes
    changes = program.state.changes() if changes is None else changes
    example = program.call
    if call.nesting != example.nesting:
        return [_nesting(call, example)]
    found = [
        f"{path} is {_key_text(now)}, but was traced as {_key_text(then)}"
        for path, now, then in zip(call.paths, call.keys, example.keys, strict=True)
        if now != then
    ]
    for path, now, then in zip(call.paths, call.duplicates, example.duplicates, strict=True):
        if now != then:
            other = call.paths[now if now != call.paths.index(path) else then]
            found.append(
                f"{path} and {other} are "
                f"{'the same object' if now < then else 'different objects'} now"
            )
    if modes != program.modes:
        found.append(f"it runs under {modes}, but was traced under {program.modes}")
    for question, answer in program.questions.items():
        if answer != (
            question.among(call.leaves) if answered is None else answered.get(question, answer)
        ):
            found.append(
                f"{question.text(call.paths[question.position])} is not what it was in the trace"
            )
    found += [f"{name} has changed since the trace" for name in changes]
    return found


def _nesting(call: Call, example: Call) -> str:
    """Return how the arguments of a call nest differently, in a sentence."""
    new = [path for path in call.paths if path not in example.paths]
    gone = [path for path in example.paths if path not in call.paths]
    if new and gone:
        return f"it is called with {_listed(new)} instead of {_listed(gone)}"
    if new or gone:
        return (
            f"it is called with {_listed(new)}" if new else f"it is called without {_listed(gone)}"
        )
    if call.paths != example.paths:
        return "its keyword arguments come in another order"
    return "its arguments come in other containers (list, tuple, dict …)"


_LISTED = 4
"""The number of arguments that a sentence lists."""


def _listed(paths: Sequence[str]) -> str:
    """Return the paths as a list; of more than four the first three and how many more there are."""
    if len(paths) <= _LISTED:
        return ", ".join(paths)
    return f"{', '.join(paths[: _LISTED - 1])} and {len(paths) - _LISTED + 1} more"


def _key_text(key: LeafKey) -> str:
    return f"a {key}" if isinstance(key, TensorKey) else str(key)


def violation_sentences(program: Program, guards: GuardSet, values: tuple[int, ...]) -> list[str]:
    """Return one sentence for each violated guard (of ``program.slot_guards()``), in the caller's
    names.
    """
    slots = slot_names(len(values))
    sources = {name: slot.source for name, slot in zip(slots, program.slots, strict=True)}
    found = []
    for violation in guards.violations(dict(zip(slots, values, strict=True)), sources):
        origin = violation.guard.origin
        static = origin is not None and origin.rule == "static"
        if origin is None:
            why = ""
        elif origin.rule in ("declared", "layout") and not origin.file:
            why = f" ({origin.text})"
        else:
            why = " (it was static in the trace)" if static else f"; needed by {origin}"
        found.append(f"{violation.text}{why}")
    return found


GUARDS, STATE, ARGUMENTS, NESTING = range(4)
"""The kinds of reasons why an entry does not serve a call, the nearest first: a failed guard,
changed state …
"""


def _distance(example: Call, modes: Modes, miss: Miss, differences: Sequence[str]) -> int:
    """Return which of ``GUARDS``, ``STATE``, ``ARGUMENTS`` and ``NESTING`` keeps an entry from
    serving a call.
    """
    if not differences:
        return GUARDS
    call = miss.call
    if call.nesting != example.nesting:
        return NESTING
    same = (
        call.keys == example.keys and call.duplicates == example.duplicates and miss.modes == modes
    )
    return STATE if same else ARGUMENTS


@attrs.define(eq=False)
class Miss:
    """The record of a miss, with all that is needed to explain it later.

    Attributes:
        function: the name of the called function.
        call: the call, without its tensors.
        values: its integers.
        modes: torch's modes then.
        entries: for each entry of that time, a function that returns it (None once an object that
            it was traced for has died), with the changes in the state that it was traced in.
        answers: the call's answers to the programs' questions about their arguments.
        why_gone: why the last entry before it was evicted, where there was none.
    """

    function: str
    call: Call
    values: tuple[int, ...]
    modes: Modes
    entries: Sequence[tuple[Callable[[], Entry | None], tuple[str, ...]]]
    answers: Mapping[Question, Hashable] = attrs.field(factory=dict)
    why_gone: str = ""
    _text: str = attrs.field(default="", init=False)

    def explain(self) -> str:
        """Return why the call was traced: what kept the nearest entry from serving it, in one
        sentence.

        An entry of the call's own structure with a failed guard is nearer than one of another
        structure.  The sentence is made once: entries may be evicted afterwards.
        """
        self._text = self._text or f"{self.function} was traced again{self._why()}."
        return self._text

    def _why(self) -> str:
        """Return the end of the sentence."""
        if not self.entries:
            return f" because no program was left: {self.why_gone}"
        best: tuple[int, int, int, list[str]] | None = None  # distance, reasons, minus the number
        for found, changes in self.entries:
            entry = found()
            if entry is None:
                continue
            distance, reasons = self._reasons(entry, changes)
            rank = (distance, len(reasons), -entry.number)
            if reasons and (best is None or rank < best[:3]):
                best = (*rank, reasons)
        if best is None:  # another thread changes the state meanwhile
            return " because state that it reads had changed"
        distance, count, number, reasons = best
        reason = f"{reasons[0]} (and {count - 1} more)" if count > 1 else reasons[0]
        verb = "needs" if distance == GUARDS else "does not fit:"
        return f": the nearest entry, number {-number}, {verb} {reason}"

    def _reasons(self, entry: Entry, changes: Sequence[str]) -> tuple[int, list[str]]:
        program = entry.program
        differences = structure_differences(program, self.call, self.modes, changes, self.answers)
        distance = _distance(program.call, program.modes, self, differences)
        return distance, differences or violation_sentences(program, entry.guards, self.values)


def miss_of(
    function: str,
    call: Call,
    values: tuple[int, ...],
    cache: EntryCache,
    questions: Sequence[Question],
) -> Miss | None:
    """Return the record of a miss, made before the state changes; None for the first trace."""
    if not cache.entries and not cache.why_gone:
        return None
    changes = {id(branch): tuple(branch.state.changes()) for branch in cache.branches}
    places = [
        (each.held(), changes[id(branch)]) for branch in cache.branches for each in branch.entries()
    ]
    answered = dict(zip(questions, answers(questions, call.leaves), strict=True))
    return Miss(function, skeleton(call), values, modes_now(), places, answered, cache.why_gone)
