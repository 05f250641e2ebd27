"""Programs in pieces on a device: counts of data, random numbers, other devices, and ops that
cannot be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.pieces import cutting
from symshape.runtime.runners.exact.cuda_graph import CudaGraphRunner
from symshape.runtime.runners.pieces.runner import PiecewiseRunner
from tests.meta_fns.padding.poison import assert_same
from tests.symshape.runtime.runners.pieces.test_runner import Keeping, check

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIZES = ((3, 9), (5, 17), (2, 9), (3, 12), (4, 5), (5, 16), (3, 9), (5, 17))


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    with torch.no_grad():
        yield


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one op are recorded."""
    monkeypatch.setattr(cutting, "LEAST", 1)


def _check(fn: Callable[..., Any], calls: list[tuple[Any, ...]], runner: Any) -> Any:
    """Each call with poisoned buffers, compared with eager, as precisely as devices have it."""
    return check(fn, calls, runner=runner, tolerance=2e-3)


def _runner(compiled: Any) -> PiecewiseRunner:
    (entry,) = compiled.entries
    found = getattr(entry.runner, "instead", None) or entry.runner
    assert isinstance(found, PiecewiseRunner), found.describe()
    return found


@pytest.mark.parametrize("runner", ["padded", "cudagraph", "auto"])
def test_around_a_count_of_data(runner: str) -> None:
    torch.manual_seed(0)
    compiled = _check(Keeping().eval().cuda(), [(_random(*each, 16),) for each in SIZES], runner)
    recorded = [stage.runner for stage in _runner(compiled).stages if stage.runner is not None]
    assert len(recorded) == 2
    if runner == "cudagraph":
        assert all(isinstance(each, CudaGraphRunner) for each in recorded)
        assert "graphs" in recorded[0].describe()


@pytest.mark.parametrize("runner", ["padded", "auto"])
def test_a_token_is_drawn_as_eager_draws_it(runner: str) -> None:
    head = nn.Sequential(*[nn.Linear(32, 32) if i % 2 else nn.GELU() for i in range(12)]).cuda()

    def step(x: torch.Tensor) -> Any:
        chances = (head(x) * 3).softmax(-1)
        token = torch.multinomial(chances, 1)
        return token, chances.gather(1, token)

    _check(step, [(_random(n, 32),) for n in (3, 5, 8, 2, 7, 5, 3)], runner)


def test_what_computes_on_the_cpu_stays_there(small: None) -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        y = (x.sin() * 2).cumsum(0)
        longest = (lengths + 1).amax()  # on the CPU
        return y.cos() + 1, longest * 2, y * longest.to(y.device)

    calls = [(_random(n, 4), torch.arange(n)) for n in (3, 6, 2, 9)]
    compiled = _check(fn, calls, "padded")
    assert "it computes on cpu" in compiled.entries[0].runner.describe()


@torch.library.custom_op("symshape_tests::waits", mutates_args=())
def waits(x: torch.Tensor) -> torch.Tensor:
    """Looks at what it is given, on the host: it cannot be captured."""
    return x * 2 if x.sum().item() > 0 else x * 3


@waits.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("runner", ["padded", "cudagraph", "auto"])
def test_an_op_that_cannot_be_captured_is_found_and_left_out(small: None, runner: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = torch.ops.symshape_tests.waits(x.sin().cos() - 0.5)
        return y.tan() + 1, x.exp()

    compiled = _check(fn, [(_random(n, 4),) for n in (3, 5, 3, 5, 3, 8, 5, 3, 8)], runner)
    why = {"padded": "cannot be padded", "cudagraph": "could not be captured", "auto": ""}[runner]
    if why:
        assert (
            f"symshape_tests.waits.default, since it {why}" in compiled.entries[0].runner.describe()
        )
    torch.cuda.synchronize()


def test_memory_is_flat_over_random_sizes() -> None:
    torch.manual_seed(0)
    compiled = symshape.compile(Keeping().eval().cuda(), dynamic=True, runner="padded")
    for _ in range(200):
        compiled(_random(int(torch.randint(2, 9, ())), int(torch.randint(2, 65, ())), 16))
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        compiled(_random(int(torch.randint(2, 9, ())), int(torch.randint(2, 65, ())), 16))
    assert torch.cuda.memory_allocated() <= before * 1.05 + 2**20


def test_two_threads_call_one_program_in_pieces() -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch.manual_seed(0)
    model = Keeping().eval().cuda()
    inputs = [_random(*each, 16) for each in SIZES] * 4
    expected = [model(x) for x in inputs]
    compiled = symshape.compile(model, dynamic=True, runner="padded")

    def call(x: torch.Tensor) -> Any:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            result = compiled(x)
            torch.cuda.current_stream().synchronize()
        return result

    call(inputs[0])
    torch.cuda.synchronize()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(call, inputs))
    for mine, theirs in zip(found, expected, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert_same(a, b, "a result", tolerance=2e-3)
