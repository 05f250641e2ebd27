"""The request of an audit, read from its arguments: the call, the groups of padded dimensions,
their masks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.dims import Dim, Policy
from symshape.errors import InputError
from symshape.torch_internals import pytree
from symshape.user_code import name_of

Valid = str | Callable[..., torch.Tensor]
"""An argument's name that says which positions are valid (a mask or lengths), or a function of the
arguments.
"""


@attrs.frozen(eq=False)
class Group:
    """One padded size, such as ``length``, with its mask.

    Attributes:
        name: the name of the size.
        valid: on the example: True at valid positions; ``(rows, length)`` or ``(length,)``.
        source: the argument that says which positions are valid; None for a function.
        kind: ``mask``, ``lengths`` or ``function``.
        inverted: whether the mask is true at padding.
        padding_number: the number that the mask holds at padding.
        valid_number: the number that the mask holds at valid positions; None if there are several.
        dims: for each padded argument, the dimensions of the mask's rows and of its positions.
        side: the side of each row's padding: ``right``, ``left`` or ``any``.
        filled: whether each row has a valid position.
    """

    name: str
    valid: torch.Tensor
    source: str | None
    kind: str
    inverted: bool
    padding_number: float
    valid_number: float | None
    dims: Mapping[str, tuple[int, ...]]
    side: str
    filled: bool


@attrs.frozen(eq=False)
class Request:
    """A request for an audit.

    Attributes:
        fn: the function or module.
        arguments: the example call, by name.
        positional: the names of the arguments that are passed by position.
        groups: the padded sizes.
        fixed: the numbers that padded arguments hold at padding, where that is fixed.
        anything: whether padding may hold infinities and NaN.
    """

    fn: Callable[..., Any]
    arguments: Mapping[str, Any]
    positional: tuple[str, ...]
    groups: tuple[Group, ...]
    fixed: Mapping[str, float]
    anything: bool

    def call(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of a call."""
        rest = {name: each for name, each in arguments.items() if name not in self.positional}
        return tuple(arguments[name] for name in self.positional), rest

    def dynamic(self) -> dict[str, Any]:
        """Return the policies for the sizes of the arguments: sizes that a mask names share a
        symbol.

        Other sizes of padded arguments and masks, such as a number of channels, do not vary.
        """
        found: dict[str, Any] = {}
        named = {name for group in self.groups for name in (*group.dims, group.source)}
        for name, each in self.arguments.items():
            leaves = pytree.tree_leaves(each)
            if isinstance(each, torch.Tensor):
                policy = Policy.STATIC if name in named else Policy.AUTO
                found[name] = dict.fromkeys(range(each.dim()), policy)
            elif leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
                found[name] = Policy.AUTO
        for group in self.groups:
            for name, dims in [*group.dims.items(), *self._mask_dims(group)]:
                *rows, position = dims
                if position is not None:
                    found[name][position] = Dim(group.name, policy=Policy.AUTO)
                if rows:
                    found[name][rows[0]] = Dim(self.rows_name, policy=Policy.AUTO)
        return {name: each for name, each in found.items() if each}

    def padding_of(self, name: str) -> torch.Tensor:
        """Return a mask of the elements of an argument that are padding."""
        given = self.arguments[name]
        found = torch.zeros(given.shape, dtype=torch.bool, device=given.device)
        for group in self.groups:
            if name not in group.dims:
                continue
            dims = group.dims[name]
            shape = [1] * given.dim()
            for dim, size in zip(dims, group.valid.shape, strict=True):
                shape[dim] = size
            mask = ~group.valid.to(given.device)
            found |= (mask.t() if len(dims) == 2 and dims[0] > dims[1] else mask).reshape(shape)
        return found

    @property
    def rows_name(self) -> str:
        """The name of the size of the rows."""
        taken = {group.name for group in self.groups}
        return "batch" if "batch" not in taken else "rows"

    def _mask_dims(self, group: Group) -> list[tuple[str, tuple[int | None, ...]]]:
        if group.source is None:
            return []
        given = self.arguments[group.source]
        if group.kind == "lengths":
            return [(group.source, (0, None))]
        rank = given.dim()
        return [(group.source, (0, rank - 1) if group.valid.dim() == 2 else (rank - 1,))]


def read_request(
    fn: Callable[..., Any],
    example: Any,
    padded: Mapping[str, Mapping[int, str]],
    valid: Valid | Mapping[str, Valid],
    fixed: Mapping[str, float] | None,
    padding: str,
    side: str | None,
) -> Request:
    """Read and check the request of an audit.

    Raises:
        InputError: an argument, a dimension or a mask does not exist, or does not fit.
    """
    arguments, positional = _arguments(fn, example)
    if padding not in ("finite", "anything"):
        raise InputError(f"padding={padding!r}: write 'finite' or 'anything'")
    if side not in (None, "right", "left", "any"):
        raise InputError(f"side={side!r}: write 'right', 'left', 'any' or None (as in the example)")
    names = list(dict.fromkeys(name for dims in padded.values() for name in dims.values()))
    if not names:
        raise InputError("padded= names no dimension: write padded={'input_ids': {1: 'length'}}")
    sources = dict(valid) if isinstance(valid, Mapping) else dict.fromkeys(names, valid)
    if set(sources) != set(names):
        raise InputError(
            f"valid= must say which positions are valid for {', '.join(names)}, and for nothing "
            "else"
        )
    groups = tuple(_group(name, arguments, padded, sources[name], side) for name in names)
    for name in fixed or {}:
        if name not in padded:
            raise InputError(f"fixed= names the argument {name!r}, which padded= does not")
    made = Request(fn, arguments, positional, groups, dict(fixed or {}), padding == "anything")
    for name, number in made.fixed.items():
        held = arguments[name][made.padding_of(name)]
        masks = [each.padding_number for each in groups if each.source == name]
        if bool((held != number).any()) or any(each != number for each in masks):
            raise InputError(
                f"fixed= says that {name} holds {number:g} at padding, but in the example it does "
                "not"
            )
    return made


def _arguments(fn: Callable[..., Any], example: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the example call by name, and the names that are passed by position."""
    if isinstance(example, torch.Tensor):
        example = (example,)
    if isinstance(example, Mapping):
        return dict(example), ()
    if not isinstance(example, Sequence):
        raise InputError(
            "example= is a mapping from argument names to values, or a sequence of positional "
            "arguments"
        )
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        bound = inspect.signature(target).bind(*example)
    except TypeError as error:
        raise InputError(f"{name_of(fn)}() cannot be called with the example: {error}") from None
    if any(len(each) for each in (bound.kwargs, bound.args[len(bound.arguments) :])):
        raise InputError("pass the example as a mapping from argument names to values")
    return dict(bound.arguments), tuple(bound.arguments)


def _group(
    name: str,
    arguments: Mapping[str, Any],
    padded: Mapping[str, Mapping[int, str]],
    valid: Valid,
    side: str | None,
) -> Group:
    places: dict[str, int] = {}
    for argument, named in padded.items():
        given = arguments.get(argument)
        for dim, label in named.items():
            if not isinstance(given, torch.Tensor):
                raise InputError(
                    f"padded= names the argument {argument!r}, which is no tensor of the example"
                )
            if not -given.dim() <= dim < given.dim():
                raise InputError(
                    f"padded= names dimension {dim} of {argument}, which has {given.dim()} "
                    "dimensions"
                )
            if label == name and argument in places:
                raise InputError(
                    f"padded= names two dimensions of {argument} {name}: give them two names"
                )
            if label == name:
                places[argument] = dim % given.dim()
    sizes = {arguments[argument].shape[dim] for argument, dim in places.items()}
    if len(sizes) > 1:
        raise InputError(
            f"{name} has the sizes {', '.join(map(str, sorted(sizes)))} in the example"
        )
    (size,) = sizes
    mask, source, kind, inverted, numbers = _mask(valid, arguments, size)
    if kind == "mask" and source is not None and source in places:
        _leave_out_mask(name, source, arguments[source].dim() - 1, places)
    dims: dict[str, tuple[int, ...]] = {}
    for argument, dim in places.items():
        rows = () if mask.dim() == 1 else (0 if dim else 1,)
        dims[argument] = (*rows, dim)
        shape = tuple(
            arguments[argument].shape[i] for i in (*rows, dim) if i < arguments[argument].dim()
        )
        if shape != tuple(mask.shape):
            raise InputError(
                f"the mask of {name} is {tuple(mask.shape)}, but {argument} has {shape} there"
            )
    if bool(mask.all()):
        raise InputError(
            f"the example has no padding in {name}: give one in which some positions are not valid"
        )
    found = side or _side(mask)
    if found != "any" and found not in _sides(mask):
        raise InputError(
            f"side={found!r}, but the padding of the example is not on the {found} of each row"
        )
    return Group(
        name, mask, source, kind, inverted, *numbers, dims, found, bool(mask.any(-1).all())
    )


def _leave_out_mask(name: str, source: str, last: int, places: dict[str, int]) -> None:
    """Leave a mask out of the padded arguments: its padding says which positions are not valid, so
    it holds one number there.

    Raises:
        InputError: another dimension of the mask is named, or no other argument is padded.
    """
    if places.pop(source) != last:
        raise InputError(
            f"{source} is the mask of {name}, whose positions are its dimension {last}: name that "
            "dimension in padded=, or leave the mask out"
        )
    if not places:
        raise InputError(
            f"padded= names only {source} for {name}, which is its mask: name the arguments whose "
            "padding may hold anything"
        )


def _mask(
    valid: Valid, arguments: Mapping[str, Any], size: int
) -> tuple[torch.Tensor, str | None, str, bool, tuple[float, float | None]]:
    """Return the valid positions of the example, and how they are given: name, kind, inversion, two
    numbers.
    """
    if not isinstance(valid, str):
        found: Any = valid(**arguments)
        if (
            not isinstance(found, torch.Tensor)
            or found.dim() not in (1, 2)
            or found.shape[-1] != size
        ):
            raise InputError(
                "the function valid= must return a tensor of (rows, length) or (length,), true "
                "where valid"
            )
        return found.bool(), None, "function", False, (0.0, 1.0)
    inverted, name = valid.startswith("~"), valid.removeprefix("~")
    given = arguments.get(name)
    if not isinstance(given, torch.Tensor):
        raise InputError(f"valid={valid!r} names no tensor of the example")
    counts = (
        given.dim() == 1
        and not given.is_floating_point()
        and given.dtype is not torch.bool
        and not inverted
    )
    if counts and (given.shape[0] != size or bool((given > 1).any())):
        lengths = given.reshape(-1, 1)
        if bool((given > size).any()) or bool((given < 0).any()):
            raise InputError(f"{name} holds lengths that are larger than {size}, or negative")
        return torch.arange(size, device=given.device) < lengths, name, "lengths", False, (0.0, 1.0)
    shape = [given.shape[0], given.shape[-1]] if given.dim() > 1 else [given.shape[0]]
    if given.numel() != torch.Size(shape).numel() or given.shape[-1] != size:
        raise InputError(
            f"valid={valid!r} is {tuple(given.shape)}: a mask of (rows, {size}) or lengths are "
            "needed"
        )
    flat = given.reshape(shape)
    if given.is_floating_point() and bool((flat <= 0).all()):  # an additive mask
        mask = flat == 0
    else:
        mask = (flat == 0) if inverted else (flat != 0)
    at_padding, at_valid = flat[~mask].to(torch.float64), flat[mask].to(torch.float64)
    if at_padding.numel() and bool((at_padding != at_padding[0]).any()):
        raise InputError(f"{name} holds several numbers at padding; it must hold one")
    one = at_valid.numel() > 0 and bool((at_valid == at_valid[0]).all())
    numbers = (
        float(at_padding[0]) if at_padding.numel() else 0.0,
        float(at_valid[0]) if one else None,
    )
    return mask, name, "mask", inverted, numbers


def _sides(mask: torch.Tensor) -> set[str]:
    rows = mask.to(torch.int8)
    found = set()
    if not bool((rows.diff(dim=-1) > 0).any()):
        found.add("right")
    if not bool((rows.diff(dim=-1) < 0).any()):
        found.add("left")
    return found


def _side(mask: torch.Tensor) -> str:
    found = _sides(mask)
    return "right" if "right" in found else "left" if found else "any"
