"""Graphs cut to pieces: how few there are, and which steps have to keep their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.graph.graph import Graph
from symshape.graph.steps import Assertion, Node
from symshape.graph.symbol_names import names_of_spec
from symshape.runtime.pieces.faults import Fault, Faults, Left
from symshape.runtime.pieces.partition import Piece, partition

CPU = torch.device("cpu")


def names_in_piece(graph: Graph, piece: Piece) -> set[str]:
    """The symbols in the sizes of what a piece reads and makes."""
    nodes = [
        step for step in (graph.steps[number] for number in piece.numbers) if isinstance(step, Node)
    ]
    values = [
        value for node in nodes for value in (*node.reads, *node.outputs) if value is not None
    ]
    return set().union(*(names_of_spec(value.spec) for value in values))


def _graph(fn: Callable[..., Any], *arguments: Any) -> Graph:
    with torch.no_grad():
        return symshape.trace(fn, *arguments, dynamic=True).program.graph


def _pieces(graph: Graph, least: int = 1, left: Left | None = None) -> list[tuple[bool, list[str]]]:
    """Whether each piece is recorded, and the names of its ops in order; a check is ``assert``."""
    found = partition(graph, Faults(graph, CPU, left or {}).of, least)
    numbers = sorted(number for piece in found for number in piece.numbers)
    assert numbers == ([] if not found else list(range(len(graph.steps))))
    return [(piece.recorded, [_name(graph, number) for number in piece.numbers]) for piece in found]


def _name(graph: Graph, number: int) -> str:
    step = graph.steps[number]
    return "assert" if isinstance(step, Assertion) else step.op._schema.name.removeprefix("aten::")


def test_a_program_without_faults_is_one_piece() -> None:
    graph = _graph(lambda x: x.relu().sin(), torch.ones(3))
    assert _pieces(graph) == [(True, ["relu", "sin"])]


def test_what_does_not_depend_on_data_goes_into_the_first_piece() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.relu()
        found = (y > 0).nonzero()
        z = y.sin()  # after the count, which it has nothing to do with
        return found * 2, z.cos()

    first, data, last = _pieces(_graph(fn, torch.ones(3)))
    assert first == (True, ["relu", "gt", "sin", "cos"])
    assert data == (False, ["nonzero"])
    assert last == (True, ["mul"])


def test_data_that_decide_on_different_sizes_have_pieces_of_their_own() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x[x > 0].sin(), y[y > 0].cos()

    assert _pieces(_graph(fn, torch.ones(3), torch.ones(4))) == [
        (True, ["gt", "gt"]),
        (False, ["index", "index"]),
        (True, ["sin"]),
        (True, ["cos"]),
    ]


def test_what_picks_rows_and_what_puts_them_back_runs_as_it_is() -> None:
    """As in a mixture of experts: the piece in between knows nothing of the sizes around it."""
    w, v = torch.randn(4, 4), torch.randn(4, 4)

    def fn(x: torch.Tensor) -> Any:
        out = torch.zeros_like(x)
        for weight, chosen in ((w, x[:, 0] > 0), (v, x[:, 1] > 0)):
            rows = chosen.nonzero().squeeze(1)
            out.index_add_(0, rows, (x[rows] @ weight).relu())
        return out

    graph = _graph(fn, torch.randn(5, 4))
    found = _pieces(graph)
    assert [ops for recorded, ops in found if recorded][1:] == [["mm", "relu"], ["mm", "relu"]]
    names = [
        names_in_piece(graph, piece)
        for piece in partition(graph, Faults(graph, CPU).of, 1)
        if piece.recorded
    ]
    assert [sorted(name for name in each if name[0] == "u") for each in names] == [
        [],
        ["u0"],
        ["u1"],
    ]
    assert not any("s0" in each for each in names[1:])


def test_rows_in_the_middle_of_a_piece_stay_there() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        kept = x[x > 0].sin()
        return (y[: kept.size(0)] * kept).cos()  # y is needed all the same

    assert _pieces(_graph(fn, torch.ones(3), torch.ones(3)))[-1] == (
        True,
        ["sin", "slice", "mul", "cos"],
    )


def test_too_little_work_runs_as_it_is() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.nonzero().sin()

    assert _pieces(_graph(fn, torch.ones(3)), least=2) == []

    def long(x: torch.Tensor) -> Any:
        return x.exp()[None].nonzero().sin().cos().tan()

    graph = _graph(long, torch.ones(3))
    assert _pieces(graph, least=3) == [
        (False, ["exp", "unsqueeze", "nonzero"]),
        (True, ["sin", "cos", "tan"]),
    ]


def test_one_op_of_many_kernels_is_work() -> None:
    lstm = torch.nn.LSTM(3, 4)
    graph = _graph(lambda x: lstm(x)[0][(x > 0).any(-1)], torch.ones(5, 2, 3))
    assert [recorded for recorded, _ in _pieces(graph, least=6)] == [True, False]


def test_reads_and_writes_of_one_memory_keep_their_order() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        before = y * 2
        # draws, so it comes in a later piece, and so do the reads after it
        y[0].copy_(torch.rand(x.size(1)))
        return before, y * 3

    pieces = _pieces(_graph(fn, torch.ones(3, 2)))
    order = [name for _, ops in pieces for name in ops]
    assert order.index("mul") < order.index("copy_") < len(order) - 1 - order[::-1].index("mul")
    assert [recorded for recorded, _ in pieces] == [True, False, True]


def test_arguments_that_are_written_to_are_taken_for_one_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(torch.rand(3))
        return y * 2  # y may be x

    order = [name for _, ops in _pieces(_graph(fn, torch.ones(3), torch.ones(3))) for name in ops]
    assert order.index("add_") < order.index("mul")


def test_checks_come_before_what_relies_on_them_and_before_effects() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = x.sum().long().item()
        torch._check(n >= 0)
        torch._check(n <= y.size(0))
        y[:n].mul_(2)
        return x + 1

    graph = _graph(fn, torch.ones(3), torch.ones(4))
    order = [name for _, ops in _pieces(graph) for name in ops]
    assert len(order) - 1 - order[::-1].index("assert") < order.index("slice") < order.index("mul_")


def test_what_relies_on_a_check_waits_for_it() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = x.sum().long().item()
        torch._check(n >= 0)
        torch._check(n <= x.size(0))
        m = x[:n].sin().sum().long().item()
        torch._check(m >= 0)
        torch._check(n + m <= y.size(0))
        return y.narrow(
            0, 0, n
        ).exp()  # n is known before x[:n], that it is small enough only after m

    order = [name for _, ops in _pieces(_graph(fn, torch.ones(3), torch.ones(9))) for name in ops]
    assert order.count("assert") == 4
    assert len(order) - 1 - order[::-1].index("assert") < order.index("exp")


def test_random_numbers_are_drawn_in_their_order() -> None:
    def fn(x: torch.Tensor) -> Any:
        a = torch.rand(x.size(0))
        kept = x[x > 0]
        b = torch.rand_like(kept.sin())
        c = torch.randn(x.size(0))
        return a, b, c

    graph = _graph(fn, torch.ones(3))
    order = [name for _, ops in _pieces(graph) for name in ops]
    assert [name for name in order if name.startswith("rand")] == ["rand", "rand_like", "randn"]


def test_a_count_that_is_known_is_still_data() -> None:
    def fn(x: torch.Tensor) -> Any:
        first = x.nonzero()
        first.relu_()
        return x.nonzero() * 2  # the same count: its size is known, what it holds is not

    graph = _graph(fn, torch.ones(3))
    assert [node.bindings != () for node in graph.nodes if "nonzero" in str(node.op)] == [
        True,
        False,
    ]
    assert [ops for recorded, ops in _pieces(graph) if recorded] == [["relu_", "mul"]]


def test_ops_that_could_not_be_captured_are_left_out() -> None:
    graph = _graph(lambda x: x.sin().cos().tan(), torch.ones(3))
    assert _pieces(graph, left={("aten.cos.default", ""): Fault("it could not be captured")}) == [
        (True, ["sin"]),
        (False, ["cos"]),
        (True, ["tan"]),
    ]


def test_a_value_that_changes_its_sizes_in_place_stays_whole() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + torch.rand(3, 1)
        y.t_()
        return y.nonzero(), y.sin()

    assert any(node.leaves is not None for node in _graph(fn, torch.ones(3, 4)).nodes)
    assert _pieces(_graph(fn, torch.ones(3, 4))) == []


@pytest.mark.parametrize("kind", ["cond", "while"])
def test_control_flow_is_no_barrier(kind: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.sin()
        if kind == "cond":
            z = torch.cond(y.sum() > 0, lambda a: a * 2, lambda a: a - 1, (y,))
        else:
            from torch._higher_order_ops.while_loop import while_loop

            (z,) = while_loop(lambda a: a.sum() < 3, lambda a: (a + 1,), (y,))
        return z.cos(), x.tan()

    graph = _graph(fn, torch.ones(3))
    assert sum(isinstance(step, Node) for step in graph.steps) >= 4
    first, flow, last = _pieces(graph)
    assert first[0]
    assert "tan" in first[1]
    assert not flow[0]
    assert last == (True, ["cos"])


def test_what_is_made_of_parameters_is_where_it_is_needed() -> None:
    """Else a transposed weight would be handed from piece to piece."""
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def fn(x: torch.Tensor) -> Any:
        y = first(x)
        return second(y[y[:, 0] > 0]).relu()

    (_, before), (_, data), (_, behind) = _pieces(_graph(fn, torch.randn(3, 4)))
    assert before.count("t") == behind.count("t") == 1
    assert "t" not in data


def test_what_is_made_of_a_parameter_that_is_written_to_stays_behind_that() -> None:
    weight = torch.randn(4, 4)

    def fn(x: torch.Tensor) -> Any:
        y = x[x[:, 0] > 0].sin()
        weight.add_(1)
        return y @ weight.t()

    order = [name for _, ops in _pieces(_graph(fn, torch.randn(3, 4))) for name in ops]
    assert order.index("add_") < order.index("t") < order.index("mm")
