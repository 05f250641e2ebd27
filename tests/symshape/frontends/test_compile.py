"""``symshape.compile``: how many traces a stream of calls costs, what each call answers, and what is said of a miss."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import symshape
from symshape import Dim, DimError, InputError, Options, Policy, RunnerError, events


def traces(fn: Any) -> int:
    return int(fn.stats().traces)


def same(now: Any, then: Any) -> bool:
    return torch.equal(now, then) and now.dtype == then.dtype and now.stride() == then.stride()


class TestPolicy:
    def test_first_static_then_dynamic(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(8))
        assert "static" in str(f.entries[0].guards.guards[0].origin)
        for size in (1, 2, 0, 5, 1000):
            assert same(f(torch.ones(size)), torch.ones(size) * 2)
        assert traces(f) == 2

    @pytest.mark.parametrize(
        "fn",
        [
            lambda x: x + 1,
            lambda x: x.sum(),
            lambda x: x.reshape(-1, 1).expand(-1, 3) @ torch.ones(3, 2),
            lambda x: torch.cat([x, x]),
            lambda x: x.softmax(0),
            lambda x: x[None].transpose(0, 1).contiguous(),
        ],
    )
    def test_sizes_8_1_2_0_compile_at_most_twice(self, fn: Any) -> None:
        f = symshape.compile(fn)
        for size in (8, 1, 2, 0):
            x = torch.randn(size)
            torch.testing.assert_close(f(x), fn(x))
        assert traces(f) <= 2

    def test_only_what_changes_becomes_dynamic(self) -> None:
        f = symshape.compile(lambda x, y: x @ y)
        f(torch.ones(2, 3), torch.ones(3, 4))
        f(torch.ones(5, 3), torch.ones(3, 4))
        first, second = f.entries
        assert [str(each.value.spec.sizes) for each in first.program.graph.inputs] == ["(2, 3)", "(3, 4)"]
        assert [[str(s) for s in each.value.spec.sizes] for each in second.program.graph.inputs] == [
            ["s0", "3"],
            ["3", "4"],
        ]
        f(torch.ones(7, 3), torch.ones(3, 9))
        assert traces(f) == 3
        f(torch.ones(1, 3), torch.ones(3, 1))
        assert traces(f) == 3

    def test_an_entry_that_fits_is_kept_for_its_sizes(self) -> None:
        f = symshape.compile(lambda x: x + 1)
        f(torch.ones(8)), f(torch.ones(3)), f(torch.ones(8))
        assert traces(f) == 2
        assert f.stats().hits == 1

    def test_dynamic_true_is_one_trace_for_sizes_and_integers(self) -> None:
        f = symshape.compile(lambda x, n: x * n, dynamic=True)
        for size, n in ((8, 3), (1, 1), (0, 0), (2, -5)):
            assert same(f(torch.ones(size), n), torch.ones(size) * n)
        assert traces(f) == 1

    def test_dynamic_false_is_one_trace_for_each_size(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic=False)
        for size in (8, 1, 2, 8, 1, 2):
            f(torch.ones(size))
        assert traces(f) == 3
        assert not any(each.program.symbols for each in f.entries)

    def test_a_description_makes_what_it_names_dynamic(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic={"x": {0: Dim("batch", max=64)}})
        f(torch.ones(8, 3)), f(torch.ones(2, 3))
        assert traces(f) == 1
        assert list(f.entries[0].program.symbols) == ["batch"]
        f(torch.ones(2, 4))
        assert traces(f) == 2
        with pytest.raises(DimError, match=r"x.size\(0\) is 65"):
            f(torch.ones(65, 3))

    def test_a_description_of_what_is_not_there_is_refused(self) -> None:
        f = symshape.compile(lambda x: x + 1, dynamic={"y": {0: "batch"}})
        with pytest.raises(DimError, match="'y'"):
            f(torch.ones(3))

    def test_marks_on_tensors_count(self) -> None:
        f = symshape.compile(lambda x: x + 1)
        x = torch.ones(8, 3)
        torch._dynamo.mark_dynamic(x, 0)
        f(x), f(torch.ones(5, 3))
        assert traces(f) == 1

    def test_integers_become_symbols_when_they_change(self) -> None:
        f = symshape.compile(lambda x, n: x.view(n, -1))
        for n in (2, 3, 4, 6, 12, 1):
            assert f(torch.ones(12), n).shape == (n, 12 // n)
        assert traces(f) == 2

    def test_branches_keep_an_entry_each(self) -> None:
        def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a * 2 if a.size(0) + b.size(0) > 2 else b

        f = symshape.compile(fn, dynamic=True)
        for _ in range(2):
            for m, n in ((3, 4), (1, 1), (2, 0), (0, 3), (9, 9)):
                a, b = torch.randn(m), torch.randn(n)
                assert same(f(a, b), fn(a, b))
        assert traces(f) == 2
        assert sorted(str(each.program.guards) for each in f.entries) == sorted(
            str(each.program.guards) for each in f.entries
        )

    def test_specialize_zero_one_and_duck_shape_on_request(self) -> None:
        f = symshape.compile(lambda x, y: x.sum() + y.sum(), dynamic=True, options=Options(specialize_zero_one=True))
        for size in (0, 1, 5, 1, 0, 7):
            f(torch.ones(size), torch.ones(5))
        assert traces(f) == 3
        assert [str(each.program.graph.inputs[0].value.spec.sizes[0]) for each in f.entries] == ["0", "1", "s0"]
        g = symshape.compile(lambda x, y: x.sum() + y.sum(), dynamic=True, options=Options(duck_shape=True))
        g(torch.ones(5), torch.ones(5)), g(torch.ones(4), torch.ones(4))
        assert traces(g) == 1
        g(torch.ones(4), torch.ones(5))
        assert traces(g) == 2


class TestArguments:
    """What else of the arguments an entry holds for."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (0.0, -0.0),
            (True, 1),
            (1, True),
            (1.0, 1),
            (1, 1.0),
            (2.5, 2.25),
            (complex(0.0, 0.0), complex(-0.0, 0.0)),
        ],
    )
    def test_scalars_that_python_calls_equal(self, first: Any, second: Any) -> None:
        def fn(x: torch.Tensor, k: Any) -> torch.Tensor:
            return torch.full_like(x, 1.0) / (x * k) if isinstance(k, float) else x * k

        f = symshape.compile(fn)
        x = torch.ones(3)
        for k in (first, second, first, second):
            now, then = f(x, k), fn(x, k)
            assert str(now) == str(then)
            assert now.dtype == then.dtype

    def test_nan_is_one_entry(self) -> None:
        f = symshape.compile(lambda x, k: x * k)
        for _ in range(3):
            assert f(torch.ones(2), float("nan")).isnan().all()
        assert traces(f) == 1

    def test_strings_none_and_dtypes(self) -> None:
        def fn(x: torch.Tensor, mode: Any, dtype: Any = None) -> torch.Tensor:
            y = x.sum() if mode == "sum" else x.mean() if mode == "mean" else x
            return y if dtype is None else y.to(dtype)

        f = symshape.compile(fn)
        x = torch.arange(4.0)
        for arguments in (("sum",), ("mean",), (None,), ("sum", torch.float64), ("sum", torch.int32), ("sum",)):
            assert same(f(x, *arguments), fn(x, *arguments))
        assert traces(f) == 5

    def test_huge_integers(self) -> None:
        f = symshape.compile(lambda x, n: x + n % 7)
        for n in (1, 2, 2**70, -(2**70) + 1):
            assert same(f(torch.zeros(2), n), torch.zeros(2) + n % 7)

    def test_dtype_requires_grad_and_dimension(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        for x in (
            torch.ones(3),
            torch.ones(3, dtype=torch.float64),
            torch.ones(3, requires_grad=True),
            torch.ones(3, 3),
        ):
            assert f(x).dtype == x.dtype
            assert f(x).requires_grad == x.requires_grad
        assert traces(f) == 4

    def test_device(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        assert f(torch.ones(3)).device.type == "cpu"
        assert f(torch.ones(3, device="meta")).device.type == "meta"
        assert traces(f) == 2

    def test_layouts(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            return x.view(-1) if x.is_contiguous() else x.t().contiguous()

        f = symshape.compile(fn)
        base = torch.arange(24.0).view(4, 6)
        for x in (base, base.t(), base[1:], base[:, 1:3], base[:, ::2], base.t()[1:]):
            assert same(f(x), fn(x))
            assert same(f(x), fn(x))
        assert traces(f) >= 3

    def test_one_tensor_twice_is_not_two(self) -> None:
        def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + 1 if a is b else a + b

        f = symshape.compile(fn)
        x, y = torch.ones(3), torch.ones(3)
        for a, b in ((x, y), (x, x), (y, x), (y, y)):
            assert same(f(a, b), fn(a, b))
        assert traces(f) == 2

    def test_views_of_one_memory_that_is_written(self) -> None:
        def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            a.add_(1)
            return a + b

        f = symshape.compile(fn)
        f(torch.zeros(4), torch.zeros(4))
        ours, eager = torch.zeros(8), torch.zeros(8)
        assert same(f(ours[:4], ours[:4]), fn(eager[:4], eager[:4]))
        assert same(f(ours[:4], ours[2:6]), fn(eager[:4], eager[2:6]))
        assert same(ours, eager)

    def test_lazy_conjugates_and_negations_are_refused_by_name(self) -> None:
        f = symshape.compile(lambda z: z * 2)
        z = torch.ones(2, dtype=torch.complex64) * 1j
        f(z)
        with pytest.raises(InputError, match=r"z .*conj"):
            f(z.conj())
        g = symshape.compile(lambda x: x * 2)
        g(torch.ones(4)[1::2])
        with pytest.raises(InputError, match=r"x .*neg"):
            g(z.conj().imag)

    @pytest.mark.parametrize(
        "bad",
        [
            torch.eye(3).to_sparse(),
            torch.ones(3).as_subclass(type("Mine", (torch.Tensor,), {})),  # type: ignore[arg-type]
            {1, 2},
            bytearray(b"x"),
        ],
        ids=["sparse", "subclass", "set", "bytearray"],
    )
    def test_arguments_that_cannot_be_traced_are_named(self, bad: Any) -> None:
        f = symshape.compile(lambda x, extra: x * 2)
        f(torch.ones(3), 1)
        before = f.entries
        with pytest.raises(InputError, match="extra"):
            f(torch.ones(3), bad)
        assert f.entries == before

    def test_calls_that_do_not_fit_the_signature(self) -> None:
        f = symshape.compile(lambda x, scale=1: x * scale)
        with pytest.raises(InputError, match="did you mean 'scale'"):
            f(torch.ones(3), scal=2)
        with pytest.raises(InputError):
            f()

    def test_keywords_in_any_order(self) -> None:
        def fn(x: torch.Tensor, *, a: torch.Tensor, b: torch.Tensor, k: int = 2) -> torch.Tensor:
            return x + a - b * k

        f = symshape.compile(fn)
        x, a, b = torch.randn(3), torch.randn(3), torch.randn(3)
        for _ in range(2):
            assert same(f(x, a=a, b=b), fn(x, a=a, b=b))
            assert same(f(x, b=b, a=a), fn(x, a=a, b=b))
            assert same(f(x, b=a, a=b), fn(x, a=b, b=a))
            assert same(f(x, k=3, b=b, a=a), fn(x, a=a, b=b, k=3))
            assert same(f(x=x, k=3, b=b, a=a), fn(x, a=a, b=b, k=3))

    def test_nested_arguments(self) -> None:
        class Pair(NamedTuple):
            left: torch.Tensor
            right: torch.Tensor

        def fn(batch: dict[str, Any], pair: Pair, *rest: torch.Tensor) -> dict[str, Any]:
            total = sum(rest, batch["a"][0] * pair.left)
            return {"total": total, "pair": Pair(pair.right, batch["b"]), "n": len(rest), "rest": [*rest]}

        f = symshape.compile(fn)
        for size in (3, 4, 5, 3):
            x = torch.randn(size)
            batch = {"a": [x, 3], "b": x + 1}
            now, then = f(batch, Pair(x, x * 2), x, x), fn(batch, Pair(x, x * 2), x, x)
            assert list(now) == list(then)
            assert type(now["pair"]) is Pair
            assert same(now["total"], then["total"])
            assert same(now["pair"].right, then["pair"].right)
            assert now["n"] == 2
            assert now["rest"][0] is x
        assert traces(f) == 2
        assert f(OrderedDict(a=[x, 3], b=x), Pair(x, x), x)["n"] == 1
        assert traces(f) == 3

    def test_lists_are_not_tuples(self) -> None:
        f = symshape.compile(lambda xs: xs[0] * (2 if isinstance(xs, list) else 3))
        x = torch.ones(2)
        assert f([x])[0] == 2
        assert f((x,))[0] == 3
        assert f([x])[0] == 2


class TestModes:
    def test_gradients(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            return x * (2 if torch.is_grad_enabled() else 3)

        f = symshape.compile(fn)
        x = torch.ones(2, requires_grad=True)
        for _ in range(2):
            assert same(f(x), fn(x))
            with torch.no_grad():
                assert same(f(x), fn(x))
                assert not f(x).requires_grad
        assert traces(f) == 2

    def test_inference(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        x = torch.ones(3)
        assert not f(x).is_inference()
        with torch.inference_mode():
            assert f(torch.ones(3)).is_inference()
        assert not f(x).is_inference()
        assert traces(f) == 2

    def test_autocast(self) -> None:
        linear = nn.Linear(4, 4)
        f = symshape.compile(linear)
        x = torch.randn(2, 4)
        plain = linear(x)
        for _ in range(2):
            assert same(f(x), plain)
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype=dtype):
                    assert same(f(x), linear(x))
        assert traces(f) == 3

    def test_default_dtype(self) -> None:
        f = symshape.compile(lambda x: x + torch.zeros(3))
        assert f(torch.ones(3)).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert f(torch.ones(3, dtype=torch.float32)).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        assert f(torch.ones(3)).dtype == torch.float32
        assert traces(f) == 2

    def test_default_device(self) -> None:
        f = symshape.compile(lambda x: torch.zeros(x.shape[0]))
        assert f(torch.ones(3)).device.type == "cpu"
        with torch.device("meta"):
            assert f(torch.ones(3, device="cpu")).device.type == "meta"
        assert f(torch.ones(3)).device.type == "cpu"


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.zeros(3))
        self.scale = 2.0
        self.powers = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.linear(x)) * self.scale + self.shift
        return y ** self.powers[0] if self.training else y * self.powers[1]


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
            lambda m: setattr(m.linear, "weight", nn.Parameter(torch.randn(3, 3))),
            lambda m: setattr(m.linear, "bias", None),
            lambda m: setattr(m, "shift", torch.ones(3)),
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
        assert traces(f) == 5
        shift.add_(1)
        assert same(f(x), fn(x))
        assert traces(f) == 5

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


class TestModules:
    def test_attributes_pass_through(self) -> None:
        module = Scaled()
        f = symshape.compile(module)
        assert f.scale == 2.0
        assert f.linear is module.linear
        assert set(f.state_dict()) == set(module.state_dict())
        assert [*f.parameters()] == [*module.parameters()]
        f.eval()
        assert not module.training
        assert not f.training
        with pytest.raises(AttributeError):
            f.no_such_thing  # noqa: B018

    def test_functions_keep_their_name_and_doc(self) -> None:
        @symshape.compile
        def double(x: torch.Tensor) -> torch.Tensor:
            """Twice."""
            return x * 2

        assert double.__name__ == "double"
        assert double.__doc__ == "Twice."
        assert double.fn(torch.ones(1)) == 2

    def test_compiled_inside_compiled(self) -> None:
        inner = symshape.compile(lambda x: x * 2)
        outer = symshape.compile(lambda x: inner(x) + inner(x[:1]))
        for size in (3, 4):
            x = torch.randn(size)
            assert same(outer(x), x * 2 + x[:1] * 2)
        assert traces(inner) == 0

    def test_compiled_inside_a_compiled_module(self) -> None:
        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Scaled().eval()
                self.fast = symshape.compile(self.inner)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.fast(x) + 1  # type: ignore[no-any-return]

        outer = Outer()
        f = symshape.compile(outer)
        x = torch.randn(2, 3)
        assert same(f(x), outer.inner(x) + 1)
        outer.inner.scale = 9.0
        assert same(f(x), outer.inner(x) + 1)


class TestResults:
    def test_mutated_inputs(self) -> None:
        def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            y[1:] *= 2
            return x * y

        f = symshape.compile(fn)
        for size in (3, 5, 1):
            x, y = torch.randn(size), torch.randn(size)
            x2, y2 = x.clone(), y.clone()
            assert same(f(x, y), fn(x2, y2))
            assert same(x, x2)
            assert same(y, y2)

    def test_outputs_that_are_or_share_inputs(self) -> None:
        def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x + 1
            return x, x.view(-1), x[1:], y, y, y[0]

        f = symshape.compile(fn)
        for size in (3, 4, 5):
            x = torch.randn(size, 2)
            now = f(x)
            assert now[0] is x
            assert now[1].data_ptr() == x.data_ptr()
            assert now[2].data_ptr() == x[1:].data_ptr()
            assert now[3] is now[4]
            assert now[5].data_ptr() == now[3].data_ptr()
            x.fill_(7)
            assert (now[2] == 7).all()

    def test_outputs_that_are_parameters_or_constants(self) -> None:
        module = nn.Linear(2, 2)
        f = symshape.compile(lambda x: (module.weight, x.shape[0], "text", None, 2.5, True))
        for size in (3, 4):
            weight, *rest = f(torch.ones(size))
            assert weight is module.weight
            assert rest == [size, "text", None, 2.5, True]

    def test_constants_are_fresh_in_each_call(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            y = torch.tensor([1.0, 2.0])
            y += x
            return y

        f = symshape.compile(fn)
        for _ in range(3):
            assert f(torch.ones(2)).tolist() == [2.0, 3.0]

    def test_random_numbers_are_drawn_anew(self) -> None:
        f = symshape.compile(lambda x: x + torch.rand(x.shape[0]))
        x = torch.zeros(5)
        f(x)
        torch.manual_seed(3)
        now = (f(x), f(x))
        torch.manual_seed(3)
        assert same(now[0], torch.rand(5))
        assert same(now[1], torch.rand(5))

    def test_data_dependent_sizes(self) -> None:
        f = symshape.compile(lambda x: x[x > 0] * 2)
        for size in (4, 9, 0, 1):
            x = torch.randn(size)
            assert same(f(x), x[x > 0] * 2)
        assert traces(f) <= 2

    def test_training_equals_eager(self) -> None:
        torch.manual_seed(0)
        eager = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))
        ours = copy.deepcopy(eager)
        f = symshape.compile(ours)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (eager, ours)]
        for step in range(6):
            x = torch.randn(3 + step, 4)
            for model, optimizer in zip((eager, f), optimizers, strict=True):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        for one, other in zip(eager.parameters(), ours.parameters(), strict=True):
            assert same(one.data, other.data)
        assert traces(f) == 2

    def test_gradients_of_inputs(self) -> None:
        f = symshape.compile(lambda x, y: (x * y).detach() + x * 2 + torch.no_grad()(lambda: y * 3)())
        for size in (2, 3, 4):
            x = torch.randn(size, requires_grad=True)
            y = torch.randn(size, requires_grad=True)
            f(x, y).sum().backward()
            assert x.grad is not None
            assert (x.grad == 2).all()
            assert y.grad is None


class TestErrors:
    def test_exceptions_of_the_function_pass_through(self) -> None:
        class Mine(Exception):
            pass

        def fn(x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 3:
                raise Mine("too long")
            return x * 2

        f = symshape.compile(fn, dynamic=True)
        f(torch.ones(2))
        before, branches = f.entries, f._cache.branches
        for _ in range(2):
            with pytest.raises(Mine, match="too long"):
                f(torch.ones(5))
        assert f.entries == before
        assert f._cache.branches is branches
        assert "no recompile" in f.explain_miss()
        assert same(f(torch.ones(3)), torch.ones(3) * 2)
        assert traces(f) == 1

    def test_a_failed_first_trace_leaves_nothing(self) -> None:
        fail = [True]

        def fn(x: torch.Tensor) -> torch.Tensor:
            if fail[0]:
                raise ValueError("not yet")
            return x + 1

        f = symshape.compile(fn)
        with pytest.raises(ValueError, match="not yet"):
            f(torch.ones(2))
        assert f.entries == ()
        assert traces(f) == 0
        fail[0] = False
        assert same(f(torch.ones(3)), torch.ones(3) + 1)
        assert "v0 == 3" in str(f.entries[0].guards) or "static" in repr(f.entries[0].guards.guards[0].origin)

    def test_errors_of_operators_are_errors_again(self) -> None:
        f = symshape.compile(lambda a, b: a + b)
        f(torch.ones(3), torch.ones(3))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                f(torch.ones(3), torch.ones(4))
        assert traces(f) == 1

    def test_what_compile_refuses(self) -> None:
        f = symshape.compile(lambda x: x)
        with pytest.raises(InputError, match="compiled already"):
            symshape.compile(f)
        with pytest.raises(InputError, match="int"):
            symshape.compile(3)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Options"):
            symshape.compile(lambda x: x, options={"max_entries": 3})  # type: ignore[arg-type]
        with pytest.raises(RunnerError, match="'fast'"):
            symshape.compile(lambda x: x, runner="fast")  # type: ignore[arg-type]

    def test_a_dynamic_size_that_the_program_fixes(self) -> None:
        f = symshape.compile(lambda x: x * 2 if x.shape[0] == 3 else x, dynamic={"x": {0: Policy.DYNAMIC}})
        with pytest.raises(symshape.ConstraintViolation, match=r"x.size\(0\)"):
            f(torch.ones(3))
        assert f.entries == ()


def two(x: torch.Tensor, y: torch.Tensor, k: Any = 1) -> torch.Tensor:
    return x.sum() + y.sum() * (2 if k == 1 else 3)


class TestExplanations:
    """One sentence for each kind of miss, in the caller's words."""

    def explain(self, f: Any, *calls: Any) -> str:
        for call in calls:
            call(f)
        return str(f.explain_miss())

    def test_nothing_to_explain(self) -> None:
        f = symshape.compile(two)
        assert "no recompile" in f.explain_miss()
        f(torch.ones(2), torch.ones(2))
        assert "no recompile" in f.explain_miss()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((torch.ones(5), torch.ones(2), 1), ("x.size(0)", "== 3", "x.size(0) = 5", "static")),
            ((torch.ones(3), torch.ones(9), 1), ("y.size(0)", "y.size(0) = 9")),
            ((torch.ones(3, dtype=torch.float64), torch.ones(2), 1), ("x is", "float64", "float32")),
            ((torch.ones(3), torch.ones(2, 2), 1), ("y is", "2 dim(s)", "1 dim(s)")),
            ((torch.ones(3), torch.ones(2), 2), ("k == 1", "k = 2", "static")),
            ((torch.ones(3), torch.ones(2), "a"), ("k is the str 'a'", "an int")),
            ((torch.ones(6)[::2], torch.ones(2), 1), ("x is", "strided")),
            ((torch.ones(4)[1:], torch.ones(2), 1), ("x is", "offset")),
            ((torch.ones(3, requires_grad=True), torch.ones(2), 1), ("x is", "requires_grad")),
            ((torch.ones(3, device="meta"), torch.ones(2, device="meta"), 1), ("x is", "meta", "cpu")),
            (([torch.ones(3)], torch.ones(2), 1), ("called with x[0] instead of x",)),
            ((torch.ones(3), torch.ones(2)), ("without k",)),
        ],
    )
    def test_arguments(self, arguments: tuple[Any, ...], words: tuple[str, ...]) -> None:
        f = symshape.compile(lambda x, y, k=1: two(x[0] if isinstance(x, list) else x, y, k))
        text = self.explain(f, lambda f: f(torch.ones(3), torch.ones(2), 1), lambda f: f(*arguments))
        for word in words:
            assert word in text
        assert text.count("\n") == 0
        assert text.endswith("the nearest entry is number 0.")

    def test_a_guard_with_the_line_that_made_it(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 10:
                return x * 2
            return x

        f = symshape.compile(fn, dynamic=True)
        text = self.explain(f, lambda f: f(torch.ones(3)), lambda f: f(torch.ones(12)))
        assert "x.size(0) = 12" in text
        assert "if x.shape[0] > 10:" in text
        assert "test_compile.py" in text

    def test_modes(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(3))
        with torch.no_grad():
            f(torch.ones(3))
        assert "no_grad" in f.explain_miss()
        assert "grad mode" in f.explain_miss()

    def test_state(self) -> None:
        module = Scaled()
        f = symshape.compile(module)
        x = torch.ones(2, 3)
        f(x)
        module.eval()
        f(x)
        module.train()
        assert "training has changed" in f.explain_miss()
        module.linear.weight = nn.Parameter(torch.ones(3, 3))
        f(x)
        assert "linear.weight has changed" in f.explain_miss()

    def test_aliasing(self) -> None:
        f = symshape.compile(lambda a, b: a + b)
        x = torch.ones(3)
        f(x, torch.ones(3))
        f(x, x)
        assert "same tensor" in f.explain_miss()

    def test_the_nearest_entry_is_named(self) -> None:
        f = symshape.compile(lambda x, y: x.sum() + y.sum(), dynamic=False)
        f(torch.ones(3), torch.ones(3))
        f(torch.ones(5), torch.ones(5))
        f(torch.ones(5), torch.ones(6))
        assert "y.size(0) == 5" in f.explain_miss()
        assert "number 1" in f.explain_miss()

    def test_events(self) -> None:
        seen: list[events.Event] = []
        unsubscribe = events.subscribe(seen.append)
        try:
            f = symshape.compile(lambda x: x * 2)
            f(torch.ones(3))
            f(torch.ones(4))
            f(torch.ones(5))
        finally:
            unsubscribe()
        assert [type(each).__name__ for each in seen if isinstance(each, (events.Traced, events.CacheMiss))] == [
            "Traced",
            "Traced",
            "CacheMiss",
        ]
        (miss,) = [each for each in seen if isinstance(each, events.CacheMiss)]
        assert miss.reason == f.explain_miss()


class TestLooking:
    def test_stats(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        for size in (3, 4, *[5] * 600):
            f(torch.ones(size))
        stats = f.stats()
        assert (stats.calls, stats.traces, stats.misses, stats.hits) == (602, 2, 2, 600)
        assert (stats.entries, stats.evictions, stats.cuda_graphs) == (2, 0, 0)
        assert stats.dispatch_us is not None
        assert 0 < stats.dispatch_us < 1000
        assert stats.trace_ms > 0

    def test_entries_and_repr(self) -> None:
        f = symshape.compile(lambda x: x.view(-1, 2), dynamic=True)
        f(torch.ones(4))
        assert "x[s0]" in repr(f.entries[0])
        assert "% 2" in repr(f.entries[0])
        assert "1 entries" in repr(f)

    def test_reset(self) -> None:
        f = symshape.compile(lambda x: x * 2)
        f(torch.ones(3)), f(torch.ones(4))
        f.reset()
        assert f.entries == ()
        assert f.stats() == symshape.compile(lambda x: x * 2).stats()
        assert "no recompile" in f.explain_miss()
        f(torch.ones(5))
        assert not f.entries[0].program.symbols
