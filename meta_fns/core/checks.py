"""Requirements that many rules share: ranks, equal sizes, dtypes.

Each raises ShapeError or DtypeError, naming the argument.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from meta_fns.core.broadcasting import expand
from meta_fns.core.sizes import Cond, Size, check, known, product, same, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError

__all__ = [
    "COMPLEX",
    "DOUBLES",
    "FLOATS",
    "HALVES",
    "INDICES",
    "INTS",
    "REALS",
    "fit_into",
    "has_zero",
    "need_contiguous",
    "need_dtype",
    "need_equal",
    "need_nonempty",
    "need_numbers",
    "need_numel",
    "need_positive",
    "need_rank",
    "need_same",
    "need_same_sizes",
    "need_sizes",
    "refuse_unless_empty",
]

DOUBLES = frozenset((torch.float32, torch.float64))
HALVES = frozenset((torch.float16, torch.bfloat16))
FLOATS = DOUBLES | HALVES
COMPLEX = frozenset((torch.complex64, torch.complex128))
INTS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
REALS = FLOATS | INTS
INDICES = frozenset((torch.int32, torch.int64))


def need_rank(name: str, spec: TensorSpec, *ranks: int) -> None:
    """Require one of these numbers of dimensions."""
    if len(spec.sizes) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ShapeError(f"{name} must have {wanted} dimensions, got {show(spec.sizes)}")


def need_equal(a: Size, b: Size, message: str) -> None:
    """Require that two sizes are equal."""
    if a is not b and not same(a, b):
        check(a == b, lambda: f"{message}: {a} and {b} differ")


def need_sizes(name: str, spec: TensorSpec, sizes: Sequence[Size]) -> None:
    """Require exactly these sizes."""
    mine = spec.sizes
    if mine is sizes:
        return
    if len(mine) != len(sizes):
        raise ShapeError(f"{name} must be of sizes {show(sizes)}, got {show(mine)}")
    for a, b in zip(mine, sizes, strict=True):
        if a is not b and not same(a, b):
            check(a == b, lambda: f"{name} must be of sizes {show(sizes)}, got {show(mine)}")


def need_same_sizes(name: str, spec: TensorSpec, other_name: str, other: TensorSpec) -> None:
    """Require that two tensors have the same sizes."""
    if spec.sizes is not other.sizes:
        try:
            need_sizes(name, spec, other.sizes)
        except ShapeError as error:
            raise ShapeError(f"{error.message}, the sizes of {other_name}") from None


def fit_into(name: str, sizes: Sequence[Size], target: Sequence[Size]) -> None:
    """Require that sizes broadcast to ``target``."""
    if sizes is target or same_shape(sizes, target):
        return
    try:
        expand(tuple(sizes), (0,) * len(sizes), target)
    except ShapeError:
        raise ShapeError(
            f"{name} of sizes {show(sizes)} does not broadcast to {show(target)}"
        ) from None


def need_contiguous(name: str, spec: TensorSpec) -> None:
    """Require a contiguous tensor."""
    if not spec.canonical() and not spec.is_contiguous():
        raise ShapeError(f"{name} must be contiguous, got {spec}")


def need_dtype(name: str, spec: TensorSpec, accepted: Collection[torch.dtype]) -> None:
    """Require one of these dtypes."""
    if spec.dtype not in accepted:
        raise DtypeError(f"not implemented for {name} of {spec.dtype}")


def need_same(name: str, spec: TensorSpec, other_name: str, other: TensorSpec) -> None:
    """Require one dtype and device."""
    if spec.dtype is not other.dtype:
        raise DtypeError(f"{name} is of {spec.dtype}, {other_name} of {other.dtype}")
    if spec.device is not other.device and spec.device != other.device:
        raise DtypeError(f"{name} is on {spec.device}, {other_name} on {other.device}")


def refuse_unless_empty(message: str, sizes: Sequence[Size]) -> None:
    """Require that a size is 0: kernels of empty tensors never run, so their dtypes do not matter.

    Raises: DtypeError if all sizes are ints, and none is 0.
    """
    none: Cond = False
    for size in sizes:
        if type(size) is int:
            if size == 0:
                return
            continue
        here = size == 0
        if known(here):
            return
        none = here if none is False else none | here
    if none is False:
        raise DtypeError(message)
    check(none, message)


def need_nonempty(name: str, spec: TensorSpec, dims: Sequence[int]) -> None:
    """Require that these dimensions are not of size 0."""
    for d in dims:
        size = spec.sizes[d]
        if not (type(size) is int and size > 0) and not known(size > 0):
            check(size > 0, f"{name} must not be empty in dimension {d}, got {show(spec.sizes)}")


def need_numel(name: str, spec: TensorSpec, sizes: Sequence[Size]) -> None:
    """Require the number of elements of a tensor of these sizes."""
    if same_shape(spec.sizes, sizes):
        return
    total, wanted = spec.numel(), product(sizes)
    if not same(total, wanted):
        check(
            total == wanted,
            lambda: f"{name} {show(spec.sizes)} must have as many elements as {show(sizes)}",
        )


def need_positive(what: str, values: Sequence[Size]) -> None:
    """Require that all values are greater than 0."""
    for value in values:
        if not (type(value) is int and value > 0) and not known(value > 0):
            check(value > 0, lambda: f"{what} must be positive, got {show(values)}")


def has_zero(sizes: Sequence[Size]) -> bool:
    """Return whether a size is 0; symbolic sizes count only if that is provable.  No guard is
    recorded.
    """
    for size in sizes:
        if type(size) is int:
            if size == 0:
                return True
        elif known(size == 0):
            return True
    return False


def need_numbers(spec: TensorSpec) -> None:
    """Refuse tensors of dtype bool."""
    if spec.dtype is torch.bool:
        raise DtypeError("not implemented for bool")
