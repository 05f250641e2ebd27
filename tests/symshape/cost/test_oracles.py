"""Formulas against what runs: torch's flop counter, and the bytes of live tensors, at sizes that
were not traced.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

import symshape
from symshape.cost.live_bytes import LiveBytes
from symshape.tracing.traced_modes import compiling
from tests.models import Model
from tests.symshape.cost.programs import SIZES, programs, sizes_of

aten = torch.ops.aten
PROGRAMS = programs()


def _sdpa_on_cpu(
    query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return int(sdpa_flop_count(query, *_for_each_head(query, key, value)))


def _sdpa_backward_on_cpu(
    grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any
) -> int:
    return int(sdpa_backward_flop_count(grad, query, *_for_each_head(query, key, value)))


def _for_each_head(query: Any, *shared: Any) -> list[Any]:
    """The sizes of keys and values that several heads share, with one for each, as the counter of
    torch 2.11 needs.
    """
    return [(each[0], query[1], *each[2:]) for each in shared]


# The flop counter knows the attention of CUDA alone; that of the CPU is the same products.
CPU_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_on_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_on_cpu,
}
COUNTED = {*flop_registry, *CPU_ATTENTION}


@lru_cache
def traced_model(name: str) -> tuple[Model, torch.nn.Module, symshape.Traced]:
    model = PROGRAMS[name]
    module = model.build()
    with torch.no_grad():
        return model, module, symshape.trace(module, **model.call(3, 12))


@pytest.mark.parametrize("name", PROGRAMS)
def test_flops_are_those_of_the_flop_counter(name: str) -> None:
    model, module, traced = traced_model(name)
    cost = traced.cost()
    counted = cost.only(lambda each: each.node.op.overloadpacket in COUNTED)
    assert not cost.unpriced
    compared = 0
    for batch, size in SIZES:
        call = model.call(batch, size)
        compared += 1
        with (
            torch.no_grad(),
            FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as theirs,
        ):
            module(**call)
        at = sizes_of(traced, call)
        assert counted.at(**at).flops == theirs.get_total_flops() > 0, at
        assert cost.at(**at).flops > counted.at(**at).flops  # ours counts all other ops too
    assert compared == len(SIZES)


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak_memory_is_that_of_the_graph_as_it_runs(name: str) -> None:
    """The runner op by op: every byte, at every size."""
    model, _, traced = traced_model(name)
    peak = traced.peak_memory()
    for batch, size in SIZES:
        call = model.call(batch, size)
        held = [*call.values(), *traced.program.lifted_tensors]
        with torch.no_grad(), LiveBytes(held) as recorder:
            traced(**call)
        found = peak.at(**sizes_of(traced, call))
        assert found.total == recorder.peak, (batch, size, str(found))


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak_memory_of_the_program_in_eager(name: str) -> None:
    """The module itself, on the paths that it takes when it is compiled: Python's variables hold
    tensors longer.
    """
    model, module, traced = traced_model(name)
    peak = traced.peak_memory(schedule="eager")
    for batch, size in SIZES:
        call = model.call(batch, size)
        held = [*call.values(), *traced.program.lifted_tensors]
        with torch.no_grad(), compiling(), LiveBytes(held) as recorder:
            module(**call)
        found = peak.at(**sizes_of(traced, call))
        assert 0.995 * recorder.peak <= found.total <= 1.005 * recorder.peak, (
            batch,
            size,
            str(found),
        )


# --- forward and backward -------------------------------------------------------------------------


class Step(torch.nn.Module):
    """A training step: the gradients of the mean square of a model's results, for its
    parameters.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **call: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**call)
        results = (result,) if isinstance(result, torch.Tensor) else result.to_tuple()
        loss = sum(each.square().mean() for each in results)
        return torch.autograd.grad(loss, list(self.model.parameters()), allow_unused=True)


TRAINED = ("gpt2", "llama", "bert", "vit", "resnet", "unet", "lstm")


@lru_cache
def traced_step(name: str) -> tuple[Model, torch.nn.Module, symshape.Traced]:
    model = PROGRAMS[name]
    step = Step(model.build())
    return model, step, symshape.trace(step, **model.call(3, 12))


@pytest.mark.parametrize("name", TRAINED)
def test_flops_of_training(name: str) -> None:
    model, step, traced = traced_step(name)
    cost = traced.cost()
    counted = cost.only(lambda each: each.node.op.overloadpacket in COUNTED)
    for batch, size in SIZES:
        call = model.call(batch, size)
        with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as theirs:
            step(**call)
        assert counted.at(**sizes_of(traced, call)).flops == theirs.get_total_flops() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_peak_memory_of_training(name: str) -> None:
    """Exactly what the graph's runner holds; and what the step holds in eager."""
    model, step, traced = traced_step(name)
    graph, eager = traced.peak_memory(), traced.peak_memory(schedule="eager")
    for batch, size in SIZES[::2]:
        call = model.call(batch, size)
        held = [*call.values(), *traced.program.lifted_tensors]
        at = sizes_of(traced, call)
        with LiveBytes(held) as recorder:
            traced(**call)
        with compiling(), LiveBytes(held) as eager_recorder:
            step(**call)
        assert graph.at(**at).total == recorder.peak
        assert 0.995 * eager_recorder.peak <= eager.at(**at).total <= 1.005 * eager_recorder.peak
