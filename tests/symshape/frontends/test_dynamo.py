"""The torch.compile backend: eager's results, one Dynamo entry, our entries inside, none of our
guards in Dynamo's.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from symshape.calls.arguments import INT_KEY
from symshape.errors import InputError, RunnerError
from symshape.frontends import dynamo
from symshape.frontends.dynamo import check_names, symshape_backend


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


@pytest.mark.skipif(
    "symshape" not in torch._dynamo.list_backends(), reason="symshape is not installed as a package"
)
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
    layers = [
        torch.nn.Linear(8, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 4),
    ]
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
    origins = [node.origin for entry in graph.entries for node in entry.program.graph.nodes]
    assert [origin.text for origin in origins] == ["return x.view(x.size(0) // 2, -1)"]


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
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="graph_memory='lots' is no amount"
    ):
        torch.compile(lambda x: x + 1, backend=symshape_backend, options={"graph_memory": "lots"})(
            x
        )
    with pytest.raises(InputError, match="graph_memory='lots' is no amount"):
        symshape.compile(lambda x: x + 1, options={"graph_memory": "lots"})
    with pytest.raises(InputError, match=r"must be symshape\.Options or a dictionary, not a list"):
        symshape_backend(torch.fx.symbolic_trace(lambda x: x), [x], options=["eager"])  # type: ignore[arg-type]
    with pytest.raises(RunnerError, match="no runner 'turbo'"):
        symshape_backend(torch.fx.symbolic_trace(lambda x: x), [x], options={"runner": "turbo"})


def test_a_slice_of_a_larger_tensor_is_one_program() -> None:
    big = torch.randn(100, 4)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.t() * x.storage_offset()

    compiled = torch.compile(f, backend=symshape_backend, dynamic=True)
    # Dynamo takes sizes that are equal at first for one
    for i, n in ((3, 5), (7, 9), (30, 3), (2, 60)):
        assert torch.equal(compiled(big[i : i + n]), f(big[i : i + n]))
    (graph,) = dynamo.alive
    assert (graph.stats().traces, graph.stats().calls) == (1, 4)
    ((entry,),) = (graph.entries for graph in dynamo.alive)
    read = {symbol.sources[0].text() for symbol in entry.program.symbols.values()}
    assert read == {"x.size(0)", "x.size(1)", "x.storage_offset()"}


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_arguments_go_after_their_last_use(part: str) -> None:
    fn: Any = lambda x: ((x * 2).exp() * 3).sin()  # noqa: E731
    compiled = torch.compile(
        fn, backend=symshape_backend, dynamic=True, options={"runner": "eager"}
    )
    result = compiled(torch.randn(5, requires_grad=True))
    result.sum().backward()
    (graph,) = (each for each in dynamo.alive if each.origin.part == part)
    (entry,) = graph.entries
    leaves = [torch.randn(5) if key is not INT_KEY else 5 for key in entry.program.call.keys]
    graph.boxed()(leaves)
    assert leaves == []


@pytest.mark.slow
def test_inductor_compiles_forward_and_backward() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5))
    twin = copy.deepcopy(model)
    compiled = torch.compile(
        model, backend=symshape_backend, dynamic=True, options={"runner": "inductor"}
    )
    for n in (3, 5):
        x = torch.randn(n, 4)
        for each in (compiled, twin):
            each.zero_grad()
            torch.manual_seed(n)
            each(x).pow(2).sum().backward()
        for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, eager.grad)
    told = {each.origin.part: (each.stats().traces, each.stats().calls) for each in dynamo.alive}
    assert told == {"forward": (1, 2), "backward": (1, 2)}
    assert {entry.runner.describe() for each in dynamo.alive for entry in each.entries} == {
        "inductor"
    }


def _reasons(monkeypatch: pytest.MonkeyPatch, compile_inner: Callable[..., object]) -> list[str]:
    """Why a program is not run by Inductor's code where its inner compiler is this one; the result
    is right.
    """
    monkeypatch.setattr("symshape.torch_internals.inductor.compile_fx_inner", compile_inner)
    seen: list[events.Event] = []
    stop = events.subscribe(seen.append)
    compiled = torch.compile(
        lambda x: x.cos() * 2, backend=symshape_backend, options={"runner": "inductor"}
    )
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.cos() * 2)
    stop()
    return [each.reason for each in seen if isinstance(each, events.RunnerFallback)]


@pytest.mark.parametrize("source", ["return made(s17)", "return [made(s17) for _ in args]"])
def test_code_of_inductors_that_would_fail_runs_op_by_op(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """On 2.13 its code for ``x.add_(1); return x * y``, x and y overlapping, reads a size that
    nobody gives it.
    """
    space: dict[str, Any] = {"made": print}
    exec(f"def call(args):\n    {source}", space)
    code = types.SimpleNamespace(current_callable=space["call"])
    assert _reasons(monkeypatch, lambda *args, **kwargs: code) == [
        "UnsupportedError: the code that Inductor generated reads s17, which it does not define"
    ]
    space["s17"] = 3
    check_names(code)


def test_what_inductor_cannot_compile_runs_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no compiler today")

    assert _reasons(monkeypatch, fails) == ["RuntimeError: no compiler today"]
