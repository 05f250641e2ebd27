"""Edits between processes: a stored program is served where nothing that it read has changed, and
never where it has.

A program (text, run as a module) is compiled with a store and called; then it is edited, run anew
with fresh objects and a fresh compiled function, as another process would, and called again.  The
oracle is the edited program in eager: results, for two sizes.  After an edit that cannot matter at
least 95% are served without a trace.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import types
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import symshape
from symshape import events
from tests.fuzz.edits import CANNOT, MATTERS, Program, random_program
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser

EDITS = 10
_counts: Counter[str] = Counter()


def _run(program: Program) -> torch.nn.Module:
    for name, text in (("other_of_fuzz", program.other()), ("edited_by_fuzz", program.text())):
        module = types.ModuleType(name)
        module.__file__ = f"<{name}>"
        sys.modules[name] = module
        exec(compile(text, f"<{name} {random.random()}>", "exec"), module.__dict__)
    torch.manual_seed(0)
    made: torch.nn.Module = sys.modules["edited_by_fuzz"].Model()
    return made


def _calls(fn: Any) -> list[torch.Tensor]:
    return [fn(torch.linspace(-1.0, 1.0, 4 * n).reshape(n, 4)) for n in (3, 6)]


def _compare(program: Program, before: str, what: str, model: torch.nn.Module, fn: Any) -> None:
    expected, got = _calls(model), _calls(fn)
    for one, other in zip(expected, got, strict=True):
        same = (
            one.dtype is other.dtype
            and one.shape == other.shape
            and torch.allclose(one, other, equal_nan=True)
        )
        if not same or one.requires_grad != other.requires_grad:
            raise Counterexample(
                f"stale after {what!r}: {one} is {other}\n# before\n{before}\n# after\n"
                f"{program.text()}"
            )


def _compiled(model: torch.nn.Module, folder: str) -> Any:
    return symshape.compiled_of(symshape.compile(model, dynamic=True, store=folder))


def case(rng: random.Random) -> str | None:
    """One program with some edits, one after the other."""
    program = random_program(rng)
    folder = tempfile.mkdtemp(prefix="symshape-fuzz-")
    reasons: list[str] = []
    unsubscribe = events.subscribe(
        lambda event: (
            reasons.append(f"{type(event).__name__}: {event.reason}")
            if isinstance(event, (events.NotStored, events.StoreFailed, events.NotServed))
            else None
        )
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            model = _run(program)
            first = _compiled(model, folder)
            _compare(program, "", "nothing", model, first)
            for reason in reasons:
                _counts[reason[:120]] += 1
            if reasons or first.stats().fallbacks:
                return "not stored"
            for _ in range(EDITS):
                reasons.clear()
                _edit(rng, program, folder, reasons)
    finally:
        unsubscribe()
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("edited_by_fuzz", "other_of_fuzz"):
            sys.modules.pop(name, None)
    return "edited"


def _edit(rng: random.Random, program: Program, folder: str, reasons: list[str]) -> None:
    before = program.text()
    what, kind, edit = rng.choice(program.edits(rng))
    edit()
    model = _run(program)
    fn = _compiled(model, folder)
    _compare(program, before, what, model, fn)
    served = fn.stats().traces == 0 and not fn.stats().fallbacks
    _counts[
        f"edits that {'cannot matter' if kind == CANNOT else kind.replace('matters', 'matter')}"
    ] += 1
    if served:
        _counts[f"served after an edit that {kind}"] += 1
    elif kind == CANNOT:
        _counts[f"traced after {what}: {'; '.join(reasons)[:160]}"] += 1


def main(argv: Sequence[str] | None = None) -> Outcome:
    _counts.clear()
    args = fuzz_parser(__doc__, count=1000, smoke=6).parse_args(argv)
    outcome = fuzz("store", case, args, must_see=("edited",), counts=_counts)
    cannot, served = (
        _counts["edits that cannot matter"],
        _counts["served after an edit that cannot matter"],
    )
    with contextlib.suppress(ZeroDivisionError):
        if served / cannot < 0.95:
            outcome.failures.append(
                f"\nFAILED: {served} of {cannot} edits that cannot matter were served"
            )
    return outcome


__all__ = ["MATTERS", "main"]
