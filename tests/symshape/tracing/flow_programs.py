"""Random programs of control flow, one operator in another: of (operators, x, y), both (n, 3), to
one (n, 3).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

Program = Callable[[Any, Tensor, Tensor], Tensor]

_LINEAR = torch.nn.Linear(3, 3)
_SCALE = torch.nn.Parameter(torch.rand(3))
PARAMETERS = [*_LINEAR.parameters(), _SCALE]
"""What the programs read besides their arguments."""
ROWS_GO_BACK = "movedim(elem, 0, dim)" in inspect.getsource(scan)
"""Whether ``scan`` stacks its results along ``dim`` (2.13) rather than along their first dimension
(2.11).
"""
_UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    *(torch.sin, torch.tanh, torch.neg, torch.abs),
    *(lambda t: t * 2, lambda t: t.cumsum(0), lambda t: t.softmax(-1), lambda t: t.flip([0])),
)
_BINARY = (torch.add, torch.mul, torch.maximum, torch.sub)
_CONDITIONS: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    *(lambda x, y: x.sum() > 0, lambda x, y: (x > y).any()),
    *(lambda x, y: x.size(0) > 2, lambda x, y: y.sum() > x.sum()),
)


def program(rng: random.Random, depth: int) -> Program:
    """A program whose operators lie so deep in one another."""
    kinds = (*_LEAVES, *(_INNER if depth else ()))
    return rng.choice(kinds)(rng, depth)


def _below(rng: random.Random, depth: int) -> Program:
    return program(rng, depth - 1) if depth else lambda m, x, y: x


def _unary(rng: random.Random, depth: int) -> Program:
    op, inner = rng.choice(_UNARY), _below(rng, depth)
    return lambda m, x, y: op(inner(m, x, y))


def _binary(rng: random.Random, depth: int) -> Program:
    op, one, other = rng.choice(_BINARY), _below(rng, depth), _below(rng, depth)
    return lambda m, x, y: op(one(m, x, y), other(m, y, x))


def _linear(rng: random.Random, depth: int) -> Program:
    return lambda m, x, y: torch.tanh(_LINEAR(x)) * _SCALE


def _sizes(rng: random.Random, depth: int) -> Program:
    return lambda m, x, y: x * x.size(0) / (y.size(0) + 1) + y.mean()


def _without_gradients(rng: random.Random, depth: int) -> Program:
    inner = _below(rng, depth)

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            made = inner(m, x, y)
        return made + x

    return run


def _cond(rng: random.Random, depth: int) -> Program:
    condition, one, other, form = (
        rng.choice(_CONDITIONS),
        _below(rng, depth),
        _below(rng, depth),
        rng.randrange(4),
    )

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        holds = condition(x, y)
        if form == 0:
            found = m.cond(
                holds,
                lambda p, q: one(m, p, q).clone(),
                lambda p, q: other(m, q, p).clone(),
                (x, y),
            )
        elif form == 1:
            found = m.cond(holds, lambda p: one(m, p, y) + 1, lambda p: other(m, p, x) * 1, (x,))
        elif form == 2:
            rows = m.cond(
                holds,
                lambda p: one(m, p, y)[(p > 0).any(-1)] * 1,
                lambda p: torch.cat([other(m, p, x), p]),
                (x,),
            )
            found = x + rows.sum(0) / (rows.size(0) + 1)
        else:
            left, right = m.cond(
                holds,
                lambda p: (one(m, p, y) + 1, p.sum(-1)),
                lambda p: (other(m, p, x) * 1, p.mean(-1)),
                (x,),
            )
            found = left + right[:, None]
        return found  # type: ignore[no-any-return]

    return run


def _while(rng: random.Random, depth: int) -> Program:
    rounds, integers, inner = rng.randrange(4), rng.random() < 0.5, _below(rng, depth)

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        start: Any = (
            0 if integers and not torch.is_grad_enabled() else torch.zeros((), dtype=torch.int64)
        )
        i, made = m.while_loop(
            lambda i, z: i < rounds,
            lambda i, z: (i + 1, torch.tanh(inner(m, z, y)) * 1.0),
            (start, x.contiguous()),
        )
        return made + i  # type: ignore[no-any-return]

    return run


def _scan(rng: random.Random, depth: int) -> Program:
    one, other, reverse, dim = (
        _below(rng, depth),
        _below(rng, depth),
        rng.random() < 0.5,
        rng.choice([0, 1]),
    )

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        state, made = m.scan(
            lambda c, v: (torch.tanh(one(m, c, v)) * 1.0, (other(m, v, c) + c) * 1.0),
            torch.zeros_like(x),
            torch.stack([x, y, x + y], dim),
            dim=dim,
            reverse=reverse,
        )
        return state + made.sum(dim if ROWS_GO_BACK else 0)  # type: ignore[no-any-return]

    return run


def _scan_of_rows(rng: random.Random, depth: int) -> Program:
    inner, reverse = _below(rng, depth), rng.random() < 0.5

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        every = torch.cat([inner(m, x, y), y])
        state, made = m.scan(
            lambda c, v: (torch.tanh(c + v), c * v),
            torch.zeros_like(x[0]),
            every,
            dim=0,
            reverse=reverse,
        )
        return made[: x.size(0)] + state  # type: ignore[no-any-return]

    return run


def _levels(rng: random.Random, depth: int) -> Program:
    inner, combine, reverse = _below(rng, depth), rng.choice(_BINARY[:3]), rng.random() < 0.5

    def run(m: Any, x: Tensor, y: Tensor) -> Tensor:
        every = torch.cat([inner(m, x, y), y, x])
        made = m.associative_scan(
            lambda p, q: combine(p, q), every, 0, reverse, combine_mode="generic"
        )
        return made[: x.size(0)] * 0.5  # type: ignore[no-any-return]

    return run


_LEAVES = (_unary, _binary, _linear, _sizes)
_INNER = (_without_gradients, _cond, _cond, _while, _scan, _scan_of_rows, _levels)
