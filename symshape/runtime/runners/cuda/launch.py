"""The launch of a call's graph in one pass of C++, where that was built.

:mod:`symshape.native` finds or compiles it (``compiled_launch.cpp``).  Without it, and for unusual
calls, ``Bucket.call`` and ``CudaGraphRunner.run`` do the same step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.native.loader import load
from symshape.runtime.padding.result_rows import Apart, Row
from symshape.runtime.padding.wide_copies import least_bytes
from symshape.runtime.runners.padded.true_sizes import TrueSizes

__all__ = ["Launch", "launcher"]

Launch = Callable[[Sequence[Any], tuple[int, ...]], list[Any] | None]
"""``launch(leaves, numbers)``: returns the flat results of a call; None, with nothing done, if
Python must serve it.
"""


_COMPILED: Any = load("symshape.runtime.runners.compiled_launch")
LAUNCH: Any = getattr(_COMPILED, "Launch", None)
COPIES: Any = getattr(_COMPILED, "Copies", None)
"""The classes in C++; None if they were not built for this torch."""


def launcher(
    replay: Callable[[], object],
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[tuple[int, torch.Tensor]],
    lifted: Sequence[torch.Tensor],
    results: Sequence[Row],
    true_sizes: TrueSizes | None = None,
    worth: int = 0,
    device: torch.device | None = None,
    copies: Any = None,
    stays: Sequence[tuple[int, int]] = (),
    splits: Sequence[Apart | None] = (),
) -> Any:
    """Return the :data:`Launch` of a graph; None if C++ was not built, or cannot launch this graph.

    Args:
        replay: runs the graph.
        tensors: the tensors that the graph computes; empty if each replay returns other ones.
        inputs: positions among the leaves, each with the buffer that the leaf is copied to.
        lifted: parameters and buffers, which the graph reads in place.
        results: how each result is made.
        true_sizes: the true sizes that the graph reads; None if it reads none.
        worth: after so many successive calls at the same addresses one call is left to Python; 0
            for never.
        device: the device whose copies may be faster with wider elements; None to copy without
            widening.
        copies: the copies that the graph can make itself (``copies_in_graph.py``); ``replay`` does
            not make them.
        stays: positions among the leaves, each with the only address at which the graph reads that
            leaf.
        splits: for each input, how its dimensions are products of several sizes; None if none is.
    """
    if LAUNCH is None:
        return None
    positions, buffers = tuple([each for each, _ in inputs]), tuple([each for _, each in inputs])
    each, places = ((), ()) if true_sizes is None else (tuple(true_sizes.each), true_sizes.places)
    merged = tuple([(number, *how) for number, how in enumerate(splits) if how is not None])
    least = least_bytes(device) if device is not None else 0
    try:
        return LAUNCH(
            *(positions, buffers, merged, tuple(stays)),
            *(true_sizes, each, places),
            *(tuple(lifted), replay, tuple(tensors), tuple(results), worth, least, copies),
        )
    except (TypeError, RuntimeError):  # a result is no tensor, or has no memory of its own
        return None
