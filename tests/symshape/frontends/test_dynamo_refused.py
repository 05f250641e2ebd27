"""What AOTAutograd cannot take apart runs as it is: eager's results, a warning, a row in the
report, no mode left.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

import symshape
from symshape.errors import FallbackWarning
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def viewed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        flat = x.view(-1)
    return flat, y * 2


def under_autocast(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad(), torch.inference_mode():
        flat = x.view(-1)
    return flat, y @ y.T


def exchanged(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.data = y
    return x + 1, y


PROGRAMS = {"viewed": viewed, "under_autocast": under_autocast, "exchanged": exchanged}


@pytest.mark.filterwarnings("always::symshape.FallbackWarning")
@pytest.mark.parametrize("runner", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_as_it_is(name: str, runner: str) -> None:
    fn: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = PROGRAMS[name]
    compiled = torch.compile(fn, backend=symshape_backend, dynamic=True, options={"runner": runner})
    with warnings.catch_warnings(record=True) as told:
        for n in (3, 5, 4):
            ours, theirs = ([torch.ones(n, 2), torch.zeros(n, 2)] for _ in range(2))
            for mine, eager in zip((*compiled(*ours), *ours), (*fn(*theirs), *theirs), strict=True):
                torch.testing.assert_close(mine, eager)
                assert mine.is_inference() == eager.is_inference()
            assert not torch.is_inference_mode_enabled()
            assert not torch.is_autocast_enabled("cpu")
            # else casts of weights would be kept for ever
            assert torch.autocast_increment_nesting() == 1
            torch.autocast_decrement_nesting()
            assert torch.is_grad_enabled()
    (graph,) = symshape.backend_report().graphs
    if runner == "inductor" and graph.runner:
        return  # Inductor keeps writes in the graph, and takes it
    assert (graph.origin.function, graph.stats.calls, graph.stats.fallbacks) == (name, 3, 3)
    (message,) = (str(each.message) for each in told if each.category is FallbackWarning)
    assert message.startswith(f"{name} cannot be traced and runs eagerly")
    assert (
        "torch's AOTAutograd refuses the graph with" in message
        or "AOTAutograd may be wrong about" in message
    )
    assert "test_dynamo_refused.py:" in message
    assert "symshape.backend_report() counts the calls" in message
    assert "3 calls" in str(symshape.backend_report())


def test_fullgraph_raises_what_torch_said() -> None:
    compiled = torch.compile(viewed, backend=symshape_backend, options={"fullgraph": True})
    said = "inference tensor|UntypedStorage"  # the latter by torch 2.11
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=said):
        compiled(torch.ones(3), torch.ones(3))
    assert not torch.is_inference_mode_enabled()
    assert torch.ones(3).sum() == 3


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_after_a_reset_it_is_refused_again() -> None:
    compiled = torch.compile(viewed, backend=symshape_backend, options={"runner": "eager"})
    compiled(torch.ones(3), torch.ones(3))
    (graph,) = dynamo.alive
    graph.reset()
    compiled(torch.ones(3), torch.ones(3))
    assert (graph.stats().calls, graph.stats().fallbacks, graph.entries) == (2, 2, ())


@pytest.mark.filterwarnings("always::symshape.FallbackWarning")
def test_a_nested_tensor_says_what_it_is() -> None:
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    compiled = torch.compile(doubled, backend=symshape_backend, options={"runner": "eager"})
    with warnings.catch_warnings(record=True) as told:
        for n in (3, 5):
            rows = torch.nested.nested_tensor(
                [torch.ones(n, 2), torch.ones(n + 1, 2)], layout=torch.jagged
            )
            torch.testing.assert_close(compiled(rows).values(), doubled(rows).values())
    messages = [str(each.message) for each in told if each.category is FallbackWarning]
    assert all(
        "is the ragged size of a nested tensor, which is no integer (at test_" in each
        for each in messages
    )
    assert messages
