"""AOTAutograd where it is right, and Dynamo's graph where it may not be: writes, decompositions,
lost errors.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import symshape
from symshape.errors import FallbackWarning, UnsupportedError
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_aot import doubt, kernels_of_torch, written_by
from tests.sampling import sampled

Tensor = torch.Tensor
Key = torch._C.DispatchKey
WAYS = {"default": {}, "programs": {"runner": "eager"}, "not plain": {"plain_calls": False}}


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield
    torch._dynamo.reset()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]  # type: ignore[no-any-return]


def backed(fn: Callable[..., Any], way: dict[str, Any]) -> Callable[..., Any]:
    return torch.compile(fn, backend=symshape_backend, options=way or None)


# -- arguments that overlap
def apart() -> list[Tensor]:
    return [torch.arange(5.0), torch.arange(1.0, 6.0)]


def overlapping() -> list[Tensor]:
    base = torch.arange(8.0)
    return [base[:5], base[1:6]]


def swapped() -> list[Tensor]:
    return overlapping()[::-1]


def one_tensor_in_two_views() -> list[Tensor]:
    base = torch.arange(5.0)
    return [base[:], base[:]]


def of_numpys() -> list[Tensor]:
    """Two storages in one piece of memory."""
    base = np.arange(8, dtype=np.float32)
    return [torch.from_numpy(base[:5]), torch.from_numpy(base[1:6])]


def side_by_side() -> list[Tensor]:
    base = torch.arange(10.0)
    return [base[:5], base[5:]]


MEMORY = [overlapping, swapped, one_tensor_in_two_views, of_numpys, side_by_side]


def doubled(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return x + y


def shifted(x: Tensor, y: Tensor) -> Any:
    x[1:] += 1
    y.sub_(x * 1)
    return [x * 2, y.view(5, 1)]


@pytest.mark.parametrize("fn", [doubled, shifted])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("grad", [False, True])
def test_arguments_that_share_memory_in_a_later_call(
    fn: Callable[..., Any], memory: Callable[[], list[Tensor]], grad: bool, way: dict[str, Any]
) -> None:
    weight = torch.ones((), requires_grad=grad)
    compiled = backed(
        lambda x, y: torch.utils._pytree.tree_map(lambda each: each * weight, fn(x, y)), way
    )
    for made in (apart, memory, apart):
        mine, theirs = made(), made()
        found, expected = compiled(*mine), fn(*theirs)
        for ours, its in zip(
            torch.utils._pytree.tree_leaves(found),
            torch.utils._pytree.tree_leaves(expected),
            strict=True,
        ):
            assert torch.equal(ours, its)
        assert all(map(torch.equal, mine, theirs))


def test_with_fullgraph_arguments_that_overlap_are_an_error() -> None:
    compiled = backed(doubled, {"fullgraph": True})
    compiled(*apart())
    with pytest.raises(
        UnsupportedError, match="arguments share memory, and the graph writes to one of them"
    ):
        compiled(*overlapping())


def test_the_report_counts_calls_whose_arguments_overlap() -> None:
    compiled = backed(doubled, {"runner": "eager"})
    for made in (apart, overlapping, overlapping):
        compiled(*made())
    told = str(symshape.backend_report())
    assert "2 calls" in told
    assert "arguments share memory" in told


# -- decompositions in Python
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "scale"),
    sampled(
        ["nearest", "nearest-exact", "bilinear", "bicubic", "area"],
        [1.3, (1.3, 1.5), (0.7, 2.0)],
        every=2,
    ),
)
def test_interpolation_under_gradients(mode: str, scale: Any, way: dict[str, Any]) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=scale, mode=mode)

    compiled = backed(fn, way)
    for n in (7, 11, 20):
        x = torch.linspace(-1, 1, 2 * n * (n + 3)).view(1, 2, n, n + 3).sin().requires_grad_()
        y = x.detach().clone().requires_grad_()
        found, expected = compiled(x), fn(y)
        assert torch.equal(found, expected)
        (found**2).sum().backward()
        (expected**2).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        F.hardshrink,
        F.softshrink,
        lambda x: F.dropout(x, 0.5),
        lambda x: F.batch_norm(x, None, None, training=True),
    ],
)
def test_ops_with_a_decomposition_in_python(
    fn: Callable[[Tensor], Tensor], way: dict[str, Any]
) -> None:
    compiled = backed(fn, way)
    for n in (3, 5, 4):
        x = torch.randn(n, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        found = []
        for run, given in ((compiled, x), (fn, y)):
            torch.manual_seed(n)
            found.append(run(given))
            (found[-1] ** 2).sum().backward()
        torch.testing.assert_close(found[0], found[1])
        torch.testing.assert_close(x.grad, y.grad)


# -- decompositions that are set aside
DECOMPOSED = torch.ops.aten.upsample_nearest2d.vec


def resized(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


def in_another_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_decompositions_are_back_afterwards() -> None:
    tables, before = (
        (DECOMPOSED.py_kernels, DECOMPOSED._dispatch_cache),
        dict(DECOMPOSED.py_kernels),
    )
    with kernels_of_torch(False):
        assert not [
            key
            for key in (Key.Autograd, Key.CompositeImplicitAutograd)
            if key in DECOMPOSED.py_kernels
        ]
    with pytest.raises(ZeroDivisionError), kernels_of_torch(True):
        raise ZeroDivisionError
    assert tables[0] is DECOMPOSED.py_kernels
    assert tables[1] is DECOMPOSED._dispatch_cache
    assert dict(DECOMPOSED.py_kernels) == before


@pytest.mark.parametrize("symbolic", [False, True])
def test_another_thread_sees_the_decompositions_all_the_time(symbolic: bool) -> None:
    def asked() -> list[Any]:
        keys = (Key.Autograd, Key.CompositeImplicitAutograd)
        found = [key in DECOMPOSED.py_kernels for key in keys] + [
            DECOMPOSED.py_kernels.get(key) for key in keys
        ]
        return [*found, DECOMPOSED._can_decompose()]

    expected = asked()
    with kernels_of_torch(symbolic):
        assert in_another_thread(asked) == expected != asked()


@pytest.mark.parametrize("symbolic", [False, True])
def test_another_thread_traces_with_symbolic_sizes_meanwhile(symbolic: bool) -> None:
    def traced() -> list[str]:
        graph = make_fx(resized, tracing_mode="symbolic")(torch.randn(1, 2, 4, 5))
        return [str(node.target) for node in graph.graph.nodes]

    expected = traced()
    with kernels_of_torch(symbolic):
        assert in_another_thread(traced) == expected
        # nothing that this thread is given was kept for the other
        assert in_another_thread(traced) == expected
    assert traced() == expected


def test_another_backend_compiles_beside_an_aside() -> None:
    x = torch.randn(1, 2, 4, 5)

    def compiled() -> Tensor:
        return torch.compile(resized, backend="aot_eager", dynamic=True)(x)

    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with kernels_of_torch(False):
            entered.set()
            assert done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(60)
    # one ends while another thread's goes on
    with kernels_of_torch(True), pytest.raises(UnsupportedError):
        make_fx(resized, tracing_mode="symbolic")(x)
    torch.testing.assert_close(compiled(), resized(x))
    done.set()
    holder.join()
    assert type(DECOMPOSED.py_kernels) is dict


def test_a_kernel_that_is_registered_meanwhile_stays() -> None:
    with kernels_of_torch(False):
        DECOMPOSED.py_kernels[Key.PrivateUse1] = resized
    assert DECOMPOSED.py_kernels.pop(Key.PrivateUse1) is resized
    DECOMPOSED._dispatch_cache.clear()


# -- errors of eager
def no_classes(x: Tensor) -> Tensor:
    return F.one_hot(torch.zeros(0, dtype=torch.long), x.shape[0]).to(x.dtype) @ x


def too_few_classes(x: Tensor) -> Tensor:
    return F.one_hot(torch.arange(3), x.shape[0]).to(x.dtype) @ x


def unread(x: Tensor) -> Tensor:
    torch.linalg.cholesky(x @ x.t() - x.shape[0] * torch.eye(x.shape[0]))
    return x * 2


def unread_draw(x: Tensor) -> Tensor:
    torch.multinomial(x - 1, 1)
    return x * 2


def unread_index(x: Tensor) -> Tensor:
    F.embedding(torch.full((2,), 3), x)
    return x * 2


def written_twice(x: Tensor) -> Tensor:
    y = (x * 1)[:1].expand(x.shape[0], 2)
    y.add_(1)
    return y


def onto_itself(x: Tensor) -> Tensor:
    y = x * 1
    y[1:].add_(y[:-1])
    return y


def added_to_itself_by_index(x: Tensor) -> Tensor:
    y = x * 1
    y.index_add_(0, torch.arange(x.shape[0]), y)
    return y


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        no_classes,
        too_few_classes,
        unread,
        unread_draw,
        unread_index,
        written_twice,
        onto_itself,
        added_to_itself_by_index,
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_errors_of_eager(fn: Callable[[Tensor], Tensor], grad: bool, way: dict[str, Any]) -> None:
    compiled = backed(fn, way)
    for n in (5, 4, 3, 2, 0):
        x = torch.ones(n, 2, requires_grad=grad)
        errors: list[type | None] = []
        for run in (fn, compiled):
            try:
                run(x)
            except (RuntimeError, IndexError) as error:
                errors.append(type(error))
            else:
                errors.append(None)
        assert (errors[0] is None) == (errors[1] is None), (n, errors)


# -- views with strides of their own
def strided_argument(x: Tensor) -> Any:
    view = x.as_strided((x.shape[0] - 1,), (1,), 1)
    view.add_(1)
    return view.view(-1, 1), view * 2


def strided_with_itself(x: Tensor) -> Any:
    y = x * 2
    y.as_strided((x.shape[0] - 1, 2), (1, 1)).add_(1)
    return (y,)


def strided_of_a_view(x: Tensor) -> Any:
    y = (x * 2).view(-1, 1)
    view = y.as_strided((2,), (1,))
    view.mul_(3)
    return view.view(2, 1), y


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # Dynamo itself asks for it
@pytest.mark.parametrize("fn", [strided_argument, strided_with_itself, strided_of_a_view])
@pytest.mark.parametrize("grad", [False, True])
def test_written_views_with_strides_of_their_own(
    fn: Callable[[Tensor], Any], grad: bool, way: dict[str, Any]
) -> None:
    compiled = backed(fn, way)
    for n in (5, 6, 9):
        leaves = [torch.arange(float(n)).requires_grad_(grad) for _ in range(2)]
        given = [leaf * 1 for leaf in leaves]
        found, expected = compiled(given[0]), fn(given[1])
        assert all(map(torch.equal, found, expected))
        assert torch.equal(*given)
        if grad:
            for results in (found, expected):
                sum((each**2).sum() for each in results).backward()
            assert torch.equal(leaves[0].grad, leaves[1].grad)


# -- arguments that a write leaves without a gradient
def zeroed(x: Tensor, y: Tensor) -> Any:
    x[0].zero_()
    y[0].zero_()
    return x, y


def zeroed_row(x: Tensor, y: Tensor) -> Any:
    y[0].zero_()
    return (F.relu(x - 0.1),)


def copied_over(x: Tensor, y: Tensor) -> Any:
    y.copy_(x)
    return (y * 2,)


def filled(x: Tensor, y: Tensor) -> Any:
    y.view(-1).fill_(1.0)
    return x * y, y


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("fn", [zeroed, zeroed_row, copied_over, filled])
def test_gradients_that_are_none_in_eager(fn: Callable[..., Any], way: dict[str, Any]) -> None:
    compiled = backed(fn, way)
    for n in (3, 4, 1, 6):
        found: list[list[Tensor | None]] = []
        for run in (fn, compiled):
            leaves = [torch.ones(n, 2, requires_grad=True) for _ in range(2)]
            given = [leaf * 1 for leaf in leaves]
            results = run(*given)
            loss = sum((each**2).sum() for each in results)
            found.append(list(torch.autograd.grad(loss, given, allow_unused=True)))
        for mine, theirs in zip(*found, strict=True):
            assert (mine is None) == (theirs is None), n
            assert mine is None or theirs is None or torch.equal(mine, theirs)


# -- reasons against a graph
def doubts(fn: Callable[..., Any], *args: Tensor) -> str:
    found: list[str] = []

    def noting(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        found.append(doubt(gm))
        return gm.forward

    with contextlib.suppress(RuntimeError):  # eager's own: the graph is asked, and need not run
        torch.compile(fn, backend=noting)(*args)
    (reason,) = found
    return reason


def test_reasons() -> None:
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    assert doubts(lambda x, y: (x @ y).relu_() + 1, x, y) == ""
    assert doubts(lambda x, y: F.relu(x + y, inplace=True).add_(y), x, y) == ""
    assert "as_strided" in doubts(lambda x: (x * 1).as_strided((2, 2), (1, 1)).add_(1), x)
    assert "one_hot checks the values" in doubts(lambda x: F.one_hot(x.long(), 3), x)
    assert "nothing reads the result of linalg_cholesky" in doubts(
        lambda x: (torch.linalg.cholesky(x), x * 2)[1], torch.eye(4)
    )
    assert "may overlap, or overlap what it reads" in doubts(
        lambda x: x[1:].copy_(x[:-1]), torch.ones(4, 4)
    )
    assert "may overlap, or overlap what it reads" in doubts(
        lambda x: x.index_add_(0, torch.arange(4), x), x
    )
    assert doubts(lambda x: (x.unsqueeze(0), x * 2)[1], x) == ""


def turned_on(x: Tensor) -> Tensor:
    with torch.enable_grad():
        return x * 2


def turned_off(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return x * 2, x.t() * 2


def seen_without(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    with torch.no_grad():
        return made, made.t()


def test_reasons_of_gradients() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    assert doubts(turned_on, x) == doubts(turned_off, x) == ""
    assert doubts(lambda x: ((x * 2).t(), x.t(), x.contiguous()), x) == ""
    assert "a view, made without gradients" in doubts(seen_without, x)
    with torch.no_grad():
        assert "turns gradients on" in doubts(turned_on, x)
        assert doubts(turned_off, x) == doubts(seen_without, x) == ""
    with torch.inference_mode():
        assert "turns gradients on" in doubts(turned_on, x)


# -- gradients of gradients
def second_of_argument(fn: Callable[..., Any]) -> Tensor | None:
    x = torch.linspace(0, 1, 12).view(4, 3).requires_grad_()
    (slope,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.sum(), x, allow_unused=True)[0]


def second_of_hidden(fn: Callable[..., Any]) -> Tensor | None:
    hidden = torch.linspace(0, 1, 12).view(4, 3).requires_grad_().exp()
    (slope,) = torch.autograd.grad(fn(hidden).sum(), hidden, create_graph=True)
    return torch.autograd.grad(slope.sum(), hidden, allow_unused=True)[0]


def second_of_what_is_gone(fn: Callable[..., Any]) -> Tensor | None:
    x = torch.linspace(0, 1, 12).view(4, 3).requires_grad_()
    made = fn(x.exp())
    (slope,) = torch.autograd.grad(made.sum(), x, create_graph=True)
    return torch.autograd.grad(slope.sum(), x, allow_unused=True)[0]


def a_hessian(fn: Callable[..., Any]) -> Any:
    return torch.autograd.functional.hessian(lambda x: fn(x).sum(), torch.ones(2, 3))  # type: ignore[no-untyped-call]


SECOND = [second_of_argument, second_of_hidden, second_of_what_is_gone, a_hessian]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("ask", SECOND)
@pytest.mark.parametrize("runner", ["auto", "padded"])
def test_gradients_of_gradients_raise_and_are_no_zeros(
    ask: Callable[[Callable[..., Any]], Any], runner: str
) -> None:
    weight = torch.ones(3, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        return (x * weight).tanh()

    expected = ask(fn)
    torch.testing.assert_close(ask(backed(fn, {})), expected)
    torch._dynamo.reset()
    options = {"plain_calls": False} if runner == "auto" else {"runner": runner}
    with pytest.raises(RuntimeError, match="does not support double backward"):
        ask(backed(fn, options))


def test_first_gradients_with_a_history_are_eagers() -> None:
    weight = torch.ones(3, requires_grad=True)
    found = []
    for fn in (
        lambda x: (x * weight).tanh(),
        backed(lambda x: (x * weight).tanh(), {"runner": "padded"}),
    ):
        x = torch.linspace(0, 1, 12).view(4, 3).requires_grad_()
        inputs = (x, weight)
        found.append(torch.autograd.grad(fn(x).sum(), inputs, create_graph=True))
        found[-1] = (
            *(each.detach() for each in found[-1]),
            *torch.autograd.grad(fn(x).sum(), inputs),
        )
    torch.testing.assert_close(*found)
    assert not found[1][-1].requires_grad


@pytest.mark.parametrize("options", [{}, {"plain_calls": False}, {"runner": "padded"}])
@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode_gradients(options: dict[str, Any], grad: bool) -> None:
    weight = torch.ones(3, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        return (x * weight).tanh()

    mine = torch.compile(fn, backend=symshape_backend, dynamic=True, options=options or None)
    for size in (3, 4, 7):
        x = torch.linspace(0, 1, size * 3).view(size, 3)
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(mine(x), fn(x))
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, x + 1)
                found, expected = (tuple(forward_ad.unpack_dual(each(dual))) for each in (mine, fn))
            torch.testing.assert_close(found, expected)


def test_words_of_python_write_to_nothing() -> None:
    """``operator.not_`` is no in-place function for all its underscore."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for function, count in ((operator.not_, 1), (operator.and_, 2), (operator.is_, 2)):
        assert written_by(graph.call_function(function, (x,) * count)) == []
    assert written_by(graph.call_function(operator.iand, (x, x))) == [x]
    assert written_by(graph.call_method("add_", (x, 1))) == [x]
