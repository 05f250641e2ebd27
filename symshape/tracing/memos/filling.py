"""Values of the user's ``lru_cache`` that a trace finds missing: computed outside the trace, then
the function is traced again.

An ``lru_cache`` computes a value once and returns the very object from then on. So a trace must not
fill it with a traced value. The cached function is called once, as the program calls it, and the
next trace finds the value there. This keeps eager's order while the program writes nothing and the
function draws no random numbers; otherwise the trace is refused, and the eager call fills the
cache. A call whose key holds sizes comes here only if the cached function cannot be traced instead
(see ``calls.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch

from guards.sets.sources import Source
from symshape.calls.generator_states import state_of
from symshape.dims import Policy
from symshape.errors import Problem, Reason
from symshape.graph.lru_cache_answers import answers_of
from symshape.graph.steps import Node, Step, drawn_from, draws_random_numbers, written_values
from symshape.tracing.memos.calls import ATTEMPTS
from symshape.tracing.restart import Attempt, Restart
from symshape.tracing.state.record.lru_caches import Missing, filled
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo.writes import Changes
from symshape.tracing.tracer import Tracer

_Missed = tuple[Missing, tuple[Any, ...], dict[str, Any]]


def _memos_to_fill(missing: Sequence[_Missed], fixed: Sequence[Source]) -> Restart:
    """Return the restart of a trace whose memos are to be filled first.

    Args:
        missing: each memo, with what it is called with.
        fixed: where the sizes are read that they are called with.
    """

    def change(attempt: Attempt, _: str) -> Attempt | None:
        failed = _fill(missing)
        if failed is not None:
            if not failed.of_library:
                return None
            ATTEMPTS.unfillable[id(failed.memo)] = failed.memo  # the next trace leaves it alone
        static = {
            each: Policy.STATIC for each in fixed if attempt.policies.get(each) is Policy.AUTO
        }
        return attrs.evolve(attempt, policies={**attempt.policies, **static})

    name = missing[0][0].name
    text = f"makes what the memo of {name} keeps; call {name} once before"
    return Restart(text, change, Reason.MEMO, prepares=True)


def _fill(missing: Sequence[_Missed]) -> Missing | None:
    """Call the functions; return the first that did not make what the trace made, if there is
    one.
    """
    state = state_of(torch.default_generator)
    for each, args, kwargs in missing:
        if each.is_there:
            continue
        before = set(map(id, answers_of(each.memo) or ()))
        try:
            made = each.memo(*args, **kwargs)
        except Exception:  # the program itself may catch it
            torch.default_generator.set_state(state)
            return each
        if not each.as_expected(made) or not torch.equal(state, state_of(torch.default_generator)):
            _forget(each.memo, before)
            torch.default_generator.set_state(state)  # what it drew, it draws in its turn
            return each
    return None


def fill_or_refuse(changes: Changes, recorder: Recorder, tracer: Tracer) -> list[Problem]:
    """Return descriptions of the values that memos made in a trace and that a graph could not keep.

    Raises:
        Restart: the memos can be filled outside of the trace.
    """
    missing = [each for each in changes.missing if id(each.memo) not in ATTEMPTS.unfillable]
    if not missing:
        return changes.unmade

    def is_kept(value: Any) -> bool:
        return changes.is_kept(value) or recorder.is_constant(value)

    calls = [(each, each.arguments(is_kept)) for each in missing]
    known = [(each, *call) for each, call in calls if call is not None]
    roots = tracer.arguments | {each.value for each in tracer.lifting.lifted.values()}
    memory = {id(each.storage) for each in roots}
    writes = changes.changes or changes.problems
    for each in missing:  # what is refused is traced again once somebody has filled them
        if not each.of_library:
            recorder.place(filled(each.memo, grows=False))
    harmless = not writes and not any(_matters(each, memory) for each in tracer.steps)
    if known and (harmless or all(each.is_there for each in missing)):
        symbols = [each for one in missing for size in one.sizes for each in size.node.term.symbols]
        fixed = [source for each in symbols for source in tracer.env.symbols[each.name].sources]
        raise _memos_to_fill(known, fixed)
    users = [
        one for one, call in calls if not one.of_library and (call is not None or one.must_be_made)
    ]
    texts = [
        f"makes {each.kind} that the memo of {each.name} keeps; call {each.name} once before"
        for each in users
    ]
    return changes.unmade + [Problem(text, Reason.MEMO) for text in texts]


def _matters(step: Step, memory: set[int]) -> bool:
    """Return whether the order of a step among the others matters: it draws, or writes to memory
    from before.
    """
    if not isinstance(step, Node):
        return False
    if step.inference is not None or (
        draws_random_numbers(step) and drawn_from(step) is not torch.default_generator
    ):
        return True
    return any(id(each.storage) in memory for each in written_values(step))


def _forget(memo: Any, before: set[int]) -> None:
    answers = answers_of(memo)
    if answers is not None:
        stays = [(key, each) for key, each in answers.items() if id(key) in before]
        answers.clear()
        answers.update(stays)
