"""The variables of one compiled function: places outside that its programs read and write, read at each call.

So are floats among its arguments that change from call to call (``calls/floats.py``).
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
from symshape.calls.container_aliasing import any_forbidden
from symshape.calls.floats import ChangingFloats, FloatLeaf, with_leaves
from symshape.calls.nesting_codegen import KnownNestings
from symshape.calls.variables import FloatPlace, Variable
from symshape.errors import InputError, SymShapeError, UnsupportedError
from symshape.graph.codegen import Run
from symshape.graph.program import Program, Slot
from symshape.runtime.cache import EntryCache
from symshape.runtime.eager_calls import EagerCall
from symshape.runtime.entry import Entry
from symshape.tracing.capture import wait_for_traces
from symshape.tracing.mode import is_tracing
from symshape.tracing.state.changes import changed_floats, changing_floats
from symshape.tracing.state.snapshot import State

_TRACES = 8
"""Traces with variables before a function is asked whether it is traced at every other call."""


_MOST_NAMED = 4  # places in a sentence
_SHORTEST, _LONGEST = 64, 4096
"""Calls that then run as they are, before any is traced again: twice as many each time."""


class AskAgain(BaseException):
    """A call must be looked up anew: there are more variables than when it began."""


class Layout:
    """Variables in the order in which they stand among a call's leaves, after its arguments.

    A last leaf says how many there are, so that the key of a call is never that of one with other variables.

    Args:
        constants: values of a float among the arguments that are constants before it is a variable; None: all of them.

    Attributes:
        variables: the places.
        active: whether there are any, or floats that vary, or arguments that nest.
        until: the number of the call before which none is looked at; see :meth:`resting`.
        foresees: whether floats outside are variables as soon as a miss finds them changed, not a trace later.
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
        """The arguments of a call as programs are given them.

        Args:
            args: positional ones.
            kwargs: by name.
            flat: the leaves of the call, as ``leaves`` answered them before.

        Raises:
            AskAgain: more floats vary now than did then (another thread has come upon them).
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
        """The flat arguments of a call as programs are given them, and the values of the variables."""
        return with_leaves(self.quick(args, kwargs))

    def quick(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """What :meth:`leaves` answers, with a ``VaryingFloat`` for each argument that is a float and varies."""
        if is_tracing():  # nothing is served: the call is a part of another program
            return (*args, *kwargs.values())
        values = self._values() if self.variables else ()
        nested = self._nests.flat(args, kwargs, values)
        if not self._floats.places:
            return nested or (*args, *kwargs.values(), *self._marked(values))
        found = None if nested is None else self._floats.varied(nested)
        return found or (*self._floats.flat(args, kwargs), *self._marked(values))

    def read(self) -> tuple[Any, ...]:
        """The values as programs are given them, and the last leaf; nothing without variables."""
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
        return (*(self._floats.given_in(values) if self._floats.places else values), f"{len(values)} variables")

    def of(self, leaves: Sequence[Any], arguments: int) -> Variables:
        """The variables among the flat leaves of a call with so many arguments."""
        if leaves and type(leaves[-1]) is Nesting:
            held = leaves[-2][0] if leaves[-1].variables else ()
            values = tuple(self._floats.given_in(held) if self._floats.places else held)
        else:
            values = tuple(leaves[arguments:-1])
        return Variables(self._names[: len(values)], values) if values else NO_VARIABLES

    def add(self, new: Sequence[Variable], clock: int) -> None:
        """More variables, from the call with this number on."""
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
        """Inside, the call that is the last one of a cache is traced.

        Raises:
            AskAgain: that failed, perhaps because the program needs to know floats that change: from now on it does; or
                floats among the arguments vary that did not, or floats that programs read outside.
            UnsupportedError: see ``check``.
        """
        self._learn(call)
        self._foresee(cache)
        self.check(call, cache.clock)
        try:
            yield
        except SymShapeError:
            numbers = [each for each in self.variables if isinstance(each, FloatPlace) and not each.plain]
            for each in numbers:
                each.plain = True
            if numbers:
                raise AskAgain from None
            raise

    def _learn(self, call: Call) -> None:
        """Looks at the floats of a call that is about to be traced.

        Raises: AskAgain if there are now more that vary.
        """
        if not self._follows or not any(type(each) is ConstantKey and each.kind is float for each in call.keys):
            return
        if self._floats.learn(*call.nest(call.leaves)):
            self.active = True
            raise AskAgain

    def _foresee(self, cache: EntryCache) -> None:
        """Looks whether floats that the last program read are others by now: a trace would find them, and not serve.

        Raises: AskAgain if so.
        """
        last = next(iter(reversed(cache.entries)), None) if self.foresees else None
        if last is None or not isinstance(last.program.state, State):
            return
        known = {each.where for each in self.variables}
        new = {each.where: each for each in changed_floats(last.program.state) if each.where not in known}
        if new:
            self.add(list(new.values()), cache.clock)
            _discard_all(cache, list(new.values()))
            raise AskAgain

    def vary(self, call: Call, leaves: Collection[int]) -> None:
        """Floats that are these leaves of a call vary: another process saw that.

        Raises: AskAgain if there are now more that do.
        """
        if self._follows and leaves:
            args, kwargs, _ = call.nest(range(len(call.leaves)))
            if self._floats.vary(args, kwargs, leaves):
                self.active = True
                raise AskAgain

    def check(self, call: Call, clock: int) -> None:
        """Notes a trace of the call with this number.

        Raises:
            UnsupportedError: every other call is traced, since a variable changes in a way that none can follow.
        """
        if all(
            isinstance(each, FloatPlace) and each.plain for each in self.variables
        ):  # read as they are, like any state
            return
        last, self._last = self._last, _of_variables(call)
        known = {path: key for path, key in self._last.items() if path in last}
        different = [path for path in self._last if path not in last]  # first what no symbol can follow
        different += [path for path, key in known.items() if last[path][0] != key[0]]
        different += [path for path, key in known.items() if last[path][1] != key[1]]
        if last and not different:  # the arguments are others, or the state is: no variable is the reason
            return
        self._traces += 1
        if self._traces > _TRACES and 2 * self._traces > clock - self._since:
            self._traces, self._since = _TRACES - 1, self._begun_rest(clock) - 2 * _TRACES  # so that one is tried then
            name = (different or list(self._names))[0]
            raise UnsupportedError(
                f"reads and writes {name}, which changes at every call in a way that no program can follow; "
                "keep it in a tensor, or out of the function"
            )

    def _begun_rest(self, clock: int) -> int:
        """The number of the call with which a rest ends that begins now."""
        self.until, self._refusal = clock + self._rest, None
        self._rest = min(2 * self._rest, _LONGEST)
        return self.until

    def refused(self, refusal: EagerCall) -> EagerCall:
        """A trace was refused, perhaps by ``check``: then this is what runs the next calls.  Answers it."""
        self._refusal = self._refusal or refusal
        return refusal

    def reset(self) -> None:
        """Ends a rest, and counts calls and traces from 0; the variables stay."""
        self._rest, self.until, self._refusal = _SHORTEST, 0, None
        self._traces = self._since = 0

    def resting(self, clock: int) -> EagerCall | None:
        """What runs the call with this number, unseen, since variables change in a way that none can follow."""
        return self._refusal if clock < self.until else None


def _of_variables(call: Call) -> dict[str, Any]:
    """What the key of a call says of each leaf of its variables."""
    first = arguments_in(call)
    found: dict[str, Any] = {}
    for leaf, path, key in zip(call.leaves[first:], call.paths[first:], call.keys[first:], strict=True):
        found[path] = key, values_of([leaf], [key])
    return found


def arguments_in(call: Call) -> int:
    """How many leaves of a call are not of variables."""
    return sum(each.num_leaves for each in call.tree.children()[:2])


def paths_of_variables(call: Call) -> frozenset[str]:
    """The paths of the leaves of variables."""
    return frozenset(call.paths[arguments_in(call) :])


def grow(
    program: Program,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    layout: Layout,
    cache: EntryCache,
) -> tuple[Program, Call, Hashable] | None:
    """More variables, if a program tells of some: the program for calls with them, the call, and its structure.

    The program serves the values that they have now; the entries before it serve no call any more, and leave.

    Raises:
        AskAgain: the variables before have other values than the program was traced with, so nobody knows its call.
    """
    new = [*program.variables, *_numbers(program, layout, cache)]
    if not new:
        return None
    everything = (*layout.variables, *new)
    values = tuple(each.read() for each in everything)
    try:
        read(fn, args, kwargs, Variables(tuple(each.name for each in everything), values))
    except InputError:  # of a kind that cannot be given
        return None
    expect(new, layout, cache)
    variables = layout.of(layout.read(), 0)
    _, structure, _ = read(fn, args, kwargs, variables)
    call = flatten_call(fn, args, kwargs, variables)
    pairs = list(zip(sources_of(call), values_of(call.leaves, call.keys), strict=True))
    traced = program.call
    if call.keys[: len(traced.keys)] != traced.keys:  # what a variable is read from is gone since it was
        raise AskAgain
    more = [Slot(source, arithmetic.const(value)) for source, value in pairs[len(program.slots) :]]
    return attrs.evolve(program, call=skeleton(call), slots=(*program.slots, *more)), call, structure


def expect(new: Sequence[Variable], layout: Layout, cache: EntryCache) -> None:
    """Have these places read at each call from now on; the entries before them serve no call any more, and leave."""
    layout.add(new, cache.clock)
    _discard_all(cache, new)


def _discard_all(cache: EntryCache, new: Sequence[Variable]) -> None:
    """Remove the entries that were traced before these places were read at each call."""
    names = ", ".join(each.name for each in new[:_MOST_NAMED]) + (", …" if len(new) > _MOST_NAMED else "")
    for each in cache.entries:
        cache.discard(each, f"{names} changed since the trace, and is read at each call from now on")


def _numbers(program: Program, layout: Layout, cache: EntryCache) -> list[FloatPlace]:
    """Places that hold another float than they did for a program before, and that are no variables yet."""
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
    """The result of a call, with what the program writes to its arguments.

    The function itself runs where a list or dictionary that it writes to is one that the program also reads elsewhere.
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
    return entry.made(flat, leaves) if given is None else given.finish(flat, args, kwargs, entry.build)
