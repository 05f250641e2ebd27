"""Layers that repeat are compiled once: what is found, what is refused, and that results stay."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from symshape.runtime.runners.inductor import compile_request
from symshape.runtime.runners.inductor.compile_request import Given, Request
from symshape.runtime.runners.inductor.repeats import with_repeats_once

_aten = torch.ops.aten
_WIDTH = 8

Layer = Callable[[torch.fx.Graph, torch.fx.Node, torch.fx.Node, torch.fx.Node, int], torch.fx.Node]


def _usual(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> torch.fx.Node:
    """A layer of 18 nodes: a product with a weight, and what is computed element by element."""
    made = graph.call_function(_aten.mm.default, (x, w))
    for _ in range(4):
        made = graph.call_function(_aten.tanh.default, (made,))
        made = graph.call_function(_aten.add.Tensor, (made, x))
        made = graph.call_function(_aten.mul.Tensor, (made, 0.5))
    sums = graph.call_function(_aten.sum.dim_IntList, (made, [1], True))
    wide = graph.call_function(_aten.expand.default, (sums, [rows, _WIDTH]))
    made = graph.call_function(_aten.sub.Tensor, (made, wide))
    return graph.call_function(_aten.add.Tensor, (made, x))


def _model(layers: int, layer: Layer = _usual) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    weights = [graph.placeholder(f"w{number}") for number in range(layers)]
    rows = graph.call_function(_aten.sym_size.int, (x, 0))
    for number, weight in enumerate(weights):
        x = layer(graph, x, weight, rows, number)
    graph.output([x])
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _given(layers: int, rows: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, _WIDTH), *[(_WIDTH, _WIDTH)] * layers]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _found(module: torch.fx.GraphModule, given: list[torch.Tensor]) -> torch.fx.GraphModule:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return with_repeats_once(module, [mode.from_tensor(each) for each in given], mode)


def _calls(module: torch.fx.GraphModule) -> list[str]:
    return [
        str(node.args[1])
        for node in module.graph.nodes
        if node.op == "call_function" and "invoke_subgraph" in str(node.target)
    ]


@pytest.mark.parametrize("layers", [3, 4, 7])
def test_layers_become_calls(layers: int) -> None:
    given, module = _given(layers), _model(layers)
    found = _found(module, given)
    assert _calls(found) == ["layer_0"] * layers
    torch.testing.assert_close(found(*given), module(*given))
    inside = [node for node in found.layer_0.graph.nodes if node.op == "call_function"]  # type: ignore[union-attr]
    assert len(inside) == 17
    (results,) = [node.args[0] for node in found.layer_0.graph.nodes if node.op == "output"]  # type: ignore[union-attr]
    assert len(results) == 1  # it was cut where the least is handed over


def test_two_layers_are_left() -> None:
    module = _model(2)
    assert _found(module, _given(2)) is module


def _another_constant(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
    made = _usual(graph, x, w, rows, number)
    return graph.call_function(_aten.mul.Tensor, (made, 2.0 if number == 3 else 1.0))


def test_a_layer_with_another_constant_stays_apart() -> None:
    given, module = _given(7), _model(7, _another_constant)
    found = _found(module, given)
    torch.testing.assert_close(found(*given), module(*given))
    assert 3 <= len(_calls(found)) <= 6


def _skips(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
    """One layer adds its own sum a second time in place of what it was given."""
    made = _usual(graph, x, w, rows, number)
    return graph.call_function(_aten.add.Tensor, (made, made if number == 1 else x))


def test_a_layer_that_is_wired_otherwise_stays_apart() -> None:
    given, module = _given(8), _model(8, _skips)
    found = _found(module, given)
    torch.testing.assert_close(found(*given), module(*given))


def _draws(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
    made = _usual(graph, x, w, rows, number)
    noise = graph.call_function(_aten.rand_like.default, (made,))
    return graph.call_function(_aten.add.Tensor, (made, noise))


def _writes(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
    return graph.call_function(_aten.add_.Tensor, (_usual(graph, x, w, rows, number), 1.0))


@pytest.mark.parametrize("layer", [_draws, _writes])
def test_what_draws_or_writes_is_left(layer: Layer) -> None:
    module = _model(4, layer)
    assert _found(module, _given(4)) is module


def test_weights_of_other_layouts_are_no_operands_of_one_subgraph() -> None:
    given, module = _given(4), _model(4)
    given[2] = given[2].t()
    found = _found(module, given)
    assert found is module


def _reshapes(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
    """The first layer computes the number of elements, all use it."""
    global _elements
    if number == 0:
        doubled = graph.call_function(operator.mul, (rows, 2))
        _elements = graph.call_function(operator.mul, (doubled, _WIDTH // 2))
    made = _usual(graph, x, w, rows, number)
    flat = graph.call_function(_aten.reshape.default, (made, [_elements]))
    return graph.call_function(_aten.view.default, (flat, [rows, _WIDTH]))


_elements: Any = None


def test_integers_of_sizes_are_computed_inside() -> None:
    """Inductor would fix one that is given: the code would be for one number of elements."""
    given, module = _given(5), _model(5, _reshapes)
    found = _found(module, given)
    assert _calls(found) == ["layer_0"] * 5
    torch.testing.assert_close(found(*given), module(*given))
    for node in found.graph.nodes:
        if node.op == "call_function" and "invoke_subgraph" in str(node.target):
            assert operator.mul not in {each.target for each in node.all_input_nodes}
    targets = [each.target for each in found.layer_0.graph.nodes]  # type: ignore[union-attr]
    assert targets.count(operator.mul) == 2


def test_a_size_that_happens_to_be_a_constant_is_another_kind() -> None:
    """A layer of 8 rows among layers of any number of rows: alike in the example alone."""
    graph = torch.fx.Graph()
    x, other = graph.placeholder("x"), graph.placeholder("other")
    rows = graph.call_function(_aten.sym_size.int, (x, 0))
    results = []
    for number in range(4):
        made = other if number == 2 else x
        for _ in range(20):
            made = graph.call_function(_aten.tanh.default, (made,))
        results.append(graph.call_function(_aten.sum.dim_IntList, (made, [1])))
    graph.output([*results, graph.call_function(_aten.full.default, ([rows], 0.0))])
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    given = [Given(torch.randn(8, 3), ("v0", "v1"), (True, False)), Given(torch.randn(8, 3))]
    mode = compile_request._mode()
    fakes = [compile_request._fake(mode, each, {}, {}) for each in given]
    assert with_repeats_once(module, fakes, mode) is module
    fakes[1] = fakes[0]  # of as many rows
    assert _calls(with_repeats_once(module, fakes, mode)) == ["layer_0"] * 4


def test_two_kinds_of_layers() -> None:
    def layer(graph: torch.fx.Graph, x: Any, w: Any, rows: Any, number: int) -> Any:
        if number < 3:
            return _usual(graph, x, w, rows, number)
        made = graph.call_function(_aten.mm.default, (x, w))
        for _ in range(9):
            made = graph.call_function(_aten.sigmoid.default, (made,))
            made = graph.call_function(_aten.sub.Tensor, (x, made))
        return made

    given, module = _given(7), _model(7, layer)
    found = _found(module, given)
    assert sorted(_calls(found)) == ["layer_0"] * 4 + ["layer_1"] * 3
    torch.testing.assert_close(found(*given), module(*given))


def test_sizes_that_depend_on_data_are_left() -> None:
    module = _model(4)
    output = next(node for node in module.graph.nodes if node.op == "output")
    with module.graph.inserting_before(output):
        (x,) = output.args[0]
        where = module.graph.call_function(_aten.gt.Scalar, (x, 0.0))
        picked = module.graph.call_function(_aten.index.Tensor, (x, [where]))
    output.args = ([picked],)
    assert _found(module, _given(4)) is module


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_inductor_compiles_such_a_graph(keep: bool) -> None:
    given, module = _given(4), _model(4)
    names = [Given(given[0], ("v0", "v1"), (True, False)), *map(Given, given[1:])]
    request = Request(module, names, {})
    with torch.no_grad():
        code, assumed, content = request.compiled(keep=keep)
        whole, same, _ = request._compiled(keep, once=False)
        assert assumed == same
        assert (content is not None) == keep
        for rows in (5, 9):
            each = _given(4, rows)
            torch.testing.assert_close(code(*each), whole(*each))
            torch.testing.assert_close(code(*each), module(*each))


def test_the_whole_graph_is_compiled_where_sizes_would_be_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fixed(module: Any, inputs: Any, mode: Any, options: Any) -> Any:
        if hasattr(module, "layer_0"):
            assert inputs[0].shape[0] == 5  # a guard
        return module

    monkeypatch.setattr(compile_request, "compiled", fixed)
    given = _given(4)
    names = [Given(given[0], ("v0", "v1"), (True, False)), *map(Given, given[1:])]
    code, assumed, _ = Request(_model(4), names, {}).compiled(keep=False)
    assert not hasattr(code, "layer_0")
    assert assumed is not None
    assert not any("5" in each for each in assumed)


def test_the_whole_graph_is_compiled_where_inductor_cannot_do_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def compiled(self: Request, keep: bool, once: bool) -> Any:
        asked.append(once)
        if once and len(asked) < 3:
            raise NotImplementedError
        return operator.add, (), None if once else b""

    monkeypatch.setattr(Request, "_compiled", compiled)
    request = Request(_model(3), [Given(each) for each in _given(3)], {})
    assert request.compiled(keep=True)[2] == b""
    assert request.compiled(keep=True)[2] == b""  # such code cannot be written
    assert asked == [True, False, True, False]


def test_what_the_comparison_assumes_is_assumed_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions are the first rows of a table of 8 rows, so there are at most 8."""
    module = _model(4)
    node = next(node for node in module.graph.nodes if node.target is _aten.mm.default)
    (rows,) = [each for each in module.graph.nodes if each.target is _aten.sym_size.int]
    with module.graph.inserting_before(node):
        table = module.graph.call_function(_aten.slice.Tensor, (node.args[1], 0, 0, rows))
        first = module.graph.call_function(_aten.add.Tensor, (node.args[0], table))
    node.args = (first, node.args[1])
    monkeypatch.setattr(compile_request, "compiled", lambda module, *_: module)
    given = _given(4)
    names = [Given(given[0], ("v0", "v1"), (True, False)), *map(Given, given[1:])]
    code, assumed, _ = Request(module, names, {}).compiled(keep=False)
    assert hasattr(code, "layer_0")
    assert assumed is not None
    assert f"v0 <= {_WIDTH}" in assumed
