"""One graph of Dynamo's: taken over once, run as it is where that cannot be, verified,
forgotten.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from symshape.errors import FallbackWarning, UnsupportedError
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import DynamoGraph
from symshape.tracing.from_graph import fx_sizes as torch_expressions
from tests.symshape.runtime.runners.fakes import noted_runners


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def halves(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(x.size(0) // 2, 2) + x.sum()


def backed(fn: Callable[..., Any] = halves, **options: Any) -> Callable[..., Any]:
    # else a graph for which there is no program runs as Dynamo made it
    options.setdefault("runner", "eager")
    return torch.compile(fn, backend=symshape_backend, dynamic=True, options=options)


def only() -> DynamoGraph:
    (graph,) = dynamo.alive
    return graph


def test_one_program_serves_all_sizes() -> None:
    compiled = backed()
    for n in (4, 7, 33, 5):
        assert torch.equal(compiled(torch.ones(n)), halves(torch.ones(n)))
    stats = only().stats()
    assert (stats.calls, stats.traces, stats.hits, stats.fallbacks, stats.entries) == (
        4,
        1,
        4,
        0,
        1,
    )


@pytest.fixture
def no_division(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no term for a quotient, in a graph that AOTAutograd has taken apart."""
    monkeypatch.setattr(dynamo, "_DIRECTLY", ())
    functions = {
        name: make
        for name, make in torch_expressions._FUNCTIONS.items()
        if name not in ("FloorDiv", "CleanDiv")
    }
    monkeypatch.setattr(torch_expressions, "_FUNCTIONS", functions)


@pytest.mark.usefixtures("no_division")
def test_a_graph_that_cannot_be_taken_over_runs_as_it_is() -> None:
    compiled = backed()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in (4, 7, 4):
            assert torch.equal(compiled(torch.ones(n)), halves(torch.ones(n)))
    (message,) = (str(each.message) for each in told if each.category is FallbackWarning)
    assert message.startswith("halves cannot be traced and runs eagerly")
    assert "symshape has no formula for the size" in message
    assert (only().stats().traces, only().stats().calls, only().stats().fallbacks) == (0, 3, 3)
    assert "3 calls" in only().explain_fallback()


@pytest.mark.usefixtures("no_division")
def test_fullgraph_raises_instead() -> None:
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="symshape has no formula for the size"
    ) as caught:
        backed(fullgraph=True)(torch.ones(4))
    assert isinstance(caught.value.inner_exception, UnsupportedError)


def test_a_program_that_is_forgotten_is_released_and_made_anew() -> None:
    with noted_runners() as made:
        compiled = backed(runner="cudagraph")
        assert torch.equal(compiled(torch.ones(6)), halves(torch.ones(6)))
        only().reset()
        assert only().entries == ()
        assert torch.equal(compiled(torch.ones(8)), halves(torch.ones(8)))
    assert [(each.runs, each.releases) for each in made] == [(1, 1), (1, 0)]


def test_a_wrong_program_is_found_and_made_anew() -> None:
    compiled = backed(lambda x: x * 2, verify=1)
    compiled(torch.ones(3))
    assert only().stats().verified == 1
    (entry,) = only().entries
    entry.run = lambda leaves, values: [leaves[-1] * 3]
    with pytest.raises(Exception, match="differs from eager's"):
        compiled(torch.ones(4))
    assert entry not in only().entries
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3


def test_names_are_the_users() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x).tanh()

    torch.compile(Net(), backend=symshape_backend, dynamic=True, options={"runner": "eager"})(
        torch.ones(4, 2)
    ).sum().backward()
    graphs = {each.origin.part: each for each in dynamo.alive}
    assert {each.origin.name for each in graphs.values()} == {
        "Net.forward (forward)",
        "Net.forward (backward)",
    }
    paths = graphs["forward"].entries[0].program.call.paths
    assert set(paths) == {"x.size(0)", "x", "self.fc.weight", "self.fc.bias"}
    assert "the gradient of result 0" in graphs["backward"].entries[0].program.call.paths
