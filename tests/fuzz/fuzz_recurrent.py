"""Random programs of recurrent layers that compute gradients, or train, compiled and called at
three sizes.

The oracle is the same program in eager mode with weights of its own that are the same: results,
gradients of arguments and weights, the weights, what was written to and the random state are
compared after each call.  A call that runs as it is (a fallback) is right, and counted.  Under
autocast a weight that is used twice is cast once in eager and twice in a graph: there both are held
to the program without casts, too.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape import events
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.fuzz.recurrent_programs import ENDS, IMPORTS, RecurrentProgram, random_recurrent_program

COUNTS: Counter[str] = Counter()
TOLERANCES: dict[int, dict[str, Any]] = {
    64: {"atol": 1e-9, "rtol": 1e-8},
    32: {"atol": 1e-4, "rtol": 1e-3},
    16: {"atol": 5e-2, "rtol": 5e-2},  # a weight that is used twice has one cast in eager
}
MUST_SEE = tuple(sorted(set(ENDS)))


@attrs.define
class World:
    """One of the two: a program with its weights."""

    run: Callable[..., Any]
    weights: list[torch.Tensor]

    def call(self, arguments: Sequence[torch.Tensor], seed: int, backward: bool) -> Any:
        """All that a call leaves to be seen; the error where it raises one."""
        torch.manual_seed(seed)
        try:
            result = self.run(*arguments)
            leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
            asked = [each for each in leaves if each.requires_grad]
            if backward and asked:
                torch.autograd.backward([each.sin().sum() for each in asked])
        except Exception as error:
            return error
        kinds = [(each.requires_grad, each.grad_fn is None) for each in leaves]
        changes = [(each.requires_grad, each.is_leaf) for each in (*arguments, *self.weights)]
        told = {
            "results": [each.detach() for each in leaves],
            "arguments": [each.detach() for each in arguments],
            "gradients of arguments": [each.grad for each in arguments],
            "gradients of weights": [each.grad for each in self.weights],
            "weights": [each.detach() for each in self.weights],
            "random state": [torch.get_rng_state()],
        }
        return {**told, "shown": [(kinds, changes, len(leaves))]}


def _differences(ours: Any, theirs: Any, bits: int, exact: Any) -> str | None:
    """What differs between two calls; None where nothing does, or no more than either from
    ``exact`` (not cast).
    """
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        if isinstance(theirs, Exception) and isinstance(ours, Exception):
            return None
        alone, error = (
            ("eager", theirs) if isinstance(theirs, Exception) else ("the compiled program", ours)
        )
        return f"{alone} alone raises {type(error).__name__}: {error}"
    tolerance = TOLERANCES[bits]
    for name, expected in theirs.items():
        if len(expected) != len(ours[name]):
            return f"{name}: {len(ours[name])}, not {len(expected)}"
        for number, (ours_one, theirs_one) in enumerate(zip(ours[name], expected, strict=True)):
            if not isinstance(theirs_one, torch.Tensor) or not isinstance(ours_one, torch.Tensor):
                if ours_one is not theirs_one and ours_one != theirs_one:
                    return f"{name}, {number}: {ours_one}, not {theirs_one}"
                continue
            try:
                torch.testing.assert_close(ours_one, theirs_one, equal_nan=True, **tolerance)
            except AssertionError as error:
                if exact is None or not _as_near(ours_one, theirs_one, exact[name][number]):
                    return f"{name}, {number}: {error}"
    return None


def _as_near(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether ours is about as far from the exact one as theirs is, which autocast rounds in
    another order.
    """
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    mine, other = (float((each.double() - exact.double()).abs().max()) for each in (ours, theirs))
    return mine <= 4 * other + 0.1


def _sizes(rng: random.Random) -> list[tuple[int, int]]:
    """Three sizes, each two or three times, in turn."""
    sizes = [
        (rng.choice((1, 2, 2, 3, 4, 5)), rng.choice((1, 2, 3, 4, 5, 6, 7, 8))) for _ in range(3)
    ]
    calls = [size for size in sizes for _ in range(rng.choice((2, 2, 3)))]
    if rng.random() < 0.5:
        rng.shuffle(calls)
    return calls


def _bits(program: RecurrentProgram) -> int:
    return 16 if program.casts else 32 if "32" in program.dtype else 64


def _reproducer(
    program: RecurrentProgram, calls: Sequence[tuple[int, int]], options: dict[str, Any], what: str
) -> str:
    made = "\n".join(
        f"{program.call(batch, length, seed)}\ncalls.append(({', '.join(program.names)}))"
        for seed, (batch, length) in enumerate(calls)
    )
    return (
        f"{IMPORTS}\nimport symshape\n{program.source()}\ncalls = []\n{made}\n"
        f"from tests.fuzz.fuzz_recurrent import check\nprint(check(build, calls, **{options}, "
        f"backward={program.end in ('results', 'loss')}, bits={_bits(program)}))\n# {what}"
    )


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def check(
    build: Callable[..., Any],
    calls: Sequence[Sequence[torch.Tensor]],
    *,
    dynamic: bool | None = None,
    runner: Any = "eager",
    backward: bool,
    bits: int,
) -> tuple[str, Any]:
    """Calls both in turn; how they ran (the counters), raises :class:`AssertionError` with what
    differs.
    """
    fn, weights = build()
    compiled: Any = symshape.compile(
        fn, dynamic=dynamic, runner=runner, options={"randomness": "eager"}
    )
    ours, theirs = World(compiled, weights), World(*build())
    plain = World(*build(cast=False)) if bits == 16 else None
    label = "equal"
    for seed, arguments in enumerate(calls):
        copies, others = ([_copied(each) for each in arguments] for _ in range(2))
        exact = None if plain is None else plain.call(others, seed, backward)
        expected = theirs.call(arguments, seed, backward)
        found = _differences(ours.call(copies, seed, backward), expected, bits, exact)
        if found is not None:
            raise AssertionError(f"call {seed}: {found}")
        if isinstance(expected, Exception):
            label = "errors"
    return label, compiled.stats()


def case(rng: random.Random) -> str:
    """One program, compiled and called six to nine times."""
    program = random_recurrent_program(rng)
    calls = _sizes(rng)
    options: dict[str, Any] = {
        "dynamic": rng.choice((None, True)),
        "runner": rng.choice(("eager", "eager", "eager", "padded")),
    }
    reasons: set[str] = set()

    def hear(event: events.Event) -> None:
        if isinstance(event, events.RanEagerly):
            reasons.add(event.reason[:90])
        if isinstance(event, events.Defect):
            COUNTS["defects"] += 1
            reasons.add("DEFECT " + str(event)[:200])

    stop = events.subscribe(hear)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = [program.make(*size, seed) for seed, size in enumerate(calls)]
            backward, bits = program.end in ("results", "loss"), _bits(program)
            label, stats = check(program.build, arguments, **options, backward=backward, bits=bits)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise Counterexample(_reproducer(program, calls, options, text)) from error
    finally:
        stop()
    COUNTS["calls"] += stats.calls
    COUNTS["calls that ran as they are"] += stats.fallbacks + stats.untraced
    COUNTS["traces"] += stats.traces
    for reason in reasons if label == "equal" else ():
        COUNTS[f"programs that fell back: {reason}"] += 1
    if label == "errors":
        return f"{program.end}, refused by eager"
    return f"{program.end}, ran as it is" if stats.fallbacks else program.end


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case makes six to nine calls."""
    torch.set_num_threads(1)
    COUNTS.clear()
    args = fuzz_parser(__doc__, count=300, smoke=40).parse_args(argv)
    return fuzz("recurrent", case, args, must_see=MUST_SEE, counts=COUNTS)
