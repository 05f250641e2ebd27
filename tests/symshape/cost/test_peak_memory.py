"""Peak memory as a formula: which moments can win, aliasing, in-place writes, alignment,
solving.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape
from symshape.cost.live_bytes import LiveBytes
from symshape.errors import InputError
from symshape.tracing.symbolic.tensors import SymbolicTensor


def test_parts() -> None:
    linear = torch.nn.Linear(4, 6)
    traced = symshape.trace(linear, torch.ones(3, 4), dynamic={"input": {0: "n"}})
    at = traced.peak_memory().at(n=10)
    assert (at.parameters, at.inputs, at.activations, at.outputs) == (4 * 30, 160, 0, 240)
    assert at.total == 520
    assert "aten.addmm.default" in at.place
    assert "parameters 120 B" in str(at)


def test_views_and_in_place_writes_take_no_memory() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = y.view(-1).mul_(2)
        return z[:2]

    peak = symshape.trace(fn, torch.ones(3, 4), dynamic={"x": {0: "n"}}).peak_memory()
    assert str(peak.total) == "32*n"
    assert peak.at(n=5).outputs == 80  # the slice keeps all of it


def test_either_of_two_moments() -> None:
    """The first line makes n*n, the second 100*n: which is greater depends on n."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        a = (x[:, None] * x[None, :]).sum(1)
        return (a[:, None] * torch.ones(100)).sum(1)

    peak = symshape.trace(fn, torch.ones(7), dynamic={"x": {0: "n"}}).peak_memory()
    assert len(peak.moments) == 2
    small, large = peak.at(n=20), peak.at(n=500)
    assert small.place != large.place
    for n in (1, 20, 95, 105, 500):
        with LiveBytes([torch.ones(n)]) as recorder:
            fn_runs = symshape.trace(fn, torch.ones(7), dynamic={"x": {0: "n"}})
        x = torch.ones(n)
        with LiveBytes([x]) as recorder:
            fn_runs(x)
        assert peak.at(n=n).total == peak.total.at(n=n) == recorder.peak


def test_schedules_differ_where_a_variable_holds_on() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        a = x + 1
        b = a * 2
        return b.sum(0) + x.sum(0)

    traced = symshape.trace(fn, torch.ones(3, 4), dynamic={"x": {0: "n"}})
    graph, eager = traced.peak_memory(), traced.peak_memory(schedule="eager")
    assert graph.at(n=100).total == 3 * 1600
    assert eager.at(n=100).total == 3 * 1600 + 3 * 16  # both are there when the sums are
    with pytest.raises(InputError, match="no schedule 'lazy'; choose from graph, eager"):
        traced.peak_memory(schedule="lazy")


def test_alignment() -> None:
    traced = symshape.trace(lambda x: x + 1, torch.ones(3), dynamic={"x": {0: "n"}})
    peak = traced.peak_memory(alignment=512)
    assert peak.at(n=1).total == 1024
    assert peak.at(n=129).total == 2048
    with pytest.raises(InputError, match="alignment=0 must be a positive number of bytes"):
        traced.peak_memory(alignment=0)


def test_largest() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(1, 2), -1)

    traced = symshape.trace(fn, torch.ones(3, 5, 8), dynamic={"x": {0: "batch", 1: "length"}})
    for alignment in (None, 512):
        peak = traced.peak_memory(alignment=alignment)
        best = peak.largest("length", batch=4, bytes="100 MB")
        assert (
            peak.at(batch=4, length=best).total <= 10**8 < peak.at(batch=4, length=best + 1).total
        )
    with pytest.raises(InputError, match="nothing fits"):
        traced.peak_memory().largest("batch", length=10**6, bytes="1 GB")


def test_a_budget_as_guards() -> None:
    """They hold exactly where the peak is within the budget."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(1, 2), -1)

    traced = symshape.trace(fn, torch.ones(3, 5, 8), dynamic={"x": {0: "batch", 1: "length"}})
    peak = traced.peak_memory()
    fits = peak.within("20 kB")
    seen = set()
    for batch in (1, 2, 3, 17):
        for length in range(1, 60, 3):
            found = fits.holds({"batch": batch, "length": length})
            assert found == (peak.at(batch=batch, length=length).total <= 20_000)
            seen.add(found)
    assert seen == {True, False}
    assert all("memory within 20 kB" in str(guard.origin) for guard in fits)
    flops = traced.cost().flops.within(10_000)
    assert flops.holds({"batch": 1, "length": 10})
    assert not flops.holds({"batch": 10, "length": 10})


def test_shown() -> None:
    peak = symshape.trace(lambda x: x + 1, torch.ones(3), dynamic={"x": {0: "n"}}).peak_memory()
    assert "aten.add.Tensor" in str(peak)
    assert "4*n" in peak._repr_html_()
    assert repr(peak) == "<PeakMemory of test_shown.<locals>.<lambda>: 8*n bytes>"


def test_the_error_about_an_attribute_is_in_no_variable_of_its_frame() -> None:
    """Else it would hold the frame, and with it the program's tensors, until garbage is
    collected.
    """
    asked: Any = SimpleNamespace(_kind=torch.Tensor)
    with pytest.raises(AttributeError) as caught:
        SymbolicTensor.__getattr__(asked, "__absent")
    assert caught.value not in caught.traceback[-1].frame.f_locals.values()


def test_a_tensor_asked_for_an_attribute_that_it_lacks_dies_like_others() -> None:
    """On Python 3.12 it did not; on 3.11 it always did."""

    def fn(x: torch.Tensor, ask: bool) -> torch.Tensor:
        def total() -> torch.Tensor:
            y = x * 2
            if ask:
                getattr(y, "absent", None)
            return y.sum()

        return (x * total()) * 3 + 1

    held = []
    gc.disable()
    try:
        for ask in (False, True):
            traced = symshape.trace(fn, torch.randn(8, 4), ask, dynamic={"x": {0: "n"}})
            made = [
                each for node in traced.graph.nodes for each in node.outputs if each is not None
            ]
            held.append([each.held_until for each in made])
    finally:
        gc.enable()
    assert held[0] == held[1]
    assert held[0][0] is not None
