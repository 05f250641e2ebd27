"""Small programs about state outside the arguments ("worlds"): what one is, and the judge of a way
to run it.

A program is a function decorated ``@world("class")``.  Each time it is called it builds a
:class:`World` out of fresh objects, so that the same world can be lived through twice: once with
the plain function, once the way under test.  The judge compares the two after every step, bit by
bit.
"""

from __future__ import annotations

import contextlib
import decimal
import io
import linecache
import os
import random
import re
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import PurePath
from typing import Any

import attrs
import numpy as np
import torch
from torch.nn.modules import module as nn_module
from torch.utils import _pytree as pytree

from symshape import SymShapeError
from tests.symshape.eager import bits, metadata, shares

OUTCOMES = ("right", "refused", "wrong", "crash", "poisoned", "hang")
"""What can become of a program.

``right``: every step left what eager leaves.  ``refused``: an error of the way's own class at a
call that eager does, and the world as it was before that call.  ``wrong``: a difference.
``crash``: another exception.  ``poisoned``: the steps were right or refused, but the plain
function, called afterwards in the same world, fails or differs. ``hang``: it took longer than the
time limit.
"""
GOOD = ("right", "refused")


@attrs.frozen
class Call:
    """A step that calls the function; ``make`` answers fresh positional arguments, and perhaps a
    last ``Named``.
    """

    make: Callable[[], tuple[Any, ...]]


class Named(dict[str, Any]):
    """The keyword arguments of a call."""


Step = Call | Callable[[], object]


@attrs.frozen
class World:
    """One program in a fresh world.

    Attributes:
        fn: what is called, and compiled.
        steps: calls, and changes of the world between them.
        observe: everything else that must be equal after each step.
        view: where results cannot be compared themselves (the time), what is compared: made from
            all results so far.
        messages: whether the text of an error counts: it must contain what eager says.
        undo: puts back what the world changed in the process and the judge does not know of.
        runner: for ``symshape.compile``.
    """

    fn: Callable[..., Any]
    steps: Sequence[Step]
    observe: Callable[[], Any] | None = None
    view: Callable[[list[Any]], Any] | None = attrs.field(default=None, kw_only=True)
    messages: bool = attrs.field(default=False, kw_only=True)
    undo: Callable[[], object] | None = attrs.field(default=None, kw_only=True)
    runner: Any = attrs.field(default="auto", kw_only=True)


@attrs.frozen
class Program:
    """A registered program: its class, its name, what builds its world, and whether it takes
    long.
    """

    kind: str
    name: str
    build: Callable[[], World]
    slow: bool = False

    def __str__(self) -> str:
        return f"{re.sub('[^a-z0-9]+', '-', self.kind)}-{self.name}"


PROGRAMS: dict[str, Program] = {}
"""All programs, by class and name."""


def world(kind: str, *, slow: bool = False) -> Callable[[Callable[[], World]], Callable[[], World]]:
    """Registers a program of this class."""

    def register(build: Callable[[], World]) -> Callable[[], World]:
        program = Program(kind, build.__name__, build, slow)
        assert str(program) not in PROGRAMS, f"two programs are called {program}"
        PROGRAMS[str(program)] = program
        return build

    return register


# -- what programs are made of


def on(*sizes: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Call:
    """A call with one tensor of these sizes (of both signs, no two elements alike)."""
    return Call(lambda: (values(*sizes, dtype=dtype).requires_grad_(grad),))


def values(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A fresh tensor of these sizes, of both signs, no two elements alike."""
    return (
        (torch.arange(torch.Size(sizes).numel(), dtype=torch.float64) - 1.25)
        .reshape(sizes)
        .to(dtype)
    )


def put(owner: Any, **attributes: Any) -> Callable[[], None]:
    """A step that sets attributes."""
    return lambda: [setattr(owner, *each) for each in attributes.items()] and None


def item(owner: Any, key: Any, value: Any) -> Callable[[], None]:
    """A step that sets an item."""
    return lambda: owner.__setitem__(key, value)


_numbers = count()


def module(source: str, name: str = "", file: str = "", **names: Any) -> types.ModuleType:
    """A fresh Python module of this source; it knows ``torch`` and ``F``.  Not importable."""
    number = next(_numbers)
    made = types.ModuleType(name or f"world_{number}")
    made.__file__ = file or f"<world {number}>"
    linecache.cache[made.__file__] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        made.__file__,
    )
    made.__dict__.update(torch=torch, F=torch.nn.functional, nn=torch.nn, **names)
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    return made


def importable(source: str, name: str = "a_world", file: str = "") -> types.ModuleType:
    """A fresh Python module that can be imported by name."""
    made = module(source, name, file)
    sys.modules[name] = made
    return made


def installed(source: str) -> types.ModuleType:
    """A fresh Python module that looks as if a package manager had put it there."""
    name = f"a_package_{next(_numbers)}"
    return importable(source, name, f"/nowhere/site-packages/{name}.py")


# -- what is seen


def look(value: Any, depth: int = 0) -> Any:
    """All of a value that must be the same, as plain data."""
    if isinstance(value, torch.Tensor):
        flags = value.is_conj(), value.is_neg(), value.is_inference(), value.is_leaf
        grad = look(value.grad) if value.is_leaf and value.grad is not None else None
        # Dynamo's own notes
        names = [each for each in value.__dict__ if not each.startswith("_dynamo_")]
        own = {each: look(value.__dict__[each], depth + 1) for each in names} if depth < 4 else None
        return type(value).__name__, metadata(value), flags, bits(value), grad, own
    if isinstance(
        value, (bool, int, str, bytes, types.NoneType, torch.dtype, torch.device, PurePath)
    ):
        return type(value).__name__, str(value)
    if isinstance(value, (float, complex)):
        return type(value).__name__, repr(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), value.shape, value.tobytes()
    if depth > 6:
        return "..."
    if isinstance(value, Mapping):
        pairs = [(look(key, depth + 1), look(each, depth + 1)) for key, each in value.items()]
        return type(value).__name__, pairs
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted((look(each, depth + 1) for each in value), key=repr)
    if isinstance(value, Sequence):
        return type(value).__name__, [look(each, depth + 1) for each in value]
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return "name", value.__qualname__
    if isinstance(value, torch.nn.Module):
        return (
            type(value).__qualname__,
            value.training,
            look(dict(value.named_parameters()), depth + 1),
        )
    own = {
        **getattr(value, "__dict__", {}),
        **{key: getattr(value, key, None) for key in _slots(value)},
    }
    return type(value).__qualname__, [(key, look(each, depth + 1)) for key, each in own.items()]


def _slots(value: Any) -> list[str]:
    slots = [each for kind in type(value).__mro__ for each in getattr(kind, "__slots__", ())]
    return [each for each in slots if not each.startswith("__")]


def _look_call(
    fn: Callable[..., Any], call: Call, results: list[Any], view: Callable[[list[Any]], Any] | None
) -> Any:
    """Calls, and answers all that the call itself shows: results, aliasing, the arguments
    afterwards.
    """
    made = call.make()
    args, kwargs = (
        (made[:-1], dict(made[-1])) if made and isinstance(made[-1], Named) else (made, {})
    )
    given = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    result = fn(*args, **kwargs)
    results.append(result)
    leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
    memory = [
        [i for i, other in enumerate([*given, *leaves]) if shares(leaf, other)] for leaf in leaves
    ]
    same = [[i for i, other in enumerate(given) if other is leaf] for leaf in leaves]
    whole = [i for i, arg in enumerate(args) if arg is result]
    afterwards = look(args), look(kwargs), look(given)
    return look(view(results)) if view else look(result), memory, same, whole, afterwards


def _surroundings(world: World) -> dict[str, Any]:
    """Everything beside the call that must be the same after a step."""
    numpy_state = np.random.get_state()
    return {
        "observed": look(world.observe()) if world.observe else None,
        "random": (
            bytes(torch.get_rng_state().tolist()),
            random.getstate(),
            numpy_state[1].tobytes(),
            numpy_state[2],
        ),
        "modes": (
            *(
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.get_default_dtype(),
            ),
            *(torch.is_autocast_enabled("cpu"), torch.are_deterministic_algorithms_enabled()),
            *(
                torch._C._len_torch_function_stack(),
                len(torch.overrides._get_current_function_mode_stack()),
            ),
            *(torch.is_anomaly_enabled(), torch.get_num_threads()),
        ),
    }


@attrs.frozen
class Seen:
    """What a step left."""

    result: Any
    error: Exception | None
    printed: str
    around: dict[str, Any] = attrs.field(factory=dict)


def _perform(fn: Callable[..., Any], step: Step, world: World, results: list[Any]) -> Seen:
    """Takes one step; what the plain function could raise is part of what is seen."""
    result, error = None, None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if not isinstance(step, Call):
            step()
        else:
            try:
                result = _look_call(fn, step, results, world.view)
            except Exception as raised:  # the judge classifies it
                error = raised
                error.__traceback__ = None
    return Seen(result, error, printed.getvalue())


def _difference(expected: Seen, got: Seen, messages: bool) -> str:
    """The first difference, in words; nothing if there is none."""
    if expected.error is not None or got.error is not None:
        if (
            expected.error is None
            or got.error is None
            or not _is_a(got.error, type(expected.error))
        ):
            return (
                f"expected {_short(expected.error or 'a result')}, got "
                f"{_short(got.error or 'a result')}"
            )
        if messages and str(expected.error) not in str(got.error):
            return f"expected the message {str(expected.error)!r}, got {str(got.error)!r}"
        return ""
    for what in ("result", "printed"):
        a, b = getattr(expected, what), getattr(got, what)
        if a != b:
            return f"{what}{_first(a, b)}"
    return ""


def _is_a(error: Exception, kind: type[Exception]) -> bool:
    """Whether an error is of this class, by its name: each world has classes of its own."""
    name = kind.__module__, kind.__qualname__
    return any((each.__module__, each.__qualname__) == name for each in type(error).__mro__)


def _first(a: Any, b: Any) -> str:
    """Where two plain values differ first, and how."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        i = next(i for i, (one, two) in enumerate(zip(a, b, strict=True)) if one != two)
        return f"[{i}]{_first(a[i], b[i])}"
    return f": {_short(a)} became {_short(b)}"


def _around(expected: Seen, around: dict[str, Any]) -> str:
    for what, a in expected.around.items():
        if a != around[what]:
            return f"{what}{_first(a, around[what])}"
    return ""


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, Exception) else f"{type(value).__name__}: {value}"
    return text if len(text) < 300 else f"{text[:150]} ... {text[-150:]}"


# -- the process is left as it was found


class TooLong(BaseException):
    """The time limit of a program is over (no ``Exception``, so that nobody handles it)."""


# times as long on the clock: of a busy machine a program gets a part, and one that waits gets none
_WAITING = 12.0
_cpu, _clock = time.process_time, time.monotonic  # programs put others in their places


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Seconds of the processor.

    The alarm is the clock's: while a timer of the processor runs, programs that ask for its time
    get coarser answers.
    """
    cpu, clock = _cpu(), _clock()

    def look(*_: Any) -> None:
        left = min(seconds - (_cpu() - cpu), _WAITING * seconds - (_clock() - clock))
        if left <= 0:
            raise TooLong
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_GLOBAL_HOOKS = tuple(
    each for each in vars(nn_module) if each.startswith("_global_") and each.endswith("_hooks")
)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Inside, all random generators start from the same seeds; afterwards the process is as it was
    before.
    """
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    added = {name: set(vars(each)) for name, each in _own_modules()}
    names, environ, recursion, here = (
        set(sys.modules),
        dict(os.environ),
        sys.getrecursionlimit(),
        os.getcwd(),
    )
    grad, dtype, threads = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
    with warnings.catch_warnings(), decimal.localcontext():
        warnings.simplefilter("ignore")
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        try:
            yield
        finally:
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            np.random.set_state(states[2])
            for name in sorted(set(sys.modules) - names):
                if getattr(sys.modules[name], "__file__", None) and _of_a_world(sys.modules[name]):
                    del sys.modules[name]
            for (
                name,
                each,
            ) in _own_modules():  # Dynamo puts what it made into the globals of what it compiled
                for key in set(vars(each)) - added.get(name, set(vars(each))):
                    if key.startswith("__import_"):
                        delattr(each, key)
            os.environ.clear()
            os.environ.update(environ)
            sys.setrecursionlimit(recursion)
            os.chdir(here)
            torch.set_grad_enabled(grad)
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            torch.set_autocast_enabled("cpu", False)
            torch.use_deterministic_algorithms(False)
            for each in _GLOBAL_HOOKS:
                getattr(nn_module, each).clear()
            for file in [
                each for each in linecache.cache if each.startswith(("<world ", "/nowhere/"))
            ]:
                del linecache.cache[file]


def _own_modules() -> list[tuple[str, types.ModuleType]]:
    return [(name, each) for name, each in sys.modules.items() if name.startswith("tests.worlds.")]


def _of_a_world(each: types.ModuleType) -> bool:
    return str(each.__file__).startswith(("<world ", "/nowhere/"))


# -- the judge


@attrs.frozen
class Way:
    """A way to run a function: its name, what compiles, which errors are refusals, and seconds for
    a program.
    """

    name: str
    compile: Callable[[World], Callable[..., Any]]
    refusals: tuple[type[Exception], ...] = (SymShapeError,)
    limit: float = 10.0


@attrs.frozen
class Verdict:
    """What became of a program, and where and how."""

    outcome: str
    detail: str = ""


def lived(program: Program) -> list[Seen]:
    """What eager shows after each step, and after one more of the last call."""
    with _restored():
        made = program.build()
        try:
            results: list[Any] = []
            seen = []
            for step in _steps(made):
                each = _perform(made.fn, step, made, results)
                seen.append(attrs.evolve(each, around=_surroundings(made)))
            return seen
        finally:
            if made.undo:
                made.undo()


def _steps(made: World) -> list[Step]:
    last = [step for step in made.steps if isinstance(step, Call)][-1]
    return [*made.steps, last]


def judge(program: Program, way: Way) -> Verdict:
    """Lives through a program's world eagerly and the given way, and compares."""
    expected = lived(program)
    with _restored():
        made = program.build()
        try:
            with _time_limit(way.limit * (20 if program.slow else 1)):
                return _judge(made, way, expected)
        except TooLong:
            return Verdict("hang", f"longer than {way.limit:.0f} s")
        finally:
            if made.undo:
                made.undo()


def _judge(made: World, way: Way, expected: Sequence[Seen]) -> Verdict:
    results: list[Any] = []
    fn: Callable[..., Any] | None = None
    refusal = ""
    try:
        fn = way.compile(made)
    except way.refusals as error:
        refusal = _short(error)
    except Exception as error:
        return Verdict("crash", f"compiling: {_short(error)}")
    steps = _steps(made)
    for i, step in enumerate(steps):
        plain = bool(refusal) or i == len(steps) - 1
        got = _perform(made.fn if plain or fn is None else fn, step, made, results)
        found = _difference(expected[i], got, made.messages)
        if found and not plain and isinstance(got.error, way.refusals):
            refusal, plain = _short(got.error), True
            got = _perform(made.fn, step, made, results)
            found = _difference(expected[i], got, made.messages)
        if found:
            outcome = (
                "poisoned" if plain else "crash" if got.error and not expected[i].error else "wrong"
            )
            return Verdict(
                outcome, f"step {i + 1}: {found}" + (f" (after: {refusal})" if refusal else "")
            )
        try:
            found = _around(expected[i], _surroundings(made))
        except Exception as error:  # what leaked cannot even be looked at
            return Verdict("poisoned", f"step {i + 1}, looking around: {_short(error)}")
        if found:
            return Verdict("poisoned" if plain else "wrong", f"step {i + 1}: {found}")
    return Verdict("refused", refusal) if refusal else Verdict("right")
