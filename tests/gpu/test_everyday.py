"""Programs of every day on the device as in eager, padded, in the modes that people use; the
padding is poisoned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import symshape
from symshape import FallbackWarning
from tests.fuzz.padded_runners import poison_buffers
from tests.symshape.everyday.program import SHAPES, Program
from tests.symshape.test_everyday import PROGRAMS

MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], float]] = {
    "no_grad": (torch.no_grad, 1e-4),
    "inference": (torch.inference_mode, 1e-4),
    "bfloat16": (partial(torch.autocast, "cuda", torch.bfloat16), 3e-2),
    "float16": (partial(torch.autocast, "cuda", torch.float16), 1e-2),
}
RUNS_AS_IT_IS = {
    "numbers and texts-text_of_a_tensor_never_raised": "the text of a tensor",
    "recurrent-lstm_of_two_layers_both_ways_training": "cuDNN's own random numbers",
}
"""Programs that are not traced on CUDA; under autocast recurrent layers are not."""
if torch.torch_version.TorchVersion(torch.__version__) < "2.13":
    RUNS_AS_IT_IS |= {
        "modules-jvp_of_a_function": "in inference mode _make_dual reaches the trace whole"
    }


def moved(value: Any) -> Any:
    return pytree.tree_map(
        lambda each: each.cuda() if isinstance(each, (torch.Tensor, nn.Module)) else each, value
    )


def built(program: Program) -> tuple[Callable[..., Any], Callable[[int, int], Any]]:
    """The function with its modules on the device, and what makes its arguments there."""
    torch.manual_seed(0)
    fn, make = program.build()
    if isinstance(fn, nn.Module):
        fn = fn.cuda()
    for cell in getattr(fn, "__closure__", None) or ():
        if isinstance(cell.cell_contents, nn.Module):
            cell.cell_contents.cuda()
    return fn, lambda b, n: moved(make(b, n))


@pytest.fixture(autouse=True, scope="module")
def _state_of_cudnn() -> None:
    """CuDNN keeps what its first recurrent layer draws by: made in inference mode, no layer can be
    trained after it.
    """
    nn.LSTM(2, 2, num_layers=2, dropout=0.5).cuda().train()(torch.randn(2, 2, 2, device="cuda"))


@contextmanager
def told() -> Iterator[list[str]]:
    """What is said of programs that run as they are."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield found
    found += [str(each.message) for each in seen if issubclass(each.category, FallbackWarning)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "program", [pytest.param(each, id=name) for name, each in PROGRAMS.items()]
)
def test_as_in_eager(program: Program, mode: str) -> None:
    around, tolerance = MODES[mode]
    fn, make = built(program)
    with torch.no_grad(), around():
        try:
            fn(*make(*SHAPES[0]))
        except RuntimeError as error:
            pytest.skip(f"the program is for the CPU: {str(error)[:80]}")
    fn, make = built(program)
    mine: Any = symshape.compiled_of(
        symshape.compile(fn, dynamic=True, runner="padded", options={"randomness": "eager"})
    )
    with told() as reasons, torch.no_grad(), around():
        for seed, shape in enumerate((*SHAPES, *SHAPES)):
            arguments = make(*shape)
            poison_buffers(mine, seed)
            results = []
            for run in (fn, mine):
                torch.manual_seed(seed)
                results.append(run(*arguments))
            torch.testing.assert_close(
                results[1], results[0], atol=tolerance, rtol=tolerance, equal_nan=True
            )
    if mode in ("no_grad", "inference") and str(program) not in RUNS_AS_IT_IS:
        assert not reasons, reasons


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN", "BatchNorm1d"])
@pytest.mark.parametrize("runner", ["eager", "auto", "padded"])
def test_layers_that_are_trained(layer: str, runner: Any) -> None:
    """Recurrent layers, and batch norm that counts its batches: with their gradients."""
    torch.manual_seed(0)

    def model() -> nn.Module:
        torch.manual_seed(0)
        made = (
            nn.BatchNorm1d(8, momentum=None)
            if layer == "BatchNorm1d"
            else getattr(nn, layer)(8, 6, num_layers=2)
        )
        return made.cuda().train()

    ours, theirs = model(), model()
    mine = symshape.compile(ours, dynamic=True, runner=runner)
    with told() as reasons:
        for b, n in SHAPES:
            found = []
            x = (
                torch.randn(b, 8, n, device="cuda")
                if layer == "BatchNorm1d"
                else torch.randn(n, b, 8, device="cuda")
            )
            for each in (mine, theirs):
                given = x.clone().requires_grad_()
                result = each(given)
                result = result if isinstance(result, torch.Tensor) else result[0]
                (result * result.detach().cos()).sum().backward()
                found.append((result, given.grad))
            torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-3, rtol=1e-3)
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    assert not reasons, reasons


@pytest.mark.parametrize("lengths_on", ["cpu", "cuda"])
def test_ctc_loss_with_lengths_on_either_device(lengths_on: str) -> None:
    def fn(x: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return nn.functional.ctc_loss(
            x.log_softmax(-1), labels, lengths, torch.full_like(lengths, 2)
        )

    mine = symshape.compile(fn, dynamic=True)
    with told() as reasons, torch.no_grad():
        for b, n in SHAPES:
            x, labels = (
                torch.randn(n + 4, b, 5, device="cuda"),
                torch.randint(1, 5, (b, 2), device="cuda"),
            )
            lengths = torch.full((b,), n + 4, device=lengths_on)
            torch.testing.assert_close(
                mine(x, labels, lengths), fn(x, labels, lengths), atol=1e-4, rtol=1e-4
            )
    assert not reasons, reasons
