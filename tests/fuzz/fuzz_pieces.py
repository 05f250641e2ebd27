"""Random programs with ops that cannot be recorded, in pieces, however small; each call compared with eager.

Programs are those of ``fuzz_padding`` with more data-dependent sizes, numbers read from tensors and random numbers
among their lines.  Every piece is padded that can be, and its buffers are poisoned before each call.  Compared are
values, sizes, strides, what is written to arguments, and which results and arguments share memory.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

import symshape
from symshape.errors import SymShapeError
from symshape.runtime.pieces import cutting
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.runners.piecewise import PiecewiseRunner
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.fuzz.programs import Program, other_sizes, random_program
from tests.meta_fns.padding.poison import assert_same, poison

CALLS = 6
_ONTO_ITSELF = re.compile(r"(\w+)\.transpose\(.*\)\.add_\(\1\)")  # what is read then depends on the kernel
REFUSALS = (ArithmeticError, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, SymShapeError)


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
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
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
        _poison(compiled, number)
        before = _served(compiled)
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
            raise Counterexample(_shown(program, sizes, f"{type(error).__name__}: {error}", compiled)) from error
        if _served(compiled) > before:
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
    """Whether eager itself has other results for what is almost the same: rounding decides on a size."""
    for _ in range(8):
        arguments = [_double(each) for each in program.make(sizes)]
        arguments = [each * (1 + 1e-7 * torch.randn(each.shape)) if _is_float(each) else each for each in arguments]
        torch.manual_seed(number)
        try:
            results = torch.utils._pytree.tree_leaves(fn(*arguments))
            for mine, theirs in zip(results, torch.utils._pytree.tree_leaves(expected[0]), strict=True):
                assert_same(_double(mine), _double(theirs), "result", tolerance=2e-2)
        except (AssertionError, RuntimeError):
            return True
    return False


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _double(value: Any) -> Any:
    return value.double() if _is_float(value) else value


def _compare(got: Any, expected: Any) -> None:
    mine, theirs = (torch.utils._pytree.tree_leaves(each) for each in (got, expected))
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert_same(a, b, f"result {place}", tolerance=1e-3)
    assert _sharing(mine) == _sharing(theirs), f"memory is shared by {_sharing(mine)}, not {_sharing(theirs)}"


def _sharing(leaves: Sequence[Any]) -> list[int]:
    """For each tensor with elements the first one in the same memory."""
    first: dict[int, int] = {}
    tensors = [each for each in leaves if isinstance(each, torch.Tensor) and each.numel()]
    return [first.setdefault(each.untyped_storage().data_ptr(), place) for place, each in enumerate(tensors)]


def _padded(compiled: Any) -> Iterator[PaddedRunner]:
    for entry in compiled.entries:
        if isinstance(entry.runner, PiecewiseRunner):
            yield from (each.runner for each in entry.runner.stages if isinstance(each.runner, PaddedRunner))


def _in_pieces(compiled: Any) -> bool:
    return any(isinstance(entry.runner, PiecewiseRunner) for entry in compiled.entries)


def _served(compiled: Any) -> int:
    """A number that grows with each call of which a bucket serves a piece."""
    return sum(max((bucket.lease.last_used for bucket in each.buckets), default=0) for each in _padded(compiled))


def _poison(compiled: Any, number: int) -> None:
    for runner in _padded(compiled):
        for bucket in runner.buckets:
            for buffer in bucket.buffers:
                poison(buffer, number)


def _shown(program: Program, sizes: Any, what: str, compiled: Any) -> str:
    told = "\n".join(f"# {entry.runner.describe()}" for entry in compiled.entries)
    return f"{program.source()}\n\n{program.call(sizes)}\n# {what}\n# grown at {program.sizes}\n{told}"


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case is one program at up to six sizes."""
    torch.set_num_threads(1)
    return run_fuzzer("pieces", __doc__, argv, case, count=1000, smoke=30, must_see=("in pieces",))
