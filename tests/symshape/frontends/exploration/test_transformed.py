"""A program beside what runs instead: every step has its place, and what is marked as a repair is
one.
"""

from __future__ import annotations

import torch

import symshape
from symshape.exploring.report_records import TransformedRecord


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = (x @ x.transpose(1, 2)).softmax(-1)
        return (scores @ x).mean(1), scale + 1


def _after(
    explored: symshape.frontends.trace.Traced | symshape.frontends.compiled.Compiled,
) -> TransformedRecord:
    (program,) = symshape.explore(explored).report.programs
    assert program.after is not None
    return program.after


def test_a_trace_is_shown_padded_around_its_example() -> None:
    traced = symshape.trace(
        Attention(), torch.ones(2, 5, 8), torch.ones(8), dynamic={"x": {1: "length"}}
    )
    after = _after(traced)
    assert (after.sizes, after.refused) == ("length up to 6", [])
    assert after.reads[0] == "x: f32[2, length, 8] in a buffer f32[2, 6, 8]"
    assert any(line.endswith("the true length") for line in after.reads)
    steps = [str(step.op) for step in traced.graph.nodes]
    for step in after.steps:
        assert step.source is not None
        assert bool(step.why) is step.inserted
        if not step.inserted and not step.op.startswith(
            ("aten.reshape", "aten.permute", "aten.expand", "aten.view")
        ):
            assert step.op == steps[step.source]
    repaired = {steps[step.source or 0] for step in after.steps if step.inserted}
    assert "aten._softmax.default" in repaired
    assert "aten.add.Tensor" not in repaired
    assert "mask: -inf beyond length" in {step.why for step in after.steps}


def test_what_refuses_is_said() -> None:
    after = _after(symshape.trace(lambda x: torch.fft.fft(x), torch.ones(5), dynamic=True))
    assert after.steps == []
    assert "x.size(0) keeps its value: aten._fft_r2c" in after.refused[0]


def test_a_compiled_function_shows_its_buckets() -> None:
    compiled = symshape.compile(lambda x: x.softmax(0), dynamic=True, runner="padded")
    compiled(torch.ones(40))
    after = _after(compiled)
    assert after.sizes == "x.size(0) up to 48"
    assert [step.op for step in after.steps][-1] == "aten._softmax.default"
    plain = symshape.compile(lambda x: x.softmax(0), dynamic=True)
    plain(torch.ones(40))
    assert symshape.explore(plain).report.programs[0].after is None
