"""The poison harness: an op is padded, its padding poisoned, and its valid results compared with
eager's.

``poisoned`` traces a function of a few ops, pads every size that may be, and runs it at many sizes
up to the capacities with NaN, infinities and extreme integers in the padding of its arguments.
What a rule claims of the padding of its result (its fill) is compared too.  A rule that reads
padding, divides by a capacity or misplaces a position fails.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

import symshape
from guards.terms import fold
from meta_fns.padding.axes import Axis
from meta_fns.padding.fills import Fill
from symshape.graph.program import Program
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.padding.planning import Plan, plan
from symshape.runtime.padding.results import Part, amount
from symshape.runtime.runners.padded.bucket import Bucket

CPU = torch.device("cpu")
REFUSALS = (RuntimeError, IndexError, ValueError, ZeroDivisionError)


@attrs.frozen
class Arg:
    """How to make an argument: its sizes in the example, its dtype, for integers the range of its
    values, and which of its dimensions always have the size of the example.
    """

    sizes: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    low: int = 0
    high: int = 4
    positive: bool = False
    static: tuple[int, ...] = ()

    def make(self, sizes: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """A random argument of other sizes; floats have minus infinities and zeros among them now
        and then.
        """
        sizes = tuple(sizes)
        if self.dtype is torch.bool:
            return torch.rand(sizes, generator=generator) < 0.5
        if not self.dtype.is_floating_point:
            return torch.randint(self.low, self.high, sizes, generator=generator).to(self.dtype)
        made = torch.randn(sizes, generator=generator, dtype=torch.float64)
        return (made.abs() + 0.1 if self.positive else made).to(self.dtype)


def narrower(
    axes: Sequence[Axis], values: Mapping[str, int]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """What answers the valid part of tensors with these axes, for these sizes."""
    numbers = Numbers()
    part = Part(axes, numbers)
    return part.at(numbers.at(values))


def floats(*sizes: int, **options: Any) -> Arg:
    """A float32 argument."""
    return Arg(sizes, **options)


def ints(*sizes: int, high: int = 4, low: int = 0, dtype: torch.dtype = torch.int64) -> Arg:
    """An integer argument with values in ``low … high - 1``."""
    return Arg(sizes, dtype, low, high)


def bools(*sizes: int) -> Arg:
    """A bool argument."""
    return Arg(sizes, torch.bool)


@attrs.frozen
class Outcome:
    """What a run of the harness saw: how many sizes were compared, what was padded, which ops ran
    padded.
    """

    compared: int
    plan: Plan
    ops: frozenset[str]


def poisoned(
    fn: Callable[..., Any],
    *arguments: Arg,
    samples: int = 12,
    seed: int = 0,
    exact: Sequence[str] = (),
    tolerance: float = 2e-5,
) -> Outcome:
    """Runs ``fn`` padded and poisoned at sampled sizes.

    Raises: AssertionError where a valid result differs from eager's, or padding is not what the
    rule claims.
    """
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        program = symshape.trace(fn, *(_example(arg, generator) for arg in arguments)).program
        hints = {
            name: symbol.hint for name, symbol in program.symbols.items() if symbol.hint is not None
        }
        larger = _larger(program, hints, rng)
        made = plan(program, larger)
        if made.padded is None:
            return Outcome(0, made, frozenset())
        bucket = Bucket(program, made, CPU, None)
        compared = 0
        for number in range(samples):
            values = _sample(program, made, rng, number)
            if values is not None:
                compared += _compare(
                    fn, program, bucket, arguments, values, generator, number, tolerance
                )
    return Outcome(compared, made, frozenset(str(node.op) for node in program.graph.nodes))


def _example(arg: Arg, generator: torch.Generator) -> torch.Tensor:
    made = arg.make(arg.sizes, generator)
    for dim in arg.static:
        torch._dynamo.mark_static(made, dim)
    return made


def _larger(program: Program, hints: Mapping[str, int], rng: random.Random) -> dict[str, int]:
    """Values above the hints that satisfy the guards: the capacities are chosen around them."""
    terms = [guard.term for guard in program.guards]
    for _ in range(50):
        step = rng.choice((1, 2, 3))
        values = {name: value + step for name, value in hints.items()}
        if all(_holds(term, values) for term in terms):
            return values
    return dict(hints)


def _holds(term: Any, values: Mapping[str, int]) -> bool:
    try:
        return bool(fold.evaluate(term, values))
    except ZeroDivisionError:
        return False


def _sample(program: Program, made: Plan, rng: random.Random, number: int) -> dict[str, int] | None:
    """Sizes inside the bucket: the capacities first, then small ones, then any.

    With a capacity of 1 the size is 1: calls with a size of 0 run op by op.
    """
    terms = [guard.term for guard in program.guards]
    for attempt in range(60):
        values = dict(made.exact)
        same = rng.random() < 0.3  # sizes that have to be equal
        one = rng.randint(0, min(made.caps.values()))
        for name, cap in made.caps.items():
            edge = (
                rng.choice((0, min(1, cap), max(0, cap - 1), cap))
                if rng.random() < 0.4
                else rng.randint(0, cap)
            )
            chosen = cap if number == 0 and attempt == 0 else min(one, cap) if same else edge
            values[name] = 1 if cap == 1 else chosen
        if all(_holds(term, values) for term in terms):
            return values
    return None


def _compare(
    fn: Callable[..., Any],
    program: Program,
    bucket: Bucket,
    arguments: Sequence[Arg],
    values: dict[str, int],
    generator: torch.Generator,
    number: int,
    tolerance: float,
) -> int:
    inputs = []
    for each in program.graph.inputs:
        sizes = [amount(size, values) for size in each.value.spec.sizes]
        inputs.append(arguments[each.position].make(sizes, generator))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # eager warns of empty tensors
            expected = fn(*inputs)
    except REFUSALS:
        return 0
    for buffer in bucket.buffers:
        poison(buffer, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = bucket.call(inputs, inputs, bucket.place(values))
    flat = list(torch.utils._pytree.tree_leaves(expected))
    for place, (mine, theirs) in enumerate(zip(got, flat, strict=True)):
        assert_same(mine, theirs, f"result {place} at {values}", tolerance)
    assert_fills(bucket, values)
    return 1


def poison(buffer: torch.Tensor, number: int) -> None:
    """Fills memory with what nobody wants to read: NaN, infinities, the largest and smallest
    integers.
    """
    if buffer.dtype is torch.bool:
        buffer.fill_(number % 2 == 0)
    elif buffer.dtype.is_complex:
        poison(torch.view_as_real(buffer), number)
    elif buffer.dtype.is_floating_point:
        wrong = (math.nan, math.inf, -math.inf, min(1e30, torch.finfo(buffer.dtype).max))
        buffer.fill_(wrong[number % 4])
        flat = buffer.view(-1)
        flat[:: 1 + number % 3] = math.nan
    else:
        limits = torch.iinfo(buffer.dtype)
        buffer.fill_((limits.max, limits.min, 7, 0)[number % 4])


def assert_same(mine: Any, theirs: Any, what: str, tolerance: float = 2e-5) -> None:
    """Raises: AssertionError unless two results are equal in metadata and, up to rounding, in
    value.
    """
    if not isinstance(theirs, torch.Tensor):
        assert mine == theirs, what
        return
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), what
    if mine.numel() and all(size > 1 for size in mine.shape):
        assert mine.stride() == theirs.stride(), (what, mine.stride(), theirs.stride())
    if theirs.dtype in (torch.float16, torch.bfloat16):
        tolerance = max(tolerance, 2e-2)
    close = torch.testing.assert_close
    close(
        mine,
        theirs,
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda text: f"{what}: {text}",
    )


def assert_fills(bucket: Bucket, values: Mapping[str, int]) -> None:
    """Raises: AssertionError unless results hold, valid elements and padding, what the rules claim
    of them.
    """
    assert bucket.made.padded is not None
    assert bucket.recording is not None
    tensors = bucket.recording.replay()
    for place, padded in bucket.made.padded.outputs.values():
        tensor = tensors[place]
        apart = [
            int(getattr(size, "capacity", size)) for axis in padded.axes for size in (axis or (1,))
        ]
        inside = torch.zeros(apart, dtype=torch.bool)
        part = inside
        sizes = [size for axis in padded.axes for size in (axis or (1,))]
        for dim, size in enumerate(sizes):
            part = part.narrow(dim, 0, amount(size, values))
        part.fill_(True)
        inside = inside.reshape(tensor.shape)
        _assert_fill(tensor[inside], padded.valid, "valid elements")
        _assert_fill(tensor[~inside], padded.fill, "padding")
        assert narrower(padded.axes, values)(tensor).numel() == int(inside.sum())


def _assert_fill(elements: torch.Tensor, fill: Fill, what: str) -> None:
    if fill.kind == "constant":
        assert bool((elements == fill.value).all()), f"{what} claimed to be {fill}: {elements}"
    elif fill.kind == "finite":
        assert bool(torch.isfinite(elements).all()), f"{what} claimed to be finite: {elements}"
