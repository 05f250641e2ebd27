"""Random tensor programs, traced once with every size a symbol and called at other sizes, against
eager torch.

The law: the guards refuse a call, or the graph does exactly what eager does (values, metadata,
aliasing, mutation, refusals), and every spec in the graph is true of the tensor that it describes.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import symshape
from symshape.errors import DataDependentError, RuntimeAssertionError, UnsupportedError
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.fuzz.programs import Program, Sizes, other_sizes, random_program
from tests.symshape.eager import assert_same, bits, check_or_same, copy_call, outcome

CALLS = 6


def _reproducer(program: Program, sizes: Sizes, what: str) -> str:
    return (
        "import math, torch, symshape\nfrom torch.nn import functional as F\nfrom "
        "tests.fuzz.programs import T\n"
        f"from tests.symshape.eager import check_or_same\n{program.source()}\n"
        f"{program.call(program.sizes)}\n"
        f"traced = symshape.trace(program, {_names(program)}, dynamic={program.dynamic})\n"
        f"{program.call(sizes)}\n"
        f"print(check_or_same(program, traced, {_names(program)}))\n# {what}"
    )


def _names(program: Program) -> str:
    return ", ".join(each.name for each in program.arguments)


def traced_case(rng: random.Random) -> str:
    """One program: its trace at its own sizes, called at those and at others."""
    program = random_program(rng)
    fn = program.function()
    example = program.make(program.sizes)
    if isinstance(outcome(fn, example, {}), Exception):
        return "not a program"  # a line changed what an earlier one had worked on
    try:
        traced = symshape.trace(fn, *program.make(program.sizes), dynamic=program.dynamic)
    except (UnsupportedError, DataDependentError):
        return "not traced"
    except Exception as error:
        raise Counterexample(
            _reproducer(program, program.sizes, f"trace raises {type(error).__name__}: {error}")
        ) from error
    seen = []
    for number in range(CALLS):
        sizes = other_sizes(rng, program) if number else program.sizes
        try:
            arguments = program.make(sizes)
        except RuntimeError:
            continue  # this layout has no tensor of these sizes
        try:
            seen.append(check_or_same(fn, traced, *arguments))
            if seen[-1] == "equal":
                same_gradients(fn, traced, arguments)
        except Exception as error:
            raise Counterexample(
                _reproducer(program, sizes, f"{type(error).__name__}: {error}")
            ) from error
        if not number and seen not in (["equal"], ["asserted"]):
            raise Counterexample(
                _reproducer(program, sizes, f"its own example is {seen}, not equal")
            )
    return "equal elsewhere" if "equal" in seen[1:] else "refused elsewhere"


def same_gradients(
    fn: Callable[..., Any], traced: Callable[..., Any], arguments: Sequence[Any]
) -> None:
    """Both give the same gradients to the arguments that ask for them."""

    def gradients(served: Callable[..., Any]) -> list[bytes | None] | Exception:
        (args, _) = copy_call(arguments, {})
        leaves = [each for each in args if isinstance(each, torch.Tensor) and each.requires_grad]
        torch.manual_seed(0)
        results = [
            each
            for each in served(*args)
            if isinstance(each, torch.Tensor) and each.grad_fn is not None
        ]
        try:
            found = (
                torch.autograd.grad([each.sum() for each in results], leaves, allow_unused=True)
                if results
                else []
            )
        except RuntimeError as error:
            return error
        return [None if each is None else bits(each) for each in found]

    if any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments):
        theirs, ours = gradients(fn), gradients(traced)
        if isinstance(theirs, Exception) and isinstance(ours, Exception):
            return
        if theirs != ours:
            raise AssertionError(f"gradients differ: {theirs} in eager, {ours} in the graph")


def compiled_case(rng: random.Random) -> str:
    """One program compiled and called at several sizes in turn."""
    program = random_program(rng)
    fn = program.function()
    compiled = symshape.compile(
        fn, fullgraph=True, runner="eager", dynamic=rng.choice((None, True))
    )
    label = "compiled"
    for number in range(CALLS):
        sizes = other_sizes(rng, program) if number else program.sizes
        try:
            arguments = program.make(sizes)
        except RuntimeError:
            continue
        expected = outcome(fn, arguments, {})
        try:
            if isinstance(expected, Exception):
                if not isinstance(outcome(compiled, arguments, {}), Exception):
                    raise AssertionError(f"eager refuses ({expected}), the compiled program ran")
                label = "compiled, with errors"
            else:
                assert_same(fn, compiled, *arguments)
        except RuntimeAssertionError:
            label = "compiled, with errors"
        except (UnsupportedError, DataDependentError):
            return "not traced"
        except Exception as error:
            text = (
                f"compiled: call {number} of {program.sizes} and others: "
                f"{type(error).__name__}: {error}"
            )
            raise Counterexample(_reproducer(program, sizes, text)) from error
    return label


def case(rng: random.Random) -> str:
    """A case of either kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compiled_case(rng) if rng.random() < 0.2 else traced_case(rng)


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case tries six calls."""
    torch.set_num_threads(1)
    seen = ("equal elsewhere", "refused elsewhere", "compiled")
    return run_fuzzer("programs", __doc__, argv, case, count=2000, smoke=120, must_see=seen)
