"""Graphs of AOTAutograd's as programs: the same results at other sizes, terms for sizes, memory
that is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from guards.sets.sources import IntArg, Size
from symshape.errors import UnsupportedError
from symshape.graph.opaque_calls import OpaqueCall
from symshape.graph.program import Program
from symshape.tracing.from_graph.aot_autograd import taken_over

Tensor = torch.Tensor


def program_of(
    fn: Callable[..., Any], *args: Any
) -> tuple[Program, Callable[[list[Any], list[int]], list[Any]]]:
    """The program of what ``fn`` does, as torch writes it down with symbolic sizes."""
    module = make_fx(fn, tracing_mode="symbolic", _error_on_data_dependent_ops=False)(*args)
    return taken_over(module, "f", [f"x{i}" for i in range(len(args))])


def run(fn: Callable[..., Any], program: Program, args: list[Any]) -> None:
    values = []
    for slot in program.slots:
        leaf = args[int(slot.source.arg[1:])]
        values.append(leaf.size(slot.source.dim) if isinstance(slot.source, Size) else leaf)
    expected = fn(*args)
    flat = program.run(args, values)
    torch.testing.assert_close(
        flat, list(expected) if isinstance(expected, (tuple, list)) else [expected]
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x @ y).relu(),
        lambda x, y: [x.new_zeros(x.size(0) * 2 + y.size(1)), y.t() / y.size(1) ** 0.5],
        lambda x, y: list(x.split(2, 1)),
        lambda x, y: [x.mean(), None, 3, x.size(0) + 1],
        lambda x, y: torch.cat([x.reshape(-1), y.flatten()])[1:-1:2],
        lambda x, y: list(torch.linalg.slogdet(x @ x.t() + torch.eye(x.size(0)))),
    ],
)
def test_other_sizes(fn: Callable[..., Any]) -> None:
    program, _ = program_of(fn, torch.randn(5, 4), torch.randn(4, 7))
    for n, m in ((6, 9), (3, 2)):
        run(fn, program, [torch.randn(n, 4), torch.randn(4, m)])


def test_sizes_are_terms_and_read_once() -> None:
    program, _ = program_of(
        lambda x, y: torch.cat([x, y]) * x.size(0), torch.randn(5, 3), torch.randn(6, 3)
    )
    assert [slot.source for slot in program.slots] == [Size("x0", 0), Size("x0", 1), Size("x1", 0)]
    a, b, c = (slot.term for slot in program.slots)
    (spec,) = program.output_specs
    assert [size.term for size in spec.sizes] == [a + c, b]
    assert [guard.text() for guard in program.guards] == []


def test_an_integer_argument_is_a_symbol() -> None:
    program, _ = program_of(lambda x, n: x.new_ones(n * 2), torch.randn(3), 4)
    assert [slot.source for slot in program.slots if isinstance(slot.source, IntArg)] in (
        [],
        [IntArg("x1")],
    )
    run(lambda x, n: x.new_ones(n * 2), program, [torch.randn(9), 4])


def test_views_share_the_memory_of_what_they_view() -> None:
    program, _ = program_of(lambda x: [x.t()[1:], x * 2], torch.randn(4, 5))
    view, copy = program.graph.outputs
    (given,) = program.graph.inputs
    assert view.storage is given.value.storage is not copy.storage


def test_what_is_written_to_in_place_is_its_own_result() -> None:
    program, _ = program_of(lambda x: x.add_(1).mul_(2), torch.zeros(4))
    (given,) = program.graph.inputs
    assert program.graph.mutated == (given.value,)
    assert program.graph.outputs == (given.value,)


def test_the_list_of_leaves_is_emptied() -> None:
    program, boxed = program_of(lambda x: x + 1, torch.zeros(4))
    leaves = [torch.ones(6)]
    (result,) = boxed(leaves, [6] * len(program.slots))
    assert leaves == []
    assert result.tolist() == [2.0] * 6


def test_numbers_that_data_tell_are_read_off_the_results() -> None:
    def found(x: Tensor) -> Any:
        where = x.nonzero()
        return [where * 2, x.new_ones(where.size(0) * 3)]

    program, _ = program_of(found, torch.tensor([0.0, 1.0, 2.0]))
    assert [binding.kind for node in program.graph.nodes for binding in node.bindings] == ["size"]
    for x in (torch.tensor([0.0, 0.0, 5.0, 1.0, 2.0]), torch.zeros(4)):
        run(found, program, [x])


def test_a_higher_order_operator_is_an_opaque_call() -> None:
    def chosen(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a: (a.sin(), a * 2), lambda a: (a.cos(), a + 1), (x,))

    program, _ = program_of(chosen, torch.ones(3))
    assert [str(node.op) for node in program.graph.nodes if isinstance(node.op, OpaqueCall)] == [
        "cond"
    ]
    for x in (torch.ones(5), -torch.ones(4)):
        run(
            lambda x: [
                torch.where(x.sum() > 0, x.sin(), x.cos()),
                torch.where(x.sum() > 0, x * 2, x + 1),
            ],
            program,
            [x],
        )


def test_an_argument_of_no_known_kind_is_refused_where_it_is_used() -> None:
    graph = torch.fx.Graph()
    x, thing = graph.placeholder("x"), graph.placeholder("thing")
    x.meta["val"], thing.meta["val"] = torch.ones(3), object()
    used = graph.call_function(torch.ops.aten.add.Tensor, (x, thing))
    used.meta["val"] = torch.ones(3)
    graph.output((used,))
    with pytest.raises(UnsupportedError, match="the argument x1 of the graph is a object"):
        taken_over(torch.fx.GraphModule(torch.nn.Module(), graph), "f", ["x0", "x1"])


def test_a_call_of_a_module_is_refused() -> None:
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    with pytest.raises(UnsupportedError, match="the graph has a call_module"):
        taken_over(module, "f", ["x"])
