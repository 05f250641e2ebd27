"""Calls of functions with a memo (``functools.lru_cache``) in a trace, and what the memos keep.

Where the key of a call holds sizes, the wrapped function is traced. Its answer is a formula of the
sizes, so one trace serves all of them. Eager might get another answer, which the memo keeps from
before. Each later call compares the two first, and fills the memo at its end (see
``graph/lru_cache_answers.py``). Where the program could tell the two ways apart, the trace is made
again and calls the memo.
"""

from __future__ import annotations

import gc
import threading
import types
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from guards.sets.sources import Source
from guards.terms.term import Op, Term
from symshape.calls.generator_states import state_of
from symshape.calls.questions import DATA, Question
from symshape.dims import Policy
from symshape.errors import Problem, Reason
from symshape.forks import cached_property
from symshape.graph.float_terms import FloatTerm
from symshape.graph.lru_cache_answers import (
    CONTAINERS,
    NUMBERS,
    MemoAnswer,
    SizeAnswer,
    SizeLeaf,
    TensorAnswer,
    answers_of,
    note_given_answer,
)
from symshape.graph.steps import (
    Node,
    Step,
    drawn_from,
    draws_random_numbers,
    values_in,
    written_values,
)
from symshape.torch_internals import pytree
from symshape.tracing.intercept.python_numbers.identity import Identity
from symshape.tracing.restart import Attempt, Restart, with_fewer_symbols
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record.lru_caches import SAME, Missing, filled
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo.writes import Change, Changes
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, attributes_of
from symshape.tracing.symbolic_arguments import SymbolicArguments
from symshape.tracing.traced_modes import autocast_modes
from symshape.tracing.tracer import Tracer

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SEQUENCES = frozenset((tuple, torch.Size))


def _called_plainly() -> Restart:
    """Return the restart of a trace whose program can tell a memo from the function that it
    wraps.
    """
    return Restart(
        "the program can tell a function with a memo from the function that it wraps; call it "
        "outside of the program",
        with_fewer_symbols,
        Reason.MEMO,
    )


class Attempts:
    """The traces of one call: the memos whose wrapped functions the last one ran, and those that
    later ones call.

    One thread traces at a time, so there is one object of this class.
    """

    def __init__(self) -> None:
        self.used: dict[int, Any] = {}
        self.plain: dict[int, Any] = {}
        self.unfillable: dict[int, Any] = {}

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Inside, the attempts for one call are made."""
        before = self.used, self.plain, self.unfillable
        self.forget()
        try:
            yield
        finally:
            self.used, self.plain, self.unfillable = before

    def forget(self) -> None:
        """Begin anew: the next attempt traces with other settings."""
        self.used, self.plain, self.unfillable = {}, {}, {}

    def call_plainly(self) -> bool:
        """Have the next trace call the memos themselves; return whether that is another trace."""
        new = self.used.keys() - self.plain.keys()
        self.plain |= self.used
        self.used = {}
        return bool(new)


ATTEMPTS = Attempts()


@attrs.frozen(eq=False)
class _Made:
    """The answer of one wrapped function in a trace.

    Attributes:
        memo: the function with the memo.
        args: its arguments.
        kwargs: its keyword arguments.
        result: its answer.
        held: the new lists and dictionaries in the answer, each with a copy.
        memory: the memory of the tensors that the function made.
        end: how many steps the trace had when it returned.
    """

    memo: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    held: list[tuple[Any, Any]]
    memory: set[int]
    end: int


class MemoCalls:
    """The calls of memos in one trace.

    Args:
        tracer: of the trace.
        recorder: notes what the program reads.
        arguments: the stand-ins for the leaves of the call.
        identity: answers ``is``.

    Attributes:
        ids: by id, the objects in answers that eager would have from the memo.
    """

    def __init__(
        self, tracer: Tracer, recorder: Recorder, arguments: SymbolicArguments, identity: Identity
    ) -> None:
        self._tracer, self._arguments = tracer, arguments
        self._recorder: Any = weakref.proxy(recorder)  # which holds this object
        self._steps, self._modes = tracer.steps, _modes()
        self._made: dict[Any, _Made] = {}
        self._plainly = False
        self.ids: dict[int, Any] = {}
        self._identity = identity
        recorder.is_same = self.is_same
        recorder.on_memo = self.call if recorder.stays_here else None
        ATTEMPTS.used = {}

    # -- the calls
    def call(self, memo: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a memo, or the function that it wraps if its key holds sizes."""
        recorder = self._recorder
        if self._tracer.closed or recorder.busy or recorder.thread != threading.get_ident():
            return memo(*args, **kwargs)
        terms: list[Term] = []
        key = id(memo), _described(args, terms), _described(tuple(kwargs.items()), terms)
        if not terms or not self._is_wanted(memo, terms, key):
            return self._call_plainly(memo, args, kwargs)
        found = self._made.get(key)
        if found is None:
            typed = memo.cache_parameters()["typed"]
            self._plainly |= any(_may_be_one(key, each, typed) for each in self._made)
            found = self._made[key] = self._run(memo, args, kwargs)
        # inside control flow
        self._plainly |= bool(found.memory) and self._tracer.steps is not self._steps
        return found.result

    def _call_plainly(self, memo: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = memo.cache_info()
        result = memo(*args, **kwargs)
        now = memo.cache_info()
        # the very object of every later call
        if now.hits > before.hits and now.misses == before.misses:
            self._recorder.answered[id(result)] = result
            note_given_answer(memo, result)
        return result

    def _is_wanted(self, memo: Any, terms: Sequence[Term], key: Any) -> bool:
        inner, parameters = memo.__wrapped__, memo.cache_parameters()
        if id(memo) in ATTEMPTS.plain or parameters["maxsize"] == 0 or answers_of(memo) is None:
            return False
        if type(inner) is not types.FunctionType or trusted_code.is_trusted(
            inner.__code__.co_filename
        ):
            return False
        # another one stands under that name
        if not any(each is inner for each in gc.get_referents(memo)):
            return False
        try:
            hash(key)
        except TypeError:
            return False
        return all(each.name in self._symbols for term in terms for each in term.symbols)

    @cached_property
    def _symbols(self) -> dict[str, SizeLeaf]:
        """By name, the symbols that are sizes of tensors among the leaves, or integers among
        them.
        """
        found = {
            name: SizeLeaf(position, None) for name, position in self._arguments.integers.items()
        }
        for each in self._arguments.inputs:
            for dim, size in enumerate(each.value.spec.sizes):
                if isinstance(size, IntNode) and size.term.op is Op.SYMBOL:
                    found.setdefault(size.term.name, SizeLeaf(each.position, dim))
        return found

    def _run(self, memo: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Made:
        ATTEMPTS.used[id(memo)] = memo
        steps = self._tracer.steps
        start = len(steps)
        self._plainly |= _modes() != self._modes
        result = memo.__wrapped__(*args, **kwargs)
        held: list[tuple[Any, Any]] = []
        tensors: list[SymbolicTensor] = []
        self._hold(result, held, tensors)
        inside, outside, pure = _memory(steps[start:])
        constants = {id(each.storage) for each in self._tracer.lifting.constants}
        self._plainly |= not pure or (bool(tensors) and not outside <= constants)
        return _Made(memo, args, kwargs, result, held, inside if tensors else set(), len(steps))

    def _hold(self, value: Any, held: list[tuple[Any, Any]], tensors: list[SymbolicTensor]) -> None:
        """Note the objects in an answer that are new."""
        kind = type(value)
        if kind is SymbolicTensor:
            tensors.append(value)
            self.ids[id(value)] = value
        if id(value) in self._recorder.known or (kind not in CONTAINERS and kind is not dict):
            return
        self.ids[id(value)] = value
        if kind in (list, dict):
            held.append((value, value.copy()))
        for each in value.values() if kind is dict else value:
            self._hold(each, held, tensors)

    def is_same(self, one: Any, other: Any) -> bool:
        """``one is other``: eager may have one object for both, or an object that it has had for
        long.
        """
        if one is not None and other is not None and (id(one) in self.ids or id(other) in self.ids):
            self._plainly = True
        return self._identity.is_same(one, other)

    # -- the end of the trace
    def settle(self, changes: Changes, outcome: Any, leaves: Sequence[Any]) -> None:
        """Note what later calls are asked for, and how they fill the memos.

        Args:
            changes: what the program wrote, to which the memos are added.
            outcome: what it returned.
            leaves: of the call.

        Raises:
            Restart: the program could tell that it did not call the memo.
        """
        if not self._made:
            return
        if self._plainly or changes.changes or changes.returned_arguments or changes.to_objects:
            raise _called_plainly()
        self._refuse_escaped(outcome)
        answers = [self._answer(each, changes) for each in self._made.values()]
        for each in answers:
            question = Question(each.last, DATA, each)
            if question.among(leaves) is not True:
                raise _called_plainly()
            self._tracer.questions[question] = True
        for each in answers:
            env = self._tracer.env
            values = [env.nodes.int_node(env.symbols[name].term).symint for name in each.symbols]
            flat, tree = pytree.tree_flatten(values)
            changes.changes.append(Change(each, flat, tree, (), f"fills {each.name}"))

    def _refuse_escaped(self, outcome: Any) -> None:
        """Refuse answers that somebody can change or has changed, and that tensors share memory
        with.

        Raises:
            Restart: there is one.
        """
        held = {
            id(each): (each, before) for made in self._made.values() for each, before in made.held
        }
        memory = {each for made in self._made.values() for each in made.memory}
        nodes: dict[int, Any] = {}
        leaves, _ = pytree.flatten_until(
            outcome, lambda each: nodes.setdefault(id(each), each) is None
        )
        if not held.keys().isdisjoint(nodes):
            raise _called_plainly()
        if not all(_is_unchanged(each, before) for each, before in held.values()):
            raise _called_plainly()
        if any(
            id(each._value.storage) in memory for each in leaves if isinstance(each, SymbolicTensor)
        ):
            raise _called_plainly()
        answers = [each for each in self.ids.values() if type(each) is SymbolicTensor]
        if any(each.requires_grad or attributes_of(each) for each in answers):
            raise _called_plainly()
        for made in self._made.values():
            after = (step for step in self._tracer.steps[made.end :] if isinstance(step, Node))
            if made.memory and any(
                id(each.storage) in made.memory for step in after for each in written_values(step)
            ):
                raise _called_plainly()

    def _answer(self, made: _Made, changes: Changes) -> MemoAnswer:
        tensors: list[Any] = []
        names: set[str] = set()

        def formula(value: Any) -> Any:
            kind = type(value)
            if kind is SymbolicTensor:
                tensors.append(value)
                return TensorAnswer()
            if kind in _SYMBOLIC:
                return self._term(value, names)
            if kind in NUMBERS or isinstance(value, SAME) or changes.is_kept(value):
                return value
            if self._recorder.is_constant(value):
                return value
            if kind in CONTAINERS:
                kind = SizeAnswer if kind is torch.Size else kind
                return kind([formula(each) for each in value])
            if kind is dict and all(type(each) in NUMBERS for each in value):
                return {key: formula(each) for key, each in value.items()}
            raise _called_plainly()

        args = tuple(map(formula, made.args))
        kwargs = {name: formula(each) for name, each in made.kwargs.items()}
        if tensors:
            raise _called_plainly()
        answer = formula(made.result)
        symbols = self._symbols
        if not names or not names <= symbols.keys():
            raise _called_plainly()
        return MemoAnswer(
            made.memo, args, kwargs, answer, {each: symbols[each] for each in names}, bool(tensors)
        )

    @staticmethod
    def _term(value: Any, names: set[str]) -> Any:
        term = value.node.term
        if isinstance(term, FloatTerm) and term.unbacked():
            raise _called_plainly()
        names |= {
            each.name for each in (term.symbols() if isinstance(term, FloatTerm) else term.symbols)
        }
        return term


def _modes() -> tuple[Any, ...]:
    """Torch's modes that tell what a function makes."""
    plain = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
    return *plain, *autocast_modes(), torch.get_default_device()


def _described(value: Any, terms: list[Term]) -> Any:
    """An argument of a memo such that equal ones are one key; the terms of sizes in it are added to
    ``terms``.
    """
    kind = type(value)
    if kind is torch.SymInt and isinstance(value.node, IntNode):
        term = value.node.term
        if term.op is Op.CONST:
            return int, term.value
        terms.append(term)
        return kind, id(term)
    if kind in (tuple, torch.Size):
        return kind, *(_described(each, terms) for each in value)
    return (kind, value) if kind in NUMBERS else (object, id(value))


def _may_be_one(one: Any, other: Any, typed: bool) -> bool:
    """Return whether a memo may have one key for two calls whose arguments are of different classes
    (2 and 2.0).

    Eager then gets one answer for both.  The calls are described as in :meth:`MemoCalls.call`.  A
    ``typed`` memo has the classes of the arguments in its keys, but not those of the items of
    tuples.
    """
    if one[0] != other[0] or not all(map(_may_be_equal, one[1:], other[1:])):
        return False
    if typed and _classes_of_arguments(one) != _classes_of_arguments(other):
        return False
    return list(map(_classes, one[1:])) != list(map(_classes, other[1:]))


def _may_be_equal(one: Any, other: Any) -> bool:
    """Return whether two described arguments are equal for some sizes."""
    kinds = {one[0], other[0]}
    if not kinds.isdisjoint(_SEQUENCES):
        alike = kinds <= _SEQUENCES and len(one) == len(other)
        return alike and all(map(_may_be_equal, one[1:], other[1:]))
    if torch.SymInt in kinds or (object in kinds and len(kinds) > 1):
        return kinds.isdisjoint((str, bytes, type(None)))
    return bool(one[1] == other[1])


def _classes(described: Any) -> Any:
    """Return the classes of a described argument and of the items in it."""
    kind, *parts = described
    return (kind, *map(_classes, parts)) if kind in _SEQUENCES else _class(kind)


def _class(kind: type) -> type:
    return int if kind is torch.SymInt else kind


def _classes_of_arguments(call: Any) -> list[type]:
    _, (_, *args), (_, *named) = call
    return [_class(kind) for kind, *_ in (*args, *(value for _, _, value in named))]


def _memory(steps: Sequence[Step]) -> tuple[set[int], set[int], bool]:
    """The memory that steps make, the memory from before that they use, and whether they write or
    draw nothing else.
    """
    inside: set[int] = set()
    outside: set[int] = set()
    pure = True
    for step in steps:
        if not isinstance(step, Node):
            continue
        outside |= {
            id(each.storage) for arg in (step.args, step.kwargs) for each in values_in(arg)
        } - inside
        inside |= {id(each.storage) for each in step.outputs if each is not None} - outside
        pure = pure and not draws_random_numbers(step)
        pure = pure and all(id(each.storage) in inside for each in written_values(step))
    return inside, outside, pure


def _is_unchanged(value: Any, before: Any) -> bool:
    if type(value) is dict:
        return _is_unchanged([*value, *value.values()], [*before, *before.values()])
    return len(value) == len(before) and all(
        one is other for one, other in zip(value, before, strict=True)
    )


# -- Values of the user's ``lru_cache`` that a trace finds missing: computed outside the trace, then
# the function is traced again.
#
# An ``lru_cache`` computes a value once and returns the very object from then on. So a trace
# must not fill it with a traced value. The cached function is called once, as the program calls
# it, and the next trace finds the value there. This keeps eager's order while the program writes
# nothing and the function draws no random numbers; otherwise the trace is refused, and the eager
# call fills the cache. A call whose key holds sizes comes here only if the cached function
# cannot be traced instead.
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
