"""The torch.compile backend: eager's results, one Dynamo entry, our entries inside, none of our guards in Dynamo's."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from symshape import Compiled, Options
from symshape.errors import InputError, RunnerError
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.runners.choice import RunnerName
from tests.symshape.runtime.runners.fakes import noted_runners


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def entries() -> int:
    return sum(len(graph.entries) for graph in dynamo.alive)


@pytest.mark.skipif("symshape" not in torch._dynamo.list_backends(), reason="symshape is not installed as a package")
def test_the_backend_is_registered_under_its_name() -> None:
    x = torch.randn(3)
    assert torch.equal(torch.compile(lambda x: x * 2, backend="symshape")(x), x * 2)


def test_inference_at_many_sizes_takes_two_graphs() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    compiled = torch.compile(f, backend=symshape_backend, fullgraph=True)
    for n in (3, 4, 5, 7, 9, 2, 33):
        x, y = torch.randn(n, 4), torch.randn(4, 6)
        assert torch.equal(compiled(x, y), f(x, y))
    assert graphs() == 2
    assert entries() == 2


def test_one_dynamo_entry_fans_out_by_our_guards() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2).sum(0)  # Dynamo leaves the divisibility to the op

    compiled = torch.compile(f, backend=symshape_backend, dynamic=True)
    for n in (4, 6, 10, 8):  # a result of size 1 would be Dynamo's own recompile
        x = torch.randn(n)
        assert torch.allclose(compiled(x), f(x))
    assert graphs() == 1
    assert entries() == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_training_gives_eagers_gradients(dynamic: bool | None) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)]
    model = torch.nn.Sequential(*layers)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=symshape_backend, dynamic=dynamic)
    for n in (3, 5, 6, 1):
        x = torch.randn(n, 8)
        for each in (compiled, twin):
            each.zero_grad()
            each(x).pow(2).mean().backward()
        for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, eager.grad)


def test_input_gradients_and_batch_norm_statistics() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend=symshape_backend)
    for n in (2, 3, 4):
        x = torch.randn(n, 3, 8, 8, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).sum().backward()
        twin(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    assert int(model[1].num_batches_tracked) == 3


def test_mutated_inputs_are_written_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    compiled = torch.compile(f, backend=symshape_backend)
    for n in (3, 5):
        x = torch.zeros(n)
        assert torch.equal(compiled(x), torch.full((n,), 2.0))
        assert torch.equal(x, torch.ones(n))


def test_no_guard_of_ours_becomes_dynamos() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y]).view(-1, 2)  # needs an even total, which only our trace asks

    compiled = torch.compile(f, backend=symshape_backend, dynamic=True)
    for n, m in ((4, 2), (3, 5), (7, 3), (2, 6)):
        x, y = torch.randn(n), torch.randn(m)
        assert torch.equal(compiled(x, y), f(x, y))
    assert graphs() == 1


def test_our_entries_know_the_users_lines() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0) // 2, -1)

    compiled = torch.compile(f, backend=symshape_backend, dynamic=True)
    compiled(torch.randn(8, 3))
    (graph,) = dynamo.alive
    origins = [guard.origin for entry in graph.entries for guard in entry.program.guards]
    assert any(origin is not None and origin.text == "return x.view(x.size(0) // 2, -1)" for origin in origins)


def test_reset_forgets_our_entries() -> None:
    compiled = torch.compile(lambda x: x + 1, backend=symshape_backend)
    compiled(torch.randn(3))
    assert entries() == 1
    dynamo.reset()
    assert entries() == 0
    assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))


def test_modes_and_options() -> None:
    x = torch.randn(3)
    run = torch.compile(lambda x: x + 1, backend=symshape_backend, options={"runner": "eager"})
    assert torch.equal(run(x), x + 1)
    with pytest.raises(InputError, match="knows no mode 'fastest'"):
        symshape_backend(torch.fx.symbolic_trace(lambda x: x), [x], mode="fastest")
    with pytest.raises(InputError, match="no option 'max_entry'"):
        symshape_backend(torch.fx.symbolic_trace(lambda x: x), [x], options={"max_entry": 3})
    with pytest.raises(RunnerError, match="no runner 'turbo'"):
        symshape_backend(torch.fx.symbolic_trace(lambda x: x), [x], options={"runner": "turbo"})


def backend_graph(runner: RunnerName = "eager", **options: int) -> Compiled:
    """A graph as Dynamo hands it over: one input whose size is symbolic; each size gets an entry of ours."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.aten.mul.Tensor(x, 2))
    fake = mode.from_tensor(torch.ones(7), symbolic_context=context)
    compiled = dynamo.compile_graph(graph, [fake], runner, Options(**options))
    compiled._fixed_policies = {}
    return compiled


def test_evicted_entries_are_not_run_again() -> None:
    with noted_runners() as made:
        compiled = backend_graph("cudagraph", max_entries=2)
        for n in (3, 4, 5, 3, 3):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0))
        assert [each.releases for each in made] == [1, 1, 0, 0]
        assert [each.runs for each in made] == [1, 1, 1, 2], "the fourth served 3 when the first had left"
        assert [entry.runner for entry in compiled.entries] == made[2:]


def test_a_once_hot_entry_does_not_outrank_newer_ones() -> None:
    compiled = backend_graph(max_entries=3)
    for _ in range(500):
        compiled(torch.ones(1))
    for n in (2, 3, 2, 3):
        compiled(torch.ones(n))
    compiled(torch.ones(4))
    assert [entry.number for entry in compiled.entries] == [1, 2, 3]


def test_what_is_known_again_is_the_symbolic_sizes() -> None:
    compiled = backend_graph()
    compiled(torch.ones(3))
    compiled(torch.ones(5))
    keys = {key for branch in compiled._cache.branches for key in branch.memo}
    assert keys == {(3,), (5,)}
    before = compiled.stats()
    compiled(torch.ones(5))
    assert (compiled.stats().calls, compiled.stats().misses) == (before.calls + 1, before.misses)
