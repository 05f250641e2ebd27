"""Random programs with ops that cannot be recorded, in pieces, however small; each call compared
with eager.

Programs are those of ``fuzz_padding`` with more data-dependent sizes, numbers read from tensors and
random numbers among their lines.  Every piece is padded that can be, and its buffers are poisoned
before each call.  Compared are values, sizes, strides, what is written to arguments, and which
results and arguments share memory.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch

import symshape
from symshape.errors import SymShapeError
from symshape.runtime.pieces import cutting
from symshape.runtime.runners.pieces.runner import PiecewiseRunner
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.fuzz.padded_runners import poison_buffers, served
from tests.fuzz.programs import Program, other_sizes, random_program
from tests.meta_fns.padding.poison import assert_same

CALLS = 6
# what is read then depends on the kernel
_ONTO_ITSELF = re.compile(r"(\w+)\.transpose\(.*\)\.add_\(\1\)")
REFUSALS = (
    ArithmeticError,
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    NotImplementedError,
    SymShapeError,
)


def case(rng: random.Random) -> str:
    """One program, in pieces."""
    program = random_program(rng, cuts=0.3)
    if any(map(_ONTO_ITSELF.search, program.lines)):
        return "reads what it writes"
    with warnings.catch_warnings(), torch.no_grad(), mock.patch.object(cutting, "LEAST", 1):
        warnings.simplefilter("ignore")
        return _calls(rng, program)


def _calls(rng: random.Random, program: Program) -> str:
    fn = program.function()
    compiled = symshape.compile(fn, dynamic=True, runner="padded", options={"randomness": "eager"})
    whole = symshape.compile(fn, dynamic=True)  # what is wrong there, too, other fuzzers look for
    seen = "not in pieces"
    for number in range(CALLS):
        sizes = other_sizes(rng, program) if number else program.sizes
        try:
            theirs = program.make(sizes)
            torch.manual_seed(number)
            expected = fn(*theirs), theirs
        except REFUSALS:
            continue  # this layout has no tensor of these sizes, or the program refuses it
        if not _in_pieces(compiled) and number:
            return seen
        poison_buffers(compiled, number)
        before = served(compiled)
        try:
            got = _called(compiled, program, sizes, number)
            _compare(got, expected)
        except SymShapeError:
            return "not traced"
        except Exception as error:
            if _is_wrong(whole, program, sizes, number, expected):
                return "wrong without pieces"
            if _depends_on_rounding(fn, program, sizes, number, expected):
                return "rounding decides"
            raise Counterexample(
                _shown(program, sizes, f"{type(error).__name__}: {error}", compiled)
            ) from error
        if served(compiled) > before:
            seen = "in pieces"
    return seen


def _called(compiled: Any, program: Program, sizes: Any, number: int) -> Any:
    arguments = program.make(sizes)
    torch.manual_seed(number)
    return compiled(*arguments), arguments


def _is_wrong(compiled: Any, program: Program, sizes: Any, number: int, expected: Any) -> bool:
    try:
        _compare(_called(compiled, program, sizes, number), expected)
    except Exception:
        return True
    return False


def _depends_on_rounding(fn: Any, program: Program, sizes: Any, number: int, expected: Any) -> bool:
    """Whether eager itself has other results for what is almost the same: rounding decides on a
    size.

    Values that are a little larger, and the same ones in order, which kernels may add up otherwise.
    """
    for turn in range(9):
        arguments = [_grown(each) if turn else _in_order(each) for each in program.make(sizes)]
        torch.manual_seed(number)
        try:
            results = torch.utils._pytree.tree_leaves(fn(*arguments))
            for mine, theirs in zip(
                results, torch.utils._pytree.tree_leaves(expected[0]), strict=True
            ):
                # their strides say nothing here
                pair = (_in_order(_double(each)) for each in (mine, theirs))
                assert_same(*pair, "result", tolerance=2e-2)
        except AssertionError:
            return True
        except REFUSALS:  # at what is almost the same, which says nothing of what it does here
            continue
    return False


def _grown(value: Any) -> Any:
    """A tensor a little larger in magnitude: no whole number falls below itself."""
    return (
        value * (1 + 1e-6 * torch.rand(value.shape).to(value.dtype)) if _is_float(value) else value
    )


def _in_order(value: Any) -> Any:
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _double(value: Any) -> Any:
    return value.double() if _is_float(value) else value


def _compare(got: Any, expected: Any) -> None:
    mine, theirs = (torch.utils._pytree.tree_leaves(each) for each in (got, expected))
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert_same(a, b, f"result {place}", tolerance=1e-3)
    assert _sharing(mine) == _sharing(theirs), (
        f"memory is shared by {_sharing(mine)}, not {_sharing(theirs)}"
    )


def _sharing(leaves: Sequence[Any]) -> list[int]:
    """For each tensor with elements the first one in the same memory."""
    first: dict[int, int] = {}
    tensors = [each for each in leaves if isinstance(each, torch.Tensor) and each.numel()]
    return [
        first.setdefault(each.untyped_storage().data_ptr(), place)
        for place, each in enumerate(tensors)
    ]


def _in_pieces(compiled: Any) -> bool:
    return any(isinstance(entry.runner, PiecewiseRunner) for entry in compiled.entries)


def _shown(program: Program, sizes: Any, what: str, compiled: Any) -> str:
    told = "\n".join(f"# {entry.runner.describe()}" for entry in compiled.entries)
    return (
        f"{program.source()}\n\n{program.call(sizes)}\n# {what}\n# grown at {program.sizes}\n{told}"
    )


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case is one program at up to six sizes."""
    torch.set_num_threads(1)
    return run_fuzzer("pieces", __doc__, argv, case, count=1000, smoke=30, must_see=("in pieces",))
