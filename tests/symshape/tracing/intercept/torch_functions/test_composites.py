"""Composites decided by structure: eager's ops and strides, and no question about 0 or 1."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from tests.symshape.eager import agree


class Recorder(TorchDispatchMode):
    """The ops that eager runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


_PLUMBING = ("view", "expand", "clone", "unsqueeze", "squeeze", "detach")


def _same_work(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> None:
    """The trace computes what eager computes, by the same arithmetic."""
    traced = symshape.trace(fn, *args)
    with Recorder() as recorder:
        expected = fn(*args)
    torch.testing.assert_close(traced(*args), expected)
    assert traced(*args).stride() == expected.stride()
    if expected.numel() == 0:
        return  # of several ways to compute nothing, eager takes another
    arithmetic = [op for op in recorder.ops if not any(word in op for word in _PLUMBING)]
    ours = [
        str(node.op)
        for node in traced.graph.nodes
        if not any(word in str(node.op) for word in _PLUMBING)
    ]
    assert [op for op in ours if op != "aten.t.default"] == [
        op for op in arithmetic if op != "aten.t.default"
    ]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5, 2, 3, 4), (0, 3, 4)])
@pytest.mark.parametrize(
    ("bias", "grad", "transposed"), [*itertools.product([False, True], repeat=3)]
)
def test_linear(shape: tuple[int, ...], bias: bool, grad: bool, transposed: bool) -> None:
    x = torch.randn(shape)
    if transposed and len(shape) > 2:
        x = torch.randn(shape[0], shape[2], shape[1], *shape[3:]).transpose(1, 2)
    weight = torch.randn(6, 4, requires_grad=grad)
    offset = torch.randn(6) if bias else None
    with torch.no_grad():
        _same_work(lambda x: F.linear(x, weight, offset), x)


_INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "a vector": lambda: torch.randn(4),
    "a vector with gaps": lambda: torch.randn(8)[::2],
    "a matrix": lambda: torch.randn(3, 4),
    "a turned matrix": lambda: torch.randn(4, 3).t(),
    "three dimensions": lambda: torch.randn(2, 3, 4),
    "three turned dimensions": lambda: torch.randn(3, 2, 4).transpose(0, 1),
    "four dimensions": lambda: torch.randn(2, 2, 3, 4),
    "four turned dimensions": lambda: torch.randn(2, 3, 2, 4).transpose(1, 2),
    "nothing": lambda: torch.randn(2, 0, 4).transpose(0, 1),
}
_BIASES: dict[str, torch.Tensor] = {
    **{str(sizes): torch.randn(sizes) for sizes in ((4,), (4, 4), (1,), (), (1, 4), (3, 4), (5,))},
    **{str(sizes): torch.randn(sizes) for sizes in ((2, 3, 4), (1, 1, 2, 3, 4))},
    "double": torch.randn(4, dtype=torch.float64),
    "integers": torch.arange(4),
    "complex": torch.randn(4, dtype=torch.complex64),
    "bfloat16": torch.randn(4, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("out", [4, 1])
@pytest.mark.parametrize("name", _INPUTS)
def test_any_bias_of_a_linear_layer(name: str, out: int) -> None:
    """Eager adds a bias in place where it does not fold rows: the sum must fit into the product."""
    x, weight = _INPUTS[name](), torch.randn(out, 4)
    for kind, bias in _BIASES.items():
        layer = lambda x, bias: F.linear(x, weight, bias)  # noqa: E731
        expected, got = (_outcome(fn, x, bias) for fn in (layer, symshape.compile(layer)))
        assert type(expected) is type(got), (kind, expected, got)
        if isinstance(expected, torch.Tensor):
            assert expected.dtype is got.dtype, kind
            torch.testing.assert_close(got, expected)
            assert expected.numel() == 0 or expected.stride() == got.stride(), kind


def _outcome(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 6, 3, 4), (2, 6, 4, 5)),
        ((2, 1, 3, 4), (2, 6, 4, 5)),
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4,)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    _same_work(lambda x, y: x @ y, torch.randn(a), torch.randn(b))


@pytest.mark.parametrize(
    ("a", "b"), [((6, 3, 4), (1, 4, 5)), ((3, 4), (2, 4, 5)), ((0, 3, 4), (0, 4, 5))]
)
def test_matmul_of_odd_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    torch.testing.assert_close(symshape.trace(lambda x, y: x @ y, x, y)(x, y), x @ y)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: torch.randn(2, 3, 4), (6, 4)),
        (lambda: torch.randn(2, 3, 4), (-1,)),
        (lambda: torch.randn(2, 3, 4).transpose(1, 2), (2, -1)),
        (lambda: torch.randn(2, 3, 4, 5).transpose(1, 2), (2, 4, 15)),
        (lambda: torch.randn(2, 3, 4, 5).transpose(1, 2), (8, 3, 5)),
        (lambda: torch.randn(2, 3, 8)[..., ::2], (6, 4)),
        (lambda: torch.randn(1, 3, 4), (3, 4)),
    ],
)
def test_reshape_copies_where_eager_copies(
    make: Callable[[], torch.Tensor], shape: tuple[int, ...]
) -> None:
    x = make()
    traced = symshape.trace(lambda x: x.reshape(shape), x)
    expected = x.reshape(shape)
    result = traced(x)
    assert torch.equal(result, expected)
    assert result.stride() == expected.stride()
    shares = expected.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert (result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == shares


def test_integers_of_numpys_are_sizes() -> None:
    compiled: Any = symshape.compile(
        lambda x: x.reshape(-1, np.prod(x.shape[1:])) * 2, fullgraph=True
    )
    for n in (4, 3, 1, 7):
        x = torch.randn(n, 3, 4)
        assert torch.equal(compiled(x), x.reshape(n, 12) * 2)
    with pytest.raises(TypeError):
        symshape.trace(lambda x: x.reshape(2.0, -1), torch.ones(4, 2))


def test_merging_heads_asks_nothing() -> None:
    def merge(x: torch.Tensor) -> torch.Tensor:
        b, h, s, d = x.shape
        return x.transpose(1, 2).reshape(b, s, h * d) * 2  # nobody sees whether that was a view

    traced = symshape.trace(merge, torch.randn(2, 4, 3, 8), dynamic={"x": {0: "b", 2: "s"}})
    assert len(traced.guards) == 0
    for shape in ((1, 4, 3, 8), (2, 4, 1, 8), (0, 4, 3, 8), (5, 4, 7, 8)):
        x = torch.randn(shape)
        assert torch.equal(traced(x), merge(x))


@pytest.mark.parametrize("dims", [(0, -1), (1, 2), (0, 1), (1, 1)])
def test_flatten(dims: tuple[int, int]) -> None:
    x = torch.randn(2, 3, 4)
    traced = symshape.trace(lambda x: x.flatten(*dims), x)
    for shape in ((2, 3, 4), (1, 5, 2), (0, 3, 4)):
        y = torch.randn(shape)
        assert torch.equal(traced(y), y.flatten(*dims))


def test_flatten_of_a_scalar() -> None:
    assert symshape.trace(lambda x: x.flatten(), torch.tensor(1.0)).output_specs.sizes == (1,)


# -- layouts that follow from whether a reshape was a view


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.transpose(1, 2).reshape(x.shape) + 1,
        lambda x: x.transpose(1, 2).reshape(x.shape)[torch.arange(x.size(0))],
        lambda x: x.permute(2, 1, 0).flatten(0, 1) / 2,
        lambda x: (x.transpose(0, 1).reshape(x.shape) * 2).relu().transpose(0, 1),
        lambda x: x.transpose(1, 2).reshape(x.shape) @ torch.ones(x.size(-1), 2),
    ],
)
def test_results_lie_in_memory_as_in_eager(fn: Any) -> None:
    calls = [
        (torch.randn(sizes),)
        for sizes in ((5, 4, 6), (3, 2, 2), (4, 1, 1), (2, 2, 2), (1, 3, 1), (0, 2, 2))
    ]
    traced, seen = agree(fn, *calls)
    assert seen.count("equal") >= 3
    assert all("1" in str(guard.term) or "0" in str(guard.term) for guard in traced.guards)


def test_a_layout_that_the_program_reads_is_asked_about() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.transpose(1, 2).reshape(x.shape)
        return x + 1 if y.is_contiguous() else x - 1

    _, seen = agree(f, *((torch.randn(sizes),) for sizes in ((5, 4, 6), (3, 2, 2), (3, 5, 7))))
    assert seen == ["equal", "refused", "equal"]


# -- kernels that lay their results out in their own way


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool1d(grad: bool, ceil_mode: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, 2, padding=1, ceil_mode=ceil_mode) + torch.max_pool1d(
            x, [2], 2, 1, 1, ceil_mode
        )

    def turned(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes).transpose(-1, -2).requires_grad_(grad)

    fast = symshape.compile(fn)
    for x in (
        turned(2, 5, 3),
        turned(2, 6, 3),
        turned(1, 7, 1),
        turned(5, 3),
        turned(1, 3, 2),
        torch.randn(2, 3, 4),
    ):
        assert torch.equal(fast(x), fn(x))
        assert fast(x).stride() == fn(x).stride()
    indices = symshape.trace(lambda x: F.max_pool1d(x, 2, return_indices=True), turned(2, 5, 3))(
        turned(2, 5, 3)
    )[1]
    assert indices.dtype is torch.int64


@pytest.mark.parametrize("weights", [False, True])
def test_fused_attention(weights: bool) -> None:
    m = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval().requires_grad_(False)

    def fn(x: torch.Tensor) -> Any:
        return m(x, x, x, need_weights=weights)[0]

    fast = symshape.compile(fn)
    for x in (torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(1, 1, 4)):
        torch.testing.assert_close(fast(x), fn(x))
        assert fast(x).stride() == fn(x).stride()
    ops = [str(node.op) for node in fast.entries[0].program.graph.nodes]
    assert "aten._native_multi_head_attention.default" in ops
    assert torch.overrides.has_torch_function((m.in_proj_weight,)) is False


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (3, 5)])
def test_a_diagonal_that_is_filled_fixes_no_size(sizes: tuple[int, int]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.fill_diagonal_(-1.0)

    traced = symshape.trace(fn, torch.randn(sizes))
    assert not traced.guards.guards
    for each in (sizes, (1, 7), (6, 2), (0, 3), (8, 8)):
        x = torch.randn(each)
        assert torch.equal(traced(x), fn(x))
    tall = torch.zeros(7, 2)
    assert torch.equal(
        symshape.compile(lambda x: (x + 0).fill_diagonal_(1.0, wrap=True))(tall),
        tall.fill_diagonal_(1, True),
    )


def test_a_view_of_a_copy_that_may_be_none() -> None:
    """With equal sizes ``reshape`` makes a view, of which there is no view with one dimension."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = x.transpose(1, 2).reshape(x.shape)
        return turned * 3, turned.reshape(-1) * 2

    _, seen = agree(fn, (torch.randn(2, 6, 4),), (torch.randn(2, 3, 3),), (torch.randn(3, 5, 4),))
    assert seen == ["equal", "refused", "equal"]


@pytest.mark.parametrize(
    "lies", [lambda x: x.transpose(0, 1), lambda x: x[:, ::2], lambda x: x[:1].expand(3, -1, -1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_linear_layer_under_autocast_is_cast_as_a_whole(
    dtype: torch.dtype, lies: Callable[..., Any]
) -> None:
    """Also where the input lies apart, and the bias is added: a sum is none of autocast's
    operators.
    """
    layer = torch.nn.Linear(6, 2, dtype=dtype)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(lies(x))  # type: ignore[no-any-return]

    compiled: Any = symshape.compile(run, dynamic=True, fullgraph=True)
    for sizes in ((5, 3, 6), (2, 7, 6), (1, 4, 6), (4, 1, 6)):
        x, seen = torch.randn(sizes, dtype=dtype), []
        for each in (compiled, run):
            layer.zero_grad()
            result = each(x)
            result.float().sin().sum().backward()
            seen.append([result, *(weight.grad for weight in layer.parameters())])
        torch.testing.assert_close(*seen, rtol=0, atol=0)


def test_a_linear_layer_on_a_device_that_has_no_autocast() -> None:
    layer = torch.nn.Linear(3, 2, device="meta")
    traced = symshape.trace(layer, torch.ones(4, 3, device="meta"))
    assert [str(each.op) for each in traced.graph.nodes] == ["aten.t.default", "aten.addmm.default"]


@pytest.mark.parametrize("dims", [(1,), (0, 1), (-2,), (0, -2), (0,), (-1, 0), ()])
def test_flattening_a_number_names_its_one_dimension(dims: tuple[int, ...]) -> None:
    """The dimensions of a tensor of rank 0 are checked, too, as where ``squeeze()`` makes it."""
    for program in (
        lambda x: torch.flatten(x.squeeze(), *dims),
        lambda x: x.squeeze().flatten(*dims) * 2,
    ):
        compiled = symshape.compile(program, dynamic=True)
        for x in (torch.rand(5, 5), torch.rand(1, 1)):
            try:
                expected: Any = program(x)
            except (IndexError, RuntimeError) as error:
                expected = type(error)
            if isinstance(expected, type):
                with pytest.raises(expected):
                    compiled(x)
            else:
                assert torch.equal(compiled(x), expected)
