"""A compiled module is the module: its class, attributes, parameters and methods, and those of
torch.nn.
"""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import symshape
from symshape.errors import InputError


class Scaled(nn.Module):
    """A linear layer, a norm with buffers, and a factor."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Grown and scaled."""
        return self.norm(self.linear(x)) * self.scale  # type: ignore[no-any-return]

    def generate(self, x: torch.Tensor, times: int) -> torch.Tensor:
        """Calls itself, as models that generate do."""
        return torch.stack([self(x + i) for i in range(times)])


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x))  # type: ignore[no-any-return]


class Taken(nn.Linear):
    """A module with names that a compiled function has too."""

    entries = "mine"

    def stats(self) -> str:
        """Not ours."""
        return "the module's own"


X = torch.randn(5, 3)


@pytest.fixture
def pair() -> tuple[Any, Any]:
    """A module in evaluation mode, and what was compiled from it."""
    module = Scaled().eval()
    return module, symshape.compile(module, fullgraph=True)


def check(module: Any, compiled: Any, x: torch.Tensor = X) -> None:
    torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0)


def test_it_is_an_instance_of_the_modules_class(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    assert isinstance(compiled, Scaled)
    assert isinstance(compiled, nn.Module)
    assert compiled.__class__ is Scaled
    assert type(compiled) is not Scaled
    assert compiled.__doc__ == Scaled.__doc__
    assert compiled.forward.__doc__ == Scaled.forward.__doc__
    assert repr(compiled).startswith("CompiledScaled(")
    assert "(linear): Linear" in repr(compiled)
    assert type(module) is Scaled


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.train(),
        lambda m: m.eval(),
        lambda m: m.to(torch.float64),
        lambda m: m.half(),
        lambda m: m.requires_grad_(False),
        lambda m: m.apply(lambda _: None),
    ],
)
def test_what_answers_the_module_answers_the_compiled_one(
    move: Callable[[Any], Any], pair: tuple[Any, Any]
) -> None:
    module, compiled = pair
    twin = move(copy.deepcopy(module))
    assert move(compiled) is compiled
    assert module.training is twin.training is compiled.training
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        assert ours.dtype is theirs.dtype
        assert ours.requires_grad is theirs.requires_grad


def test_attributes_are_read_and_written_through(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    check(module, compiled)
    assert compiled.linear is module.linear
    assert compiled.norm.running_mean is module.norm.running_mean
    compiled.scale = 5.0
    compiled.more = nn.Linear(1, 1)
    compiled.register_buffer("kept", torch.ones(2))
    assert module.scale == 5.0
    assert module.more is compiled.more
    assert module.kept is compiled.kept
    check(module, compiled)
    del compiled.more
    assert not hasattr(module, "more")
    module.linear = nn.Linear(3, 4)
    check(module, compiled)
    with pytest.raises(AttributeError, match="nothing"):
        _ = compiled.nothing


def test_state_dicts_have_the_modules_keys(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    assert [*compiled.state_dict()] == [*module.state_dict()]
    other = Scaled().eval()
    compiled.load_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(X), other(X), rtol=0, atol=0)


def test_a_module_that_holds_it(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    outer, plain = Outer(compiled), Outer(module)
    assert [*outer.state_dict()] == [*plain.state_dict()]
    assert {id(each) for each in outer.parameters()} > {id(each) for each in module.parameters()}
    before = compiled.stats().calls
    outer(X)
    assert compiled.stats().calls == before + 1
    whole = symshape.compile(outer, fullgraph=True)
    check(outer, whole)
    module.scale = 7.0
    check(outer, whole)
    assert whole.stats().traces == 2, "what the inner module reads is guarded"


def test_methods_that_call_the_module_call_the_compiled_one(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    torch.testing.assert_close(compiled.generate(X, 3), module.generate(X, 3), rtol=0, atol=0)
    assert (compiled.stats().calls, compiled.stats().traces) == (3, 1)


def test_hooks_run_and_forward_runs_none(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    check(module, compiled)
    handle = compiled.register_forward_hook(lambda _, args, result: result + 1)
    check(module, compiled)
    torch.testing.assert_close(compiled.forward(X) + 1, module(X), rtol=0, atol=0)
    handle.remove()
    check(module, compiled)


@pytest.mark.parametrize(
    "again", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_compiled_and_start_without_programs(
    again: Callable[[Any], Any], pair: tuple[Any, Any]
) -> None:
    module, compiled = pair
    check(module, compiled)
    copied = again(compiled)
    kind: type = copied.__class__
    assert kind is Scaled
    assert copied.stats().calls == 0
    check(module, copied)
    assert copied.stats().traces == 1
    copied.scale = 9.0
    assert module.scale == 2.0
    assert compiled.stats().calls == 1
    assert symshape.compiled_of(copied)._fullgraph


def test_a_deep_copy_has_parameters_of_its_own(pair: tuple[Any, Any]) -> None:
    module, compiled = pair
    outer: Any = copy.deepcopy(Outer(compiled))
    assert outer.inner.linear.weight is not module.linear.weight
    nn.init.zeros_(outer.inner.linear.weight)
    check(module, compiled)


def test_a_parametrization_changes_the_class_of_both() -> None:
    class Doubled(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    module = nn.Linear(3, 3)
    compiled = symshape.compile(module)
    parametrize.register_parametrization(compiled, "weight", Doubled())
    assert type(module).__name__ == "ParametrizedLinear"
    assert compiled.__class__ is type(module)
    check(module, compiled)
    torch.testing.assert_close(compiled.weight, module.weight)


def test_forward_may_be_replaced() -> None:
    module: Any = Scaled().eval()
    twin = Scaled().eval()
    twin.load_state_dict(module.state_dict())
    module.forward = symshape.compile(module.forward, fullgraph=True)
    check(twin, module)
    assert module.forward.stats().traces == 1


def test_names_that_the_module_has_are_the_modules() -> None:
    compiled: Any = symshape.compile(Taken(3, 3))
    compiled(X)
    assert compiled.stats() == "the module's own"
    assert compiled.entries == "mine"
    assert symshape.compiled_of(compiled).stats().traces == 1
    assert compiled.explain_miss() == symshape.compiled_of(compiled).explain_miss()
    with pytest.raises(InputError, match=r"Linear was not returned by symshape\.compile"):
        symshape.compiled_of(nn.Linear(1, 1))
    with pytest.raises(InputError, match="already compiled"):
        symshape.compile(compiled)


def test_training() -> None:
    module, twin = Scaled(), Scaled()
    twin.load_state_dict(module.state_dict())
    compiled = symshape.compile(module, fullgraph=True)
    for each in (compiled, twin):
        optimiser = torch.optim.SGD(each.parameters(), 0.1)
        for n in (5, 5, 4):
            optimiser.zero_grad()
            each(X[:n]).square().sum().backward()
            optimiser.step()
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dynamo_sees_the_module_itself(pair: tuple[Any, Any]) -> None:
    _module, compiled = pair
    fast: Any = torch.compile(Outer(compiled), backend="eager", fullgraph=True)
    torch.testing.assert_close(fast(X), fast._orig_mod(X))
    assert compiled.stats().calls == 1, "only the call without Dynamo"


def test_subclasses_are_not_told_and_modules_die() -> None:
    told: list[str] = []

    class Registered(nn.Linear):
        def __init_subclass__(cls, **kwargs: Any) -> None:
            told.append(cls.__name__)

    module = Registered(3, 3)
    compiled = symshape.compile(module)
    assert not told
    assert compiled(X).shape == (5, 3)
    gone = weakref.ref(module)
    del module, compiled
    gc.collect()
    assert gone() is None


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning"
)
def test_script_modules_are_compiled_functions() -> None:
    scripted = symshape.compile(torch.jit.trace(nn.Linear(3, 3), X))  # type: ignore[no-untyped-call]
    assert isinstance(scripted, symshape.Compiled)
