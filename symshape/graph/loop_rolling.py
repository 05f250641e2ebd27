"""Loop rolling: repeated layers among a graph's steps, which one loop can run.

Python's compiler takes longer over the lines of a first trace than all other code generation does.
A loop over a dozen layers has the lines of one layer. The iterations run the same ops on the same
values in the same order, and free each value at the same step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from typing import Any

import attrs
import torch

from symshape.graph.steps import Node, Step, Value

_FEWEST = 5  # laps: the first and the last are written out
_SHORTEST = 8  # steps of a lap
_TRIED = 3  # ops, by whose places laps are looked for
_OUTPUTS = 1 << 16  # more than an op has
_COMPARED = (int, bool, str, torch.device)


@attrs.frozen(eq=False)
class RolledLoop:
    """A sequence of steps that is repeated.

    Attributes:
        start: the first step of the loop; the iteration before it is written out, and so is the one
            after its end.
        length: the steps of one iteration.
        count: the number of iterations of the loop.
        lifted: for each iteration the lifted values that it reads, in order: nothing else differs.
        before: for each value of the first iteration of the loop, its counterpart in the iteration
            before.
        behind: the same for the last iteration of the loop.
    """

    start: int
    length: int
    count: int
    lifted: Sequence[Sequence[Value]]
    before: Mapping[Value, Value]
    behind: Mapping[Value, Value]

    @property
    def end(self) -> int:
        """The number of the first step after the loop."""
        return self.start + self.length * self.count

    def step(self, written: int, lap: int) -> int:
        """Return the number of the step that is written out as number ``written``, in one iteration
        of the loop.
        """
        if written < self.start:
            return written
        if written < self.start + self.length:
            return written + lap * self.length
        return written + (self.count - 1) * self.length


class _DifferentError(Exception):
    """The steps cannot be run by a loop."""


def rolled_loop(
    steps: Sequence[Step],
    dying: Mapping[int, Sequence[Value]],
    last_use: Mapping[Value, int],
    lifted: Collection[Value],
) -> RolledLoop | None:
    """Return the steps that a loop can run, if there are enough of them; else None.

    Args:
        steps: of a graph.
        dying: for each step, the values that nobody reads after it.
        last_use: the same by value; not of those that live on.
        lifted: values that live on whatever a run does.
    """
    if len(steps) < _FEWEST * _SHORTEST:
        return None
    search = _Search(steps, dying, last_use, lifted)
    ops = [id(step.op) if isinstance(step, Node) else id(step) for step in steps]
    for anchor, length in _periods(ops):
        first = end = anchor
        while first and ops[first - 1] == ops[first - 1 + length]:
            first -= 1
        while end + length < len(ops) and ops[end] == ops[end + length]:
            end += 1
        end += length
        most = (end - first) // length
        # what comes before may begin like a lap
        for laps in range(most, max(most - 2, _FEWEST - 1), -1):
            with suppress(_DifferentError):
                return search.found(end - laps * length, length, laps)
    return None


def _periods(ops: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first positions and distances of ops that recur at equal distances; rare ops come
    first.
    """
    places: dict[int, list[int]] = {}
    for position, op in enumerate(ops):
        places.setdefault(op, []).append(position)
    for found in sorted((each for each in places.values() if len(each) >= _FEWEST), key=len)[
        :_TRIED
    ]:
        at = 0
        for gap, group in groupby(b - a for a, b in pairwise(found)):
            number = len(list(group))
            if gap >= _SHORTEST and number >= _FEWEST - 1:
                yield found[at], gap
            at += number


class _Search:
    """A check whether iterations of the same ops are the same."""

    def __init__(
        self,
        steps: Sequence[Step],
        dying: Mapping[int, Sequence[Value]],
        last_use: Mapping[Value, int],
        lifted: Collection[Value],
    ) -> None:
        self._steps, self._dying, self._last_use, self._known_lifted = (
            steps,
            dying,
            last_use,
            lifted,
        )
        self._made: dict[Value, int] = {}
        self._lifted: dict[Value, Value] = {}

    def found(self, first: int, length: int, laps: int) -> RolledLoop:
        """Return the iterations except the first and the last.

        Raises:
            _DifferentError: they are not alike.
        """
        last = first + (laps - 1) * length
        self._made = self._places(first, last)
        for value, place in self._made.items():  # gone when the next lap makes one in its place
            position = place // _OUTPUTS
            if (
                position < last - length
                and self._last_use.get(value, last + length) - position > length
            ):
                raise _DifferentError
        rows: list[Sequence[Value]] = []
        for lap in range(laps - 2):
            self._lifted = {}
            for position in range(first + length, first + 2 * length):
                self._compare(position, lap * length)
            rows.append(list(self._lifted.values()))
        before, behind = (
            self._names(first, first + length, length),
            self._names(first, last - length, length),
        )
        return RolledLoop(first + length, length, laps - 2, rows, before, behind)

    def _places(self, begin: int, end: int) -> dict[Value, int]:
        """Return the output of a step that each value is, as one number."""
        found: dict[Value, int] = {}
        for position in range(begin, end):
            node = self._steps[position]
            if (
                not isinstance(node, Node)
                or node.bindings
                or node.grad is not None
                or node.inference is not None
            ):
                raise _DifferentError
            if len(node.outputs) > _OUTPUTS:
                raise _DifferentError
            found.update(
                (each, place)
                for place, each in enumerate(node.outputs, position * _OUTPUTS)
                if each is not None
            )
        return found

    def _names(self, first: int, start: int, length: int) -> dict[Value, Value]:
        """Return for each value of an iteration its counterpart in the first one."""
        found: dict[Value, Value] = {}
        for position in range(length):
            own, like = self._steps[start + position], self._steps[first + position]
            assert isinstance(own, Node)
            assert isinstance(like, Node)
            if [each is None for each in own.outputs] != [each is None for each in like.outputs]:
                raise _DifferentError
            pairs = zip(own.outputs, like.outputs, strict=True)
            found.update(
                (value, first) for value, first in pairs if value is not None and first is not None
            )
        return found

    def _compare(self, position: int, further: int) -> None:
        """Check that a step of the second iteration does the same as the step ``further`` steps
        after it.
        """
        node, other = self._steps[position], self._steps[position + further]
        assert isinstance(node, Node)
        assert isinstance(other, Node)
        same = node.single is other.single and node.untracked is other.untracked
        if (
            not same
            or len(node.outputs) != len(other.outputs)
            or node.kwargs.keys() != other.kwargs.keys()
        ):
            raise _DifferentError
        self._arguments(node.args, other.args, further * _OUTPUTS)
        if node.kwargs:
            self._arguments(
                [*node.kwargs.values()],
                [other.kwargs[name] for name in node.kwargs],
                further * _OUTPUTS,
            )
        dying, others = self._dying.get(position, ()), self._dying.get(position + further, ())
        if dying or others:
            # what is older dies in one lap
            places = [self._made.get(each, -1) + further * _OUTPUTS for each in dying]
            if sorted(places) != sorted([self._made.get(each, -1) for each in others]):
                raise _DifferentError

    def _arguments(self, args: Sequence[Any], others: Sequence[Any], further: int) -> None:
        if len(args) != len(others):
            raise _DifferentError
        for arg, other in zip(args, others, strict=True):
            kind = type(arg)
            if type(other) is not kind:
                raise _DifferentError
            if kind is Value:
                place = self._made.get(arg)
                if place is not None:
                    same = self._made.get(other) == place + further
                elif arg in self._known_lifted:
                    same = (
                        other in self._known_lifted and self._lifted.setdefault(arg, other) is other
                    )
                else:
                    same = other is arg
            elif kind is tuple or kind is list:
                self._arguments(arg, other, further)
                continue
            elif arg is other:
                continue
            else:
                same = (
                    arg.hex() == other.hex()
                    if kind is float
                    else kind in _COMPARED and bool(arg == other)
                )
            if not same:
                raise _DifferentError
