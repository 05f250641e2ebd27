"""The generated function of a graph: sources, sizes, lifetimes, gradients' mode, and failures."""

from __future__ import annotations

import gc
import linecache
import traceback
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from symshape.graph import codegen
from symshape.graph.codegen import compile_graph
from symshape.graph.fast_calls import BINDINGS
from tests.symshape.eager import agree, bits

R = torch.ones


def source(fn: Any, *args: Any) -> str:
    return symshape.trace(fn, *args).program.run.__symshape_source__


def test_sizes_are_computed_once() -> None:
    text = source(lambda x: (x.new_zeros(x.size(0) * 2 + 1), x.new_ones(x.size(0) * 2 + 1)), R(3))
    assert text.count("*2") + text.count("2*") == 1


def test_values_are_let_go() -> None:
    text = source(lambda x: ((x + 1) * 2).sum() - x.mean(), R(3))
    assert text.count("del ") >= 2


@pytest.mark.slow
def test_memory_of_intermediates_is_free_before_the_end() -> None:
    alive: list[int] = []
    refs: list[Any] = []

    @torch.library.custom_op("symshape_tests::watch", mutates_args=())
    def watch(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        alive.append(sum(ref() is not None for ref in refs))
        made = x.clone()
        refs.append(weakref.ref(made.untyped_storage()))
        return made

    watch.register_fake(torch.empty_like)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = watch(x) + 1
        return x

    traced = symshape.trace(fn, R(3))
    refs.clear()
    traced(R(3))
    assert max(alive) <= 1


def test_a_traceback_shows_the_generated_line() -> None:
    index = torch.tensor([0])
    traced = symshape.trace(lambda x: x[index] + 1, R(3))
    index.fill_(9)
    try:
        traced(R(3))
    except IndexError as error:
        text = "".join(traceback.format_exception(error))
    assert "<symshape graph" in text
    assert "op" in text


@pytest.mark.slow
def test_generated_sources_of_dead_programs_leave_the_line_cache() -> None:
    def sources() -> set[str]:
        gc.collect()
        return {
            name
            for name in linecache.cache
            if name.startswith("<symshape graph") and linecache.getlines(name)
        }

    def traced() -> Any:
        found = symshape.trace(lambda x: x + 1, R(3))
        codegen.compiled(found.program.run)
        return found

    before = sources()
    alive = [traced() for _ in range(5)]
    assert len(sources() - before) >= 5
    alive.clear()
    assert sources() <= before
    names = len(linecache.cache)
    alive = [traced() for _ in range(5)]
    assert len(linecache.cache) == names  # theirs are those of the dead


class Ops(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("op", list(BINDINGS), ids=str)
def test_bindings_do_what_their_overloads_do(op: Any) -> None:
    """Python functions stand in for overloads: the same results, for tensors, numbers and
    keywords.
    """
    calls: dict[str, list[Any]] = {
        "add": [
            (R(2, 3), R(3)),
            (R(2, 3), 2),
            (R(2, 3), R(2, 3), {"alpha": 3}),
            (R(2, dtype=torch.int64), 2.5),
        ],
        "sub": [(R(2, 3), R(3)), (R(2, 3), 2), (R(2, 3), R(2, 3), {"alpha": 3})],
        "mul": [(R(2, 3), R(3)), (R(2, 3), 2.5), (R(2, dtype=torch.int64), True)],
        "div": [(R(2, 3), R(3)), (R(2, 3), 2), (R(2, dtype=torch.int64), R(2, dtype=torch.int64))],
        "mm": [(R(2, 3), R(3, 4))],
        "bmm": [(R(2, 3, 4), R(2, 4, 5))],
        "addmm": [(R(4), R(2, 3), R(3, 4)), (R(4), R(2, 3), R(3, 4), {"beta": 2, "alpha": 3})],
        "t": [(R(2, 3),)],
        "transpose": [(R(2, 3), 0, -1)],
        "permute": [(R(2, 3, 4), [2, 0, 1])],
        "view": [(R(2, 3), [3, -1])],
        "expand": [(R(1, 3), [2, 3]), (R(1, 3), [2, 3], {"implicit": True})],
        "unsqueeze": [(R(2, 3), -1)],
        "embedding": [
            (R(5, 3), torch.tensor([1, 2])),
            (R(5, 3), torch.tensor([1, 2]), 1, True, False),
        ],
        "cat": [([R(2, 3), R(1, 3)],), ([R(2, 3), R(2, 1)], -1)],
        "clone": [(R(2, 3),), (R(1, 3, 2, 2), {"memory_format": torch.channels_last})],
        "select": [(R(2, 3), 1, -1)],
        "pow": [(R(2, 3), 2), (R(2, 3), 0.5), (R(2, dtype=torch.int64), 2.5)],
        "mean": [
            (R(2, 3), [-1], True),
            (R(2, 3), []),
            (R(2, 3), None),
            (R(2, 3), [0], {"dtype": torch.float64}),
        ],
        **{
            name: [
                (R(2, 3),),
                (R(2, 3), None, {"correction": 0, "keepdim": True}),
                (R(2, 3), [-1], {"correction": None}),
                (R(2, 3), [0, 1], {"correction": 0.5}),
            ]
            for name in ("var", "std", "var_mean", "std_mean")
        },
        "where": [
            (R(2, 3) > 0, R(2, 3), R(3)),
            (torch.tensor(True), R(2, dtype=torch.int64), R(3, 1)),
        ],
        "copy_": [
            (R(2, 3), R(3)),
            (R(2, dtype=torch.int64), R(2), True),
            (R(2), R(2), {"non_blocking": True}),
        ],
        "gelu": [(R(2, 3),), (R(2, 3), {"approximate": "tanh"})],
        "_softmax": [(R(2, 3), -1, False)],
        "native_layer_norm": [
            (R(2, 3), [3], R(3), R(3), 1e-5),
            (R(2, 3), [2, 3], None, None, 1e-5),
        ],
        "native_batch_norm": [
            (R(2, 3, 4), R(3), R(3), R(3), R(3).abs(), False, 0.1, 1e-5),
            (R(2, 3, 4), None, None, None, None, True, 0.1, 1e-5),
        ],
        "convolution": [
            (R(1, 2, 5), R(3, 2, 3), R(3), [1], [1], [1], False, [0], 1),
            (R(1, 2, 5, 5), R(2, 3, 3, 3), None, [2, 2], [0, 0], [1, 1], True, [1, 1], 1),
        ],
    }
    name = op._schema.name.removeprefix("aten::")
    for call in calls.get(name, [(R(2, 3),)]):
        *args, kwargs = call if isinstance(call[-1], dict) else (*call, {})
        with Ops() as ours_ran:
            ours = BINDINGS[op](*args, **kwargs)
        with Ops() as theirs_ran:
            theirs = op(*args, **kwargs)
        assert ours_ran.seen == theirs_ran.seen
        assert type(ours) is type(theirs)
        for one, other in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
            assert (one.dtype, one.shape, one.stride()) == (
                other.dtype,
                other.shape,
                other.stride(),
            )
            assert bits(one) == bits(other)


def test_odd_constants() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * float("inf"),
            torch.full_like(x, float("nan")),
            x + -0.0,
            x * 1e-320,
            x.to(torch.complex64) * (1 + 2j),
            torch.full((2,), True),
            x.clamp(min=-float("inf")),
            torch.arange(3, dtype=torch.int16),
            torch.zeros(2, dtype=torch.bfloat16),
            x.sum(dim=(0,), dtype=torch.float64),
            torch.div(x, 3, rounding_mode="floor"),
            x.contiguous(memory_format=torch.contiguous_format),
        )

    _, seen = agree(fn, (R(3),), (R(5),))
    assert seen == ["equal", "equal"]


def test_the_mode_of_gradients_is_put_back_after_an_error() -> None:
    index = torch.tensor([0])

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x + 1
            return y[index]

    traced = symshape.trace(fn, R(3))
    index.fill_(9)
    with pytest.raises(IndexError):
        traced(R(3))
    assert torch.is_grad_enabled()


def test_an_empty_program() -> None:
    for fn in (lambda: 3, lambda: None, lambda: (), lambda: [torch.ones(2), {"a": None}]):
        traced = symshape.trace(fn)
        expected = fn()
        got = traced()
        assert type(got) is type(expected)
        assert str(got) == str(expected)


def test_compile_graph_is_a_function_of_the_graph() -> None:
    traced = symshape.trace(lambda x: x * 2 + x.size(0), R(3))
    run = compile_graph(traced.graph, traced.program.positions)
    (result,) = run([R(5)], (5,))
    assert torch.equal(result, R(5) * 7)


# -- inference mode inside


def _parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        a = x * 2
        with torch.inference_mode():
            b = x * 3
        c = x * 4
    d = x * 5
    with torch.inference_mode():
        e = torch.ones(x.shape)
        with torch.inference_mode(False):
            f = x * 6
        with torch.enable_grad():
            g = x * 7
        return a, b, c, d, e, f, g, x[:1], x + 1


@torch.inference_mode()
def _whole(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.relu(), x.t()


@pytest.mark.parametrize("fn", [_parts, _whole])
@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("wants_gradients", [False, True])
def test_tensors_made_in_inference_mode_are_so_in_the_graph(
    fn: Any, mode: Any, wants_gradients: bool
) -> None:
    def kind(tensor: torch.Tensor) -> tuple[bool, bool, bool]:
        return tensor.is_inference(), tensor.requires_grad, tensor.grad_fn is None

    with mode():
        traced = symshape.trace(fn, torch.ones(4, 3, requires_grad=wants_gradients))
        x = torch.randn(2, 5, requires_grad=wants_gradients)
        ours, theirs = traced(x), fn(x)
        assert list(map(kind, ours)) == list(map(kind, theirs))
        assert all(map(torch.equal, ours, theirs))
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert torch.is_grad_enabled() == (mode is nullcontext)


def test_an_error_leaves_inference_mode() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            number = x.nonzero().size(0)
            torch._check(number < 2)
            return x * number

    traced = symshape.trace(f, torch.zeros(3))
    with pytest.raises(symshape.RuntimeAssertionError):
        traced(torch.ones(3))
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def _grow(x: torch.Tensor) -> torch.Tensor:
    for _ in range(24):
        x = torch.cat([x, x[: x.shape[0] // 2]])[:1000]
        x = torch.cat([x[:300], x[: x.shape[0] // 2]])
    return x


def test_source_of_sizes_that_are_made_of_each_other_is_short() -> None:
    traced = symshape.trace(_grow, torch.arange(7.0))
    assert len(traced.program.run.__symshape_source__) < 40_000
    assert len(traced.print_readable(False)) < 80_000
    for n in (2, 3, 10, 999):
        x = torch.arange(float(n))
        assert torch.equal(traced(x), _grow(x))
