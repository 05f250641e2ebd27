"""Runs of the audited function with other padding: the differences, and the valid positions of a
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms import arithmetic, fold
from guards.terms.term import Term
from symshape.auditing.domain import Abstract, Region
from symshape.auditing.request import Group, Request
from symshape.auditing.world import World
from symshape.calls.arguments import flat_with_paths
from symshape.graph.program import Program

ORDINARY, LARGE, INFINITE = "ordinary", "large", "not finite"
_DRAWS = 4  # paddings with random ordinary numbers
_LARGE = 100.0  # times the largest number at valid positions
# of the largest number; 1e-4 for others
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2, torch.float64: 1e-9}


@attrs.frozen(eq=False)
class Poison:
    """A padding to try: its name, its kind, and the function that fills a padded argument."""

    name: str
    kind: str
    fill: Callable[[torch.Tensor, torch.Tensor, torch.Generator], torch.Tensor]


@attrs.frozen
class Difference:
    """A difference between the outputs of two runs with different padding.

    Attributes:
        padding: the content of the padding, instead of the example's.
        kind: ``ordinary``, ``large`` or ``not finite``.
        index: the element of the output.
        before: the element with the example's padding.
        after: the element with the other padding.
    """

    padding: str
    kind: str
    index: tuple[int, ...]
    before: float
    after: float

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]"
        return (
            f"element {at} is {self.before:.6g} with the example's padding and "
            f"{self.after:.6g} with {self.padding}"
        )


def poisons() -> Iterator[Poison]:
    """Yield the paddings to try."""
    for number in range(_DRAWS):
        yield Poison(f"other values (draw {number + 1})", ORDINARY, _drawn)
    yield Poison("the smallest value", ORDINARY, lambda x, valid, _: _repeated(x, valid.min()))
    yield Poison("the largest value", ORDINARY, lambda x, valid, _: _repeated(x, valid.max()))
    yield Poison("large finite numbers", LARGE, _large)
    for value in (math.inf, -math.inf, math.nan):
        yield Poison(str(value), INFINITE, lambda x, valid, _, value=value: _special(x, value))  # type: ignore[misc]


def _drawn(x: torch.Tensor, valid: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    picks = torch.randint(0, valid.numel(), x.shape, generator=generator).to(x.device)
    return valid.reshape(-1)[picks]


def _repeated(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, number.item())


def _large(x: torch.Tensor, valid: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    signs = torch.randint(0, 2, x.shape, generator=generator).to(x.device) * 2 - 1
    return (signs * _LARGE * max(float(valid.abs().max()), 1.0)).to(x.dtype)


def _special(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full_like(x, value) if x.is_floating_point() else x


def poisoned(request: Request, poison: Poison, seed: int) -> dict[str, Any] | None:
    """Return the arguments of the example with other padding; None if that is the example's
    padding.
    """
    found = {
        name: each.detach().clone() if isinstance(each, torch.Tensor) else each
        for name, each in request.arguments.items()
    }
    changed = False
    for name in dict.fromkeys(
        name for group in request.groups for name in group.dims if name not in request.fixed
    ):
        given = request.arguments[name]
        padding = request.padding_of(name)
        if not bool(padding.any()) or bool(padding.all()):
            continue
        generator = torch.Generator().manual_seed(seed)
        made = poison.fill(given, given[~padding], generator).to(given.dtype)
        mixed = torch.where(padding, made, given)
        changed |= not torch.equal(mixed, given)
        for other, each in request.arguments.items():
            if each is given:
                found[other] = mixed.clone()
    return found if changed else None


def run(
    request: Request, arguments: Mapping[str, Any], tensors: Sequence[torch.Tensor], seed: int = 0
) -> list[Any]:
    """Run the function; return the leaves of its result, and the contents of ``tensors`` after it.

    Parameters, buffers and ``tensors`` are restored.
    """
    module = request.fn if isinstance(request.fn, torch.nn.Module) else None
    state = [] if module is None else [*module.parameters(), *module.buffers()]
    before = [
        (each, each.detach().clone())
        for each in {id(each): each for each in (*state, *tensors)}.values()
    ]
    args, kwargs = request.call(arguments)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        result = request.fn(*args, **kwargs)
    leaves = [_plain(leaf) for _, leaf in flat_with_paths(result)[0]]
    after = [each.detach().clone() for each in tensors]
    with torch.no_grad():
        for each, value in before:
            if not torch.equal(each, value):
                each.data.copy_(value)
    return [*leaves, *after]


def _plain(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def difference(
    before: Any, after: Any, where: torch.Tensor | None, poison: Poison
) -> Difference | None:
    """Return the largest difference of two outputs, at positions that count; None if it is within
    the tolerance.
    """
    if not isinstance(before, torch.Tensor):
        same = before == after or before != before
        return (
            None if same else Difference(poison.name, poison.kind, (), float(before), float(after))
        )
    if before.shape != after.shape:
        return Difference(
            poison.name, poison.kind, tuple(after.shape), before.numel(), after.numel()
        )
    a, b = before.to(torch.float64), after.to(torch.float64)
    if where is not None:
        where = where.to(a.device).expand(a.shape)
    counted = torch.ones_like(a, dtype=torch.bool) if where is None else where
    finite = counted & torch.isfinite(a)
    scale = float(a[finite].abs().max()) if bool(finite.any()) else 1.0
    exact = not before.is_floating_point()
    bound = 0.0 if exact else max(scale, 1e-6) * _TOLERANCE.get(before.dtype, 1e-4)
    off = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    off = torch.where(off.isnan(), math.inf, off)
    off = torch.where(counted, off, 0.0)
    if not off.numel() or not float(off.max()) > bound:
        return None
    flat = int(off.reshape(-1).argmax())
    index = (
        tuple(int(each) for each in torch.unravel_index(torch.tensor(flat), a.shape))
        if a.dim()
        else ()
    )
    return Difference(poison.name, poison.kind, index, float(a[index]), float(b[index]))


def positions_of_regions(
    request: Request, state: Abstract, shape: Sequence[int], program: Program
) -> torch.Tensor:
    """Return a mask of the positions of an output outside all its dirty regions."""
    found = torch.ones(tuple(shape), dtype=torch.bool)
    for region in state.dirty:
        found &= ~_holds(request.groups[region.group], region, state, shape, program)
    return found


def _holds(
    group: Group, region: Region, state: Abstract, shape: Sequence[int], program: Program
) -> torch.Tensor:
    hints = {name: each.hint for name, each in program.symbols.items() if each.hint is not None}
    indices, outside = [], torch.zeros((), dtype=torch.bool)
    mask = group.valid.cpu()
    for axis, coordinate in enumerate(region.coordinates):
        if coordinate.slot is None:
            indices.append(torch.tensor(coordinate.offset % mask.shape[axis]))
            continue
        place = next(i for i, dim in enumerate(state.dims) if coordinate.slot in dim)
        dim = state.dims[place]
        sizes = [int(fold.evaluate(arithmetic.integer(slot.size), hints)) for slot in dim]
        at = dim.index(coordinate.slot)
        grid = (
            torch.arange(shape[place]).div(math.prod(sizes[at + 1 :]), rounding_mode="floor")
            % sizes[at]
        )
        grid = grid + coordinate.offset
        view = [1] * len(shape)
        view[place] = -1
        high = mask.shape[axis]
        beyond = (
            (grid >= high)
            if group.side == "right"
            else (grid < 0)
            if group.side == "left"
            else (grid < 0) | (grid >= high)
        )
        outside = outside | beyond.reshape(view)
        indices.append(grid.clamp(0, high - 1).reshape(view))
    return (~mask[tuple(indices)]) | outside


def positions_of_sizes(
    request: Request, world: World, sizes: Sequence[Any], shape: Sequence[int], rows: Any
) -> torch.Tensor | None:
    """Return the positions of an output that count, by its sizes alone: valid along every dimension
    as long as a mask.

    A dimension whose size is another function of the length counts in proportion.  Return None if
    there is no such dimension.
    """
    found: torch.Tensor | None = None
    terms = [world.size(size) for size in sizes]
    for number, group in enumerate(request.groups):
        mask, length = group.valid.cpu(), world.lengths[number]
        row = next(
            (i for i, size in enumerate(terms) if rows is not None and world.same(size, rows)), None
        )
        both = (
            None
            if rows is None
            else arithmetic.mul(arithmetic.integer(rows), arithmetic.integer(length))
        )
        for i, size in enumerate(terms):
            if both is not None and mask.dim() == 2 and world.same(size, both):
                found = _and(found, _along(mask.reshape(-1), i, None, terms))
            elif world.same(size, length):
                found = _and(found, _along(mask, i, row, terms))
            elif _depends(size, world.size(length)):
                found = _and(found, _along(_in_proportion(mask, shape[i]), i, row, terms))
    return found


def _depends(size: Any, length: Any) -> bool:
    return (
        isinstance(size, Term) and isinstance(length, Term) and bool(size.symbols & length.symbols)
    )


def _in_proportion(mask: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mask at another length: a position is valid if all of the part that it represents
    is.
    """
    size = mask.shape[-1]
    parts = [
        (i * size // count, max(-(-(i + 1) * size // count), i * size // count + 1))
        for i in range(count)
    ]
    return torch.stack([mask[..., low : min(high, size)].all(-1) for low, high in parts], -1)


def _along(mask: torch.Tensor, i: int, row: int | None, terms: Sequence[Any]) -> torch.Tensor:
    """Return a mask along dimension ``i``, with its rows along ``row``; without such a dimension,
    valid in all rows.
    """
    view = [1] * len(terms)
    view[i] = mask.shape[-1]
    if mask.dim() == 2 and row is not None and row != i:
        view[row] = mask.shape[0]
        return (mask if row < i else mask.t()).reshape(view)
    return (mask if mask.dim() == 1 else mask.all(0)).reshape(view)


def _and(a: torch.Tensor | None, b: torch.Tensor) -> torch.Tensor:
    return b if a is None else a & b
