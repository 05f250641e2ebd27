"""What a program of every day is, and its judge: traced once at one shape, then held against eager
at five.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import attrs
import torch

import symshape
from symshape import SymShapeError
from tests.symshape.eager import check_or_same

SHAPES = ((3, 5), (4, 7), (2, 6), (5, 3), (6, 9))
"""Of batch and length; the first is traced.  No two sizes of one shape are alike, and none is 0 or
1.
"""

Arguments = tuple[Any, ...]
Made = tuple[Callable[..., Any], Callable[[int, int], Arguments]]


@attrs.frozen
class Program:
    """A program: its class, its name, what makes it and its arguments, and what of batch and length
    stays dynamic.

    Attributes:
        kind: its class.
        name: of what builds it.
        build: answers a fresh function and what makes its arguments of a batch ``b`` and a length
            ``n``.
        keeps: ``"b"``, ``"n"``, ``"bn"`` or ``""``: the sizes that may change without another
            trace.
    """

    kind: str
    name: str
    build: Callable[[], Made]
    keeps: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


@attrs.frozen
class Verdict:
    """What became of a program: ``refused``, ``wrong``, or the sizes that stay dynamic; and the
    particulars.
    """

    outcome: str
    detail: str = ""


PROGRAMS: dict[str, Program] = {}
"""All programs, by class and name."""


def everyday(kind: str, keeps: str = "bn") -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Registers a program of this class, of which these sizes stay dynamic."""

    def register(build: Callable[[], Made]) -> Callable[[], Made]:
        program = Program(kind, build.__name__, build, keeps)
        assert str(program) not in PROGRAMS, f"two programs are called {program}"
        PROGRAMS[str(program)] = program
        return build

    return register


def rows(b: int, n: int) -> Arguments:
    """One tensor of ``(b, n, 8)``."""
    return (torch.randn(b, n, 8),)


def flat(b: int, n: int) -> Arguments:
    """One tensor of ``(b, n)``."""
    return (torch.randn(b, n),)


def images(b: int, n: int) -> Arguments:
    """One tensor of ``(b, 3, n + 8, n + 9)``."""
    return (torch.randn(b, 3, n + 8, n + 9),)


def judge(
    program: Program,
    *,
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Verdict:
    """Traces a program at the first shape and runs it at all; dynamic is a size whose changes alone
    are served.

    Args:
        program: the program.
        around: the mode in which it is called, and was not built.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn, make = program.build()
        with around():
            return _judged(fn, make)


def _judged(fn: Callable[..., Any], make: Callable[[int, int], Arguments]) -> Verdict:
    try:
        traced = symshape.trace(fn, *make(*SHAPES[0]), dynamic=True)
    except SymShapeError as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    try:
        seen = {check_or_same(fn, traced, *make(*shape)) for shape in SHAPES}
    except AssertionError as error:
        return Verdict("wrong", str(error))
    b, n = SHAPES[0]
    changes = {"b": [(other, n) for other, _ in SHAPES], "n": [(b, other) for _, other in SHAPES]}
    kept = [
        name
        for name, shapes in changes.items()
        if all(traced.check(*make(*shape)) for shape in shapes)
    ]
    served = seen <= {"equal"} or len(kept) < 2
    detail = "" if served else f"at the five shapes: {sorted(seen)}"
    return Verdict("".join(kept) if served else "wrong", detail or traced.guards.text())
