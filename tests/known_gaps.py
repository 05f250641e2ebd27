"""Where symshape is weaker than it could be: each gap with its reason and a check that it is still
there.

A gap is sound: guards that are narrower than the program needs, a trace more than necessary.
``test_known_gaps.py`` runs each check and fails when a gap has been closed, so that this table and
docs/sharp-bits stay true.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
import torch.nn.functional as F

import symshape


@attrs.frozen
class Gap:
    """A weakness: its name, why it is there, and whether it still is."""

    name: str
    reason: str
    is_there: Callable[[], bool]


def _guards(fn: Callable[..., object], *args: torch.Tensor) -> list[str]:
    with torch.no_grad():
        return [guard.text() for guard in symshape.trace(fn, *args).guards]


def _attention_excludes_a_batch_of_one() -> bool:
    q, mask = torch.randn(2, 4, 6, 8), torch.zeros(2, 1, 6, 6)
    return any(
        "!= 1" in text or ">= 2" in text
        for text in _guards(F.scaled_dot_product_attention, q, q, q, mask)
    )


def _exclusions_are_not_merged() -> bool:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.size(0) != 0 and x.size(0) != 1 else x

    return len(_guards(f, torch.ones(5))) == 2


GAPS = (
    Gap(
        "attention with a mask is traced apart for a batch of 1",
        "C++ asks whether the mask's batch is 1 before it asks whether it is the query's; the "
        "answer does not matter, but which kernel runs is decided behind that question",
        _attention_excludes_a_batch_of_one,
    ),
    Gap(
        "s0 != 0 and s0 != 1 are not merged into s0 >= 2",
        "minimising drops guards that others imply; it makes no new ones, so that each keeps its "
        "own origin",
        _exclusions_are_not_merged,
    ),
)
