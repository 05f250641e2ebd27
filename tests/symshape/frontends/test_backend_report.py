"""The report of the torch.compile backend: every graph in the user's words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import symshape
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def test_nothing_made() -> None:
    assert str(symshape.backend_report()).startswith("torch.compile has made no graph")


def test_every_graph_with_its_calls_and_why_it_was_made() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.t() * 2

    compiled = torch.compile(double, backend=symshape_backend)
    for n in (3, 5, 4):
        compiled(torch.ones(n, 2))
    report = symshape.backend_report()
    first, second = report.graphs
    assert [each.origin.name for each in report.graphs] == ["double (inference)"] * 2
    assert (first.stats.calls, first.sizes, first.origin.reason) == (1, (), "")
    assert (second.stats.calls, second.ops, second.runner) == (2, 2, "eager")
    assert [size.partition(" = ")[2] for size in second.sizes] == ["x.size(0)"]
    assert "size mismatch at index 0. expected 3, actual 5" in second.origin.reason
    shown = str(report)
    assert shown.splitlines()[0] == "2 graphs, 2 traced, 3 calls, 0 of them eager"
    assert "<locals>" not in shown
    assert "L['" not in shown
    assert "DynamoGraph" not in shown
    assert "double (inference)" in report._repr_html_()
    assert "<table>" in report._repr_html_()


def test_a_graph_after_a_break_says_from_which_line() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    torch.compile(broken, backend=symshape_backend)(torch.ones(3))
    names = [each.origin.function for each in symshape.backend_report().graphs]
    assert names[0] == "broken"
    assert names[1].startswith("broken from line ")


def test_what_was_reset_is_not_shown_and_a_backward_that_waits_comes_back() -> None:
    compiled = torch.compile(
        lambda x: x.sin() * 2, backend=symshape_backend, options={"runner": "eager"}
    )
    x = torch.ones(3, requires_grad=True)
    waiting = compiled(x)
    torch._dynamo.reset()
    assert symshape.backend_report().graphs == ()
    waiting.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    (graph,) = symshape.backend_report().graphs
    assert (graph.origin.part, graph.stats.calls, graph.runner) == ("backward", 1, "eager")


def test_a_graph_that_runs_as_dynamo_made_it_says_so() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    compiled = torch.compile(halves, backend=symshape_backend)
    for n in (3, 5, 4):
        compiled(torch.ones(n, 2, requires_grad=True)).sum().backward()
    report = symshape.backend_report()
    second = report.graphs[1]
    assert (second.origin.name, second.stats.calls, second.stats.plain) == (
        "halves (training)",
        2,
        2,
    )
    assert (second.ops, second.runner) == (2, "as Dynamo made it")
    assert [size.partition(" = ")[2] for size in second.sizes] == ["x.size(0)"]
    assert "2 of 2 calls ran Dynamo's own graph: torch's own backward" in str(report)
