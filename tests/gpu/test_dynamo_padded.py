"""Padded programs behind ``torch.compile`` on a device: graphs for a range of sizes, parameters
read in place.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import symshape
from symshape import events
from symshape.frontends import dynamo
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import assert_same
from tests.symshape.frontends.test_dynamo_padded import (
    GRAPHS,
    SIZES,
    SMALL,
    compiled,
    poisoned,
    runners,
    tensors,
)

MARGINS = ("bert", "resnet")
"""Whose programs differ beyond their integers where capacities are odd, or no multiple of 8 (a mask
has a margin).
"""


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings(
    "ignore:TensorFloat32:UserWarning"
)  # Inductor's advice, while it compiles in float32
@pytest.mark.parametrize("kernels", ["eager", "inductor"])
@pytest.mark.parametrize("name", SMALL)
def test_inference(name: str, kernels: str) -> None:
    torch.manual_seed(0)
    make, call = SMALL[name]
    model = make().eval().cuda()
    run = compiled(model, kernels=kernels)
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        with torch.no_grad():
            for number, (batch, length) in enumerate(SIZES):
                poisoned(number)
                arguments = [each.cuda() for each in call(batch, length)]
                for mine, theirs in zip(
                    tensors(run(*arguments)), tensors(model(*arguments)), strict=True
                ):
                    assert_same(mine, theirs, f"call {number}", tolerance=2e-3)
    finally:
        unsubscribe()
    reasons = [each.reason for each in fallbacks if isinstance(each, events.RunnerFallback)]
    assert all("no form in common" in each for each in reasons), "\n".join(reasons)
    assert not fallbacks or name in MARGINS
    found = runners("inference")
    assert len(found) == GRAPHS.get(name, 1)
    assert not any(runner.refusals for runner in found), [runner.padding() for runner in found]
    assert sum(len(runner.served()) for runner in found) == len(SIZES)
    ways = {"eager": 1, "inductor": 2}[kernels]
    buckets = [bucket for runner in found for bucket in runner.buckets]
    assert all(bucket.captures <= ways for bucket in buckets), (
        "parameters stay, so nothing is captured again"
    )
    parameters = {parameter.shape for parameter in model.parameters()}
    assert not parameters & {buffer.shape for bucket in buckets for buffer in bucket.buffers}


@pytest.mark.parametrize("name", SMALL)
def test_training(name: str) -> None:
    """Gradients are eager's whatever is padded; what is refused says why."""
    torch.manual_seed(0)
    make, call = SMALL[name]
    model, twin = make().cuda(), make().cuda()
    twin.load_state_dict(model.state_dict())
    run = compiled(model)
    for number, (batch, length) in enumerate(SIZES):
        poisoned(number)
        arguments = [each.cuda() for each in call(batch, length)]
        for each, forward in ((model, run), (twin, twin)):
            each.zero_grad()
            torch.stack(
                [part.pow(2).mean() for part in tensors(forward(*arguments))]
            ).sum().backward()  # type: ignore[no-untyped-call]
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-2, atol=2e-4)
    text = str(symshape.backend_report())
    print(text)
    for part in ("forward", "backward"):
        graphs = [each for each in dynamo.alive if each.origin.part == part]
        assert len(graphs) == GRAPHS.get(name, 1)
        for graph in graphs:
            (entry,) = graph.entries
            assert any(runner.buckets for _, runner in padded_parts(entry.runner, entry.program)), (
                text
            )


def test_parameters_that_moved_are_read_where_they_are() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8).cuda()
    run = compiled(model)
    with torch.no_grad():
        for number in range(6):
            if number in (2, 4):
                model.weight.data = torch.randn(8, 8, device="cuda")
            model.weight.mul_(1.5)
            x = torch.randn(5 + number, 8, device="cuda")
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)


def test_auto_is_right_in_a_stream() -> None:
    torch.manual_seed(0)
    make, call = SMALL["llama"]
    model = make().eval().cuda()
    run = compiled(model, runner="auto")
    with torch.no_grad():
        for number in range(60):
            arguments = [each.cuda() for each in call(2 + number % 7, 5 + 3 * number % 31)]
            for mine, theirs in zip(
                tensors(run(*arguments)), tensors(model(*arguments)), strict=True
            ):
                assert_same(mine, theirs, f"call {number}", tolerance=2e-3)
    print(symshape.backend_report())


def test_indices_that_eager_does_not_look_at() -> None:
    """On the device an index out of range would end the process."""
    wrong = torch.tensor([7_000, -9_000], device="cuda")
    programs = (
        lambda x, i: x[:, 1:].index_select(0, i),
        lambda x, i: x[:, 1:][i] * 2,
        lambda x, i: torch.nn.functional.embedding(i, x[:, 1:]) + 1,
    )
    for program in programs:
        run = symshape.compile(program, dynamic={"x": {1: "n"}}, runner="padded")
        with torch.no_grad():
            for n in (5, 6, 1):
                x = torch.randn(4, n, device="cuda")
                index = wrong if n == 1 else torch.tensor([3, 0], device="cuda")
                assert_same(run(x, index), program(x, index), f"{n} columns")
            torch.cuda.synchronize()
