"""Programs that branch on numbers in tensors are kept: every branch is served in another process,
and only its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.store.entry_format import read_header
from symshape.store.entry_text import checked, show
from symshape.store.store_errors import EntryError
from tests.symshape.store.storing import compiled, counts, entries

KEPT = torch.tensor(2.0)


def argument(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return x * 2 if t.item() > 1 else x - t


def computed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    rate = (t * KEPT - 1).clamp(min=0.0).item()
    if rate == 0.0:
        return x + 1
    return x / rate if rate <= 0.5 else x * rate


def counted(x: torch.Tensor, epoch: int) -> torch.Tensor:
    return x / (1.0 - epoch / 7) if (1.0 - epoch / 7) ** 0.5 > 0.6 else x - epoch


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limit", torch.tensor(1.0))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x.relu() if t.item() < self.limit.item() else x.sum() + self.limit


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([3]))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        times = self.seen * 2
        return x.relu() if times > 5 and t.item() < times.item() / 8 else x.sum() + times


CASES: list[Callable[..., Any]] = [argument, computed, Module(), Counting()]
TIMES = (2.0, 0.5, 0.25, 1.0, 7.0, float("nan"), 0.75)


def _run(fn: Callable[..., Any], made: Any, n: int) -> None:
    for i, time in enumerate(TIMES):
        args = torch.linspace(-1, 1, n + i), torch.tensor(time)
        torch.testing.assert_close(made(*args), fn(*args), equal_nan=True)


def test_numbers_made_of_integers_are_kept(tmp_path: Path) -> None:
    def run(made: Any) -> tuple[int, int]:
        for epoch in (1, 2, 5, 3, 4):
            x = torch.linspace(-1, 1, 3 + epoch)
            assert torch.equal(made(x, epoch), counted(x, epoch))
        return counts(made)

    assert run(compiled(counted, tmp_path))[0] == 2
    assert run(compiled(counted, tmp_path))[0] == 0


@pytest.mark.parametrize("fn", CASES, ids=lambda each: getattr(each, "__name__", "module"))
def test_another_process_traces_nothing(fn: Callable[..., Any], tmp_path: Path) -> None:
    first = compiled(fn, tmp_path)
    _run(fn, first, 4)
    traces, _ = counts(first)
    assert traces > 1
    assert len(entries(tmp_path)) == traces
    second = compiled(fn, tmp_path)
    _run(fn, second, 3)
    assert counts(second)[0] == 0


def test_numbers_outside_are_asked_for_again(tmp_path: Path) -> None:
    fn = compiled(computed, tmp_path)
    x, t = torch.ones(3), torch.tensor(1.0)
    torch.testing.assert_close(fn(x, t), computed(x, t))
    KEPT.fill_(1.0)
    try:
        again = compiled(computed, tmp_path)
        torch.testing.assert_close(again(x, t), computed(x, t))
        assert counts(again) == (1, 0)
    finally:
        KEPT.fill_(2.0)
    assert counts(fn) == (1, 0)


def test_it_is_shown(tmp_path: Path) -> None:
    compiled(argument, tmp_path)(torch.ones(3), torch.tensor(2.0))
    (path,) = entries(tmp_path)
    assert "numbers that it branches on, answered [true]:" in show(path.read_bytes())


def test_no_certificate_speaks_of_numbers(tmp_path: Path) -> None:
    x = torch.ones(4), torch.tensor(2.0)
    dynamic = {"x": {0: symshape.Dim("n", min=1, max=8)}}
    baked = symshape.bake(argument, x, dynamic=dynamic, store=tmp_path, certify=True)
    assert "branches on numbers in tensors" in str(baked)
    assert not baked.proofs[0].closed


def _with_data(content: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    header, body, _ = content.split(b"\n")
    found = json.loads(body)
    change(found)
    return b"\n".join((header, json.dumps(found).encode(), b""))


def _not_single(found: dict[str, Any]) -> None:
    graph = found["data"][0][0]["graph"]
    graph["specs"][0][0] = [5]


HOSTILE: list[Callable[[dict[str, Any]], Any]] = [
    lambda found: found["data"][0][0].update(relations=["__import__"]),
    lambda found: found["data"][0][0].update(relations=["gt", "gt"]),
    lambda found: found["data"][0][0].update(sources=[7]),
    lambda found: found["data"][0][0].update(sources=[1, 1]),
    lambda found: found["data"][0][0].update(dtypes=[]),
    lambda found: found["data"][0][0].update(sources=[{"object": "x"}]),
    lambda found: found["data"][0][0]["graph"].update(steps=[]),
    lambda found: found["data"][0][0]["graph"].update(ops=["os.system"]),
    lambda found: (
        found["data"][0][0]["graph"]["outputs"].reverse()
        or found["data"][0][0]["graph"]["outputs"].pop()
    ),
    _not_single,
    lambda found: found["data"][0][0].update(integers=[["s0"]]),
    lambda found: found["data"][0][0].update(integers=[["s0", 9]]),
    lambda found: found["data"][0][0].pop("integers"),
    lambda found: found.update(data={}),
    lambda found: found.pop("data"),
]


@pytest.mark.parametrize("change", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_questions_are_refused(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    compiled(argument, tmp_path)(torch.ones(3), torch.tensor(2.0))
    (path,) = entries(tmp_path)
    with pytest.raises(EntryError):
        checked(read_header(_with_data(path.read_bytes(), change)))


def test_any_change_is_refused_or_harmless(tmp_path: Path) -> None:
    """A leaf of the question is replaced: an EntryError, or an entry that can be read; nothing
    else.
    """
    compiled(computed, tmp_path)(torch.ones(3), torch.tensor(2.0))
    (path,) = entries(tmp_path)
    choose = random.Random(0)

    def change(found: dict[str, Any]) -> None:
        at: Any = found["data"]
        while True:
            key = choose.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], (dict, list)) or not at[key]:
                at[key] = choose.choice(
                    [None, -1, 1 << 70, "x", [], {}, True, 1.5, {"value": 0}, {"object": 9}]
                )
                return
            at = at[key]

    refused = 0
    for _ in range(150):
        try:
            checked(read_header(_with_data(path.read_bytes(), change)))
        except EntryError:
            refused += 1
    assert refused > 50
