"""The memory of captured graphs, foretold: by hand for small programs, and its laws."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import nn

import symshape
from symshape.cost.allocator import LARGE_SEGMENT, SMALL_SEGMENT
from symshape.cost.graph_memory import DeviceMemory, check_budget, graph_memory, planned_buckets
from symshape.errors import InputError

MB = 2**20
BARE = DeviceMemory(0, 0)


def _program(fn: Any = None, width: int = 1024) -> Any:
    fn = fn or (lambda x: torch.exp(x) + 1)
    with torch.no_grad():
        return symshape.trace(
            fn, torch.ones(3, width), dynamic={next(iter(_names(fn))): {0: "n"}}
        ).program


def _names(fn: Any) -> list[str]:
    return ["input"] if isinstance(fn, nn.Module) else ["x"]


def _memory(program: Any, sizes: list[int], device: DeviceMemory = BARE) -> Any:
    return graph_memory(list(planned_buckets(program, [{"n": n} for n in sizes])), device)


def test_one_graph_by_hand() -> None:
    """Rows of 4 KiB: 4,000 of them take 15.6 MiB, a segment of 16 MiB each for the two
    temporaries.
    """
    found = _memory(_program(), [4000])
    assert found.pool == 2 * 16 * MB
    assert found.buffers == 16 * MB  # the program reads no true size
    assert found.reserved == found.pool + found.buffers
    assert found.most == found.reserved + 32 * MB  # the run before the capture
    assert (found.workspaces, len(found.buckets)) == (0, 1)


def test_smaller_graphs_fit_into_the_memory_of_the_largest() -> None:
    program = _program()
    one, many = _memory(program, [4000]), _memory(program, [4000 - 100 * i for i in range(12)])
    assert many.pool == one.pool
    assert [each.pool for each in many.buckets[1:]] == [0] * 11
    assert many.buffers == one.buffers
    assert many.graphs == 12 * one.graphs > 0


def test_a_graph_whose_tensors_are_small_needs_other_segments() -> None:
    """Requests of at most 1 MiB come from segments of their own, which the larger graph has not
    made.
    """
    found = _memory(_program(), [4000, 100])
    assert [each.pool for each in found.buckets] == [32 * MB, SMALL_SEGMENT]


def test_lent_results_take_memory_for_each_graph() -> None:
    buckets = list(planned_buckets(_program(), [{"n": 4000}, {"n": 3900}]))
    lent = [attrs.evolve(each, lent=True) for each in buckets]
    assert graph_memory(lent, BARE).pool > graph_memory(buckets, BARE).pool


def test_workspaces_are_those_of_two_streams() -> None:
    program = _program(nn.Linear(1024, 8))
    found = _memory(program, [64], DeviceMemory())
    assert found.workspaces == 2 * (32 * MB + SMALL_SEGMENT)
    without = _memory(_program(), [64], DeviceMemory())
    # the run before has no product, a capture always has one
    assert without.workspaces == 32 * MB + SMALL_SEGMENT


@pytest.mark.parametrize(
    ("environment", "major", "workspace", "lt", "expandable"),
    [
        ({}, 9, 32 * MB, MB, False),
        ({}, 10, 32 * MB, MB, False),
        ({}, 8, 8_519_680, MB, False),
        ({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, 9, 32 * MB, MB, False),
        (
            {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8", "CUBLASLT_WORKSPACE_SIZE": "32768"},
            9,
            8_519_680,
            32 * MB,
            False,
        ),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, 9, 32 * MB, MB, True),
        (
            {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:False"},
            9,
            32 * MB,
            MB,
            False,
        ),
    ],
)
def test_devices(
    environment: dict[str, str], major: int, workspace: int, lt: int, expandable: bool
) -> None:
    found = DeviceMemory.configured(environment, major)
    assert (found.workspace, found.lt_workspace, found.expandable) == (workspace, lt, expandable)


def test_growing_segments_waste_less() -> None:
    program = _program()
    grown = _memory(program, [4000], DeviceMemory(0, 0, expandable=True))
    assert grown.pool == 2 * LARGE_SEGMENT  # 31.25 MiB in pages of 20 MiB
    sizes = [4000, 3000, 2000, 1500]
    assert (
        _memory(program, sizes, DeviceMemory(0, 0, expandable=True)).pool
        <= _memory(program, sizes).pool + 20 * MB
    )


def test_a_budget_is_kept_or_refused_with_what_fits() -> None:
    buckets = list(planned_buckets(_program(), [{"n": n} for n in (4000, 2000, 1000, 100)]))
    found = graph_memory(buckets, BARE)
    assert check_budget(buckets, found.total, BARE) == found
    with pytest.raises(
        InputError, match=r"4 graphs take .* more than memory=.*; the 3 up to n=2000 fit, in "
    ):
        check_budget(buckets, found.total - 1, BARE)
    with pytest.raises(InputError, match="not even the smallest, n=100, fits"):
        check_budget(buckets, 1000, BARE)


def test_a_program_that_cannot_be_padded() -> None:
    traced = symshape.trace(
        lambda x: torch.linalg.inv(x @ x.t()), torch.randn(3, 4), dynamic={"x": {0: "n"}}
    )
    with pytest.raises(InputError, match="has no bucket for"):
        _memory(traced.program, [8])


def test_shown() -> None:
    found = _memory(_program(), [4000, 100], DeviceMemory())
    assert "2 graphs take" in str(found)
    assert "n=4000" in found.text()
    assert "<table" in found._repr_html_()


def test_kernels_that_allocate_for_themselves_are_named() -> None:
    with torch.no_grad():
        traced = symshape.trace(
            nn.Conv2d(3, 8, 3), torch.ones(2, 3, 8, 8), dynamic={"input": {0: "n"}}
        )
    found = _memory(traced.program, [64])
    assert found.unknown == ("aten.convolution.default",)
    assert "1 graphs take at least" in str(found)
    assert "aten.convolution.default take more for themselves" in str(found)
    assert _memory(_program(), [64]).unknown == ()
