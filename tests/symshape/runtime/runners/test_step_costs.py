"""How much work a whole step of training takes whose sizes never repeat: counted, since seconds are
the machine's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.graph import codegen
from symshape.runtime.padding import blueprint, planning
from symshape.runtime.runners.padded import fusion
from symshape.runtime.runners.pieces.runner import PiecewiseRunner

LAYERS = 8
SIZES = [(5, 9), (3, 17), (6, 30), (9, 50), (4, 7), (13, 100), (20, 12), (7, 3)]


def _step() -> Callable[[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the padding rules walked over a program, and how often code was generated; no
    tensor is printed.
    """
    found: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (found.update([name]), function(*args, **kwargs))[1]

    monkeypatch.setattr(planning, "pad", counted("walks", planning.pad))
    for module in (codegen, blueprint, fusion):
        monkeypatch.setattr(module, "compile_graph", counted("code", module.compile_graph))
    monkeypatch.setattr(
        torch.Tensor, "__repr__", lambda *args, **kwargs: pytest.fail("a tensor is printed")
    )
    return found


def test_a_step_of_training_is_made_once(done: Counter[str]) -> None:
    eager, compiled = _step(), symshape.compile(_step(), runner="padded", fullgraph=False)
    calls = []
    for size in SIZES:
        x = torch.randn(*size, 6)
        assert abs(float(compiled(x)) - float(eager(x))) < 1e-4
        calls.append(Counter(done))
    entry = compiled.entries[-1]
    assert isinstance(entry.runner, PiecewiseRunner)
    recorded = [stage.runner for stage in entry.runner.stages if stage.runner is not None]
    assert len(recorded) == 1, (
        "the updates have no sizes that vary, though there are as many as parameters"
    )
    assert len(recorded[0].buckets) >= len(SIZES) - 2  # type: ignore[attr-defined]
    traces = compiled.stats().traces
    assert traces <= 3
    assert calls[-1]["walks"] <= 2
    assert calls[-1]["code"] <= 2 * 2 + calls[-1]["walks"], (
        "of each program, what is between its pieces, and what is padded; not the whole"
    )
    assert calls[-1] == calls[2], "new sizes make nothing anew"
