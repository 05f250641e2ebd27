"""The cost of a call of an op: arithmetic, memory traffic and kernels, as formulas of its sizes.

Formulas are duck-typed like shape rules: they add, multiply and divide sizes, ints or symbolic, and
never compare them, so that computing a cost records no guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from meta_fns.core.sizes import Size, product
from meta_fns.core.spec import TensorSpec

__all__ = [
    "CostRule",
    "Formula",
    "OpCall",
    "Work",
    "elements",
    "nbytes",
    "reads",
    "specs_in",
    "total",
    "writes",
]


@attrs.frozen(eq=False)
class OpCall:
    """One call of an op, as a cost rule receives it.

    Attributes:
        args, kwargs: as for the op itself, with a TensorSpec for each tensor.
        results: the tensors that it returns; for an op that writes into its arguments, those.
        writes_into: the arguments that it writes to (empty for a functional op).
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    results: Sequence[TensorSpec]
    writes_into: Sequence[TensorSpec] = ()

    def arg(self, position: int, default: Any = None) -> Any:
        """Return a positional argument, or ``default`` if the call leaves it out."""
        return self.args[position] if position < len(self.args) else default

    @property
    def tensors(self) -> Iterator[TensorSpec]:
        """Yield the tensors among the arguments, also in nested lists, without those of
        ``out=``.
        """
        yield from specs_in(self.args)
        for value in self.kwargs.values():
            yield from (
                spec for spec in specs_in(value) if not any(spec is out for out in self.writes_into)
            )


Formula = Callable[[OpCall], Size | None]
"""Returns a number as a formula of the call's sizes; None if no formula is known."""


def specs_in(value: Any) -> Iterator[TensorSpec]:
    """Yield the specs in an argument, also in nested lists."""
    if type(value) is TensorSpec:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from specs_in(item)


def elements(spec: TensorSpec) -> Size:
    """Return the number of elements in memory of a tensor: an expanded dimension (stride 0) counts
    once.
    """
    if not spec.strides:
        return product(spec.sizes)
    return product(
        size for size, stride in zip(spec.sizes, spec.strides, strict=True) if not _zero(stride)
    )


def _zero(stride: Size) -> bool:
    return type(stride) is int and stride == 0


def nbytes(spec: TensorSpec) -> Size:
    """Return the memory of a tensor's elements, in bytes.

    >>> from meta_fns import TensorSpec
    >>> nbytes(TensorSpec.contiguous((2, 3))), nbytes(TensorSpec((4, 3), (0, 1)))
    (24, 12)
    """
    return elements(spec) * spec.dtype.itemsize


def total(numbers: Iterable[Size]) -> Size:
    """Return the sum of sizes (0 for none)."""
    found: Size = 0
    for number in numbers:
        found = found + number
    return found


def reads(call: OpCall) -> Size:
    """Return the bytes of all tensor arguments, each read once."""
    return total(nbytes(spec) for spec in call.tensors)


def writes(call: OpCall) -> Size:
    """Return the bytes of all results, each written once."""
    return total(nbytes(spec) for spec in call.results)


@attrs.frozen(eq=False)
class CostRule:
    """The formulas for the cost of an op.

    Attributes:
        family: the kind of work: ``contraction``, ``convolution``, ``attention``, ``pointwise``,
            ``reduction``, ``movement``, …
        flops: arithmetic operations on elements of any dtype: an addition, a product, a comparison
            and an elementary function (exp, sqrt) count one each; a multiply-add counts two.
        read, written: memory traffic in bytes, each tensor once (a kernel that keeps its operands
            in cache).
        kernels: the number of kernels that eager launches; 0 for an op that only changes metadata.
    """

    family: str
    flops: Formula
    read: Formula = reads
    written: Formula = writes
    kernels: int = 1

    def work(self, call: OpCall) -> Work | None:
        """Return the cost of one call; None if the rule has no formula for these arguments."""
        flops, read, written = self.flops(call), self.read(call), self.written(call)
        if flops is None or read is None or written is None:
            return None
        return Work(self.family, flops, read, written, self.kernels)


@attrs.frozen(eq=False)
class Work:
    """The cost of one call: operations, bytes read and written, kernels launched (see
    :class:`CostRule`).
    """

    family: str
    flops: Size
    read: Size
    written: Size
    kernels: int
