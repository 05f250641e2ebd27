"""What a function reads besides its arguments: modules, closures, globals, methods."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from tests.symshape.frontends.calling import Scaled, same, traces


class TestState:
    """What a function reads besides its arguments."""

    def check(self, module: nn.Module, f: Any, x: torch.Tensor) -> None:
        torch.manual_seed(0)
        now = f(x)
        torch.manual_seed(0)
        torch.testing.assert_close(now, module(x), rtol=0, atol=0)

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m.eval(),
            lambda m: m.drop.eval(),
            lambda m: setattr(m, "scale", 3.0),
            lambda m: setattr(m, "scale", 2),
            lambda m: setattr(m.drop, "p", 0.9),
            lambda m: m.powers.__setitem__(0, 3),
            lambda m: setattr(m, "powers", [3, 4]),
            lambda m: setattr(m, "linear", nn.Linear(3, 3, bias=False)),
            lambda m: setattr(m, "drop", nn.Identity()),
            lambda m: setattr(
                m.linear, "weight", nn.Parameter(torch.randn(3, 3), requires_grad=False)
            ),
            lambda m: setattr(m.linear, "bias", None),
            lambda m: setattr(m, "shift", torch.ones(3, dtype=torch.float64)),
            lambda m: m.linear.register_forward_hook(lambda _, __, out: out * 2),
            lambda m: m.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,)),
        ],
    )
    def test_a_change_of_a_module_is_seen(self, change: Any) -> None:
        torch.manual_seed(1)
        module = Scaled()
        f = symshape.compile(module)
        x = torch.randn(2, 3)
        self.check(module, f, x)
        change(module)
        self.check(module, f, x)
        assert traces(f) == 2
        self.check(module, f, x)
        assert traces(f) == 2

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m.load_state_dict(Scaled().state_dict()),
            lambda m: m.linear.weight.data.add_(1),
            lambda m: setattr(m.linear.weight, "data", torch.randn(3, 3)),
            lambda m: m.shift.add_(1),
            lambda m: setattr(m, "scale", float("2.0")),
        ],
    )
    def test_new_values_in_the_same_tensors_need_no_trace(self, change: Any) -> None:
        module = Scaled()
        f = symshape.compile(module)
        x = torch.randn(2, 3)
        self.check(module, f, x)
        change(module)
        self.check(module, f, x)
        assert traces(f) == 1

    def test_data_of_another_shape_or_dtype(self) -> None:
        linear = nn.Linear(3, 3, bias=False)

        def fn(x: torch.Tensor) -> torch.Tensor:
            return x + linear.weight.sum(0) * linear.weight.shape[0] * linear.weight.element_size()

        f = symshape.compile(fn)
        x = torch.ones(3)
        assert same(f(x), fn(x))
        linear.weight.data = torch.randn(7, 3)
        assert same(f(x), fn(x))
        linear.double()
        assert same(f(x), fn(x))

    def test_train_and_eval_in_turn_keep_an_entry_each(self) -> None:
        module = Scaled()
        f = symshape.compile(module)
        x = torch.randn(2, 3)
        for _ in range(3):
            module.train()
            self.check(module, f, x)
            module.eval()
            self.check(module, f, x)
        assert traces(f) == 2

    def test_a_module_as_an_argument(self) -> None:
        def fn(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return module(x)  # type: ignore[no-any-return]

        f = symshape.compile(fn)
        x = torch.randn(2, 3)
        first, second = nn.Linear(3, 3), nn.Linear(3, 2)
        for _ in range(2):
            assert same(f(first, x), first(x))
            assert same(f(second, x), second(x))
        assert traces(f) == 2
        second.weight = nn.Parameter(torch.randn(2, 3))
        assert same(f(second, x), second(x))
        assert traces(f) == 2, "one like the weight before"
        second.weight.requires_grad_(False)
        assert same(f(second, x), second(x))
        assert traces(f) == 3

    def test_closures_and_globals(self) -> None:
        scale, shift = 2.0, torch.ones(3)
        factors = [3.0]
        scope: dict[str, Any] = {"torch": torch}
        exec("GAIN = 5.0\ndef helper(x):\n    return x * GAIN", scope)
        helper = scope["helper"]

        def fn(x: torch.Tensor) -> torch.Tensor:
            return helper(x) * scale * factors[0] + shift  # type: ignore[no-any-return]

        f = symshape.compile(fn)
        x = torch.randn(3)
        assert same(f(x), fn(x))
        scale = 4.0
        assert same(f(x), fn(x))
        shift = torch.zeros(3)
        assert same(f(x), fn(x))
        factors[0] = 7.0
        assert same(f(x), fn(x))
        scope["GAIN"] = 6.0
        assert same(f(x), fn(x))
        assert traces(f) == 4, "the tensor was exchanged for one like it"
        shift.add_(1)
        assert same(f(x), fn(x))
        assert traces(f) == 4

    def test_an_attribute_is_no_global_of_the_same_name(self) -> None:
        scope: dict[str, Any] = {"t": 1, "shape": "mine"}
        exec("def fn(x):\n    return x.t().reshape(-1) * x.shape[0]", scope)
        f = symshape.compile(scope["fn"])
        f(torch.ones(2, 3))
        scope["t"], scope["shape"] = 2, "yours"
        f(torch.ones(2, 3))
        assert traces(f) == 1

    def test_methods(self) -> None:
        class Model:
            def __init__(self, scale: float) -> None:
                self.scale = scale

            @symshape.compile
            def run(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.scale

        one, two = Model(2.0), Model(3.0)
        x = torch.ones(3)
        for _ in range(2):
            assert one.run(x)[0] == 2
            assert two.run(x)[0] == 3
        one.scale = 5.0
        assert one.run(x)[0] == 5
        assert two.run(x)[0] == 3

    def test_methods_of_modules_bound_and_decorated(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            @symshape.compile
            def decorated(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.weight

            def plain(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.weight

        model = Model()
        x = torch.randn(3)
        bound = symshape.compile(model.plain)
        for f in (model.decorated, bound):
            assert same(f(x), x * model.weight)
            model.weight = nn.Parameter(torch.randn(3))
            assert same(f(x), x * model.weight)

    def test_a_partial(self) -> None:
        f = symshape.compile(functools.partial(torch.add, alpha=3))
        x = torch.randn(3)
        assert same(f(x, x), torch.add(x, x, alpha=3))
