"""Faults on a device, mixed: calls stay right, and nothing is leaked."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MIXED = int(os.environ.get("SYMSHAPE_FAULTS", "120"))
"""How many faults are mixed; 500 by hand (``SYMSHAPE_FAULTS=500``)."""
WIDTH = 256
new_stream: Any = torch.cuda.Stream
_give_back_workspaces: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 32)).cuda().eval()


def _allocated() -> int:
    """Without what torch keeps for cuBLAS: 17 MiB and more for each pair of a handle, one a thread,
    and a stream.
    """
    torch.cuda.synchronize()
    gc.collect()
    _give_back_workspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


@contextmanager
def _little_memory(more: int) -> Iterator[None]:
    """While it lasts, no more than so many bytes beside what is reserved."""
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / whole)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@contextmanager
def _raising(error: BaseException) -> Iterator[None]:
    """While it lasts, a capture ends with an error, in the middle of it."""
    end, kind = torch.cuda.CUDAGraph.capture_end, torch.cuda.CUDAGraph

    def failing(self: Any) -> None:
        end(self)
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "capture_end", failing)
        yield


@pytest.mark.parametrize("runner", ["padded", "cudagraph"])
def test_mixed_faults_leak_nothing(runner: Any) -> None:
    rng, model = random.Random(5), _model()
    options = Options(max_cuda_graphs=6, max_entries=4)
    compiled: Any = symshape.compiled_of(
        symshape.compile(model, dynamic=True, runner=runner, options=options)
    )
    linear: Any = model[0]

    def right(rows: int, dtype: torch.dtype = torch.float32) -> None:
        of(torch.randn(rows, WIDTH, device="cuda", dtype=dtype))

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            return compiled(x), model(x)

    def compare(found: torch.Tensor, expected: torch.Tensor) -> None:
        precise = 1e-3 if found.dtype is torch.float32 else 2e-2
        torch.testing.assert_close(found, expected, atol=precise, rtol=precise)

    def of(x: torch.Tensor) -> None:
        compare(*both(x))

    def some_rows() -> int:
        return rng.randint(2, 40) if runner == "padded" else rng.randint(2, 9)

    def replace() -> None:
        linear.weight = nn.Parameter(torch.randn_like(linear.weight) / 16)

    def move() -> None:
        linear.weight.data = torch.randn_like(linear.weight) / 16

    def cast() -> None:
        model.half()
        right(some_rows(), torch.float16)
        model.float()

    def little_memory() -> None:
        found = None
        with _little_memory(rng.choice((1, 4, 32)) << 20):
            try:
                found = both(torch.randn(rng.randint(40, 4000), WIDTH, device="cuda"))
            except torch.OutOfMemoryError:  # for eager, too
                gc.collect()
        if found is not None:
            compare(*found)  # it takes memory of its own

    def raises() -> None:
        with _raising(
            rng.choice((RuntimeError("not permitted"), torch.OutOfMemoryError("out of memory")))
        ):
            right(rng.randint(2, 400))

    def interrupt() -> None:
        with _raising(KeyboardInterrupt()):
            try:
                right(rng.randint(2, 400))
            except KeyboardInterrupt:
                return

    def wrong() -> None:
        with pytest.raises((RuntimeError, symshape.SymShapeError)):
            compiled(torch.randn(4, 5, device="cuda"))

    def elsewhere() -> None:
        stream = new_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            right(some_rows())
        torch.cuda.current_stream().wait_stream(stream)

    def in_threads() -> None:
        errors: list[BaseException] = []

        def work(x: torch.Tensor) -> None:
            try:
                for _ in range(4):
                    of(x)
            except BaseException as error:
                errors.append(error)

        inputs = [torch.randn(some_rows(), WIDTH, device="cuda") for _ in range(2)]
        threads = [threading.Thread(target=work, args=(each,)) for each in inputs]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors, errors

    def large() -> None:
        right(rng.randint(5000, 20_000))

    faults: list[Callable[[], object]] = [
        *(
            replace,
            move,
            cast,
            little_memory,
            raises,
            interrupt,
            wrong,
            elsewhere,
            in_threads,
            large,
            compiled.reset,
        )
    ]

    def some(number: int) -> None:
        for _ in range(number):
            rng.choice(faults)()
            for _ in range(3):
                right(some_rows())
            assert len(compiled._graphs) <= 6

    some(MIXED // 2)
    compiled.reset()
    before = _allocated()
    some(MIXED // 2)
    compiled.reset()
    assert _allocated() <= before * 1.05 + (1 << 20)
    assert len(compiled._graphs) == 0
