"""The attributes of an object and the dictionary behind them: what is written to the one is seen in
the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape


@dataclasses.dataclass
class Held:
    """An argument that is flattened."""

    a: torch.Tensor
    k: int = 1


class Known:
    """An argument that is not."""

    def __init__(self, k: int) -> None:
        self.k = k


# ``h`` and its dictionary ``d`` stand outside; ``g`` and ``e`` are arguments that are these now and
# then.
OBJECT = {
    "g.a = g.a + x.sum()": "d['a']",
    "g.k = g.k + 1": "d['k']",
    "d['a'] = d['a'] + x.sum()": "g.a",
    "d['k'] = d['k'] + 1": "g.k",
    "d.update(k=d['k'] + 1)": "g.k",
    "g.a.add_(x.sum())": "d['a']",
    "g.a": "d['a']",
}
DICTIONARY = {
    "e['a'] = e['a'] + x.sum()": "h.a",
    "h.a = h.a + x.sum()": "e['a']",
    "h.k = h.k + 1": "e['k']",
    "e['k'] = e['k'] + 1": "h.k",
}
BOTH = {
    "g.a = g.a + x.sum()": "e['a']",
    "e['a'] = e['a'] + x.sum()": "g.a",
    "g.k += 1": "e['k']",
    "e['k'] += 1": "g.k",
    "g.z = x.shape[0]": "len(e)",
    "g.a = g.a + 1; e['k'] = 7": "g.k + e['a']",
}
CALLS = (
    (False, 3),
    (False, 4),
    (True, 3),
    (True, 3),
    (False, 5),
    (True, 6),
    (True, 7),
    (False, 3),
    (True, 3),
)


def _world(write: str, read: str, names: str, compiled: bool, calls: Any) -> list[Any]:
    """What each call answers, and what ``h`` holds after it."""
    h = Held(torch.tensor(2.0))
    known: dict[str, Any] = {"h": h, "d": vars(h), "torch": torch}
    exec(f"def f(x, {names}):\n    {write}\n    return x * ({read})\n", known)
    run: Callable[..., torch.Tensor] = symshape.compile(known["f"]) if compiled else known["f"]
    found = []
    for alike, n in calls:
        given = {
            "g": h if alike else Held(torch.tensor(3.0)),
            "e": vars(h) if alike else {"a": torch.tensor(4.0), "k": 3},
        }
        result = run(torch.arange(float(n)), *(given[name] for name in names.split(", ")))
        found.append((result.tolist(), repr(vars(h)), repr(given)))
    return found


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize(
    ("names", "write", "read"),
    [
        *(("g", *each) for each in OBJECT.items()),
        *(("e", *each) for each in DICTIONARY.items()),
        *(("g, e", *each) for each in BOTH.items()),
        *(("e, g", *each) for each in BOTH.items()),
    ],
)
def test_an_object_and_its_dictionary(names: str, write: str, read: str) -> None:
    for calls in (CALLS, CALLS[2:]):
        assert _world(write, read, names, True, calls) == _world(write, read, names, False, calls)


def test_an_object_that_is_not_taken_apart_and_its_dictionary() -> None:
    def fn(x: torch.Tensor, known: Known, held: dict[str, int]) -> torch.Tensor:
        held["k"] = held["k"] + 1
        return x * known.k

    left = []
    for run in (fn, symshape.compile(fn)):
        known = Known(2)
        left.append([run(torch.ones(n), known, vars(known)).tolist() for n in (3, 3, 4, 5)])
    assert left[0] == left[1]


def test_programs_are_remembered_where_no_dictionary_fits() -> None:
    counted = SimpleNamespace(n=0)

    def fn(x: torch.Tensor, held: dict[str, torch.Tensor]) -> torch.Tensor:
        counted.n += 1
        return x * held["a"] * counted.n

    compiled = symshape.compile(fn, fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(3), {"a": torch.ones(3)})
    assert not any(entry.program.apart for entry in compiled.entries)


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_a_module_that_holds_its_own_dictionary() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = 1
            self.own = self.__dict__

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.own["k"] = self.k + x.shape[0]
            return x * self.k

    left = []
    for compiled in (False, True):
        module = Module()
        run = symshape.compile(module) if compiled else module
        left.append([(run(torch.ones(n)).tolist(), module.k) for n in (3, 3, 4, 5)])
    assert left[0] == left[1]
