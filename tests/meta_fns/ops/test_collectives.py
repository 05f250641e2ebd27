"""Functional collectives against eager, whose process group (torch's fake one) allocates results
and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import meta_fns

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

OPS = torch.ops._c10d_functional
SIZES = ((4, 3), (8,), (12, 1, 5))


@pytest.fixture(params=[2, 4])
def group(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """The name and the size of a process group that lives in this process alone."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=request.param)
    try:
        yield dist.group.WORLD.group_name, request.param
    finally:
        dist.destroy_process_group()


Calls = dict[str, Callable[[torch.Tensor, str, int], tuple[Any, tuple[Any, ...]]]]
CALLS: Calls = {
    "all_reduce": lambda x, name, size: (OPS.all_reduce, (x, "sum", name)),
    "all_reduce_": lambda x, name, size: (OPS.all_reduce_, (x, "sum", name)),
    "broadcast": lambda x, name, size: (OPS.broadcast, (x, 0, name)),
    "broadcast_": lambda x, name, size: (OPS.broadcast_, (x, 0, name)),
    "all_reduce_coalesced": lambda x, name, size: (
        OPS.all_reduce_coalesced,
        ([x, x[:1]], "sum", name),
    ),
    "all_gather": lambda x, name, size: (OPS.all_gather_into_tensor, (x, size, name)),
    "all_gather_coalesced": lambda x, name, size: (
        OPS.all_gather_into_tensor_coalesced,
        ([x, x[:1]], size, name),
    ),
    "reduce_scatter": lambda x, name, size: (OPS.reduce_scatter_tensor, (x, "sum", size, name)),
    "reduce_scatter_coalesced": lambda x, name, size: (
        OPS.reduce_scatter_tensor_coalesced,
        ([x, x.double()], "sum", size, name),
    ),
    "all_to_all": lambda x, name, size: (
        OPS.all_to_all_single,
        (x, [3] * size, [len(x) // size] * size, name),
    ),
    "wait": lambda x, name, size: (OPS.wait_tensor, (x,)),
}


def _specs(args: Any) -> Any:
    if isinstance(args, torch.Tensor):
        return meta_fns.TensorSpec.of(args)
    return type(args)(map(_specs, args)) if isinstance(args, (list, tuple)) else args


def _shown(found: Any) -> list[Any]:
    """Metadata, as far as it is compared; what eager made is waited for."""
    made = [found] if isinstance(found, (torch.Tensor, meta_fns.TensorSpec)) else found
    for each in made:
        if isinstance(each, torch.Tensor):
            OPS.wait_tensor(each)
    specs = [
        each if isinstance(each, meta_fns.TensorSpec) else meta_fns.TensorSpec.of(each)
        for each in made
    ]
    return [(each.sizes, each.strides, each.storage_offset, each.dtype) for each in specs]


@pytest.mark.parametrize("what", CALLS)
def test_metadata_is_that_of_eager(what: str, group: tuple[str, int]) -> None:
    name, size = group
    for sizes in SIZES:
        op, args = CALLS[what](torch.ones(sizes), name, size)
        found = meta_fns.lookup(op.default)
        assert found is not None
        assert _shown(found.fn(*_specs(args))) == _shown(op(*args))


@pytest.mark.parametrize(
    "what", ["all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast"]
)
def test_results_are_contiguous(what: str, group: tuple[str, int]) -> None:
    name, size = group
    op, args = CALLS[what](torch.ones(3, 8).t(), name, size)
    found = meta_fns.lookup(op.default)
    assert found is not None
    assert _shown(found.fn(*_specs(args))) == _shown(op(*args))


def test_sizes_that_do_not_divide_are_refused_as_by_eager(group: tuple[str, int]) -> None:
    name, size = group
    args = (torch.ones(size + 1, 2), "sum", size, name)
    with pytest.raises(RuntimeError, match="world size"):
        OPS.reduce_scatter_tensor(*args)
    with pytest.raises(meta_fns.MetaError, match="divide"):
        meta_fns.lookup(OPS.reduce_scatter_tensor.default).fn(*_specs(args))
