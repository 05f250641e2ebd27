"""``associative_scan`` over a symbolic length: one program for each number of levels, not for each
length.

Torch's own implementation halves the sequence and asks at each level whether the remaining length
is even. An element of the result depends on its position alone. So the same combinations are
recorded here in the same order without that question: the elements at even positions are those
after the first ``(n - 1) // 2`` odd ones. (Source: torch/_higher_order_ops/associative_scan.py,
checked on 2.13.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.torch_internals import pytree
from symshape.torch_internals.library import generic_associative_scan, generic_scan

_slice = torch.ops.aten.slice
_Combine = Callable[..., list[torch.Tensor]]


def by_levels(
    operator: Callable[..., Any],
    leaves: Sequence[torch.Tensor],
    dim: int = 0,
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """Compute ``generic_associative_scan``, whose length may be symbolic."""
    sizes = leaves[0].shape
    if not isinstance(sizes[dim], torch.SymInt) or any(
        s == 0 for i, s in enumerate(sizes) if i != dim
    ):
        return generic_associative_scan(operator, leaves, dim, additional_inputs)

    def combine(*pairs: torch.Tensor) -> list[torch.Tensor]:
        return pytree.tree_leaves(operator(*pairs, *additional_inputs))

    flows = getattr(leaves[0], "_tracer", None) and leaves[0]._tracer.flows  # type: ignore[attr-defined]
    found = flows and flows.associative_scan(combine, leaves, dim, generic_associative_scan)
    return found or _scanned(combine, list(leaves), dim)


def _scanned(combine: _Combine, elems: list[torch.Tensor], dim: int) -> list[torch.Tensor]:
    n = elems[0].shape[dim]
    if n < 2:
        return elems
    firsts, seconds = ([_slice(each, dim, i, n - 1 + i, 2) for each in elems] for i in (0, 1))
    odd = _scanned(combine, combine(*firsts, *seconds), dim)
    before = [_slice(each, dim, 0, (n - 1) // 2) for each in odd]
    even = combine(*before, *(_slice(each, dim, 2, None, 2) for each in elems))
    even = [torch.cat([_slice(a, dim, 0, 1), b], dim) for a, b in zip(elems, even, strict=True)]
    return [_interleaved(a, b, n, dim) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: torch.Tensor, odd: torch.Tensor, n: Any, dim: int) -> torch.Tensor:
    """Interleave even and odd elements; if their total number is odd the last one is even."""
    as_many = torch.cat([odd, _slice(even, dim, n // 2)], dim)
    both = torch.stack([even, as_many], dim + 1).flatten(dim, dim + 1)
    result: torch.Tensor = _slice(both, dim, 0, n)
    return result


def loop() -> Callable[..., Any]:
    """Return the function that eager runs for ``scan``, step by step."""
    return generic_scan


SCANS: dict[int, Any] = {id(generic_associative_scan): by_levels}
"""The replacements for scans in traced code, by ``id``."""
