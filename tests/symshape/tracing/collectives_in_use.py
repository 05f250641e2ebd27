"""Programs with functional collectives among the ranks of the default process group, for tests."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives


def reduced(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


def given_back(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x, "sum", dist.group.WORLD)


def reduced_in_place(x: torch.Tensor) -> torch.Tensor:
    made = x * 2
    torch.ops._c10d_functional.all_reduce_(made, "sum", dist.group.WORLD.group_name)
    return torch.ops._c10d_functional.wait_tensor(made) + 1


def written_after_waiting(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    waited = torch.ops._c10d_functional.wait_tensor(made)
    waited.add_(1)
    return made * 2, waited


def gathered(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_gather_tensor(x * 2, 0, dist.group.WORLD) + 1


def gathered_along_the_second(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_gather_tensor(x * 2, 1, dist.group.WORLD) + 1


def scattered(x: torch.Tensor) -> torch.Tensor:
    every = torch.cat([x] * dist.get_world_size())
    return collectives.reduce_scatter_tensor(every, "sum", 0, dist.group.WORLD) + 1


def broadcast(x: torch.Tensor) -> torch.Tensor:
    return collectives.broadcast(x + 1, 0, dist.group.WORLD) * 2


def exchanged(x: torch.Tensor) -> torch.Tensor:
    ranks, rows = dist.get_world_size(), x.shape[0]
    every = torch.cat([x] * ranks)
    return (
        collectives.all_to_all_single(every, [rows] * ranks, [rows] * ranks, dist.group.WORLD) * 2
    )


def several_reduced(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        each + 1 for each in collectives.all_reduce_coalesced([x, x * 2], "sum", dist.group.WORLD)
    ]


def several_gathered(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        each + 1
        for each in collectives.all_gather_into_tensor_coalesced([x, x * 2], dist.group.WORLD)
    ]


def several_scattered(x: torch.Tensor) -> list[torch.Tensor]:
    every = torch.cat([x] * dist.get_world_size())
    return [
        each + 1
        for each in collectives.reduce_scatter_tensor_coalesced(
            [every], "sum", [0], dist.group.WORLD
        )
    ]


PROGRAMS = (
    reduced,
    given_back,
    reduced_in_place,
    written_after_waiting,
    gathered,
    gathered_along_the_second,
    scattered,
    broadcast,
    exchanged,
    several_reduced,
    several_gathered,
    several_scattered,
)


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    return [result] if isinstance(result, torch.Tensor) else list(result)
