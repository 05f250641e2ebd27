"""Modes of torch while a function is traced and while its graph runs: autocast, is_compiling."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape.calls.modes import modes
from symshape.tracing import traced_modes
from symshape.tracing.restart import Restart
from symshape.tracing.traced_modes import (
    compiling,
    while_tracing,
    without_autocast,
    without_autocast_cache,
    without_dynamo,
)
from tests.symshape.eager import agree

R = torch.randn


def test_autocast() -> None:
    linear = nn.Linear(4, 4)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low = linear(x)
        with torch.autocast("cpu", enabled=False):
            full = linear(x)
        return low, full, low + full, F.softmax(low, -1)

    with torch.autocast("cpu"):
        traced, seen = agree(fn, (R(3, 4),), (R(6, 4),))
        assert seen == ["equal", "equal"]
        # no symbolic cast of the weight stayed in autocast's cache
        assert type(linear(R(3, 4))) is torch.Tensor
        assert traced(R(3, 4))[0].dtype is torch.bfloat16
    assert "autocast" in traced.explain(R(3, 4))[0]
    entered, seen = agree(lambda x: _under_autocast(linear, x), (R(3, 4),), (R(6, 4),))
    assert seen == ["equal", "equal"]
    assert entered(R(2, 4)).dtype is torch.bfloat16


def _under_autocast(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return linear(x)  # type: ignore[no-any-return]


def test_a_cast_made_before_the_trace_is_no_constant() -> None:
    linear = nn.Linear(4, 4)
    with torch.autocast("cpu"):
        linear(R(3, 4))
        traced = symshape.trace(linear, R(3, 4))
        assert [each.tensor for each in traced.graph.lifted] == [linear.weight, linear.bias]
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
    with torch.autocast("cpu"):
        assert not traced(R(3, 4)).any()


def test_compiling_is_said_inside_and_only_there() -> None:
    assert not torch.compiler.is_compiling()
    with compiling():
        assert torch.compiler.is_compiling()
        with compiling():
            pass
        assert torch.compiler.is_compiling()
    assert not torch.compiler.is_compiling()
    with pytest.raises(KeyError), compiling():
        raise KeyError
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cache_of_autocast_is_put_back(enabled: bool) -> None:
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        with without_autocast_cache():
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled() is enabled
    finally:
        torch.set_autocast_cache_enabled(before)


def test_a_run_without_autocast_is_the_run_itself() -> None:
    traced = symshape.trace(lambda x: x + 1, R(3))
    run = traced.program.run
    assert not modes().autocast
    assert without_autocast(run, modes()) is run
    with torch.autocast("cpu", torch.bfloat16):
        assert without_autocast(run, modes()) is not run


def _only_in_eager(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    if mask is None and not torch.compiler.is_compiling():
        mask = torch.ones_like(x)
    return x * mask[:1]  # type: ignore[index]


def _in_neither(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        raise TypeError("not here")
    return x if x.sum() > 0 else -x


def test_a_program_that_fails_under_a_compiler_is_traced_as_eager_runs_it() -> None:
    fast = symshape.compile(_only_in_eager, fullgraph=True)
    for n in (3, 5, 8, 4):
        x = torch.rand(n, 2)
        assert torch.equal(fast(x), _only_in_eager(x))
    assert fast.stats().traces == 2


def test_the_reason_is_the_one_of_the_program_as_eager_runs_it() -> None:
    fast = symshape.compile(_in_neither)
    with pytest.warns(symshape.FallbackWarning, match="needs to know whether"):
        assert torch.equal(fast(torch.ones(3)), torch.ones(3))
    assert torch.equal(symshape.compile(_only_in_eager)(torch.ones(2, 2)), torch.ones(2, 2))


def test_what_dynamo_marks_modules_with_is_no_change_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does so once, when something is first compiled: in the program itself."""
    import torch._dynamo.mutation_guard as marking

    marking.install_generation_tagging_init()
    if not hasattr(nn.Module, "___needs_generation_tag_patch"):
        pytest.skip("this Dynamo marks no module (torch 2.15)")
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True)

    with while_tracing():
        assert not getattr(nn.Module, "___needs_generation_tag_patch")
        before = nn.Module.__init__
        x = torch.ones(3)
        assert torch.equal(torch.compile(lambda each: each * 2, backend="eager")(x), x * 2)
        assert nn.Module.__init__ is before


def test_a_scan_is_not_compiled_by_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._higher_order_ops.scan import scan

    def fn(x: torch.Tensor) -> torch.Tensor:
        return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(2), x)[1]  # type: ignore[no-any-return]

    monkeypatch.setattr(torch, "compile", None)
    traced = symshape.trace(fn, torch.randn(5, 2))
    monkeypatch.undo()
    x = torch.randn(4, 2)
    torch.testing.assert_close(traced(x), fn(x))


class TestBeforeDynamoIsLoaded:
    @pytest.fixture(autouse=True)
    def it_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [
            each
            for each in sys.modules
            if each == "torch._dynamo" or each.startswith("torch._dynamo.")
        ]:
            monkeypatch.delitem(sys.modules, name)

    def test_whoever_asks_for_it_ends_the_trace(self) -> None:
        before = list(sys.meta_path)
        with pytest.raises(Restart, match=r"needs torch\._dynamo"), without_dynamo():
            importlib.import_module("torch._dynamo.config")
        assert sys.meta_path == before

    def test_another_thread_may_load_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found: list[Any] = []

        def load() -> None:
            (wanted,) = (
                each for each in sys.meta_path if isinstance(each, traced_modes._DynamoWanted)
            )
            found.append(wanted.find_spec("torch._dynamo"))
            monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("torch._dynamo"))

        def trace() -> None:
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()

        with pytest.raises(Restart), without_dynamo():
            trace()
        assert found == [None]

    def test_else_nothing_happens(self) -> None:
        before = list(sys.meta_path)
        with without_dynamo():
            importlib.import_module("colorsys")
        assert sys.meta_path == before
        assert "torch._dynamo" not in sys.modules


_IN_A_FRESH_PROCESS = """
import sys, torch, symshape
from torch import nn
double = symshape.compile(lambda x: x * 2, fullgraph=True)
for n in (4, 5, 1):
    assert torch.equal(double(torch.ones(n)), torch.full((n,), 2.0))
assert "torch._dynamo" not in sys.modules, "Dynamo was loaded for nothing"

def inside(x):
    return torch.compile(lambda y: y * 2 + 1, backend="eager")(x)

def caught(x):
    try:
        import torch._dynamo
    except Exception:
        return x
    return x * 3

def caught_all(x):
    try:
        import torch._dynamo
    except:
        return x
    return x * 3

layer = nn.Linear(3, 3)
adam = torch.optim.Adam(layer.parameters())

def step(x):
    adam.zero_grad()
    loss = layer(x.expand(3)).sum()
    loss.backward()
    adam.step()
    return loss.detach()

CASE
compiled = symshape.compile(fn, fullgraph=True)
for n in (1, 1, 1):
    x = torch.ones(n)
    found = compiled(x)
    assert fn is step or torch.equal(found, (x * 2 + 1 if fn is inside else x * 3)), found
assert "torch._dynamo" in sys.modules
assert compiled.stats().fallbacks == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inside", "caught", "caught_all", "step"])
def test_a_fresh_process(name: str) -> None:
    """Programs that need Dynamo begin again when it is there; others never load it."""
    text = _IN_A_FRESH_PROCESS.replace("CASE", f"fn = {name}")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
