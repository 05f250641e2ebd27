"""Steps whose results nobody reads, and which of them may go."""

from __future__ import annotations

from typing import Any

import torch

from symshape.graph.steps import BATCH_NORM, Node, Step, Value, values_in

_REFUSES_DATA = frozenset(
    f"aten::{name}"
    for name in (
        *("index", "index_select", "gather", "take", "take_along_dim", "embedding", "embedding_bag", "one_hot"),
        *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put"),
        *("nll_loss_forward", "nll_loss2d_forward", "bincount", "multinomial", "binary_cross_entropy", "searchsorted"),
        *("linalg_cholesky_ex", "linalg_inv_ex", "_linalg_solve_ex", "_linalg_det", "_linalg_eigh", "cholesky"),
        *("_assert_async", "_local_scalar_dense", "max_unpool2d", "max_unpool3d", "ctc_loss", "_ctc_loss"),
    )
)
"""Ops that may refuse the data that they get: they run even where nobody reads their result."""


def _is_pure(node: Node) -> bool:
    op = node.op
    return not (
        op._schema.is_mutable
        or node.bindings
        or torch.Tag.nondeterministic_seeded in op.tags
        or op._schema.name in BATCH_NORM
        or op.namespace not in ("aten", "prims")
        or op._schema.name in _REFUSES_DATA
        or not op._schema.returns  # all that it does is to refuse
    )


def may_refuse_data(step: Step) -> bool:
    """Whether a step may fail on what its tensors hold: one that fails only on what they are does so at once."""
    if not isinstance(step, Node):
        return True
    op = step.op
    name = op._schema.name.removesuffix("_")  # of one that writes in place
    return op.namespace not in ("aten", "prims") or name in _REFUSES_DATA or not op._schema.returns


def without_dead_code(steps: list[Step], outputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """The steps without pure ATen calls whose results nobody reads."""
    live: set[Value | None] = set(values_in(outputs))
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Node):
            if live.isdisjoint(step.outputs) and _is_pure(step):
                continue
            live.update(step.reads)
        kept.append(step)
    kept.reverse()
    return tuple(kept)
