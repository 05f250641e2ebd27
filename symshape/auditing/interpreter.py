"""The interpretation of a program: an abstract tensor for each of its values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from guards.terms.term import Term
from symshape.auditing.domain import (
    ANYTHING,
    EVERYWHERE,
    FINITE,
    LOW,
    Abstract,
    Cause,
    Coordinate,
    Fact,
    Region,
    Tag,
    after,
)
from symshape.auditing.picking import blurred
from symshape.auditing.rules import results
from symshape.auditing.world import World
from symshape.graph.program import Program
from symshape.graph.steps import Assertion, Node, Value, moves_nothing, written_values

_LARGEST_TABLE = 1 << 24  # elements: larger constants are not searched for positions or a triangle


class Interpretation:
    """The abstract tensors of all values of a program.

    Attributes:
        states: the abstract tensor of each value, after the last step.
        makers: the step that made each value, or wrote to it last.
        numbers: for each unbacked symbol that depends on padding, the cause.
        branches: the causes why checks of data in the program depend on padding.
    """

    def __init__(self, world: World, program: Program, inputs: Mapping[Value, Abstract]) -> None:
        self.world = world
        self.states: dict[Value, Abstract] = {}
        self.makers: dict[Value, Node] = {}
        self.numbers: dict[str, Cause] = {}
        self.branches: list[Cause] = []
        self._sharing: dict[int, list[Value]] = {}
        for given in program.graph.inputs:
            self._set(given.value, inputs[given.value])
        for lifted in program.graph.lifted:
            self._set(lifted.value, _constant(world, lifted.tensor))
        for step in program.graph.steps:
            world.step = step
            if isinstance(step, Assertion):
                self._check(step.guard.term)
            else:
                self._run(step)

    def _set(self, value: Value, state: Abstract) -> None:
        if value not in self.states:
            self._sharing.setdefault(id(value.storage), []).append(value)
        kind = value.spec.dtype
        if not (kind.is_floating_point or kind.is_complex) and state.level != FINITE:
            state = state.with_(level=FINITE)
        self.states[value] = state

    def _check(self, condition: Term) -> None:
        self.branches += [
            self.numbers[each.name] for each in condition.symbols if each.name in self.numbers
        ]

    def _run(self, node: Node) -> None:
        found = iter(results(self.world, node, self.states))
        outputs = [each for each in node.outputs if each is not None]
        sized = self._sized(node, outputs)
        made = [next(found) for _ in outputs] if outputs else [next(found)] if node.reads else []
        if sized is not None:
            made = [
                each.with_(dirty=frozenset((EVERYWHERE,)), cause=sized, facts={}) for each in made
            ]
        self._bind(node, made)
        written = list(written_values(node))
        # without outputs, ``made`` is the written value
        for value, state in zip(outputs, made, strict=False):
            self.makers[value] = node
            self._set(value, state)
        if written:
            self._write(node, written, made)
        if node.leaves is not None and not moves_nothing(node):
            self._leave(node)

    def _sized(self, node: Node, outputs: list[Value]) -> Cause | None:
        """Return why sizes or numbers that a step uses depend on padding; None if they do not."""
        for symbol in _symbols(
            [*node.numbers, *(size for each in outputs for size in each.spec.sizes)]
        ):
            if symbol in self.numbers:
                return self.numbers[symbol]
        return None

    def _bind(self, node: Node, made: list[Abstract]) -> None:
        if not node.bindings:
            return
        reads = [self.states[each] for each in node.reads]
        if any(each.dirty for each in made) or (not made and any(each.dirty for each in reads)):
            given = next((each.cause for each in (*made, *reads) if each.cause is not None), None)
            cause = given or self.world.causes("a size or a number is read from data of padding")
            self.numbers.update(dict.fromkeys((each.symbol for each in node.bindings), cause))

    def _write(self, node: Node, written: list[Value], made: list[Abstract]) -> None:
        """Update the states of the written values and of all values that share memory with them."""
        for value in written:
            old = self.states[value]
            if (
                node.reads
                and value is node.reads[0]
                and made
                and len(made[0].dims) == value.spec.dim
            ):
                new = made[0]
            else:
                operands = [self.states[each] for each in node.reads]
                why = self.world.causes("statistics that are kept depend on padding")
                new = blurred(self.world, operands, value.spec.sizes, why)
            for other in self._sharing[id(value.storage)]:
                state = self.states[other]
                if other is not value and not self._same_view(other, value):
                    state = _overwritten(self.world, state, new, old)
                else:
                    state = new
                self.makers[other] = node
                self._set(other, state)

    def _same_view(self, a: Value, b: Value) -> bool:
        pairs = [
            *zip(a.spec.sizes, b.spec.sizes, strict=False),
            *zip(a.spec.strides, b.spec.strides, strict=False),
        ]
        pairs.append((a.spec.storage_offset, b.spec.storage_offset))
        return a.spec.dim == b.spec.dim and all(self.world.same(x, y) for x, y in pairs)

    def _leave(self, node: Node) -> None:
        assert node.leaves is not None
        value, spec = node.leaves
        why = self.world.causes("the sizes of a tensor are changed in place", known=False)
        self._set(value, blurred(self.world, [self.states[value]], spec.sizes, why))


def _overwritten(world: World, state: Abstract, new: Abstract, old: Abstract) -> Abstract:
    """Return the abstract tensor of a value that may have been partly written through another
    view.
    """
    dirty = bool(state.dirty or new.dirty or old.dirty)
    cause = (
        state.cause
        or new.cause
        or world.causes("a part of the tensor is written, with or over padding")
    )
    return Abstract(
        state.dims,
        frozenset((EVERYWHERE,)) if dirty else frozenset(),
        level=max(state.worst, new.worst),
        low=min(state.lowest, new.lowest),
        cause=cause if dirty else None,
        assumes=state.assumes | new.assumes,
    )


def _symbols(numbers: list[Any]) -> Iterator[str]:
    for number in numbers:
        term = getattr(number, "term", number)
        found = term.symbols if isinstance(term, Term) else getattr(number, "symbols", None)
        for each in found() if callable(found) else found or ():
            yield each.name


def _constant(world: World, tensor: torch.Tensor) -> Abstract:
    """Return the abstract tensor of a parameter, a buffer or a constant, which is the same in every
    call.
    """
    dims = world.slot_dims(tensor.shape)
    plain = tensor.detach()
    if (
        plain.layout is not torch.strided
        or plain.is_complex()
        or plain.is_quantized
        or not plain.numel()
    ):
        return Abstract(dims)
    if plain.numel() == 1:
        number = float(plain.item())
        level = FINITE if math.isfinite(number) else LOW if number == -math.inf else ANYTHING
        return (
            Abstract(dims, rest=number, level=level, low=number)
            if number == number
            else Abstract(dims)
        )
    level, low = FINITE, -math.inf
    if plain.is_floating_point():
        smallest, largest = float(plain.min()), float(plain.max())
        nan = smallest != smallest
        level = ANYTHING if nan or largest == math.inf else LOW if smallest == -math.inf else FINITE
        low = -math.inf if nan else smallest
    found = Abstract(dims, level=level, low=low)
    if plain.numel() > _LARGEST_TABLE:
        return found
    facts = _triangle(plain, dims)
    if facts and level == LOW:
        below = plain.reshape(plain.shape[-2:])[
            torch.ones(plain.shape[-2:], dtype=torch.bool).tril().to(plain.device)
        ]
        found = found.with_(level=FINITE if bool(torch.isfinite(below).all()) else LOW)
    return found.with_(tag=_positions(plain, dims), facts=facts)


def _positions(tensor: torch.Tensor, dims: Any) -> Tag | None:
    """Return the positions in a table of integers, such as a buffer of position ids, as a tag; else
    None.
    """
    if tensor.dtype not in (torch.int64, torch.int32) or not dims or not dims[-1] or any(dims[:-1]):
        return None
    row = tensor.reshape(-1)
    first = int(row[0])
    expected = torch.arange(first, first + row.numel(), dtype=row.dtype, device=row.device)
    return (
        Tag("position", (Coordinate(dims[-1][0], first),)) if torch.equal(row, expected) else None
    )


def _triangle(tensor: torch.Tensor, dims: Any) -> dict[Region, Fact]:
    """Return the number above the diagonal of a square table, such as a causal mask, as a fact, if
    there is one.
    """
    if (
        len(dims) < 2
        or tensor.shape[-1] != tensor.shape[-2]
        or not dims[-1]
        or not dims[-2]
        or any(dims[:-2])
    ):
        return {}
    square = tensor.reshape(tensor.shape[-2:])
    above = square[torch.ones_like(square, dtype=torch.bool).triu(1)].to(torch.float64)
    region = after(Coordinate(dims[-1][0]), Coordinate(dims[-2][0]))
    if (
        region is None
        or bool((above != above[0]).any())
        or bool((square == square.reshape(-1)[0]).all())
    ):
        return {}
    return {region: float(above[0])}
