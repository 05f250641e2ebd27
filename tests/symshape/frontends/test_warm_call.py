"""What a warm call runs outside the graph, counted: functions of Python's and C's, whatever the
clock says.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # what is watched, is watched by its guards
from torch import nn

import symshape
from symshape.tracing.state import compiled
from symshape.tracing.state.compare.checker import Checker
from tests.counting import undisturbed

WARM = 24
"""Calls after which the state is watched."""


def _counted(call: Callable[[], Any]) -> Counter[str]:
    """How often functions are called, by name."""
    found: Counter[str] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found[f"{frame.f_code.co_name} in {frame.f_code.co_filename.rpartition('/')[2]}"] += 1
        elif event == "c_call":
            found[f"C: {argument.__name__}"] += 1

    with undisturbed(cold=False):
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
    del found["C: setprofile"]
    return found


def _net(depth: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()) for _ in range(depth))
    ).eval()


def _warm(depth: int, run: bool = False) -> Any:
    """A compiled network, watched, whose graph is not run."""
    module = symshape.compile(_net(depth), dynamic=True)
    x = torch.ones(3, 4)
    with torch.no_grad():
        for _ in range(WARM):
            module(x)
    compiled = symshape.compiled_of(module)
    (entry,) = compiled.entries
    compiled._cache.clock = 1  # far from the call that times itself
    flat = entry.run((x,), (3, 4))
    if not run:
        entry.run = lambda leaves, values: flat
    return module


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info >= (3, 13) and compiled.VERSIONS is None,
    reason="objects' attributes are told of to nobody",
)
@pytest.mark.skipif(
    compiled.METADATA is None, reason="the check of tensors is not compiled for this torch"
)
def test_a_warm_call_of_a_module_takes_as_many_calls_however_deep_it_is() -> None:
    x = torch.ones(3, 4)
    counted = []
    with torch.no_grad():
        for depth in (12, 60):
            module = _warm(depth)
            module(x)
            counted.append(_counted(lambda module=module: module(x)))
    assert counted[0] == counted[1]
    assert counted[0].total() <= 24, counted[0]


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info >= (3, 13) and compiled.VERSIONS is None,
    reason="objects' attributes are told of to nobody",
)
def test_a_call_of_new_sizes_takes_few_calls() -> None:
    module = _warm(12)
    with torch.no_grad():
        for size in (5, 6):
            module(torch.ones(size, 4))
        x = torch.ones(7, 4)
        counted = _counted(lambda: module(x))
    assert symshape.compiled_of(module).stats().traces == 1
    assert counted.total() <= 100, counted


@pytest.mark.slow
def test_a_float_that_varies_makes_no_tensor() -> None:
    compiled = symshape.compile(lambda x, a: x * a)
    plain = symshape.compile(lambda x: x * 2)
    x = torch.ones(3)
    for value in (0.1, 0.2, 0.3, 0.4):
        compiled(x, value)
        plain(x)
    found = _counted(lambda: compiled(x, 0.7))
    assert sum(found.values()) <= sum(_counted(lambda: plain(x)).values()) + 10, found
    assert not {"C: tensor", "C: as_subclass", "leaf_of in floats.py"} & set(found)


@dataclasses.dataclass
class Batch:
    """As programs pass them around."""

    x: torch.Tensor
    y: torch.Tensor
    mask: torch.Tensor
    heads: int
    times: int


@pytest.mark.slow
def test_an_object_of_tensors_takes_hardly_more_calls_than_flat_arguments() -> None:
    flat = symshape.compile(lambda x, y, mask, heads, times: x * heads + y * mask * times)
    whole = symshape.compile(lambda b: b.x * b.heads + b.y * b.mask * b.times)
    counted = []
    for compiled_one, make in (
        (flat, lambda *parts: parts),
        (whole, lambda *parts: (Batch(*parts),)),
    ):
        for _ in range(WARM):
            arguments = make(*(torch.ones(3) for _ in range(3)), 2, 3)
            compiled_one(*arguments)
        counted.append(_counted(lambda one=compiled_one, given=arguments: one(*given)).total())
    assert counted[1] <= counted[0] + 14, counted
    assert whole.stats().traces == 1


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info >= (3, 13) and compiled.VERSIONS is None,
    reason="objects' attributes are told of to nobody",
)
def test_the_state_of_a_watched_module_is_asked_for_in_one_pass() -> None:
    module = _warm(40)
    with torch.no_grad():
        module(torch.ones(3, 4))
        counted = _counted(lambda: module(torch.ones(3, 4)))
    apart = compiled.METADATA is None  # tensors then have a pass of their own
    of_torch = 1  # whether a function of torch was replaced is asked once, for all programs
    assert counted["C: check"] + counted["C: unchanged"] == 1 + of_torch + apart
    assert counted["holds in checker.py"] == 0


def test_it_is_still_right() -> None:
    module, plain = _warm(12, run=True), _net(12)
    with torch.no_grad():
        for size in (3, 5, 3):
            x = torch.randn(size, 4)
            assert torch.equal(module(x), plain(x))
        for each in (module, plain):
            each[3][0].weight.mul_(2)
        assert torch.equal(module(x), plain(x))
        for each in (module, plain):
            each[5][0].weight.data = torch.ones(8, 4)[::2]
        assert torch.equal(module(x), plain(x))
        for each in (module, plain):
            each[7][2] = nn.Tanh()
        assert torch.equal(module(x), plain(x))


def test_checkers_are_built_in_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building one takes milliseconds: in the first trace, and never in a call that is served."""
    net = _net(8)
    compiled_net = symshape.compile(net)
    done: list[tuple[str, int, int]] = []

    def noting(what: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            stats = compiled_net.stats()
            done.append((what, stats.calls, stats.traces))
            return fn(*args, **kwargs)

        return noted

    monkeypatch.setattr(Checker, "__init__", noting("built", Checker.__init__))
    with torch.no_grad():
        for _ in range(WARM):
            compiled_net(torch.randn(3, 4))
    assert {what for what, _, _ in done} == {"built"}
    assert {call for _, call, _ in done} == {1}
