"""Random programs about the world outside their arguments, compiled both ways, compared with eager
after every step.

A case is a program of a few statements over modules, hooks, buffers, closures, globals, containers,
generators, sizes and flags, and a list of calls and changes of that world between them
(``worlds.py`` has the words).  The oracle is the same source run plainly in a world of its own:
results bit by bit with layout and aliasing, arguments and world afterwards, what was printed,
random generators, errors.  ``fullgraph=True`` may refuse (and must leave the world as it was); by
default nothing may differ.  A difference is shrunk, and printed as a script.

    python -m tests.fuzz world --go-on --count 2000   counts differences by kind, and goes on
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import io
import linecache
import os
import random
import re
import sys
import threading
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch.nn.modules import module as nn_module
from torch.utils import _pytree as pytree

import symshape
from tests.fuzz import worlds_of_objects
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.fuzz.lines import Line
from tests.fuzz.worlds import (
    BODY,
    CALLS,
    CHANGES,
    FAILS,
    IN_PLACE,
    NEW_LABEL,
    PRELUDE,
    RESULTS,
    THINGS,
)
from tests.symshape.eager import shares
from tests.worlds.world import look

FILE = "<fuzzed world>"
WAYS: dict[str, Callable[[Any], Any]] = {
    "fullgraph": lambda fn: symshape.compile(fn, fullgraph=True),
    "default": symshape.compile,
}
_MOST_RUNS = 80  # while shrinking
_TWISTER = 2_500  # bytes of the state of NumPy's shared generator: 624 words, and the place in them
_OF_STATE = {"cell": "get_cell", "partial": "part"}  # where a thing's name is not that of a global


@attrs.frozen
class Made:
    """A program and what happens to it: the steps are calls (text) and changes (lines)."""

    body: tuple[Line, ...]
    result: str
    steps: tuple[str | Line, ...]

    @property
    def things(self) -> list[str]:
        """The things that it needs, in the order of their definitions."""
        lines = (*self.body, *(each for each in self.steps if isinstance(each, Line)))
        needed = {name for each in lines for name in each.needs}
        return [name for name in THINGS if name in needed]

    def source(self) -> str:
        """The world and the program."""
        lines = [line for each in self.body for line in each.text.split("\n")]
        declared = [line for line in lines if line.startswith("global ")]
        rest = [line for line in lines if not line.startswith("global ")]
        inner = "\n".join(
            f"    {line}" for line in (*dict.fromkeys(declared), *rest, f"return {self.result}")
        )
        things = "\n".join(THINGS[name] for name in self.things)
        return f"{PRELUDE}\n{things}\n\ndef program(x, y, k=1, opts=None):\n{inner}\n"


def make(rng: random.Random) -> Made:
    """A random program; its changes are of things that it uses."""
    named = rng.sample(list(THINGS), rng.randint(1, 3))
    near = [each for each in BODY if each.needs and set(each.needs) <= set(named)]
    body = [
        rng.choice(near) if near and rng.random() < 0.65 else rng.choice(BODY)
        for _ in range(rng.randint(1, 5))
    ]
    if any(each in FAILS for each in body):
        body = [each for each in body if not IN_PLACE.search(each.text)]
    used = {name for each in body for name in each.needs}
    changes = [
        each
        for each in CHANGES
        if set(each.needs) & used or (not each.needs and rng.random() < 0.3)
    ]
    objects = any(each in worlds_of_objects.BODY for each in body)
    few = rng.sample(
        worlds_of_objects.CALLS if objects and rng.random() < 0.6 else CALLS, rng.randint(1, 4)
    )
    steps: list[str | Line] = [rng.choice(few)]
    between = range(rng.randint(2, 6))
    steps += [
        rng.choice(changes) if changes and rng.random() < 0.45 else rng.choice(few) for _ in between
    ]
    steps.append(rng.choice(few))
    # state that does not settle while its traces last, then settles
    if "LABEL" in used and rng.random() < 0.25:
        steps += [step for _ in range(20) for step in (NEW_LABEL, rng.choice(few))]
        steps += [rng.choice(few) for _ in range(3)]
    return Made(tuple(dict.fromkeys(body)), rng.choice(RESULTS), tuple(steps))


# -- one life --------------------------------------------------------------------------------------


@attrs.frozen
class Step:
    """What one step left to be seen, by name; and the error that a call raised."""

    seen: dict[str, Any]
    error: Exception | None = None


class Life:
    """One world being lived through, with ``call`` going the way under test.

    Attributes:
        plain: whether calls run the plain function from now on.
        calls: made so far the way under test.
    """

    def __init__(self, made: Made, code: types.CodeType, wrap: Callable[[Any], Any] | None) -> None:
        # torch.manual_seed also queues calls for devices that are not there
        torch.default_generator.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        self._things = made.things
        home = types.ModuleType("fuzzed_world")
        home.__file__ = FILE
        sys.modules["fuzzed_world"] = home  # dataclasses look there
        self._names = home.__dict__
        self._names.update(call=self._call, in_thread=self._in_thread)
        exec(code, self._names)
        self._program = self._names["program"]
        self._compiled = wrap(self._program) if wrap else self._program
        self.plain = False
        self.calls = 0
        self._seen: dict[str, Any] = {}
        self._error: Exception | None = None

    def take(self, step: str | Line) -> Step:
        """Takes a step; what the program raises is part of what is seen."""
        self._seen, self._error = {}, None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if isinstance(step, str):
                exec(_code_of(step), self._names)
            else:
                try:
                    exec(_code_of(step.text), self._names)
                except (
                    Exception
                ) as error:  # a change may not fit what the program has made of the world
                    self._error = error
        return Step({**self._seen, "printed": printed.getvalue(), **self._around()}, self._error)

    def _call(self, *args: Any, **kwargs: Any) -> None:
        given = [
            each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)
        ]
        self.calls += not self.plain
        try:
            result = (self._program if self.plain else self._compiled)(*args, **kwargs)
        except Exception as error:
            self._error = error
            error.__traceback__ = None
            self._seen = {"arguments": look((args, kwargs))}
            return
        leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        memory = [
            [i for i, other in enumerate([*given, *leaves]) if shares(leaf, other)]
            for leaf in leaves
        ]
        same = [[i for i, other in enumerate(given) if other is leaf] for leaf in leaves]
        self._seen = {
            "result": look(result),
            "aliasing": (memory, same),
            "arguments": look((args, kwargs)),
        }

    def _in_thread(self, *args: Any, **kwargs: Any) -> None:
        thread = threading.Thread(target=self._call, args=args, kwargs=kwargs)
        thread.start()
        thread.join()

    def _around(self) -> dict[str, Any]:
        return {
            **{name: _look_at(self._names.get(_OF_STATE.get(name, name))) for name in self._things},
            "torch's generator": hash(torch.get_rng_state().numpy().tobytes()),
            "other generators": (hash(random.getstate()), _numpys_state()),
            "modes": (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.get_default_dtype(),
            ),
        }


@functools.cache
def _code_of(step: str) -> types.CodeType:
    """A step of the few there are, compiled once."""
    return compile(step, "<step>", "exec")


def _numpys_state() -> int:
    """What must be the same of NumPy's shared generator; read from its memory, as a copy takes 100
    microseconds.
    """
    generator: Any = np.random.get_bit_generator()
    return hash(ctypes.string_at(generator.ctypes.state_address, _TWISTER))


def _look_at(value: Any) -> Any:
    """What must be the same of a thing, as plain data."""
    if isinstance(value, torch.nn.Module):
        names = [key for key in sorted(vars(value)) if key[0] != "_" and key != "training"]
        own = {key: look(getattr(value, key)) for key in names}
        parts = [_look_at(each) for each in value.children()]
        tables = look(dict(value._parameters)), look(dict(value._buffers))
        return type(value).__name__, value.training, own, tables, len(value._forward_hooks), parts
    if isinstance(value, torch.Generator):
        return hash(value.get_state().numpy().tobytes())
    if isinstance(value, contextvars.ContextVar):
        return look(value.get())
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, io.StringIO):
        return value.getvalue()
    if isinstance(value, types.ModuleType):
        return look({key: each for key, each in vars(value).items() if key[0] != "_"})
    if isinstance(value, types.FunctionType):
        held = [look(each.cell_contents) for each in value.__closure__ or ()]
        return value.__qualname__, look(vars(value)), look(value.__defaults__), held
    if isinstance(value, type):
        return value.__qualname__, look(
            {key: each for key, each in vars(value).items() if isinstance(each, int)}
        )
    if hasattr(value, "__next__"):
        return repr(value.__reduce__())
    return look(value)


@contextlib.contextmanager
def _process_kept() -> Iterator[None]:
    environ = os.environ.get("WORLD_FUZZ")
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
            getattr(nn_module, name).clear()
        if environ is None:
            os.environ.pop("WORLD_FUZZ", None)


def difference(
    made: Made, ways: Sequence[str] = tuple(WAYS), counts: Counter[str] | None = None
) -> tuple[str, str, str]:
    """The way, the outcome and the first difference; of a case without one: no way, and what
    happened.

    Counts the calls of each way and what ``fullgraph=True`` refused, by reason.
    """
    source = made.source()
    code = compile(source, FILE, "exec")
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    last = next(each for each in reversed(made.steps) if isinstance(each, str))
    steps = (*made.steps, last)
    with _process_kept():
        life = Life(made, code, None)
        expected = [life.take(step) for step in steps]
    label = "right"
    for way in ways:
        life = Life(made, code, WAYS[way])
        with _process_kept():
            outcome, told = _compare(life, steps, expected)
        if counts is not None:
            counts[f"calls, {way}"] += life.calls
            counts.update([f"refused: {_reason(told)}"] if outcome == "refused" else [])
        if outcome not in ("right", "refused"):
            return way, outcome, told
        label = outcome if outcome == "refused" else label
    errors = any(each.error is not None for each in expected)
    return "", f"{label}, with errors" if errors else label, ""


def _compare(life: Life, steps: Sequence[str | Line], expected: Sequence[Step]) -> tuple[str, str]:
    refused = ""
    for i, step in enumerate(steps):
        if i == len(steps) - 1:
            life.plain = True
        got = life.take(step)
        if isinstance(got.error, symshape.ProgramError) and isinstance(
            got.error.__cause__, Exception
        ):
            # what eager's error becomes, with eager's effects
            got = attrs.evolve(got, error=got.error.__cause__)
        if isinstance(got.error, symshape.SymShapeError) and not life.plain:
            if (
                isinstance(got.error, (RuntimeError, symshape.VerificationError))
                and expected[i].error is not None
            ):
                refused = "an error of ours"
            refused = refused or str(got.error)
            life.plain = True
            got = life.take(step)
        told = _first(expected[i], got)
        if told:
            outcome = (
                "poisoned"
                if life.plain
                else "crash"
                if got.error and not expected[i].error
                else "wrong"
            )
            return outcome, f"step {i + 1}, {told}" + (
                f" (after the refusal: {refused[:200]})" if refused else ""
            )
    return ("refused", refused) if refused else ("right", "")


def _reason(refusal: str) -> str:
    """The sentence of a refusal without names, numbers and places."""
    first = re.split(r"[:;(\n]|\. ", refusal.strip())[0].strip()
    first = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "…", first)
    return re.sub(r"\b\w*([A-Z]\w|[\d.\[])\S*", "…", first)[:90]


def _first(expected: Step, got: Step) -> str:
    a, b = (
        f"{type(e).__name__}: {e}" if e is not None else "" for e in (expected.error, got.error)
    )
    if a != b:
        return f"expected {a or 'no error'}, got {b or 'no error'}"
    for name in expected.seen.keys() | got.seen.keys():
        one, two = expected.seen.get(name), got.seen.get(name)
        if one != two:
            return f"{name}: {str(one)[:200]} became {str(two)[:200]}"
    return ""


# -- what is told of a difference ------------------------------------------------------------------


def shrunk(made: Made, way: str) -> Made:
    """The smallest case found by leaving out steps and statements that still differs this way."""
    runs = 0

    def differs(each: Made) -> bool:
        nonlocal runs
        runs += 1
        if not any(isinstance(step, str) for step in each.steps):
            return False
        return difference(each, (way,))[0] == way

    before = None
    while before != made and runs < _MOST_RUNS:
        before = made
        for name, smallest in (("steps", 1), ("body", 0)):
            position = len(getattr(made, name)) - 1
            while position >= 0 and len(getattr(made, name)) > smallest and runs < _MOST_RUNS:
                parts = getattr(made, name)
                candidate = attrs.evolve(made, **{name: parts[:position] + parts[position + 1 :]})
                if differs(candidate):
                    made = candidate
                position -= 1
        simpler = attrs.evolve(made, result="x")
        if made.result != "x" and differs(simpler):
            made = simpler
    return made


def kind_of(made: Made, way: str, outcome: str) -> str:
    """What a shrunk case is about, in a line: all that is left of it."""
    changes = [each.tag for each in made.steps if isinstance(each, Line)]
    body = " / ".join(each.tag for each in made.body)
    return f"{way} {outcome}: {body or 'nothing'}" + (
        f" || {' / '.join(changes)}" if changes else ""
    )


def script(made: Made, way: str) -> str:
    """A program to paste: the world lived through twice, and what differs."""
    fullgraph = ", fullgraph=True" if way == "fullgraph" else ""
    steps = [each if isinstance(each, str) else each.text for each in made.steps]
    state = [_OF_STATE.get(name, name) for name in made.things]
    return f"""import random, re, sys, threading, types, warnings
import numpy as np, torch, symshape

WORLD = {made.source()!r}
STEPS = {steps!r}

def live(wrap):
    torch.manual_seed(7); random.seed(7); np.random.seed(7)
    home, seen = types.ModuleType("w"), []
    sys.modules["w"], names = home, vars(home)
    exec(WORLD, names)
    fn = wrap(names["program"])
    def call(*args, **kwargs):
        try:
            seen.append(repr((fn(*args, **kwargs), args, kwargs)))
        except Exception as error:
            seen.append(f"{{type(error).__name__}}: {{error}}")
    def in_thread(*args, **kwargs):
        thread = threading.Thread(target=call, args=args, kwargs=kwargs)
        thread.start(); thread.join()
    names.update(call=call, in_thread=in_thread)
    for step in STEPS:
        try:
            exec(step, names)
        except Exception as error:
            seen.append(f"{{type(error).__name__}}: {{error}}")
        seen.append(str([names.get(each) for each in {state!r}]))
    return [re.sub(" at 0x[0-9a-f]+", "", each) for each in seen]

warnings.simplefilter("ignore")
print(WORLD)
compiled = live(lambda fn: symshape.compile(fn{fullgraph}))
for step, (a, b) in enumerate(zip(live(lambda fn: fn), compiled)):
    print("same " if a == b else "OTHER", a if a == b else f"{{a}}\\n   became {{b}}")
"""


# -- the fuzzer ------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> Outcome:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parser = fuzz_parser(__doc__, count=2_000, smoke=100)
    parser.add_argument(
        "--go-on",
        action="store_true",
        help="count differences by kind, one of each shown, and go on",
    )
    parser.add_argument("--way", choices=WAYS, help="only this one")
    args = parser.parse_args(argv)
    ways = [args.way] if args.way else tuple(WAYS)
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}

    def case(rng: random.Random) -> str:
        made = make(rng)
        way, outcome, told = difference(made, ways, counts)
        if not way:
            return outcome
        made = shrunk(made, way)
        told = difference(made, (way,))[2] or told
        kind = kind_of(made, way, outcome)
        text = f"{kind}\n{told}\n\n{script(made, way)}"
        if not args.go_on:
            raise Counterexample(text)
        counts[f"times {kind}"] += 1
        examples.setdefault(kind, f"\nFAILED {text}")
        return f"{way} {outcome}"

    must_see = () if args.way else ("right", "refused", "right, with errors")
    outcome = fuzz("world", case, args, must_see=must_see, counts=counts)
    outcome.failures += examples.values()
    return outcome
