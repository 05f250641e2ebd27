"""Control flow as a node of a graph, with subgraphs that run once, not at all, or repeatedly.

``torch.cond`` on data, ``while_loop``, ``scan`` and ``associative_scan`` take functions. Each
function is traced once, into a subgraph: straight-line code of its own. Tensors, parameters and
sizes around it are further arguments of the node. The node runs its subgraphs as eager does, with
the same operators in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import torch

from symshape.graph.opaque_calls import LiveCall
from symshape.torch_internals import pytree

Subgraph = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""``part(tensors, numbers)``: the results of a subgraph (``codegen.Run``).

Its own operands come before the captured ones.
"""


@attrs.frozen
class Captures:
    """The tensors and numbers that the subgraphs of a node capture; all subgraphs get the same.

    Attributes:
        tensors: how many tensors.
        numbers: how many numbers, which come after those.
    """

    tensors: int
    numbers: int


class ControlFlow(LiveCall):
    """A node whose arguments are its own operands, then the captured tensors, then the captured
    numbers.

    Args:
        name: what it is called in texts.
        around: how many of these there are.
        whole: whether autograd sees one operation, as for eager's operators of this kind, whose
            backward runs the parts once more: each floating result requires gradients where any
            argument does, and an argument that does not matter has a gradient of zeros.  Else
            autograd records the operators of the parts as they run.
        draws: whether a part draws random numbers.

    Attributes:
        parts: the functions; set once the trace is over.
    """

    def __init__(self, name: str, around: Captures, *, whole: bool, draws: bool) -> None:
        super().__init__(self._run, pytree.tree_structure(((0,), {})), [], name)
        self.parts: tuple[Subgraph, ...] = ()
        self.tags: Any = (torch.Tag.nondeterministic_seeded,) if draws else ()
        self._around = around
        self._whole = whole

    def __call__(self, *leaves: Any) -> list[Any]:
        """Run the node; return its results."""
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        if self._whole and torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            given = [... if isinstance(each, torch.Tensor) else each for each in leaves]
            return list(Rerun.apply(self._run, given, *tensors))  # type: ignore[no-untyped-call]
        return self._run(leaves)

    def _run(self, leaves: Sequence[Any]) -> list[Any]:
        around = self._around
        end = len(leaves) - around.numbers
        own = end - around.tensors
        return self.flow(leaves[:own], leaves[own:end], leaves[end:])

    def flow(
        self, own: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """Run the subgraphs on the node's own operands and the captured values."""
        raise NotImplementedError


class Cond(ControlFlow):
    """``torch.cond``: the first subgraph runs if a tensor or a number is true, else the second.

    An integer that a part returns is answered as a tensor of one.
    """

    def flow(
        self, own: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """Return the results of the subgraph that the predicate selects."""
        return list(map(_as_tensor, self.parts[0 if own[0] else 1](tensors, numbers)))


class WhileLoop(ControlFlow):
    """``while_loop``: while the first subgraph returns true, the second computes the next carried
    values.

    The operands are what is carried, tensors and integers; an integer is answered as a tensor of
    one.
    """

    def flow(
        self, own: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """Return the carried values at the end: copies of the operands if the body never ran."""
        goes_on, body = self.parts
        carried, rounds = list(own), 0
        while True:
            given = [*(each for each in carried if isinstance(each, torch.Tensor)), *tensors]
            counts = [*(each for each in carried if not isinstance(each, torch.Tensor)), *numbers]
            if not goes_on(given, counts)[0]:
                break
            carried, rounds = body(given, counts), rounds + 1
        kept = (
            carried
            if rounds
            else [each.clone() if isinstance(each, torch.Tensor) else each for each in carried]
        )
        return list(map(_as_tensor, kept))


def _as_tensor(each: Any) -> torch.Tensor:
    return each if isinstance(each, torch.Tensor) else torch.scalar_tensor(each, dtype=torch.int64)


class Scan(ControlFlow):
    """``scan``: a subgraph maps a state and a row of each operand to a new state and a row of each
    result.

    The first part does so in the first round, the last one in all others.

    Args:
        states: how many of the operands, the first ones, are the state at the beginning.
    """

    def __init__(
        self, name: str, around: Captures, states: int, *, whole: bool, draws: bool
    ) -> None:
        super().__init__(name, around, whole=whole, draws=draws)
        self._states = states

    def flow(
        self, own: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """Return the final state, and the rows of each result, stacked."""
        state, operands = list(own[: self._states]), own[self._states :]
        found: list[list[torch.Tensor]] = []
        for number in range(operands[0].size(0)):
            rows = [each.select(0, number) for each in operands]
            part = self.parts[-1 if number else 0]
            made = part([*state, *rows, *tensors], numbers)
            state = made[: self._states]
            found.append(made[self._states :])
        return [*state, *map(_stacked, zip(*found, strict=True))]


def _stacked(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stack rows in one contiguous tensor."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in rows):
        return torch.stack(list(rows)).contiguous()  # one operation for autograd
    first = rows[0]
    made = torch.empty([len(rows), *first.size()], dtype=first.dtype, device=first.device)
    for number, each in enumerate(rows):
        made[number].copy_(each)
    return made


class AssociativeScan(ControlFlow):
    """``associative_scan``: adjacent rows are combined, the results are scanned, and combined with
    the remaining rows.

    There are two groups of subgraphs, for the operands and for combined rows. Each group combines
    pairs of two, three and more rows, and combines the rest of two, three, four and more rows. A
    subgraph is told the number of rows on its level, and the number of rows that it gets.

    Args:
        loop: the function that eager runs, with a function that combines.
    """

    def __init__(
        self, name: str, around: Captures, loop: Callable[..., Any], *, draws: bool
    ) -> None:
        super().__init__(name, around, whole=False, draws=draws)
        self._loop = loop

    def flow(
        self, own: Sequence[Any], tensors: Sequence[torch.Tensor], numbers: Sequence[Any]
    ) -> list[Any]:
        """Return the scanned operands."""
        calls = iter(self._calls(own[0].size(0)))

        def combine(*rows: torch.Tensor) -> list[Any]:
            part, length, is_rest = next(calls)
            heads = rows[: len(own)] if is_rest else ()  # nobody reads them
            return part([*rows, *heads, *tensors], [length, rows[0].size(0), *numbers])

        return list(self._loop(combine, list(own)))

    def _calls(self, length: int) -> list[tuple[Subgraph, int, bool]]:
        """Return the subgraphs in the order in which the loop calls them, with the number of rows
        on their levels.
        """
        lengths: list[int] = []
        while length > 1:
            lengths.append(length)
            length //= 2
        levels = [(each, self.parts[7 * min(level, 1) :]) for level, each in enumerate(lengths)]
        down = [(parts[min(each, 4) - 2], each, False) for each, parts in levels]
        up = [(parts[min(each, 5) + 1], each, True) for each, parts in reversed(levels)]
        return [*down, *up]


class Rerun(torch.autograd.Function):
    """A node as one autograd operation, whose backward runs the node once more with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        run: Callable[[Sequence[Any]], list[Any]],
        given: list[Any],
        *tensors: torch.Tensor,
    ) -> Any:
        """Return the node's results."""
        ctx.run, ctx.given = run, given
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(run(_filled(given, tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        """Return the gradients of the arguments: zeros for arguments without influence."""
        again = torch.is_grad_enabled()  # gradients of gradients are asked for
        # which hooks may give once alone
        needed, saved = (ctx.needs_input_grad[2:], ctx.saved_tensors)
        tensors: list[torch.Tensor] = []
        with torch.enable_grad(), ExitStack() as stack:
            for kind in {each.device.type for each in saved}:
                # its casts are operators of the parts
                stack.enter_context(torch.autocast(kind, enabled=False))
            for each, wanted in zip(saved, needed, strict=True):
                mine = each.view_as(each) if again and wanted else each.detach()
                tensors.append(mine.requires_grad_() if wanted else mine)
            results = ctx.run(_filled(ctx.given, tensors))
            pairs = [
                (made, gradient)
                for made, gradient in zip(results, gradients, strict=True)
                if gradient is not None and made.requires_grad
            ]
            asked = [each for each, wanted in zip(tensors, needed, strict=True) if wanted]
            found: Sequence[torch.Tensor | None] = [None] * len(asked)
            if pairs:
                outputs, given = zip(*pairs, strict=True)
                found = torch.autograd.grad(
                    outputs, asked, given, allow_unused=True, create_graph=again
                )
        kept = iter(
            [
                torch.zeros_like(of) if each is None else each
                for of, each in zip(asked, found, strict=True)
            ]
        )
        return None, None, *(next(kept) if wanted else None for wanted in needed)


def _filled(given: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return the arguments of a node, with these tensors in the places marked by Ellipsis."""
    left = iter(tensors)
    return [next(left) if each is ... else each for each in given]
