"""Writes into parts of a call's arguments, from a padded program's results: see ``rewrites`` of
padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from guards.terms.term import Term
from symshape.runtime.padding.numbers import Numbers
from symshape.runtime.padding.results import Part
from symshape.runtime.padding.rewrites import Answered, Rewrite

__all__ = ["Again", "copied_back", "rewriting"]

Again = Callable[[torch.Tensor, Sequence[torch.Tensor]], object]
"""``again(argument, tensors)`` writes results of the padded program (``tensors``) into an argument
of the call.
"""
_Prepared = Callable[[Sequence[int]], Callable[[Sequence[torch.Tensor]], Any]]


def rewriting(rewrite: Rewrite, numbers: Numbers) -> Callable[[Sequence[int]], Again]:
    """Return a function from the numbers of a call to the function that repeats a write on the
    call's argument.
    """
    views = [(op, _prepared(rest, numbers)) for op, rest in rewrite.views]
    args = _prepared(rewrite.args, numbers)
    names, named = list(rewrite.kwargs), _prepared(list(rewrite.kwargs.values()), numbers)

    def at(found: Sequence[int]) -> Again:
        parts = [(op, rest(found)) for op, rest in views]
        args_at, named_at = args(found), named(found)

        def again(argument: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
            for op, rest in parts:
                argument = op(argument, *rest(tensors))
            rewrite.op(
                argument, *args_at(tensors), **dict(zip(names, named_at(tensors), strict=True))
            )

        return again

    return at


def _prepared(arg: Any, numbers: Numbers) -> _Prepared:
    """Return a function that computes an argument, from the numbers of a call and then from the
    program's tensors.
    """
    if isinstance(arg, Answered):
        part, place = Part(arg.axes, numbers), arg.place

        def valid(found: Sequence[int]) -> Callable[[Sequence[torch.Tensor]], Any]:
            narrow = part.at(found)
            return lambda tensors: narrow(tensors[place])

        return valid
    if type(arg) is Term:
        number = numbers.place(arg)
        return lambda found: lambda tensors: found[number]
    if isinstance(arg, (list, tuple)):
        items = [_prepared(each, numbers) for each in arg]

        def together(found: Sequence[int]) -> Callable[[Sequence[torch.Tensor]], Any]:
            made = [each(found) for each in items]
            return lambda tensors: [each(tensors) for each in made]

        return together
    return lambda found: lambda tensors: arg


def copied_back(
    narrow: Callable[[torch.Tensor], torch.Tensor],
    place: int,
    argument: torch.Tensor,
    tensors: Sequence[torch.Tensor],
) -> None:
    """Copy the valid part of one of the tensors to an argument."""
    argument.copy_(narrow(tensors[place]))
