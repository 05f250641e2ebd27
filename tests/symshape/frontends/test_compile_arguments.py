"""What else of a call an entry holds for: dtypes, layouts, constants, nesting, torch's modes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import symshape
from symshape import InputError
from tests.symshape.frontends.calling import nested, same, traces


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
        for arguments in (
            ("sum",),
            ("mean",),
            (None,),
            ("sum", torch.float64),
            ("sum", torch.int32),
            ("sum",),
        ):
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
        f = symshape.compile(lambda z: z * 2, fullgraph=True)
        z = torch.ones(2, dtype=torch.complex64) * 1j
        f(z)
        with pytest.raises(InputError, match=r"z .*conj"):
            f(z.conj())
        g = symshape.compile(lambda x: x * 2, fullgraph=True)
        g(torch.ones(4)[1::2])
        with pytest.raises(InputError, match=r"x .*neg"):
            g(z.conj().imag)

    @pytest.mark.parametrize(
        "bad",
        [
            torch.eye(3).to_sparse(),
            nested(),
            torch.ones(3).as_subclass(type("Mine", (torch.Tensor,), {})),  # type: ignore[arg-type]
            {1, 2},
            bytearray(b"x"),
        ],
        ids=["sparse", "nested", "subclass", "set", "bytearray"],
    )
    def test_arguments_that_cannot_be_traced_are_named(self, bad: Any) -> None:
        f = symshape.compile(lambda x, extra: x * 2, fullgraph=True)
        f(torch.ones(3), 1)
        before = f.entries
        with pytest.raises(InputError, match="extra"):
            f(torch.ones(3), bad)
        assert f.entries == before

    def test_calls_that_do_not_fit_the_signature(self) -> None:
        f = symshape.compile(lambda x, scale=1: x * scale, fullgraph=True)
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
            return {
                "total": total,
                "pair": Pair(pair.right, batch["b"]),
                "n": len(rest),
                "rest": [*rest],
            }

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
