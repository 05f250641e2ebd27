"""Parameters, buffers and submodules that are exchanged: served without a trace, never by what
stood there before.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.rebinding import SETTLED

Change = Callable[[Any], object]


def _linear(tied: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    if tied:
        model[2].weight = model[0].weight
    return model


def _traces(model: nn.Module, *changes: Change, **options: Any) -> list[int]:
    """How many traces there were after each change, every result compared with eager's, at two
    sizes.
    """
    compiled = symshape.compile(model, **options)
    fast, found = symshape.compiled_of(compiled), []
    for rows in (3, 5):
        compiled(torch.randn(rows, 4))
    for change in (lambda _: None, *changes):
        change(model)
        for rows in (3, 7):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), model(x))
        found.append(fast.stats().traces)
    assert fast.stats().fallbacks == 0
    return found


def _weight(model: Any) -> None:
    model[0].weight = nn.Parameter(torch.randn(4, 4))


def _assigned(model: Any) -> None:
    model.load_state_dict(
        {key: torch.randn_like(each) for key, each in model.state_dict().items()}, assign=True
    )


def _layer(model: Any) -> None:
    model[0] = nn.Linear(4, 4)


@pytest.mark.parametrize("runner", ["eager", "padded"])
@pytest.mark.parametrize("change", [_weight, _assigned, _layer])
def test_what_is_alike_is_served_by_the_same_program(runner: Any, change: Change) -> None:
    with torch.set_grad_enabled(runner == "eager"):
        assert _traces(_linear(), change, change, change, runner=runner) == [2, 2, 2, 2]


def test_code_that_was_compiled_serves_on() -> None:
    model = Reads(lambda _: 1)
    compiled = symshape.compile(model, runner="inductor", dynamic=True)
    fast = symshape.compiled_of(compiled)
    for change in (_replaced, _assigned, _replaced):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), model(x))
        change(model)
    torch.testing.assert_close(compiled(x), model(x))
    assert fast.stats().traces == 1
    assert [each.runner.describe() for each in fast.entries] == ["inductor, 1 artefacts"]


def test_at_each_call_with_gradients() -> None:
    model, twin = _linear(), _linear()
    compiled = symshape.compile(model)
    for step in range(6):
        x = torch.randn(3 + step, 4)
        for each, one in ((model, compiled), (twin, twin)):
            one(x).pow(2).mean().backward()
            with torch.no_grad():
                new = {
                    key: each.get_parameter(key) - 0.1 * each.get_parameter(key).grad
                    for key in each.state_dict()
                }
            each.load_state_dict(new, assign=True)
            each.requires_grad_(True)
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert symshape.compiled_of(compiled).stats().traces == 2


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(4))
        self.other = self.one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 * self.one if self.one is self.other else x * self.one + self.other


def _both(model: Any) -> None:
    model.one = model.other = nn.Parameter(torch.randn(4))


def _one(model: Any) -> None:
    model.one = nn.Parameter(torch.randn(4))


def test_tied_and_untied() -> None:
    assert _traces(Tied(), _both, _one, _both, _one) == [2, 2, 3, 3, 3]


def test_an_object_that_stands_elsewhere_already() -> None:
    def meets(model: Any) -> None:
        model.one = model.other

    model = Tied()
    _one(model)
    assert _traces(model, _one, meets)[:2] == [2, 2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_metadata_is_traced(dtype: torch.dtype) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    def give(*args: Any, **kwargs: Any) -> Change:
        return lambda model: setattr(model, "weight", nn.Parameter(torch.randn(*args, **kwargs)))

    assert _traces(Scale(), give(1), give(1, 4)) == [2, 3, 4]
    assert _traces(Scale(), give(4, dtype=dtype), give(4, dtype=dtype)) == [2, 3, 3]
    frozen = lambda model: setattr(  # noqa: E731
        model, "weight", nn.Parameter(torch.randn(4), requires_grad=False)
    )
    assert _traces(Scale(), frozen, frozen) == [2, 3, 3]
    strided = lambda model: setattr(model, "weight", nn.Parameter(torch.randn(8)[::2]))  # noqa: E731
    assert _traces(Scale(), strided) == [2, 3]


class Reads(nn.Module):
    """Reads more of a parameter than what it holds."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.read(self.weight)


def test_attributes_of_a_parameter() -> None:
    def marked(value: int) -> Change:
        def change(model: Any) -> None:
            model.weight = nn.Parameter(torch.ones(4))
            model.weight.scale = value

        return change

    model = Reads(lambda weight: getattr(weight, "scale", 5))
    assert _traces(model, _replaced, marked(3), marked(3), marked(4)) == [2, 2, 3, 3, 4]


def _replaced(model: Any) -> None:
    model.weight = nn.Parameter(torch.randn(4))


def test_hooks_of_a_new_parameter() -> None:
    seen: list[int] = []
    model = Reads(lambda _: 1)
    compiled = symshape.compile(model)
    for rows in (3, 5, 6):
        compiled(torch.ones(rows, 4)).sum().backward()
    _replaced(model)
    model.weight.register_hook(lambda grad: seen.append(1) or grad * 2)
    compiled(torch.ones(3, 4)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((4,), 6.0))
    assert seen == [1]


def test_code_that_asks_which_object_it_has() -> None:
    traces = _traces(Reads(lambda weight: 1 + id(weight) % 7), _replaced, _replaced)
    assert traces[0] < traces[1] < traces[2]
    numbers: dict[Any, int] = {}
    model = Reads(lambda weight: numbers.get(weight, 3))
    numbers[model.weight] = 2
    assert _traces(model, _replaced) == [2, 3]


def test_ways_that_nobody_compares() -> None:
    weight = nn.Parameter(torch.ones(4))

    class Holds(nn.Module):
        def __init__(self, held: Any, read: Callable[[Any], torch.Tensor]) -> None:
            super().__init__()
            self.weight, self.held, self.read = weight, held, read

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + self.read(self.held)

    memo = functools.lru_cache(lambda: weight * 1)
    memo()
    ways: list[tuple[Any, Callable[[Any], torch.Tensor]]] = [
        ((weight,), lambda held: held[0]),
        (functools.partial(torch.mul, weight, 2), lambda held: held()),
        (weakref.ref(weight), lambda held: held()),
        (weight.add, lambda held: held(1)),
        ([(weight,)], lambda held: held[0][0]),
    ]
    for held, read in ways:
        _traces(Holds(held, read), _replaced, _replaced)


def test_containers_and_closures() -> None:
    weights = [torch.randn(4), torch.randn(4)]
    bias = torch.randn(4)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * weights[0] + weights[1] + bias

    compiled = symshape.compile(scaled)
    for rows in range(3, 12):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), scaled(x))
        weights[rows % 2], bias = torch.randn(4), torch.randn(4)
    assert compiled.stats().traces == 2
    weights[0] = weights[1]
    torch.testing.assert_close(compiled(x), scaled(x))
    weights.append(bias)
    torch.testing.assert_close(compiled(x), scaled(x))


def test_buffers_that_are_written() -> None:
    model, twin = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    compiled = symshape.compile(model)
    for rows in range(3, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), twin(x))
        for each in (model, twin):
            each.running_mean = torch.zeros(4)
            each.running_var = each.running_var.clone()
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert symshape.compiled_of(compiled).stats().traces == 2


def test_memory_that_is_shared_with_another() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Buffer(torch.zeros(4)), nn.Buffer(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one.add_(1)
            return x + self.other

    def apart(model: Any) -> None:
        model.one, model.other = torch.zeros(4), torch.zeros(4)

    def together(model: Any) -> None:
        model.one = torch.zeros(4)
        model.other = model.one.view(4)

    model, twin = Two(), Two()
    compiled = symshape.compile(model)
    for change in (apart, apart, together, together, apart):
        change(model)
        change(twin)
        for rows in (3, 4):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), twin(x))


def test_the_old_objects_are_let_go() -> None:
    model = _linear()
    compiled = symshape.compile(model)
    for rows in (3, 5, 6):
        compiled(torch.randn(rows, 4))
    old = weakref.ref(model[0].weight)
    _assigned(model)
    compiled(torch.randn(3, 4))
    gc.collect()
    assert old() is None


def test_what_comes_back_is_known() -> None:
    torch.manual_seed(0)
    adapters = [nn.Linear(4, 4) for _ in range(3)]
    model = _linear()
    compiled = symshape.compile(model)
    fast = symshape.compiled_of(compiled)
    for turn in range(12):
        model[0] = adapters[turn % 3]
        for rows in (3, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), model(x))
    assert fast.stats().traces == 2
    entries = len(fast.entries)
    for turn in range(6):
        model[0] = adapters[turn % 3]
        compiled(torch.randn(3, 4))
    assert len(fast.entries) == entries == 6


def test_what_is_written_and_kept() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.last: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = self.weight
            return x * self.weight

    model = Keeps()
    compiled = symshape.compile(model)
    for rows in range(3, 8):
        _replaced(model)
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), x * model.weight)
        assert model.last is model.weight


def test_a_branch_on_a_number_outside() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Buffer(torch.tensor(1.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if self.gate.item() > 1.5 else x + self.gate

    model = Gate()
    compiled = symshape.compile(model)
    for gate in (1.0, 3.0, -1.0, 2.0, -2.0):
        model.gate = torch.tensor(gate)
        for value in (0.0, 1.5):
            x = torch.tensor([value, 1.0])
            torch.testing.assert_close(compiled(x), model(x))


def test_an_argument_that_is_the_parameter() -> None:
    weight = [torch.ones(4)]

    def which(x: torch.Tensor) -> torch.Tensor:
        return x * 3 if x is weight[0] else x * 2

    compiled = symshape.compile(which)
    for _ in range(3):
        for x in (torch.ones(4), weight[0], torch.ones(4)):
            torch.testing.assert_close(compiled(x), which(x))
        weight[0] = torch.ones(4)


def test_through_a_store(tmp_path: Path) -> None:
    model = _linear()
    first = symshape.compile(model, store=str(tmp_path), dynamic=True)
    first(torch.randn(3, 4))
    again = symshape.compile(model, store=str(tmp_path), dynamic=True)
    for _ in range(4):
        _assigned(model)
        x = torch.randn(5, 4)
        torch.testing.assert_close(again(x), model(x))
    assert symshape.compiled_of(again).stats().traces == 0


@torch.no_grad()
@pytest.mark.parametrize("calls", [SETTLED // 2, 2 * SETTLED])
def test_a_padded_program_is_prepared_again_once_its_parameters_stay(calls: int) -> None:
    model = _linear()
    compiled = symshape.compile(model, runner="padded")
    fast = symshape.compiled_of(compiled)
    for rows in (3, 5):
        compiled(torch.randn(rows, 4))
    _assigned(model)
    for call in range(calls):
        x = torch.randn(3 + call % 4, 4)
        torch.testing.assert_close(compiled(x), model(x))
    assert ("again once" in fast.entries[-1].runner.describe()) == (calls < SETTLED)


def test_under_autocast() -> None:
    model = _linear()
    compiled = symshape.compile(model)
    for rows in range(3, 9):
        x = torch.randn(rows, 4)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(x), model(x))
        _assigned(model)
    assert symshape.compiled_of(compiled).stats().traces == 2
