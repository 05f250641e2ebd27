"""Padded calls answer eager's strides, where a size is 0 or 1 too; a call of which that is not
known runs op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.padding import true_layouts
from symshape.runtime.padding.true_layouts import TrueLayouts
from symshape.runtime.runners.padded.runner import PaddedRunner

T = torch.ones
IMAGES = torch.channels_last
Calls = Sequence[tuple[Any, ...]]


def layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def check(fn: Callable[..., Any], calls: Calls) -> list[PaddedRunner]:
    compiled = symshape.compile(fn, dynamic=True, runner="padded", fullgraph=True)
    for call in calls:
        mine, theirs = (torch.utils._pytree.tree_leaves(each(*call)) for each in (compiled, fn))
        sizes = [tuple(each.shape) for each in call]
        for a, b in zip(mine, theirs, strict=True):
            assert layout(a) == layout(b), sizes
            torch.testing.assert_close(a, b, msg=str(sizes))
    return [entry.runner for entry in compiled.entries if isinstance(entry.runner, PaddedRunner)]


SQUARES: Calls = [
    (T(3, 4),),
    (T(3, 1),),
    (T(1, 4),),
    (T(1, 1),),
    (T(2, 2),),
    (T(5, 3),),
    (T(1, 2),),
    (T(2, 1),),
]
CUBES: Calls = [
    (T(*sizes),)
    for sizes in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 4), (1, 1, 1), (3, 1, 2))
]
PROGRAMS: dict[str, tuple[Callable[..., Any], Calls]] = {
    "a cut": (lambda x: F.pad(x, (-1, 0)), SQUARES),
    "a cut of rows": (lambda x: F.pad(x, (0, 0, -1, 0)) * 1, SQUARES),
    "windows": (lambda x: x.unfold(0, 3, 2).rsqrt(), [(T(n),) for n in (9, 3, 4, 5, 8)]),
    "windows of rows": (
        lambda x: x.unfold(1, 2, 1) * 2,
        [(T(n, m),) for n, m in ((3, 5), (1, 2), (3, 2), (1, 3))],
    ),
    "expanded": (
        lambda x, y: (x * 2).expand(y.size(0), -1),
        [(T(1, 4), T(3)), (T(1, 5), T(1)), (T(1, 1), T(2)), (T(1, 1), T(1))],
    ),
    "expanded columns": (
        lambda x, y: (x.mT + 1).expand(-1, y.size(0)),
        [(T(1, n), T(m)) for n in (3, 1) for m in (4, 1)],
    ),
    "turned": (lambda x: x.t() * 2, SQUARES),
    "turned and copied": (lambda x: (x.t() + 1).clone(), SQUARES),
    "turned and a row": (lambda x: x.t() + x[:1].t(), SQUARES),
    "a row broadcast": (lambda x: (x[:1] + 1, x + x[:, :1]), SQUARES),
    "parts of a cut": (lambda x: x[:, ::2].mT * 2, SQUARES),
    "a cast of a part": (lambda x: x.t().unsqueeze(1).chunk(2, 2)[0].long(), SQUARES),
    "sums": (lambda x: x.mT.sum(0, keepdim=True), SQUARES),
    "squeezed": (lambda x: (x + 1).unsqueeze(-1).transpose(0, 2).contiguous(), SQUARES),
    "one memory": (lambda x: (lambda y: (y, y[:, :1], y.t()))(x * 2), SQUARES),
    "a reshape": (lambda x: x.transpose(0, 1).reshape(-1, x.size(2)) * 2, CUBES),
    "moved": (lambda x: x.movedim(0, -1) + 1, CUBES),
    "moved and joined": (lambda x: torch.cat([x.movedim(0, -1), x.movedim(0, -1)], 1), CUBES),
    "like another": (lambda x: torch.zeros_like(x.transpose(0, 1)) + x.transpose(0, 1), CUBES),
    "softmax": (lambda x: x.transpose(1, 2).softmax(-1), CUBES),
    "images": (
        lambda x: F.relu(x) + 1,
        [
            (T(*sizes).to(memory_format=IMAGES),)
            for sizes in ((2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1), (2, 3, 1, 5))
        ],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_are_those_of_eager(name: str) -> None:
    runners = check(*PROGRAMS[name])
    assert any(runner.buckets for runner in runners)


def test_calls_that_lie_otherwise_run_op_by_op() -> None:
    """The cut of a row of two has the stride of the row in eager, and of one element by the formula
    of a fresh copy.
    """
    fn = PROGRAMS["a cut"][0]
    traced = symshape.trace(fn, T(3, 4), dynamic=True)
    layouts = TrueLayouts(traced.program.graph)
    names = list(traced.program.positions)
    found = {
        sizes: layouts.differ(dict(zip(names, sizes, strict=True)))
        for sizes in ((3, 4), (1, 2), (2, 2), (1, 4))
    }
    assert not found[3, 4]
    assert not found[2, 2]
    assert found[1, 2] or found[1, 4]
    assert found == {sizes: layouts.differ(dict(zip(names, sizes, strict=True))) for sizes in found}


def test_contiguous_results_are_served_at_one() -> None:
    """A batch of one is the commonest size: where eager's strides are those of the formulas, it is
    padded.
    """
    compiled = symshape.compile(
        lambda x: F.linear(x, torch.ones(4, 4)) + 1, dynamic=True, runner="padded"
    )
    for n in (3, 1, 5, 1):
        compiled(T(n, 4))
    runners = [entry.runner for entry in compiled.entries]
    assert any(values[:1] == (1,) for runner in runners for values in runner.served())


def test_an_op_without_a_rule_is_not_known() -> None:
    """What is unknown is taken to differ at sizes of 1, and there alone."""
    traced = symshape.trace(lambda x: x[x.sum(1) > 0] * 2, T(3, 4), dynamic=True)
    layouts = TrueLayouts(traced.program.graph)
    assert layouts.differ(dict.fromkeys(traced.program.positions, 1))


def test_strides_that_mean_nothing_are_followed_no_further_than_they_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The places of tokens are a slice of one row: its results are contiguous, so no call asks the
    shape rules.
    """
    table, places = torch.nn.Embedding(16, 4), torch.arange(16)[None]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.relu(table(places[:, : x.shape[1]]) + x).transpose(1, 2)

    program = symshape.trace(fn, T(3, 5, 4), dynamic=[{0: True, 1: True}]).program
    assert any(
        true_layouts._has_idle_strides(value.spec)
        for node in program.graph.nodes
        for value in node.outputs
    )
    layouts, names = TrueLayouts(program.graph), list(program.positions)
    asked: list[object] = []
    real = true_layouts._inferred
    monkeypatch.setattr(
        true_layouts, "_inferred", lambda *args: (asked.append(args), real(*args))[1]
    )
    assert not any(
        layouts.differ(dict(zip(names, sizes, strict=True))) for sizes in ((3, 5), (2, 9), (7, 2))
    )
    assert not asked
    layouts.differ(dict(zip(names, (1, 5), strict=True)))
    assert asked


def test_what_is_computed_from_strides_that_mean_nothing_is_asked() -> None:
    places = torch.arange(16)[None]
    program = symshape.trace(
        lambda x: (places[:, : x.shape[1]] + 1, x * 2), T(3, 5), dynamic=True
    ).program
    layouts = TrueLayouts(program.graph)
    doubted = [value in layouts._doubted for value in layouts._results]
    assert doubted == [True, False]
