"""What ranks run in tests: ``python -m tests.symshape.tracing.collective_programs SIZE`` forks so
many, on Gloo.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.distributed.nn.functional

import symshape
from tests.symshape.tracing.collectives_in_use import PROGRAMS, flat


def _wrong(fn: Callable[..., Any], calls: list[torch.Tensor]) -> str:
    compiled: Any = symshape.compile(fn, dynamic=True, fullgraph=True)
    for x in calls:
        expected, found = flat(fn(x)), flat(compiled(x))
        for one, other in zip(expected, found, strict=True):
            if (
                one.shape != other.shape
                or one.stride() != other.stride()
                or not torch.equal(one + 0, other + 0)
            ):
                return f"{one} is {other}"
    return "" if compiled.stats().traces == 1 else f"{compiled.stats().traces} traces"


def _gradients(rank: int, device: torch.device) -> str:
    """Training with DistributedDataParallel around a compiled module, whose ranks have batches of
    their own.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(
        device
    )
    parallel = torch.nn.parallel.DistributedDataParallel
    eager, inner = parallel(model), parallel(symshape.compile(model, dynamic=True))
    outer = symshape.compile(eager, dynamic=True)
    for step in range(3):
        x = torch.randn(
            3 + rank + step, 4, generator=torch.Generator().manual_seed(7 * step + rank)
        ).to(device)
        found = []
        for each in (eager, inner, outer):
            model.zero_grad()
            each(x).square().sum().backward()
            found.append(
                [
                    parameter.grad.clone()
                    for parameter in model.parameters()
                    if parameter.grad is not None
                ]
            )
        for name, gradients in (("inside", found[1]), ("outside", found[2])):
            if not all(
                torch.allclose(one, other) for one, other in zip(found[0], gradients, strict=True)
            ):
                return f"step {step}: other gradients with the compiled function {name}"
    return ""


def by_hand(x: torch.Tensor) -> torch.Tensor:
    """Rows of uneven numbers, with collectives that write in place: no graph can hold them."""
    ranks, rows = dist.get_world_size(), torch.tensor([x.shape[0]])
    sizes = [torch.zeros_like(rows) for _ in range(ranks)]
    dist.all_gather(sizes, rows)
    most = int(torch.stack(sizes).max())
    padded = torch.nn.functional.pad(x, (0, 0, 0, most - x.shape[0]))
    every = [torch.zeros_like(padded) for _ in range(ranks)]
    dist.all_gather(every, padded)
    return torch.cat([each[: int(size)] for each, size in zip(every, sizes, strict=True)]) * 2


def functional_with_plain_numbers(x: torch.Tensor) -> torch.Tensor:
    """The same, with functional collectives; it needs the gathered sizes as numbers."""
    sizes = collectives.all_gather_tensor(torch.tensor([x.shape[0]]), 0, dist.group.WORLD)
    padded = torch.nn.functional.pad(x, (0, 0, 0, int(sizes.max()) - x.shape[0]))
    every = collectives.all_gather_tensor(padded, 0, dist.group.WORLD).chunk(dist.get_world_size())
    return torch.cat([each[: int(size)] for each, size in zip(every, sizes, strict=True)]) * 2


def functional(x: torch.Tensor) -> torch.Tensor:
    """The same, and what is known of the gathered sizes is said: it is traced, with sizes that are
    data.
    """
    sizes = collectives.all_gather_tensor(torch.tensor([x.shape[0]]), 0, dist.group.WORLD)
    most = sizes.max().item()
    torch._check(most >= x.shape[0])
    padded = torch.nn.functional.pad(x, (0, 0, 0, most - x.shape[0]))
    every = collectives.all_gather_tensor(padded, 0, dist.group.WORLD)
    kept = []
    for rank, size in enumerate(sizes.tolist()):
        torch._check(size >= 0)
        torch._check(size <= most)
        kept.append(every.narrow(0, rank * most, size))
    return torch.cat(kept) * 2


def of_objects(x: torch.Tensor) -> torch.Tensor:
    """Objects go through a pickle."""
    shapes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, tuple(x.shape))
    return x * 2 + sum(shape[0] for shape in shapes)


def differentiable(x: torch.Tensor) -> torch.Tensor:
    """The one that gradients flow through; it needs even sizes, in eager too."""
    return torch.cat(torch.distributed.nn.functional.all_gather(x * 2)) + 1  # type: ignore[no-untyped-call]


_REASONS = {
    by_hand: "a collective on a process group",
    functional_with_plain_numbers: "needs to know whether u0 == 0",
    of_objects: "(at collective_programs.py:",
    differentiable: "(at collective_programs.py:",
}
"""What says why they run as they are."""


def wrong_gathers(rank: int) -> dict[str, str]:
    """What is wrong with gathers of rows whose number differs between ranks and from call to
    call.
    """
    found = {}
    for fn in (functional, *_REASONS):
        compiled: Any = symshape.compile(fn, dynamic=True)
        found[fn.__name__] = ""
        for rows in (3, 5, 4, 2, 7, 1, 6, 8):
            x = torch.randn(rows if fn is differentiable else rows + 2 * rank, 2)
            expected = fn(x)
            if not torch.equal(compiled(x), expected):
                found[fn.__name__] = f"other values with {rows} rows"
        stats = compiled.stats()
        if fn is functional and (stats.traces, stats.fallbacks) != (1, 0):
            found[fn.__name__] = f"{stats}: {compiled.explain_fallback()}"
        if fn is not functional and (
            stats.refusals > 3 or _REASONS[fn] not in compiled.explain_fallback()
        ):
            found[fn.__name__] = f"{stats.refusals} traces refused: {compiled.explain_fallback()}"
    return found


def rank_program(file: str, rank: int, size: int) -> dict[str, str]:
    """What is wrong on one rank of a new group, by program: nothing, if all is right."""
    dist.init_process_group("gloo", store=dist.FileStore(file, size), rank=rank, world_size=size)
    return {**wrong_programs(rank, size, torch.device("cpu")), **wrong_gathers(rank)}


def wrong_programs(rank: int, size: int, device: torch.device) -> dict[str, str]:
    """What is wrong on one rank of the group that is there, by program: nothing, if all is
    right.
    """
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", symshape.FallbackWarning)

    def uneven(x: torch.Tensor) -> torch.Tensor:  # to rank i go i + 1 rows
        sent = torch.cat([x[: i + 1] for i in range(size)])
        splits = [rank + 1] * size, [i + 1 for i in range(size)]
        return collectives.all_to_all_single(sent * 2, *splits, dist.group.WORLD) + 1

    found = {}
    for name, fn in {**{each.__name__: each for each in PROGRAMS}, "uneven": uneven}.items():
        rows = [size + 3, size + 5, size + 4]
        found[name] = _wrong(
            fn, [torch.arange(2.0 * n, device=device).reshape(n, 2) + rank for n in rows]
        )
    return {**found, "gradients": _gradients(rank, device)}


def _child(file: str, rank: int, size: int) -> None:
    try:
        found = rank_program(file, rank, size)
    except BaseException:
        found = {"program": traceback.format_exc()}
    with open(f"{file}.{rank}", "w") as out:
        json.dump(found, out)
    os._exit(0)


def main(size: int) -> list[dict[str, str]]:
    """What is wrong on each rank."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/board"
        children = []
        for rank in range(size):
            children.append(os.fork())
            if not children[-1]:
                _child(file, rank, size)
        for each in children:
            os.waitpid(each, 0)
        found = []
        for rank in range(size):
            with open(f"{file}.{rank}") as written:
                found.append(json.load(written))
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))), flush=True)
