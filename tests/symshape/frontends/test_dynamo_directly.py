"""Graphs of Dynamo's without gradients go to our tracer as they are, and to AOTAutograd where that
will not do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from guards.sets.guard import Guard
from symshape.errors import FallbackWarning, ProgramError, UnsupportedError
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import Origin
from symshape.graph.program import Program
from symshape.options import Options
from symshape.tracing.from_graph.dynamo import retraced

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def directly(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each graph, in order: whether it needed no AOTAutograd."""
    found: list[bool] = []
    asked = dynamo._without_gradients

    def noted(*args: Any) -> Any:
        made = asked(*args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(dynamo, "_without_gradients", noted)
    return found


def backed(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend=symshape_backend, dynamic=True, options=options or None)


def programs() -> list[Program]:
    return [entry.program for graph in dynamo.alive for entry in graph.entries]


class _OneMore(torch.overrides.TorchFunctionMode):
    """Adds one to each sine and to each product."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made + 1 if func is torch.sin or func is torch.Tensor.mul else made


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_mode_of_the_users_sees_a_call_once(grad: bool, before: int) -> None:
    """Dynamo takes what the mode does into the graph, which the mode sees no more when it runs; nor
    a backward.
    """

    def fn(x: Tensor) -> Tensor:
        return torch.sin(x).mul(x) + torch.zeros(x.size(0))

    compiled = backed(fn)
    for n in range(3, 3 + before):
        compiled(torch.rand(n, requires_grad=grad))
    for n in (6, 7, 4):
        x = torch.rand(n, requires_grad=grad)
        twin = x.detach().clone().requires_grad_(grad)
        with _OneMore() as mode:
            found, expected = compiled(x), fn(twin)
            assert torch.overrides._get_current_function_mode_stack() == [mode]
        if grad:
            found.sum().backward()
            expected.sum().backward()
        assert torch.equal(found, expected)
        assert grad is False or torch.equal(x.grad, twin.grad)


def test_the_default_device_stays_beside_a_mode_of_the_users() -> None:
    compiled = backed(lambda x: x.sin() + torch.zeros(x.size(0)))
    for n in (3, 4):
        with torch.device("meta"), _OneMore():
            assert compiled(torch.rand(n)).device.type == "meta"
            assert len(torch.overrides._get_current_function_mode_stack()) == 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.scale = nn.LayerNorm(8), nn.Linear(8, 8), 0.5

    def forward(self, x: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(*(self.norm(x)[:, None],) * 3, is_causal=True)
        return x + F.dropout(self.up(y.squeeze(1)) * self.scale, 0.25, self.training)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x @ x.t()).softmax(-1),
        lambda x: [x.reshape(-1, 2), x.shape[0] * 3, None, x.mean() / x.shape[0]],
        lambda x: x[: x.shape[0] // 2].repeat(2, 1) * (1 if x.shape[0] > 3 else 2),
        lambda x: torch.where(torch.arange(x.shape[0])[:, None] < 4, x, -x).sum(1),
        lambda x: F.pad(x, (1, x.shape[0] % 3)).cumsum(0).chunk(3),
        lambda x: torch.einsum("nd,md->nm", x, x) + x.new_ones(x.shape[0]),
    ],
)
def test_the_results_are_those_of_eager(fn: Callable[..., Any], directly: list[bool]) -> None:
    compiled = backed(fn)
    for n in (6, 9, 4, 12):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), fn(x))
    assert directly
    assert all(directly)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_whose_parameters_want_gradients_and_get_none(
    mode: Any, directly: list[bool]
) -> None:
    model = Block().eval()
    compiled = backed(model)
    with mode():
        for n in (3, 5, 9):
            x = torch.randn(n, 4, 8)
            result = compiled(x)
            torch.testing.assert_close(result, model(x))
            assert not result.requires_grad
            assert result.is_inference() is (mode is torch.inference_mode)
    assert directly == [True]
    (program,) = programs()
    assert any(
        "self.up" in str(node.location) or node.location[2] == "forward"
        for node in program.graph.nodes
    )  # type: ignore[index]
    assert compiled(torch.randn(3, 4, 8)).requires_grad  # another graph, AOTAutograd's
    assert directly[0]
    assert not any(directly[1:])


def test_random_numbers_are_those_of_eager(directly: list[bool]) -> None:
    model = Block().train()
    compiled = backed(model)
    with torch.no_grad():
        for n in (3, 5):
            x = torch.randn(n, 4, 8)
            torch.manual_seed(n)
            expected = model(x)
            state = torch.get_rng_state()
            torch.manual_seed(n)
            assert torch.equal(compiled(x), expected)
            assert torch.equal(torch.get_rng_state(), state)
    assert directly == [True]


def test_results_are_views_where_eagers_are(directly: list[bool]) -> None:
    compiled = backed(lambda x: [x[1:], x.t(), x.clone()])
    for n in (4, 6):
        x = torch.zeros(n, 3)
        tail, turned, copy = compiled(x)
        x += 1
        assert tail.min() == 1
        assert turned.shape == (3, n)
        assert turned.min() == 1
        assert copy.max() == 0
    assert all(directly)


def test_what_is_written_to_arguments_goes_another_way(directly: list[bool]) -> None:
    def fn(cache: Tensor, x: Tensor) -> Tensor:
        cache[: x.shape[0]] += x
        return cache.sum(0)

    compiled = backed(fn)
    for n in (3, 5, 4):
        mine, theirs, x = torch.zeros(8, 2), torch.zeros(8, 2), torch.randn(n, 2)
        torch.testing.assert_close(compiled(mine, x), fn(theirs, x))
        assert torch.equal(mine, theirs)
    mine, theirs = torch.zeros(8, 2), torch.zeros(8, 2)
    mine[6:] = theirs[6:] = 1
    torch.testing.assert_close(compiled(mine, mine[5:]), fn(theirs, theirs[5:]))
    assert torch.equal(mine, theirs)
    assert not any(directly)


def test_gradients_switched_on_inside_go_another_way(directly: list[bool]) -> None:
    weight = nn.Parameter(torch.ones(3))

    def fn(x: Tensor) -> Tensor:
        y = x * 2
        with torch.enable_grad():
            z = y * weight
        return z.sum()

    with torch.no_grad():
        for n in (4, 5):
            assert torch.equal(backed(fn)(torch.ones(n, 3)), fn(torch.ones(n, 3)))
    assert not any(directly)


def test_autocast_around_a_call(directly: list[bool]) -> None:
    model = Block().eval()
    compiled = backed(model)
    with torch.no_grad():
        for n in (3, 5):
            x = torch.randn(n, 4, 8)
            with torch.autocast("cpu", torch.bfloat16):
                mine, theirs = compiled(x), model(x)
            assert mine.dtype is theirs.dtype
            assert torch.equal(mine, theirs)
            torch.testing.assert_close(compiled(x), model(x))
    assert directly == [True, True]


def test_numbers_that_vary_fix_nothing(directly: list[bool]) -> None:
    def fn(x: Tensor, k: float) -> Any:
        return x * k + k**0.5

    compiled = backed(fn)
    for number, k in enumerate((0.5, 0.25, 2.0, 9.0)):
        x = torch.randn(3 + number)
        torch.testing.assert_close(compiled(x, k), fn(x, k))
    assert directly == [True]
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x, 0.0), fn(x, 0.0))
    torch.testing.assert_close(compiled(x, 4.0), fn(x, 4.0))
    assert len(directly) <= 2


def test_numbers_that_an_op_takes_only_as_constants_are_guarded_by_dynamo(
    directly: list[bool],
) -> None:
    model = Block().eval()
    compiled = backed(model)
    with torch.no_grad():
        for n, eps in ((3, 1e-5), (4, 1e-5), (5, 0.5), (6, 1e-5), (7, 0.5), (8, 2.0)):
            x = torch.randn(n, 4, 8)
            model.norm.eps = eps
            torch.testing.assert_close(compiled(x), model(x))
    assert 1 < len(directly) <= 4
    assert all(directly)
    assert not any(
        node.bindings
        for program in programs()
        for node in program.graph.nodes
        if "item" in str(node)
    )


def test_floats_that_ops_took_as_constants_are_no_inputs(directly: list[bool]) -> None:
    """They are tensors on the CPU, whatever the device of the program is."""
    model = Block().eval()
    with torch.no_grad():
        run = backed(model)
        for n, eps in ((3, 1e-5), (4, 0.5), (5, 2.0)):
            model.norm.eps = eps
            x = torch.randn(n, 8)
            assert torch.equal(run(x), model(x))
    assert all(directly)
    for program in programs():
        read = {value for node in program.graph.nodes for value in node.reads}
        assert all(each.value in read for each in program.graph.inputs)


def test_a_program_that_is_forgotten_is_made_anew(directly: list[bool]) -> None:
    compiled = backed(lambda x: x.cumsum(0) * x.shape[0])
    x = torch.randn(5)
    for _ in range(2):
        assert torch.equal(compiled(x), x.cumsum(0) * 5)
        next(iter(dynamo.alive)).reset()
    assert directly == [True]


def test_a_wrong_program_is_found() -> None:
    compiled = backed(lambda x: x * 2, verify=1)
    compiled(torch.ones(3))
    (entry,) = (entry for graph in dynamo.alive for entry in graph.entries)
    entry.run = lambda leaves, values: [leaves[-1] * 3]
    with pytest.raises(Exception, match="differs from eager's"):
        compiled(torch.ones(4))


# -- graphs by hand
def graph_of(
    make: Callable[[torch.fx.Graph, Any, Any], Any], second: int = 7
) -> torch.fx.GraphModule:
    """A graph of two vectors whose lengths Dynamo would hold apart, and what comes of them."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    graph = torch.fx.Graph()
    inputs = []
    for name, n in (("x", 4), ("y", second)):
        inputs.append(graph.placeholder(name))
        inputs[-1].meta["example_value"] = mode.from_tensor(
            torch.randn(n), symbolic_context=context
        )
    graph.output((make(graph, *inputs),))
    return torch.fx.GraphModule(nn.Module(), graph)


def test_what_dynamos_guards_leave_open_is_refused() -> None:
    module = graph_of(lambda graph, x, y: graph.call_function(torch.cat, ([x, y],)))
    program, run = retraced(module, "f", ["x", "y"])
    assert run([torch.ones(2), torch.zeros(3)], [2, 3])[0].tolist() == [1, 1, 0, 0, 0]
    assert [guard.text() for guard in program.guards] == []

    def first(graph: torch.fx.Graph, x: Any, y: Any) -> Any:
        return graph.call_function(torch.split, (x, 4))

    with pytest.raises(UnsupportedError, match="Dynamo's guards leave open whether"):
        retraced(graph_of(first), "f", ["x", "y"])


def test_what_is_no_plain_tensor_is_refused() -> None:
    module = graph_of(lambda graph, x, y: graph.call_function(torch.add, (x, 1)))
    next(iter(module.graph.nodes)).meta["example_value"] = torch.eye(3).to_sparse()
    with pytest.raises(UnsupportedError, match=r"argument x has layout torch\.sparse_coo"):
        retraced(module, "f", ["x", "y"])


# -- what ops demand and Dynamo does not know
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q + 1, k, v)


def given(keys: int, values: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(1, 2, 3, 8), torch.randn(1, 2, keys, 8), torch.randn(1, 2, values, 8)


def marked(keys: int, values: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same, with two lengths that Dynamo holds apart."""
    found = given(keys, values)
    for each in found[1:]:
        torch._dynamo.mark_dynamic(each, 2)
    return found


@pytest.mark.parametrize("options", [{}, {"verify": 1}])
def test_what_ops_demand_is_asked_of_each_call(
    options: dict[str, Any], directly: list[bool]
) -> None:
    """Calls that fulfil it are served without AOTAutograd; others run the graph as it is."""
    compiled = torch.compile(attention, backend=symshape_backend, dynamic=False, options=options)
    for again in range(2):
        for keys in (4, 7, 5):
            args = marked(keys, keys)
            torch.testing.assert_close(compiled(*args), attention(*args))
        (graph,) = dynamo.alive
        assert graph.stats().fallbacks == again
        args = marked(4, 6)
        with pytest.warns(FallbackWarning, match="does not hold") if not again else nullcontext():
            assert compiled(*args).shape == attention(*args).shape  # on the CPU nobody refuses it
        assert directly == [True]
        (guard,) = [each for each in programs()[0].guards if each.origin is not None]
        assert "scaled_dot_product" in str(guard.origin)
        assert graph.stats().fallbacks == again + 1
        said = r"(k|v)\.size\(2\) == (v|k)\.size\(2\) does not hold \(at test_dynamo_directly\.py"
        assert re.search(said, graph.explain_fallback())
        graph.reset()  # taken over anew, it asks anew


def test_with_fullgraph_what_is_not_fulfilled_is_an_error(directly: list[bool]) -> None:
    compiled = torch.compile(
        attention, backend=symshape_backend, dynamic=False, options={"fullgraph": True}
    )
    compiled(*marked(4, 4))
    with pytest.raises(UnsupportedError, match="does not hold"):
        compiled(*marked(4, 5))
    assert directly == [True]


def test_what_is_only_asked_is_not_demanded() -> None:
    def chunks(graph: torch.fx.Graph, x: Any, y: Any) -> Any:
        return graph.call_function(torch.split, (x, 4))

    def product(graph: torch.fx.Graph, x: Any, y: Any) -> Any:
        return graph.call_function(torch.dot, (x, y))

    demanded: list[Guard] = []
    with pytest.raises(UnsupportedError, match="Dynamo's guards leave open whether"):
        retraced(graph_of(chunks), "f", ["x", "y"], demanded)
    with pytest.raises(ProgramError):  # the example does not fulfil it
        retraced(graph_of(product), "f", ["x", "y"], demanded)
    assert not demanded
    with pytest.raises(UnsupportedError, match="Dynamo's guards leave open whether"):
        retraced(graph_of(product, 4), "f", ["x", "y"])
    program, run = retraced(graph_of(product, 4), "f", ["x", "y"], demanded)
    assert [guard.term for guard in demanded] == [guard.term for guard in program.guards]
    assert run([torch.ones(5), torch.ones(5)], [5, 5])[0].item() == 5


@pytest.mark.parametrize("options", [{}, {"verify": 1}])
def test_a_call_that_an_op_refuses_raises_what_eager_raises(options: dict[str, Any]) -> None:
    module = graph_of(lambda graph, x, y: graph.call_function(torch.dot, (x, y)), 4)
    wanted = dynamo._Wanted(module, Origin("f"), ["x", "y"], "auto", False, Options(**options))
    graph = dynamo._without_gradients(wanted)
    assert graph is not None
    serve = graph.plainly()
    assert serve(torch.ones(6), torch.ones(6))[0].item() == 6
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        serve(torch.ones(6), torch.ones(5))
    assert serve(torch.ones(3), torch.ones(3))[0].item() == 3
    assert graph.stats().fallbacks == 1


_LAZY: dict[str, Callable[[], torch.Tensor]] = {
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "neither": lambda: torch.tensor([1 + 2j, 3 - 1j]),
}


@pytest.mark.parametrize("lazy", _LAZY)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.resolve_conj().resolve_neg(),
        lambda x: torch.view_as_real(x.resolve_conj()) if x.is_complex() else x + 1,
        lambda x: x.conj(),
        lambda x: x.contiguous(),
        lambda x: x.sin() * (2 if x.is_conj() or x.is_neg() else 3),
    ],
)
def test_arguments_that_are_lazily_conjugated_or_negated(
    lazy: str, fn: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    compiled = torch.compile(fn, backend=symshape_backend)
    for each in ("neither", lazy, "neither"):
        x, y = _LAZY[each](), _LAZY[each]()
        want, got = fn(x), compiled(y)
        assert (want.is_conj(), want.is_neg()) == (got.is_conj(), got.is_neg())
        assert torch.equal(want, got)
        want.mul_(3)
        got.mul_(3)
        assert torch.equal(x, y)  # whether the result shares the argument's memory


@pytest.mark.parametrize("lazy", ["conjugated", "negated"])
def test_such_arguments_are_refused_as_elsewhere(lazy: str) -> None:
    x = _LAZY[lazy]()
    with pytest.raises(symshape.InputError) as error:
        symshape.compile(torch.sin, fullgraph=True)(x)
    graph = torch.fx.symbolic_trace(lambda x: x.sin())
    for node in graph.graph.nodes:
        node.meta["example_value"] = x
    with pytest.raises(symshape.UnsupportedError, match=f"is lazily {lazy}") as other:
        retraced(graph, "a graph", ["input"])
    assert str(other.value).startswith("argument input is lazily")
    assert "is lazily" in str(error.value)
