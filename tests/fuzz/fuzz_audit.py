"""Random programs of padded sequences through ``symshape.audit_padding``; no proof may be false.

Each proven output is compared in eager mode at other sizes, other masks with padding on the same
side, and other padding.  The positions at which it has to be equal are read from the words of the
report.  An audit that finds its own proof contradicted raises, which is a failure too.  A quarter
of the programs return gradients of a loss.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Sequence

import torch

import symshape
from symshape.auditing.report import LEAKS, PROVEN
from symshape.errors import InternalError, SymShapeError
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.fuzz.masked_programs import MaskedProgram, random_masked_program, with_gradients

CALLS = 6
GRADIENTS = 0.25  # the share of programs that return gradients
SIDES = ("right", "left", "any")
_PLACE = re.compile(r"mask\[([^\]]*)\]")
_INDEX = re.compile(r"i(\d+)(\*?)([+-]\d+)?")


def random_mask(rng: random.Random, batch: int, length: int, side: str) -> torch.Tensor:
    """A mask with padding on one side of each row; each row has a valid position."""
    mask = torch.zeros(batch, length, dtype=torch.int64)
    for row in mask:
        count = rng.randint(1, length)
        if side == "any":
            row[torch.tensor(rng.sample(range(length), count))] = 1
        else:
            row[slice(0, count) if side == "right" else slice(length - count, length)] = 1
    return mask


def random_call(rng: random.Random, side: str) -> dict[str, torch.Tensor]:
    """Arguments of a program, at random sizes."""
    batch, length = rng.randint(1, 4), rng.randint(2, 6)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return {
        "x": torch.randn(batch, length, 4, generator=generator),
        "ids": torch.randint(0, 6, (batch, length), generator=generator),
        "mask": random_mask(rng, batch, length, side),
    }


def other_padding(
    rng: random.Random, call: dict[str, torch.Tensor], scale: float
) -> dict[str, torch.Tensor]:
    """The same call with other padding."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    padding = call["mask"] == 0
    x = torch.where(
        padding[..., None], scale * torch.randn(call["x"].shape, generator=generator), call["x"]
    )
    ids = torch.where(padding, torch.randint(0, 6, padding.shape, generator=generator), call["ids"])
    return {"x": x, "ids": ids, "mask": call["mask"]}


def counted(where: str, mask: torch.Tensor, shape: Sequence[int], side: str) -> torch.Tensor:
    """The positions at which an output is claimed to be unaffected, from the words of the
    report.
    """
    found = torch.ones(tuple(shape), dtype=torch.bool)
    for place in _PLACE.findall(where):
        fixed = re.match(r"-?\d+, ", place)
        row, position = (
            _INDEX.fullmatch(each.strip())
            for each in (f"i0{place}" if fixed else place).split(",")[-2:]
        )
        if fixed:
            row, position = None, _INDEX.fullmatch(place.split(",")[1].strip())
        if (row is None and not fixed) or position is None or (row and row[2]) or position[2]:
            raise Counterexample(f"the fuzzer cannot read {where!r}")
        for index in (
            torch.cartesian_prod(*(torch.arange(size) for size in shape))
            .reshape(-1, len(shape))
            .tolist()
        ):
            r, p = (
                int(place.split(",")[0]) if row is None else index[int(row[1])],
                index[int(position[1])] + int(position[3] or 0),
            )
            inside = 0 <= p < mask.shape[1]
            valid = bool(mask[r, p]) if inside else (p < 0) == (side == "right")
            if not valid:
                found[tuple(index)] = False
    return found


def case(rng: random.Random) -> str:
    """One program, audited; each proof compared with eager."""
    program = random_masked_program(rng)
    if rng.random() < GRADIENTS:
        program = with_gradients(rng, program)
    fn = program.function()
    side = rng.choice(SIDES)
    with warnings.catch_warnings(), torch.set_grad_enabled(bool(program.loss)):
        warnings.simplefilter("ignore")
        example = random_call(rng, side)
        while bool(example["mask"].all()):
            example = random_call(rng, side)
        try:
            fn(**example)
        except (RuntimeError, IndexError, ValueError):
            return "eager raises"
        try:
            found = symshape.audit_padding(
                fn, example, {"x": {1: "length"}, "ids": {1: "length"}}, "mask", side=side
            )
        except InternalError as error:
            raise Counterexample(f"{program.source()}\n# side={side!r}\n# {error}") from error
        except SymShapeError:
            return "not traced"
        proven = [each for each in found.outputs if each.verdict == PROVEN]
        for number in range(CALLS if proven else 0):
            _compare(rng, program, found, side, 1.0 if number % 2 else 3.0)
    if program.loss:
        return f"gradients {'proven' if len(proven) == len(found.outputs) else 'not all proven'}"
    if proven:
        return "proven" if len(proven) == len(found.outputs) else "proven in part"
    return "leaks" if all(each.verdict == LEAKS for each in found.outputs) else "unknown"


def _within(guards: Sequence[str], call: dict[str, torch.Tensor]) -> bool:
    """Whether a call's sizes are within the guards of an audit; the width of ``x`` is the one other
    size.
    """
    batch, length = call["mask"].shape
    return all(bool(eval(each, {"batch": batch, "length": length, "s0": 4})) for each in guards)


def _compare(
    rng: random.Random,
    program: MaskedProgram,
    found: symshape.PaddingAudit,
    side: str,
    scale: float,
) -> None:
    fn = program.function()
    call = random_call(rng, side)
    if not _within(found.guards, call):
        return
    try:
        before, after = fn(**call), fn(**other_padding(rng, call, scale))
    except (RuntimeError, IndexError, ValueError):
        return
    for i, audit in enumerate(found.outputs):
        if audit.verdict != PROVEN:
            continue
        a, b = before[i], after[i]
        where = counted(audit.where, call["mask"], a.shape, side)
        same = torch.isclose(a.double(), b.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        if not bool(same[where].all()):
            words = f"{audit}\n# at mask {call['mask'].tolist()}, side={side!r}\n# {a}\n# {b}"
            raise Counterexample(f"{program.source()}\n# {words}")


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case is one program."""
    torch.set_num_threads(1)
    return run_fuzzer(
        "audit", __doc__, argv, case, count=1000, smoke=60, must_see=("proven", "leaks")
    )
