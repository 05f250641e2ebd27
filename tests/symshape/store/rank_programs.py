"""What one rank runs in tests: ``python -m tests.symshape.store.rank_programs FILE SCENARIO RANK SIZE``."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import symshape
from symshape.store.ranks import Ranks

SCALE = 2.0


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shift(self.inner(x)) * SCALE


def main(file: str, scenario: str, rank: int, size: int) -> dict[str, Any]:
    store = dist.FileStore(file, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    last = rank == size - 1
    if scenario == "late" and last:
        time.sleep(1.5)
    if scenario == "dead" and last:
        os._exit(9)
    if scenario == "other code" and last:
        Model.forward = lambda self, x: self.inner(x) * SCALE  # type: ignore[method-assign]
    if scenario == "other helper" and last:
        Model.shift = lambda self, x: x + 2  # type: ignore[method-assign]
    model = Model()
    if scenario == "other value" and last:
        globals()["SCALE"] = 3.0
    fn = symshape.compile(model, fullgraph=True, store=Ranks(timeout=5.0 if scenario == "dead" else 90.0))
    x = torch.ones(3 + (rank if scenario == "uneven" else 0), 4)
    if scenario == "other argument" and last:
        x = x.double()
    began = time.monotonic()
    try:
        torch.testing.assert_close(fn(x), model(x))
        torch.testing.assert_close(fn(x + 1), model(x + 1))
    except symshape.RankError as error:
        return {"error": str(error), "seconds": time.monotonic() - began}
    stats = symshape.compiled_of(fn).stats()
    symbols = len(symshape.compiled_of(fn).entries[0].program.symbols)
    return {"traces": stats.traces, "loaded": stats.loaded, "symbols": symbols}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))), flush=True)
    os._exit(0)  # without waiting for who is gone
