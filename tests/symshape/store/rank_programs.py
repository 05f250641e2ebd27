"""Ranks in processes of their own, for tests and measurements: what each does, and how they are
started.

``together(scenario, size)`` starts them; a scenario is a word of :data:`SCENARIOS`.  The process
that starts them keeps the group's store, as ``torchrun`` does, so that it outlives any rank.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import symshape
from symshape.store.ranks import Meeting, Ranks
from tests.bench.timing import measure_together

SCALE = 2.0
LATE, DEAD_TIMEOUT, TIMEOUT = 1.5, 5.0, 90.0
"""Seconds: how late a rank is, how long ranks wait for a dead one, and for any other."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shift(self.inner(x)) * SCALE


class Rank:
    """One rank.

    Args:
        rank: which.
        size: of how many.
        device: where its tensors are.
        folder: what the ranks of several groups share, on disk.
    """

    def __init__(self, rank: int, size: int, device: torch.device, folder: Path) -> None:
        self.rank, self.size, self.device, self.folder = rank, size, device, folder
        self.is_last = rank == size - 1

    def compiled_model(self, scenario: str) -> dict[str, Any]:
        """Two calls of a compiled model, under what the scenario says of the last rank."""
        if self.is_last:
            _odd_one(scenario)
        if scenario == "dead in the trace" and self.rank == 0:
            Meeting._lead = lambda *_: os._exit(9)  # type: ignore[method-assign]
        timeout = DEAD_TIMEOUT if scenario.startswith("dead") else TIMEOUT
        model = Model().to(self.device)
        kept = self.folder / "kept" if scenario == "kept" else None
        fn = symshape.compile(model, fullgraph=True, store=Ranks(kept, timeout=timeout))
        x = torch.ones(3 + (self.rank if scenario == "uneven" else 0), 4, device=self.device)
        if scenario == "other argument" and self.is_last:
            x = x.double()
        began = time.monotonic()
        try:
            for each in (x, x + 1):
                torch.testing.assert_close(fn(each), model(each))
        except symshape.RankError as error:
            return {"error": str(error), "seconds": time.monotonic() - began}
        stats = symshape.compiled_of(fn).stats()
        symbols = len(symshape.compiled_of(fn).entries[0].program.symbols)
        seconds = time.monotonic() - began
        return {
            "traces": stats.traces,
            "loaded": stats.loaded,
            "symbols": symbols,
            "seconds": seconds,
        }

    def groups(self) -> dict[str, Any]:
        """One call of a model that some of the ranks compile, then of one that all do."""
        began, found = time.monotonic(), []
        for members in ([0, 1], [1, 2], list(range(self.size))):
            group = dist.new_group(members)
            if self.rank in members:
                model = Model()
                ranks = Ranks(group=group, timeout=DEAD_TIMEOUT)
                fn = symshape.compile(model, fullgraph=True, store=ranks)
                x = torch.ones(3, 4)
                torch.testing.assert_close(fn(x), model(x))
                found.append(symshape.compiled_of(fn).stats().traces)
        return {"traces": found, "seconds": time.monotonic() - began}

    def collectives(self) -> dict[str, Any]:
        """Programs with functional collectives and training with DistributedDataParallel, against
        eager.
        """
        from tests.symshape.tracing.collective_programs import wrong_programs

        began = time.monotonic()
        wrong = {
            name: each
            for name, each in wrong_programs(self.rank, self.size, self.device).items()
            if each
        }
        return {
            "error": "; ".join(f"{name}: {each}" for name, each in wrong.items()),
            "seconds": time.monotonic() - began,
        }

    def overhead(self, rounds: int = 9) -> dict[str, Any]:
        """What a warm call takes that was agreed on, over one that was not; the median of several
        rounds.
        """
        began = time.monotonic()
        model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).to(self.device)
        x = torch.ones(8, 64, device=self.device)
        ratios, taken = [], []
        synchronize = None if self.device.type == "cpu" else torch.cuda.synchronize
        for _ in range(rounds):
            plain = symshape.compile(model, fullgraph=True)
            agreed = symshape.compile(model, fullgraph=True, store=Ranks(timeout=TIMEOUT))
            with torch.no_grad():
                found = measure_together(
                    {"plain": lambda f=plain: f(x), "agreed": lambda f=agreed: f(x)},  # type: ignore[misc]
                    samples=100,
                    sample_us=1000.0,
                    synchronize=synchronize,
                )
            ratios.append(found["agreed"].median / found["plain"].median)
            taken.append(found["plain"].median)
        return {
            "ratio": statistics.median(ratios),
            "us": statistics.median(taken),
            "ratios": ratios,
            "seconds": time.monotonic() - began,
        }


def _odd_one(scenario: str) -> None:
    """What the last rank does in another way."""
    if scenario == "late":
        time.sleep(LATE)
    if scenario == "dead":
        os._exit(9)
    if scenario == "other code":
        Model.forward = lambda self, x: self.inner(x) * SCALE  # type: ignore[method-assign]
    if scenario == "other helper":
        Model.shift = lambda self, x: x + 2  # type: ignore[method-assign]
    if scenario == "other value":
        globals()["SCALE"] = 3.0


SCENARIOS: dict[str, Callable[[Rank, str], dict[str, Any]]] = {
    **dict.fromkeys(
        (
            "same",
            "uneven",
            "late",
            "other value",
            "other code",
            "other helper",
            "other argument",
            "kept",
            "dead",
            "dead in the trace",
        ),
        Rank.compiled_model,
    ),
    "groups": lambda rank, _: rank.groups(),
    "collectives": lambda rank, _: rank.collectives(),
    "overhead": lambda rank, _: rank.overhead(),
}


def run_rank(
    scenario: str, rank: int, size: int, port: int, backend: str, device: str, folder: str
) -> None:
    """One rank from its beginning to its end; what it found goes to a file of its number."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        here = torch.device(device)
        if here.type == "cuda":
            torch.cuda.set_device(here)
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        waits = timedelta(seconds=60)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=waits)
        dist.all_reduce(torch.ones(1, device=here))  # all are there, and their devices have met
        torch.manual_seed(0)
        found = SCENARIOS[scenario](Rank(rank, size, here, Path(folder)), scenario)
    except BaseException:
        found = {"error": traceback.format_exc()}
    Path(folder, f"found{rank}").write_text(json.dumps(found))
    os._exit(0)  # without waiting for who is gone


def together(
    scenario: str,
    size: int,
    *,
    backend: str = "gloo",
    devices: tuple[str, ...] = ("cpu",),
    visible: bool = False,
    folder: Path | None = None,
    fork: bool = False,
    limit: float = 120.0,
) -> list[dict[str, Any]]:
    """What each rank found, in processes of their own; ``{}`` for a rank that ended before it said
    anything.

    Args:
        scenario: one of :data:`SCENARIOS`.
        size: how many ranks.
        backend: of their group.
        devices: of the ranks, in turn.
        visible: each rank sees its own device alone, as the first.
        folder: what ranks of several calls share.
        fork: whether they are forks of this process (which must not have used a device).
        limit: seconds after which they are killed.
    """
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context: Any = multiprocessing.get_context("fork" if fork else "spawn")
    with tempfile.TemporaryDirectory() as made:
        where = Path(made) if folder is None else folder
        for old in where.glob("found*"):
            old.unlink()
        children = []
        for rank in range(size):
            device = devices[rank % len(devices)]
            if visible:
                os.environ["CUDA_VISIBLE_DEVICES"], device = device.partition(":")[2], "cuda:0"
            words = (scenario, rank, size, server.port, backend, device, str(where))
            children.append(context.Process(target=run_rank, args=words))
            children[-1].start()
        if visible:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        end = time.monotonic() + limit
        for each in children:
            each.join(max(0.1, end - time.monotonic()))
            if each.is_alive():
                each.kill()
                each.join()
        found: list[dict[str, Any]] = [{} for _ in range(size)]
        for rank in range(size):
            with suppress(FileNotFoundError):
                found[rank] = json.loads(Path(where, f"found{rank}").read_text())
    return found


if __name__ == "__main__":
    print(json.dumps(together(sys.argv[1], int(sys.argv[2]))), flush=True)
