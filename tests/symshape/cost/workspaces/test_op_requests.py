"""Requests of ops, measured alone: by a meter that plays the device's allocator on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.cost.graph_memory import DeviceMemory, GraphMemory, bucket_graph, graph_memory
from symshape.cost.step_memory import StepMemory
from symshape.cost.workspaces import op_requests
from symshape.cost.workspaces.op_requests import Workspaces
from symshape.runtime.padding.planning import plan

MB = 2**20
BARE = DeviceMemory(0, 0)


class Played:
    """A meter that reports results where they are, and a workspace before them that is freed when
    the op ends.

    Attributes:
        calls: the number of measured calls.
        arguments: of each call.
    """

    def __init__(
        self, workspace: int | Callable[[torch.Tensor], int] = 0, error: Exception | None = None
    ) -> None:
        self._workspace, self._error = workspace, error
        self.calls = 0
        self.results: list[Any] = []

    def __call__(
        self, prepare: Callable[[], Callable[[], Any]], read: Callable[[Any, Any], Any]
    ) -> Any:
        self.calls += 1
        if self._error is not None:
            raise self._error
        made = prepare()()
        results: Sequence[torch.Tensor] = (
            (made,) if isinstance(made, torch.Tensor) else [x for x in made if x is not None]
        )
        self.results.append(results)
        size = self._workspace if isinstance(self._workspace, int) else self._workspace(results[0])
        events = [(1, size)] if size else []
        events += [
            (each.untyped_storage().data_ptr(), each.untyped_storage().nbytes()) for each in results
        ]
        return read(made, events + ([(1, 0)] if size else []))


def _traced(module: Callable[..., Any], x: torch.Tensor) -> Any:
    with torch.no_grad():
        return symshape.trace(
            module, x, dynamic={"input" if isinstance(module, nn.Module) else "x": {0: "n"}}
        )


def _conv(width: int = 64) -> Any:
    return _traced(nn.Conv2d(16, width, 3, padding=1), torch.ones(2, 16, 32, 32))


def _forecast(program: Any, sizes: Sequence[int], meter: Any) -> GraphMemory:
    workspaces = Workspaces(lambda device: meter)
    buckets = []
    for n in sizes:
        made = plan(program, {"n": n}, planned=[{"n": n}])
        buckets.append(bucket_graph(program, made, workspaces=workspaces))
    return graph_memory(buckets, BARE)


def test_a_workspace_is_in_the_pool() -> None:
    """64 images take 16 MiB as a result; a workspace of 50 MiB has a segment of its own."""
    program = _conv().program
    without = _forecast(program, [64], None)
    assert without.pool == 16 * MB
    assert without.unknown == ("aten.convolution.default",)
    found = _forecast(program, [64], Played(50 * MB))
    assert found.pool == 66 * MB
    assert found.most == without.most + 2 * 50 * MB, "the run before the capture has it too"
    assert found.unknown == ()
    assert "at least" not in str(found)


def test_results_alone_change_nothing() -> None:
    program = _conv().program
    found, without = (_forecast(program, [64, 9], meter) for meter in (Played(), None))
    assert (found.pool, found.most, found.buckets) == (without.pool, without.most, without.buckets)
    assert found.unknown == ()


def test_a_smaller_bucket_may_need_a_larger_workspace() -> None:
    """As it is with U-Net on an H100: cuDNN chooses another algorithm for a smaller batch."""
    program = _conv().program
    found = _forecast(
        program, [64, 8], Played(lambda result: 30 * MB if result.size(0) == 64 else 50 * MB)
    )
    assert [each.pool for each in found.buckets] == [46 * MB, 50 * MB]


def test_freed_workspaces_are_used_again() -> None:
    module = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)))
    found = _forecast(_traced(module, torch.ones(2, 16, 32, 32)).program, [1024], Played(50 * MB))
    assert found.pool == 2 * 64 * MB + 50 * MB


def test_each_size_is_measured_once() -> None:
    meter = Played(MB)
    workspaces = Workspaces(lambda device: meter)
    graph = _traced(
        nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))), torch.ones(2, 4, 8, 8)
    ).program.graph
    for _ in range(2):
        assert len(workspaces.of(graph, {"n": 5})) == 3
    assert meter.calls == 1
    workspaces.of(graph, {"n": 6})
    assert meter.calls == 2
    cudnn = torch.backends.cudnn
    kept = {
        "enabled": cudnn.enabled,
        "deterministic": cudnn.deterministic,
        "allow_tf32": cudnn.allow_tf32,
    }
    # setters may be switched off in a test process
    with cudnn.flags(benchmark=not cudnn.benchmark, **kept):
        workspaces.of(graph, {"n": 6})
    assert meter.calls == 3, "cuDNN chooses otherwise then"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), RuntimeError("no algorithm")])
def test_an_op_that_fails_stays_unknown(error: Exception) -> None:
    program = _conv().program
    meter = Played(error=error)
    assert _forecast(program, [64], meter).unknown == ("aten.convolution.default",)
    assert meter.calls == 1


def test_a_history_without_the_results_is_no_measurement() -> None:
    def meter(prepare: Any, read: Any) -> Any:
        return read(prepare()(), [(1, MB), (1, 0)])

    program = _conv().program
    found = _forecast(program, [64], meter)
    assert found.unknown == ("aten.convolution.default",)
    assert found.pool == _forecast(program, [64], None).pool


def _argument(seen: list[Any]) -> Any:
    def meter(prepare: Any, read: Any) -> Any:
        call = prepare()
        seen.append(call.__closure__)
        made = call()
        results = (made,) if isinstance(made, torch.Tensor) else made
        return read(
            made,
            [
                (each.untyped_storage().data_ptr(), each.untyped_storage().nbytes())
                for each in results
            ],
        )

    return meter


def test_arguments_have_the_layout_of_the_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(
            x[:, 1:].to(memory_format=torch.channels_last), torch.ones(4, 3, 3, 3)
        )

    seen: list[Any] = []
    workspaces = Workspaces(lambda device: _argument(seen))
    assert len(workspaces.of(_traced(program, torch.ones(2, 4, 8, 8)).program.graph, {"n": 5})) == 1
    (tensor,) = [
        each
        for cell in seen[0]
        if isinstance(cell.cell_contents, list)
        for each in cell.cell_contents
        if isinstance(each, torch.Tensor) and each.size(0) == 5
    ]
    assert tensor.shape == (5, 3, 8, 8)
    assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_parameters_serve_as_arguments() -> None:
    """A recurrent layer's weights may lie in one piece, and are copied if not: so its own are
    taken.
    """
    module = nn.LSTM(4, 8, batch_first=True)
    traced = _traced(lambda x: module(x)[0], torch.ones(3, 5, 4))
    seen: list[Any] = []
    workspaces = Workspaces(lambda device: _argument(seen))
    assert len(workspaces.of(traced.program.graph, {"n": 4})) == 1
    held = [each for cell in seen[0] for each in _tensors(cell.cell_contents)]
    for parameter in module.parameters():
        assert any(each.data_ptr() == parameter.data_ptr() for each in held)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [each for part in value for each in _tensors(part)]
        if isinstance(value, (list, tuple))
        else []
    )


def test_an_op_that_reads_integers_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up indices would be out of range."""
    monkeypatch.setattr(op_requests, "has_own_memory", lambda node: True)
    traced = symshape.trace(
        lambda x, i: x[i] + 1,
        torch.ones(4, 3),
        torch.tensor([2, 1, 0]),
        dynamic={"x": {0: "n"}, "i": {0: "k"}},
    )
    meter = Played()
    found = Workspaces(lambda device: meter).of(traced.program.graph, {"n": 5, "k": 2})
    ops = [str(each.op) for each in traced.program.graph.nodes]
    assert [ops[place] for place in found] == ["aten.add.Tensor"]
    assert meter.calls == 1


def test_sizes_that_only_a_run_knows_are_not_measured() -> None:
    module = nn.LSTM(4, 8)

    def program(x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), enforce_sorted=True)
        return nn.utils.rnn.pad_packed_sequence(module(packed)[0])[0]

    with torch.no_grad():
        graph = symshape.trace(program, torch.ones(5, 2, 4), dynamic={"x": {0: "n"}}).program.graph
    meter = Played()
    assert Workspaces(lambda device: meter).of(graph, {"n": 5}) == {}
    assert meter.calls == 0


def test_calls_reserve_what_ops_ask_for() -> None:
    traced = _conv()
    without = StepMemory(traced.program, device=BARE, workspaces=Workspaces(lambda device: None))
    model = StepMemory(
        traced.program, device=BARE, workspaces=Workspaces(lambda device: Played(50 * MB))
    )
    assert model.at(n=64).reserved == without.at(n=64).reserved + 50 * MB
    assert model.at(n=64).allocated == without.at(n=64).allocated + 50 * MB
    assert (model.unknown({"n": 64}), without.unknown({"n": 64})) == (
        (),
        ("aten.convolution.default",),
    )
    need = model.at(n=64).reserved
    assert model.fits(need, {"n": 64})
    assert not model.fits(need - 1, {"n": 64})
    assert without.fits(need - 1, {"n": 64})


def test_no_op_is_run_at_sizes_that_cannot_fit() -> None:
    meter = Played()
    model = StepMemory(_conv().program, device=BARE, workspaces=Workspaces(lambda device: meter))
    assert not model.fits(10 * MB, {"n": 64})
    assert meter.calls == 0


def test_steps_of_training_reserve_what_backward_asks_for() -> None:
    step = symshape.trace_training(
        nn.Conv2d(16, 64, 3, padding=1),
        torch.ones(2, 16, 32, 32),
        loss=torch.sum,
        dynamic={"input": {0: "n"}},
    )
    meter = Played(50 * MB)
    model, without = (
        StepMemory(
            step.program, trains=True, device=BARE, workspaces=Workspaces(lambda device, m=each: m)
        )  # type: ignore[misc]
        for each in (meter, None)
    )
    assert model.at(n=64).allocated == without.at(n=64).allocated + 50 * MB
    assert model.unknown({"n": 64}) == ()
    assert meter.calls == 2, "forward and backward"


def test_gradients_of_recurrent_layers_are_not_known() -> None:
    """They are an op of this package, whose backward reads what forward kept: it is named, and not
    run alone.
    """
    step = symshape.trace_training(
        nn.LSTM(4, 8),
        torch.ones(5, 2, 4),
        loss=lambda result: result[0].sum(),
        dynamic={"input": {1: "n"}},
    )
    meter = Played()
    model = StepMemory(
        step.program, trains=True, device=BARE, workspaces=Workspaces(lambda device: meter)
    )
    assert model.unknown({"n": 4}) == ("symshape.recurrent_gradients.default",)
    assert meter.calls == 1, "forward"


@pytest.mark.parametrize(
    ("name", "owns"),
    [
        *(
            ("aten.convolution.default", True),
            ("aten.conv2d.default", True),
            ("aten._conv_depthwise2d.default", True),
        ),
        *(("aten._cudnn_rnn.default", True), ("aten._thnn_fused_gru_cell.default", True)),
        *(("aten._convert_indices_from_coo_to_csr.default", False), ("aten.addmm.default", False)),
    ],
)
def test_ops_with_memory_of_their_own(name: str, owns: bool) -> None:
    assert op_requests.has_own_memory(SimpleNamespace(op=name)) is owns  # type: ignore[arg-type]


def test_nothing_is_run_on_a_cpu() -> None:
    traced = _conv()
    assert StepMemory(traced.program, device=BARE).unknown({"n": 64}) == (
        "aten.convolution.default",
    )
    found = symshape.fits(nn.Conv2d(3, 8, 3), torch.ones(2, 3, 8, 8), memory="1 GB", batch=0)
    assert found.unknown == ("aten.convolution.default",)
