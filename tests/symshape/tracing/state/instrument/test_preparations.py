"""What a library prepares once: done outside of the trace; then the program is traced as if it had
always been done.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape
from symshape.errors import UnsupportedError
from symshape.tracing.state.instrument import substitutes
from tests.models import ids

_lock = threading.Lock()


def install(module: Any) -> None:
    """As transformers does it: a flag that is looked at twice, a lock, hooks."""
    if getattr(module, "_installed", False):
        return
    with _lock:
        if getattr(module, "_installed", False):
            return
        if module.broken:
            raise ValueError("cannot be installed")
        for each in module.layers:
            each.register_forward_hook(lambda layer, given, made: made * 2)
        module._installed = True


class Doubling(nn.Module):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.broken = broken

    def forward(self, x: Tensor, doubled: bool = True) -> Tensor:
        try:
            if doubled:
                install(self)
        except Exception:
            return x - 1
        for each in self.layers:
            x = each(x)
        return x


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    library = ModuleType("a_library")
    library.install = install  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_library", library)
    monkeypatch.setattr(substitutes, "_PREPARATIONS", (("a_library", "install", "_installed"),))


def _pair(**how: Any) -> tuple[Any, Any]:
    module, twin = Doubling(**how), Doubling(**how)
    twin.load_state_dict(module.state_dict())
    return symshape.compile(module, fullgraph=True), twin


def test_a_compiled_module() -> None:
    compiled, twin = _pair()
    for n in (3, 4, 5, 1):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), twin(x))
    assert compiled.stats().traces == 2
    assert all(len(each._forward_hooks) == 1 for each in compiled.layers)


def test_after_calls_that_need_it_not() -> None:
    compiled, twin = _pair()
    for n in (3, 4, 5):
        x = torch.randn(n, 3)
        for doubled in (False, True, False):
            torch.testing.assert_close(compiled(x, doubled), twin(x, doubled))
    assert all(len(each._forward_hooks) == 1 for each in compiled.layers)


def test_a_trace() -> None:
    module = Doubling()
    traced = symshape.trace(module, torch.ones(4, 3))
    assert sum("mul" in str(each.op) for each in traced.graph.nodes) == 2


def test_the_flag_is_compared() -> None:
    compiled, twin = _pair()
    x = torch.randn(4, 3)
    for each in (compiled, twin):
        each(x)
        each._installed = False  # whoever takes it away has the hooks installed again
        each(x)
    assert (
        [len(each._forward_hooks) for each in compiled.layers]
        == [2, 2]
        == [len(e._forward_hooks) for e in twin.layers]
    )
    torch.testing.assert_close(compiled(x), twin(x))


def test_an_error_is_the_programs_own() -> None:
    module, twin = Doubling(broken=True), Doubling(broken=True)
    compiled: Any = symshape.compile(module)
    x = torch.randn(4, 3)
    with pytest.warns(symshape.FallbackWarning, match="prepares a Doubling"):
        assert torch.equal(compiled(x), x - 1)
    assert torch.equal(twin(x), x - 1)
    with pytest.raises(UnsupportedError, match=r"prepares a Doubling, .*; call it once before"):
        symshape.compile(Doubling(broken=True), fullgraph=True)(x)


@pytest.mark.parametrize("fails", [False, True])
def test_a_program_that_catches_everything(fails: bool) -> None:
    class Catching(Doubling):
        def forward(self, x: Tensor, doubled: bool = True) -> Tensor:
            try:
                install(self)
            except BaseException:
                if fails:
                    raise ValueError("no hooks") from None
                return x - 1
            return super().forward(x, doubled)

    module, twin = Catching(), Catching()
    twin.load_state_dict(module.state_dict())
    compiled: Any = symshape.compile(module, fullgraph=True)
    for n in (3, 4, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), twin(x))
    assert compiled.stats().traces


def test_hidden_states_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        vocab_size=100,
        use_cache=False,
    )
    model, twin = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
    twin.load_state_dict(model.state_dict())
    compiled: Any = symshape.compile(model, fullgraph=True)
    with torch.no_grad():
        for n in (5, 7, 9):
            call = {"input_ids": ids(2, n), "output_hidden_states": True}
            torch.testing.assert_close(compiled(**call).hidden_states, twin(**call).hidden_states)
            assert compiled(input_ids=call["input_ids"]).hidden_states is None
    assert compiled.stats().traces == 4
    fresh = transformers.LlamaForCausalLM(config).eval()
    assert (
        len(symshape.trace(fresh, input_ids=ids(2, 5), output_hidden_states=True).graph.outputs)
        == 5
    )


def test_a_library_that_registers_classes_when_it_first_meets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    library: Any = ModuleType("a_registering_library")
    source = """
class Base: pass
class Doubled(Base):
    def computed(self, x): return x * 2
served = {}
def found_for(x):
    if type(x) in served:
        return served[type(x)]
    for each in Base.__subclasses__():
        served[type(x)] = each()
    return served[type(x)]
def computed(x): return found_for(x).computed(x)
"""
    exec(source, vars(library))
    monkeypatch.setitem(sys.modules, "a_registering_library", library)
    monkeypatch.setattr(
        substitutes, "_REGISTRIES", (("a_registering_library", "found_for", "served"),)
    )
    compiled = symshape.compile(lambda x: library.computed(x) + 1, fullgraph=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(n)).tolist() == [3.0] * n
    assert compiled.stats().traces == 2
    assert list(library.served) == [Tensor]
