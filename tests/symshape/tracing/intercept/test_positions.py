"""What tensors of positions hold: random programs, and what was found of them against what eager
makes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from guards.asking.assumptions import facts_from
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.terms import fold
from symshape.graph.steps import Value, written_values
from symshape.tracing.intercept.known_masks import Band, Linear, _Question, _Unknown

SIZES = ((4, 6), (2, 3), (5, 9), (3, 2), (2, 11))
FAR = 2**63 - 7


class Program:
    """A few integer and bool tensors, each made from those before by an op drawn from ``seed``."""

    def __init__(self, seed: int, ops: int) -> None:
        self.seed, self.ops = seed, ops

    def __call__(self, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        rng = random.Random(self.seed)
        a, b = x.shape
        integers = [
            torch.arange(a),
            torch.arange(b),
            torch.arange(a)[:, None],
            torch.zeros(a, b, dtype=torch.int64),
        ]
        bools = [torch.ones(a, b, dtype=torch.bool), torch.full((b,), False)]
        for _ in range(self.ops):
            t, u = rng.choice(integers), rng.choice(integers)
            number = rng.choice((0, 1, -1, 2, 3, FAR))
            try:
                self._step(rng, integers, bools, t, u, number, (a, b))
            except (RuntimeError, IndexError, symshape.SymShapeError):
                continue
        return integers, bools

    def _step(
        self, rng: random.Random, integers: Any, bools: Any, t: Any, u: Any, number: int, sizes: Any
    ) -> None:
        a, b = sizes
        p, q = rng.choice(bools), rng.choice(bools)
        dim = rng.randrange(-1, t.dim()) if t.dim() else 0
        made: dict[str, Callable[[], Any]] = {
            "add": lambda: t + number,
            "sub": lambda: t - number,
            "sum": lambda: t + u,
            "difference": lambda: t - u,
            "slice": lambda: t[number if abs(number) < 4 else 1 :],
            "strided": lambda: t[:: rng.choice((1, 2))],
            "last": lambda: t[..., -2:],
            "select": lambda: t.select(dim, rng.choice((0, 1, -1))),
            "unsqueeze": lambda: t.unsqueeze(dim),
            "flip dims": lambda: t.t() if t.dim() <= 2 else t.transpose(0, -1),
            "permute": lambda: t.permute(tuple(reversed(range(t.dim())))),
            "expand": lambda: t.expand(*rng.choice(((a, b), (b, a), (a, a), (3, a, b)))),
            "view": lambda: t.reshape(rng.choice(((1, -1), (-1, 1), (1, -1, 1), (-1,)))),
            "cat": lambda: torch.cat([t[:1] - 1, t]),
            "cat others": lambda: torch.cat([t, u], dim),
            "diff": lambda: torch.diff(t, prepend=t[..., :1] - 1),
            "cumsum": lambda: (p if rng.random() < 0.5 else t).cumsum(-1),
            "index": lambda: integers[3][torch.arange(a)[:, None], torch.arange(b)],
            "index by": lambda: t[torch.arange(t.shape[0])[rng.randrange(2) :]],
            "written": lambda: t.clone().add_(1),
            "copy": lambda: t.clone(),
        }
        compared: dict[str, Callable[[], Any]] = {
            "ge": lambda: t >= u,
            "gt": lambda: t > u,
            "le": lambda: t <= u,
            "lt": lambda: t < u,
            "ne": lambda: t != u,
            "eq": lambda: t == u,
            "ge number": lambda: t >= number,
            "lt size": lambda: t < b,
            "ne number": lambda: t != number,
            "and": lambda: p & q,
            "or": lambda: p | q,
            "not": lambda: ~p,
            "expand": lambda: p.expand(rng.choice(((a, b), (b, b)))),
            "move": lambda: p.transpose(0, -1),
            "slice": lambda: p[1:],
        }
        (integers if rng.random() < 0.6 else bools).append(
            made[rng.choice([*made])]()
        ) if rng.random() < 0.6 else (bools.append(compared[rng.choice([*compared])]()))
        if integers[-1].dtype is not torch.int64:
            integers.pop()
        if bools[-1].dtype is not torch.bool:
            bools.pop()


def _claims(
    program: Program,
) -> tuple[symshape.Traced, list[Linear | None], list[bool | Band | None]]:
    """What is found of each tensor, under the guards of a trace."""
    traced = symshape.trace(
        lambda x: program(x),
        torch.zeros(4, 6),
        dynamic={"x": {0: symshape.Dim("a", min=2), 1: symshape.Dim("b", min=2)}},
    )
    facts = facts_from({"a": (2, None), "b": (2, None)}, [guard.term for guard in traced.guards])
    nodes = list(traced.graph.nodes)
    makers = {output: node for node in nodes for output in node.outputs if output is not None}
    written = {value.storage for node in nodes for value in written_values(node)}
    integers: list[Linear | None] = []
    bools: list[bool | Band | None] = []
    for value in traced.graph.outputs:
        assert isinstance(value, Value)
        question = _Question(
            lambda each: ask(facts, each, effort=Effort.CHEAP, only=True) is True, makers, written
        )
        try:
            if value.spec.dtype is torch.bool:
                bools.append(question.truth(value, 64))
            else:
                integers.append(question.linear(value, 64))
        except _Unknown:
            (bools if value.spec.dtype is torch.bool else integers).append(None)  # type: ignore[attr-defined]
    return traced, integers, bools


def _held(claim: Linear, tensor: torch.Tensor, a: int, b: int) -> torch.Tensor:
    """The elements that are claimed."""
    start = fold.evaluate(claim.start, {"a": a, "b": b})
    made = torch.full(tuple(tensor.shape), int(start), dtype=torch.int64)
    for dim, step in enumerate(claim.steps):
        shape = [1] * tensor.dim()
        shape[dim] = -1
        made = made + step * torch.arange(tensor.shape[dim]).view(shape)
    return made


@pytest.mark.parametrize("block", range(3))
def test_random_programs(block: int) -> None:
    """The graph's own results at other sizes are the oracle: those that its guards allow."""
    known = 0
    for seed in range(block * 25, block * 25 + 25):
        try:
            traced, integers, bools = _claims(Program(seed, 14))
        except symshape.ConstraintViolation:  # an op that fixes a size
            continue
        for a, b in SIZES:
            try:
                made = traced(torch.zeros(a, b))
            except symshape.GuardViolation:
                continue
            for claim, tensor in zip(integers, made[0], strict=True):
                if claim is not None:
                    assert torch.equal(_held(claim, tensor, a, b), tensor), (seed, a, b, claim)
                    assert (
                        not tensor.numel()
                        or claim.bound is None
                        or int(tensor.abs().max()) <= claim.bound
                    )
                    known += 1
            for truth, tensor in zip(bools, made[1], strict=True):
                if type(truth) is Band:
                    assert torch.equal(_held(truth.of, tensor, a, b) >= 0, tensor), (
                        seed,
                        a,
                        b,
                        truth,
                    )
                elif type(truth) is bool:
                    assert bool((tensor == truth).all()), (seed, a, b, truth)
                known += truth is not None
    assert known > 300
