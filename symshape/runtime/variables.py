"""The variables of one compiled function: places outside its arguments that are read at each call,
and written.

Floats among the arguments that change from call to call are handled here too (``calls/floats.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from guards.terms import arithmetic
from symshape.calls.arguments import (
    NO_VARIABLES,
    Call,
    ConstantKey,
    Variables,
    flatten_call,
    skeleton,
    sources_of,
    values_of,
)
from symshape.calls.call_key import read
from symshape.calls.constant_keys import Nesting
from symshape.calls.container_arguments import any_forbidden
from symshape.calls.floats import ChangingFloats, FloatLeaf, with_leaves
from symshape.calls.nesting_codegen import KnownNestings
from symshape.calls.variables import FloatPlace, Variable
from symshape.errors import InputError, Reason, SymShapeError, UnsupportedError
from symshape.graph.codegen import Run
from symshape.graph.program import Program, Slot
from symshape.runtime.cache import EntryCache
from symshape.runtime.eager_calls import EagerCall
from symshape.runtime.entry import Entry
from symshape.tracing.capture import wait_for_traces
from symshape.tracing.mode import is_tracing
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.undo.writes import changed_floats, changing_floats

_TRACES = 8
"""The number of traces with variables before it is checked whether every other call is traced."""


_MOST_NAMED = 4  # places in a sentence
_SHORTEST, _LONGEST = 64, 4096
"""The fewest and most calls that then run eagerly before the next trace; their number doubles each
time.
"""


class AskAgain(BaseException):
    """Raised to look a call up again: there are more variables than when it began."""


class Layout:
    """The variables of one compiled function, in their order among a call's leaves, after the
    arguments.

    A last leaf says how many variables there are, so that keys of calls with different variables
    differ.

    Args:
        constants: values of a float argument that are traced as constants before it becomes a
            variable; None: all values.

    Attributes:
        variables: the places.
        active: whether there are any variables, floats that vary, or nested arguments.
        until: the number of the call before which variables are not read; see :meth:`resting`.
        foresees: whether floats outside become variables as soon as a miss finds them changed, not
            one trace later.
    """

    def __init__(self, constants: int | None = None) -> None:
        self.variables: tuple[Variable, ...] = ()
        self.active = False
        self._follows = self.foresees = constants is not None
        self._floats = ChangingFloats(constants or 1)
        self._nests = KnownNestings()
        self._names: tuple[str, ...] = ()
        self._traces = 0
        self._since = 0
        self._last: dict[str, Any] = {}
        self._rest, self.until = _SHORTEST, 0
        self._refusal: EagerCall | None = None

    def __len__(self) -> int:
        return len(self.variables)

    def given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: Sequence[Any] = ()
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call in the form in which programs receive them.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            flat: the leaves of the call, as :meth:`leaves` returned them before.

        Raises:
            AskAgain: more floats vary now than did then (another thread has found them).
        """
        values = self.of(flat, len(args) + len(kwargs)).values if self.variables else ()
        if self._nests.learn(args, kwargs, values):
            self.active = True
        if not self._floats.places:
            return args, kwargs
        given, named = self._floats.given(args, kwargs)
        quick = bool(flat) and type(flat[-1]) is Nesting
        nested = self._nests.known(args, kwargs, values)
        if nested is not None and self._floats.learn_nest(nested, given, named, values) and quick:
            raise AskAgain
        pairs = zip(() if quick else flat, (*given, *named.values()), strict=False)
        if any((type(one) is FloatLeaf) is not (type(now) is FloatLeaf) for one, now in pairs):
            raise AskAgain
        return given, named

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return the flat arguments of a call as programs receive them, and the values of the
        variables.
        """
        return with_leaves(self.quick(args, kwargs))

    def quick(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return what :meth:`leaves` returns, with a ``VaryingFloat`` for each float argument that
        varies.
        """
        if is_tracing():  # no entry serves: the call becomes a part of another program
            return (*args, *kwargs.values())
        values = self._values() if self.variables else ()
        nested = self._nests.flat(args, kwargs, values)
        if not self._floats.places:
            return nested or (*args, *kwargs.values(), *self._marked(values))
        found = None if nested is None else self._floats.varied(nested)
        return found or (*self._floats.flat(args, kwargs), *self._marked(values))

    def read(self) -> tuple[Any, ...]:
        """Return the variables' values as programs receive them, and the last leaf; empty without
        variables.
        """
        return self._marked(self._values())

    def _values(self) -> tuple[Any, ...]:
        variables = self.variables
        values = tuple([each.read() for each in variables])
        if variables and wait_for_traces():  # what was read may be a stand-in
            values = tuple([each.read() for each in variables])
        return values

    def _marked(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not values:
            return ()
        return (
            *(self._floats.given_in(values) if self._floats.places else values),
            f"{len(values)} variables",
        )

    def of(self, leaves: Sequence[Any], arguments: int) -> Variables:
        """Return the variables among the flat leaves of a call with ``arguments`` arguments."""
        if leaves and type(leaves[-1]) is Nesting:
            held = leaves[-2][0] if leaves[-1].variables else ()
            values = tuple(self._floats.given_in(held) if self._floats.places else held)
        else:
            values = tuple(leaves[arguments:-1])
        return Variables(self._names[: len(values)], values) if values else NO_VARIABLES

    def add(self, new: Sequence[Variable], clock: int) -> None:
        """Add variables, from the call numbered ``clock`` on."""
        names = list(self._names)
        for each in new:
            name, number = each.name, 2
            while name in names:
                name, number = f"{each.name} #{number}", number + 1
            names.append(name)
        self._traces, self._since = 0, clock
        self._names = tuple(names)
        self._nests = KnownNestings()
        self.variables = (*self.variables, *new)
        self.active = True

    @contextmanager
    def traced(self, call: Call, cache: EntryCache) -> Iterator[None]:
        """Return a context for tracing ``call``, the last call of a cache.

        Raises:
            AskAgain: the trace failed, perhaps because the program needs the values of floats that
                change: from now on it gets them; or more floats vary now, among the arguments or
                outside.
            UnsupportedError: see :meth:`check`.
        """
        self._learn(call)
        self._foresee(cache)
        self.check(call, cache.clock)
        try:
            yield
        except SymShapeError:
            numbers = [
                each for each in self.variables if isinstance(each, FloatPlace) and not each.plain
            ]
            for each in numbers:
                each.plain = True
            if numbers:
                raise AskAgain from None
            raise

    def _learn(self, call: Call) -> None:
        """Record the floats of a call that is about to be traced.

        Raises:
            AskAgain: more floats vary now.
        """
        if not self._follows or not any(
            type(each) is ConstantKey and each.kind is float for each in call.keys
        ):
            return
        if self._floats.learn(*call.nest(call.leaves)):
            self.active = True
            raise AskAgain

    def _foresee(self, cache: EntryCache) -> None:
        """Make variables of the floats outside that changed since the last program was traced.

        Raises:
            AskAgain: there are such floats.
        """
        last = next(iter(reversed(cache.entries)), None) if self.foresees else None
        if last is None or not isinstance(last.program.state, State):
            return
        known = {each.where for each in self.variables}
        new = {
            each.where: each
            for each in changed_floats(last.program.state)
            if each.where not in known
        }
        if new:
            self.add(list(new.values()), cache.clock)
            _discard_all(cache, list(new.values()))
            raise AskAgain

    def vary(self, call: Call, leaves: Collection[int]) -> None:
        """Have the floats at these leaves of a call vary: another process saw them change.

        Raises:
            AskAgain: more floats vary now.
        """
        if self._follows and leaves:
            args, kwargs, _ = call.nest(range(len(call.leaves)))
            if self._floats.vary(args, kwargs, leaves):
                self.active = True
                raise AskAgain

    def check(self, call: Call, clock: int) -> None:
        """Count a trace of the call numbered ``clock``.

        Raises:
            UnsupportedError: every other call is traced, since a variable changes in a way that no
                program can follow.
        """
        if all(
            isinstance(each, FloatPlace) and each.plain for each in self.variables
        ):  # read as plain floats, like any state
            return
        last, self._last = self._last, _of_variables(call)
        known = {path: key for path, key in self._last.items() if path in last}
        # changes that no symbol can follow come first
        different = [path for path in self._last if path not in last]
        different += [path for path, key in known.items() if last[path][0] != key[0]]
        different += [path for path, key in known.items() if last[path][1] != key[1]]
        if last and not different:  # the arguments or the state differ: no variable is the reason
            return
        self._traces += 1
        if self._traces > _TRACES and 2 * self._traces > clock - self._since:
            # one trace is tried then
            self._traces, self._since = (_TRACES - 1, self._begun_rest(clock) - 2 * _TRACES)
            name = (different or list(self._names))[0]
            raise UnsupportedError(
                f"the program reads and writes {name}, which changes at every call in a way that "
                "no graph can follow; keep it in a tensor, or out of the function; for a memo use "
                "functools.lru_cache",
                reason=Reason.STATE,
            )

    def _begun_rest(self, clock: int) -> int:
        """Begin a rest, and return the number of the call with which it ends."""
        self.until, self._refusal = clock + self._rest, None
        self._rest = min(2 * self._rest, _LONGEST)
        return self.until

    def refused(self, refusal: EagerCall) -> EagerCall:
        """Record the refusal of a trace, perhaps by :meth:`check`; it serves the calls of a rest.
        Return it.
        """
        self._refusal = self._refusal or refusal
        return refusal

    def reset(self) -> None:
        """End a rest, and count calls and traces from 0; the variables stay."""
        self._rest, self.until, self._refusal = _SHORTEST, 0, None
        self._traces = self._since = 0

    def resting(self, clock: int) -> EagerCall | None:
        """Return the eager call for call number ``clock`` during a rest, when no variables are
        read; else None.
        """
        return self._refusal if clock < self.until else None


def _of_variables(call: Call) -> dict[str, Any]:
    """Return for each leaf of a call's variables its key and its integers, by path."""
    first = arguments_in(call)
    found: dict[str, Any] = {}
    for leaf, path, key in zip(
        call.leaves[first:], call.paths[first:], call.keys[first:], strict=True
    ):
        found[path] = key, values_of([leaf], [key])
    return found


def arguments_in(call: Call) -> int:
    """Return the number of leaves of a call that belong to its arguments, not to variables."""
    return sum(each.num_leaves for each in call.tree.children()[:2])


def paths_of_variables(call: Call) -> frozenset[str]:
    """Return the paths of the leaves of variables."""
    return frozenset(call.paths[arguments_in(call) :])


def grow(
    program: Program,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    layout: Layout,
    cache: EntryCache,
) -> tuple[Program, Call, Hashable] | None:
    """Add the variables that a program discovered; return its program with them, the call and its
    structure, or None.

    The program serves the variables' present values.  Earlier entries serve no call any more, and
    are removed.

    Raises:
        AskAgain: earlier variables have other values than the program was traced with, so its call
            is not known.
    """
    new = [*program.variables, *_numbers(program, layout, cache)]
    if not new:
        return None
    everything = (*layout.variables, *new)
    values = tuple(each.read() for each in everything)
    try:
        read(fn, args, kwargs, Variables(tuple(each.name for each in everything), values))
    except InputError:  # a value that cannot be passed to a program
        return None
    expect(new, layout, cache)
    variables = layout.of(layout.read(), 0)
    _, structure, _ = read(fn, args, kwargs, variables)
    call = flatten_call(fn, args, kwargs, variables)
    pairs = list(zip(sources_of(call), values_of(call.leaves, call.keys), strict=True))
    traced = program.call
    # an object that a variable is read from is gone
    if call.keys[: len(traced.keys)] != traced.keys:
        raise AskAgain
    more = [Slot(source, arithmetic.const(value)) for source, value in pairs[len(program.slots) :]]
    return (
        attrs.evolve(program, call=skeleton(call), slots=(*program.slots, *more)),
        call,
        structure,
    )


def expect(new: Sequence[Variable], layout: Layout, cache: EntryCache) -> None:
    """Have these places read at each call from now on; earlier entries serve no call any more, and
    are removed.
    """
    layout.add(new, cache.clock)
    _discard_all(cache, new)


def _discard_all(cache: EntryCache, new: Sequence[Variable]) -> None:
    """Remove the entries that were traced before these places were read at each call."""
    names = ", ".join(each.name for each in new[:_MOST_NAMED]) + (
        ", …" if len(new) > _MOST_NAMED else ""
    )
    for each in cache.entries:
        cache.discard(
            each, f"{names} changed since the trace, and is read at each call from now on"
        )


def _numbers(program: Program, layout: Layout, cache: EntryCache) -> list[FloatPlace]:
    """Return the places that held another float for an earlier program, and are not variables
    yet.
    """
    known = {each.where for each in (*layout.variables, *program.variables)}
    found: dict[Any, FloatPlace] = {}
    now, others = program.state, [each.program.state for each in cache.entries]
    for then in others:
        if not isinstance(now, State) or not isinstance(then, State):
            continue
        for number in changing_floats(now, then):
            if number.where not in known:
                found[number.where] = number
    return list(found.values())


def serve(
    fn: Callable[..., Any],
    entry: Entry,
    run: Run,
    leaves: Sequence[Any],
    values: Sequence[int],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return the result of a call, after writing what the program writes to its arguments.

    The function runs eagerly if a list or dictionary that it writes to is one that the program also
    reads elsewhere.
    """
    given = entry.program.given
    apart = entry.program.apart
    if apart and any_forbidden(apart, leaves, args, kwargs):
        return fn(*args, **kwargs)
    if given is not None and not given.fit(args, kwargs):
        return fn(*args, **kwargs)
    failed: list[Exception] = []
    try:
        flat = run(leaves, values)
    except Exception as error:
        failed.append(error)
    if failed:
        return entry.instead(failed, args, kwargs)
    return (
        entry.made(flat, leaves) if given is None else given.finish(flat, args, kwargs, entry.build)
    )
