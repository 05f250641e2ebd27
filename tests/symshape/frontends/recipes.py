"""Whole loops of training from one seed, in eager and compiled: what each step leaves to be seen,
side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import nn

import symshape

Wrap = Callable[..., Any]
Loop = Callable[[Wrap], Iterator[Any]]
"""Is given what compiles a function (or leaves it), and answers what is to be compared, step by
step.
"""
SIZES = (
    (3, 5),
    (4, 7),
    (2, 6),
    (5, 3),
    (6, 9),
    (4, 5),
    (7, 4),
    (3, 8),
    (8, 5),
    (2, 3),
    (5, 6),
    (9, 7),
)


def rows(step: int, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and targets, other ones at each step, which draw nothing from torch's own generator."""
    drawn = torch.Generator().manual_seed(step)
    batch = SIZES[step % len(SIZES)][0]
    return torch.randn(batch, width, generator=drawn), torch.randn(batch, 1, generator=drawn)


def layers() -> nn.Sequential:
    """Two layers for :func:`rows`."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


@attrs.frozen
class Ran:
    """What every step left, and what was compiled."""

    seen: list[list[Any]]
    compiled: list[symshape.Compiled]

    @property
    def traces(self) -> int:
        """How many programs were made."""
        return sum(each.stats().traces for each in self.compiled)

    @property
    def as_it_is(self) -> int:
        """How many calls ran as they are."""
        return sum(each.stats().fallbacks for each in self.compiled)


def ran(loop: Loop, how: Callable[[Any], Any] | None) -> Ran:
    """The loop from its seed; ``how`` compiles."""
    torch.manual_seed(0)
    compiled: list[Any] = []

    def wrap(fn: Any) -> Any:
        if how is None:
            return fn
        made = how(fn)
        compiled.append(symshape.compiled_of(made) if isinstance(made, nn.Module) else made)
        return made

    return Ran([[*_flat(each), torch.get_rng_state()] for each in loop(wrap)], compiled)


def agree(loop: Loop, *, traces: int = 3, as_it_is: int = 0) -> Ran:
    """Runs a loop both ways; everything must be equal bit for bit, in so many programs.  Answers
    the compiled run.
    """
    expected = ran(loop, None)
    found = ran(loop, symshape.compile)
    assert len(found.seen) == len(expected.seen)
    for number, (mine, theirs) in enumerate(zip(found.seen, expected.seen, strict=True)):
        torch.testing.assert_close(
            mine, theirs, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}"
        )
    assert found.as_it_is == as_it_is, found.compiled[0].explain_fallback()
    assert found.traces <= traces
    return found


def _flat(value: Any) -> Iterator[Any]:
    """Copies of all tensors, with gradients, and other things in a value; in text what assert_close
    does not take.
    """
    if isinstance(value, torch.Tensor):
        yield value.detach().clone()
        yield torch.tensor(value.requires_grad)
        if value.is_leaf and value.grad is not None:
            yield value.grad.clone()
    elif isinstance(value, nn.Module):
        yield from _flat([*value.parameters(), *value.buffers()])
    elif isinstance(value, torch.optim.Optimizer):
        for group in value.param_groups:
            yield from _flat([each for key, each in sorted(group.items()) if key != "params"])
            yield from _flat([value.state[each] for each in group["params"] if each in value.state])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, dict):
        yield from _flat([value[key] for key in sorted(value, key=str)])
    elif isinstance(value, (bool, int, float)):
        yield torch.tensor(value, dtype=torch.float64)
