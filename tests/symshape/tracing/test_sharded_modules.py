"""Modules that FSDP2 shards: refused with a way out, which works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import symshape
from symshape.errors import UnsupportedError

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no Gloo", allow_module_level=True)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A group of this process alone, whose exchanges run all the same."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.inner(x)
        return result


def _model(compiles: bool) -> tuple[nn.Module, list[Any]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    inner: list[Any] = [
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2)
    ]
    inner = (
        [symshape.compile(each, dynamic=True, fullgraph=True) for each in inner]
        if compiles
        else inner
    )
    model = nn.Sequential(*map(Block, inner))
    mesh = init_device_mesh("cpu", (1,))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, inner


def _losses(model: nn.Module) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(5):
        torch.manual_seed(step)
        loss = model(torch.randn(3 + step, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_what_is_compiled_inside_of_a_sharded_module_is_traced_once() -> None:
    plain, _ = _model(compiles=False)
    model, inner = _model(compiles=True)
    assert _losses(model) == pytest.approx(_losses(plain), rel=1e-5)
    assert [symshape.compiled_of(each).stats().traces for each in inner] == [1, 1]


def test_a_sharded_module_is_refused_with_the_way_out() -> None:
    model, _ = _model(compiles=False)
    with pytest.raises(
        UnsupportedError, match=r"fully_shard\(m\), where m\.inner = symshape\.compile\(module\)"
    ):
        symshape.compile(model, fullgraph=True)(torch.randn(3, 8))
