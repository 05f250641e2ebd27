"""Ranges up to sizes: as ``range`` in all that a program can ask, and a trace for each length, not
for each size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

SIZES = (
    (3, 5),
    (4, 7),
    (2, 6),
    (5, 3),
    (6, 9),
    (7, 11),
    (8, 4),
    (9, 13),
    (10, 8),
    (11, 12),
    (1, 1),
    (2, 0),
)


def _chunks(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    for i in range(0, x.shape[1], 3):
        end = min(i + 3, x.shape[1])
        out[:, i:end] = x[:, i:end] * i
    return out


def _out_of_range(x: torch.Tensor) -> Any:
    try:
        return x, range(x.shape[1])[6]
    except IndexError as error:
        return x, str(error)


def _no_step(x: torch.Tensor) -> Any:
    try:
        range(0, x.shape[1], 0)
    except ValueError as error:
        return x, str(error)


PROGRAMS: dict[str, tuple[int, Callable[[torch.Tensor], Any]]] = {
    "lengths": (
        6,
        lambda x: (
            x,
            len(range(x.shape[1])),
            len(range(2, x.shape[1], 3)),
            len(range(x.shape[1], 0, -2)),
        ),
    ),
    "members": (
        12,
        lambda x: (
            x,
            3 in range(0, x.shape[1], 2),
            20 in range(x.shape[1]),
            2.0 in range(x.shape[0]),
        ),
    ),
    "of its class": (
        3,
        lambda x: (x, isinstance(range(x.shape[1]), range), type(range(x.shape[1])) is range),
    ),
    "ends": (
        3,
        lambda x: (
            x,
            range(1, x.shape[1] + 3, 2).stop,
            range(x.shape[1])[-1] if x.shape[1] > 0 else None,
        ),
    ),
    "pieces": (8, lambda x: [x[:, i : i + 4].sum() for i in range(0, x.shape[1], 4)]),
    "pieces, backwards": (8, lambda x: (x, list(reversed(range(0, x.shape[1], 4))))),
    "written piece by piece": (12, _chunks),
    "from a size": (3, lambda x: (x, [i - x.shape[1] for i in range(x.shape[1], x.shape[1] + 2)])),
    "summed": (9, lambda x: x * sum(range(0, x.shape[1], 3))),
    "downwards": (9, lambda x: (x, list(range(x.shape[0], -1, -4)))),
    "text": (12, lambda x: (x, repr(range(0, x.shape[1], 2)), f"{range(x.shape[1])}")),
    "compared": (
        12,
        lambda x: (x, range(x.shape[1]) == range(5), hash(range(x.shape[1])) == hash(range(7))),
    ),
    "asked": (
        12,
        lambda x: (
            x,
            range(x.shape[1] + 3).index(2),
            range(x.shape[1]).count(3),
            bool(range(x.shape[1])),
        ),
    ),
    "sliced": (12, lambda x: (x, list(range(x.shape[1])[1:3]), max(range(x.shape[1] + 1)))),
    "as positions": (
        12,
        lambda x: (x[list(range(0, x.shape[0], 2))], torch.tensor(range(0, x.shape[1], 2))),
    ),
    "beside others": (
        12,
        lambda x: (
            x,
            list(zip(range(x.shape[1]), "abcdefgh", strict=False)),
            dict(enumerate(range(x.shape[0]))),
        ),
    ),
    "out of range": (5, _out_of_range),
    "no step": (12, _no_step),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranges(name: str) -> None:
    most, fn = PROGRAMS[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for b, n in SIZES:
        x = torch.ones(b, n)
        expected, found = fn(x), compiled(x)
        assert repr(found) == repr(expected), (b, n)
    assert compiled.stats().traces <= most
