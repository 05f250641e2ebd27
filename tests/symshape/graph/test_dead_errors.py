"""Errors of calls whose results nobody reads: eager raises them, so a compiled function does,
too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape

R, INDEX, aten = torch.ones, torch.tensor, torch.ops.aten
INF, NAN = float("inf"), float("nan")
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "histc": (torch.histc, (torch.full((3,), INF),)),
    "histogram": (lambda x: torch.histogram(x, 3), (torch.full((3,), INF),)),
    "histogramdd": (lambda x: torch.histogramdd(x, [2, 2]), (torch.full((3, 2), NAN),)),
    "embedding_bag": (
        lambda x, i: torch.nn.functional.embedding_bag(i, x),
        (R(3, 2), INDEX([[7]])),
    ),
    "cholesky_inverse": (torch.cholesky_inverse, (torch.zeros(3, 3),)),
    "lu_unpack": (torch.lu_unpack, (R(3, 3), INDEX([9, 9, 9], dtype=torch.int32))),
    "pinv": (torch.linalg.pinv, (torch.full((3, 3), NAN),)),
    "segment_reduce": (lambda x, i: torch.segment_reduce(x, "sum", lengths=i), (R(3), INDEX([7]))),
    "nll_loss_backward": (
        lambda x, i: aten.nll_loss_backward(R(()), x, i, None, 1, -100, R(())),
        (R(1, 3), INDEX([7])),
    ),
    "nll_loss2d_backward": (
        lambda x, i: aten.nll_loss2d_backward(R(()), x, i, None, 1, -100, R(())),
        (R(1, 3, 1, 1), INDEX([[[7]]])),
    ),
    "multi_margin_loss_backward": (
        lambda x, i: aten.multi_margin_loss_backward(R(()), x, i, 1, 1.0),
        (R(1, 3), INDEX([7])),
    ),
    "lu_solve": (
        lambda x, i: torch.linalg.lu_solve(R(3, 3), i, x),
        (R(3, 3), INDEX([9, 9, 9], dtype=torch.int32)),
    ),
    "fractional_max_pool2d_backward": (
        lambda x, i: aten.fractional_max_pool2d_backward(R(1, 1, 2, 2), x, [2, 2], [2, 2], i),
        (R(1, 1, 4, 4), torch.full((1, 1, 2, 2), 99)),
    ),
    "embedding_bag_backward": (
        lambda x, i: aten._embedding_bag_per_sample_weights_backward(
            x, R(3, 2), i, i * 0, i * 0, 0, -1
        ),
        (R(1, 2), INDEX([7])),
    ),
    "division of prims": (torch.ops.prims.div.default, (INDEX([1, 2]), INDEX([0, 0]))),
    "division of a list": (lambda x, y: torch._foreach_div([x], [y]), (INDEX([1]), INDEX([0]))),
    "multilabel_margin_loss_backward": (
        lambda x, i: aten.multilabel_margin_loss_backward(R(()), x, i, 1, R(1, 3)),
        (R(1, 3), INDEX([[7, 0, 0]])),
    ),
    "a number beyond int64": (lambda x: (x * 0).long().masked_fill(x > 0, INF), (R(3),)),
    "a number beyond uint8": (lambda x: torch.full((3,), 300, dtype=torch.uint8), (R(3),)),
    "a number below uint8": (
        lambda x: torch.nn.functional.pad(x.to(torch.uint8), (1, 1), value=-1),
        (R(3),),
    ),
    "a number beyond float16": (lambda x: x.half() ** 1e30, (R(3),)),
    "alpha beyond int32": (lambda x: torch.add(x.int(), x.int(), alpha=2**40), (R(3),)),
    "a length beyond int8": (lambda x: (x * 0).to(torch.int8).clamp(min=len(x) * 100), (R(3),)),
    "beyond a storage": (lambda x: x.as_strided((9,), (7,)), (R(3),)),
    "scattered beyond": (lambda x: torch.as_strided_scatter(x, x[:2], (2,), (9,)), (R(3),)),
    "an approximation": (lambda x: torch.nn.functional.gelu(x, approximate="no"), (R(3),)),
    "lambda": (lambda x: torch.nn.functional.softshrink(x, -0.5), (R(3),)),
    "delta": (lambda x: torch.nn.functional.huber_loss(x, x, delta=NAN), (R(3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_nobody_reads_still_raises_for_its_data(name: str) -> None:
    unread, args = CASES[name]

    def fn(*given: torch.Tensor) -> torch.Tensor:
        unread(*given)
        return given[0] * 2

    try:
        fn(*args)
    except (RuntimeError, IndexError) as error:
        kind = type(error)
    else:
        pytest.skip("eager takes this data on this machine")
    compiled = symshape.compile(fn, dynamic=True)
    for _ in range(2):
        with pytest.raises(kind):
            compiled(*args)


def test_only_calls_that_are_known_to_raise_for_no_data_are_dropped() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.relu(), x.view(-1), torch.zeros(3), x.sum(), x @ x
        torch.linalg.matrix_exp(x)  # not in the list of ops that raise for no data
        return x + 1

    graph = symshape.trace(program, torch.randn(3, 3)).program.graph
    names = [str(node.op) for node in graph.nodes]
    assert any("matrix_exp" in each for each in names)
    assert not any(
        name in each for each in names for name in ("relu", "view", "zeros", "sum", "mm")
    )


def test_dtypes_whose_range_torch_does_not_tell() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.empty(x.shape[0], dtype=torch.uint4), torch.empty(x.shape[0], dtype=torch.bits8)
        return x + 1

    assert symshape.trace(program, torch.ones(3))(torch.ones(4)).tolist() == [2] * 4
