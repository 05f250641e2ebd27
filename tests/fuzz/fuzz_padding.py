"""Random programs through padded programs, their buffers poisoned before each call, each call
compared with eager.

A program is grown op by op (``tests/fuzz/programs.py``), compiled with every size dynamic and
``runner="padded"``, and called at sizes that go up and down.  Whatever refuses runs op by op;
whatever is padded has to be right: values, strides at sizes of 1 too, and errors.  Some programs
are rich in ops whose strides depend on sizes of 0 and 1, that read what weighs nothing, or that
write to what they read; two in three call what only padding rules care about, gradients among it
(``tests/fuzz/padded_lines.py``).

    python -m tests.fuzz padding --device cuda --jobs 10 --seconds 60 --piece 40
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import torch

import symshape
from symshape.errors import SymShapeError
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.fuzz.padded_lines import PADDED_LINES
from tests.fuzz.padded_runners import padded_runners, poison_buffers, served
from tests.fuzz.programs import Program, other_sizes, random_program
from tests.meta_fns.padding.poison import assert_same

CALLS = 8
REFUSALS = (
    ArithmeticError,
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    NotImplementedError,
    SymShapeError,
)


def case(rng: random.Random, device: str = "cpu") -> str:
    """One program, padded."""
    more = rng.choice(((), PADDED_LINES, PADDED_LINES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = random_program(rng, hazards=rng.choice((0.0, 0.5)), more=more)
    fn = program.function()
    compiled = symshape.compile(fn, dynamic=True, runner="padded", options={"randomness": "eager"})
    seen = "not padded"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for number in range(CALLS):
            sizes = other_sizes(rng, program) if number else program.sizes
            try:
                if device != "cpu":  # where an index out of range ends the process
                    fn(*program.make(sizes))
                theirs = program.make(sizes, device)
            except REFUSALS:
                continue  # this layout has no tensor of these sizes
            expected: Any
            try:
                torch.manual_seed(number)
                expected = fn(*theirs), theirs
            except REFUSALS as error:
                expected = error
            poison_buffers(compiled, number)
            before = served(compiled)
            try:
                arguments = program.make(sizes, device)
                torch.manual_seed(number)
                got = compiled(*arguments)
            except SymShapeError:
                if isinstance(expected, Exception):
                    continue
                return "not traced"
            except Exception as error:
                if isinstance(expected, Exception):
                    continue
                if served(compiled) <= before:
                    return "wrong without padding"  # which other fuzzers look for
                raise Counterexample(
                    _shown(program, sizes, f"{type(error).__name__}: {error}")
                ) from error
            for refusal in _refusals(compiled):
                if "failed" in refusal:
                    raise Counterexample(_shown(program, sizes, refusal))
            if served(compiled) > before:
                if isinstance(expected, Exception):
                    raise Counterexample(
                        _shown(
                            program, sizes, f"eager raises {type(expected).__name__}: {expected}"
                        )
                    )
                seen = "padded"
                _compare(program, sizes, (got, arguments), expected)
    return seen


def _refusals(compiled: Any) -> list[str]:
    return [str(refusal) for each in padded_runners(compiled) for refusal in each.refusals.values()]


def _compare(program: Program, sizes: Any, got: Any, expected: Any) -> None:
    mine, theirs = (torch.utils._pytree.tree_leaves(each) for each in (got, expected))
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        try:
            assert_same(a, b, f"result {place}", tolerance=1e-3)
            if isinstance(b, torch.Tensor) and b.numel():
                assert a.stride() == b.stride(), (
                    f"result {place} has strides {a.stride()}, eager's {b.stride()}"
                )
        except AssertionError as error:
            raise Counterexample(_shown(program, sizes, str(error))) from error


def _shown(program: Program, sizes: Any, what: str) -> str:
    return f"{program.source()}\n\n{program.call(sizes)}\n# {what}\n# grown at {program.sizes}"


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case is one program at up to eight sizes."""
    parser = fuzz_parser(__doc__, count=1000, smoke=20)
    parser.add_argument("--device", default="cpu", help="of the arguments (default: cpu)")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    name = "padding" if args.device == "cpu" else f"padding --device {args.device}"
    return fuzz(name, lambda rng: case(rng, args.device), args, must_see=("padded",))
