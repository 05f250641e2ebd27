"""A padded tensor, and what a padding rule works with.

A padding rule is a function of an :class:`Emitter` and of the op's own arguments: a :class:`Padded`
for each tensor, true sizes (symbolic, with a ``capacity``) for sizes.  It emits ops on the tensors
in memory, which have the sizes of their capacities, and returns the padded results.  It is right
if, whatever the padding of its arguments holds within what their ``fill`` says, the valid elements
of its results are those of the op on the valid elements of its arguments, and the padding of its
results is what their ``fill`` says.  Where that cannot be, it raises ``Refuse``; where it cannot be
for one of several results, it returns a ``Refuse`` in the place of that one.
"""

from __future__ import annotations

from typing import Any, Protocol

import attrs
import torch

from meta_fns.core.sizes import Size
from meta_fns.core.spec import TensorSpec
from meta_fns.padding.axes import Axis, is_padded, normal, padded_sizes, varies
from meta_fns.padding.fills import GARBAGE, Fill, of_dtype
from meta_fns.padding.refusals import Refuse
from meta_fns.torch_internals import OpOverload

__all__ = ["Emitter", "Handle", "Padded", "apply", "lowered", "with_sizes"]


class Handle(Protocol):
    """A tensor in memory."""

    @property
    def spec(self) -> TensorSpec:
        """Its metadata: every size its capacity, an ``int`` or an integer that follows the
        capacities by a formula.
        """


class Emitter(Protocol):
    """The program that a padding rule adds its ops to."""

    @property
    def op(self) -> OpOverload:
        """The overload that is being padded (the functional one of its variants)."""

    @property
    def results(self) -> tuple[TensorSpec | None, ...]:
        """The true metadata of its results."""

    def call(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Emit an op on handles and plain numbers; return the handle (or the list of handles) of
        its result.
        """

    def size(self, size: Size) -> Handle:
        """A 0-d int64 tensor that holds a true size at run time, on the device of the program."""

    def fraction(self, number: Any) -> Handle:
        """A 0-d float64 tensor that holds a floating-point number of the sizes at run time.

        Raises: Refuse for one that Python may refuse to compute.
        """

    def repaired(self, repair: str, *sizes: Size) -> None:
        """Notes, for people, that a repair was inserted for these sizes."""


@attrs.frozen(eq=False)
class Padded:
    """A tensor of which only a part is valid.

    Attributes:
        tensor: what is in memory.
        axes: for each dimension, which of its positions are valid.
        fill: what the padding holds.
        valid: what is known of the valid elements.
    """

    tensor: Handle
    axes: tuple[Axis, ...]
    fill: Fill = GARBAGE
    valid: Fill = GARBAGE

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "fill", of_dtype(self.fill, self.dtype))
        object.__setattr__(self, "valid", of_dtype(self.valid, self.dtype))

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype."""
        return self.tensor.spec.dtype

    @property
    def device(self) -> torch.device:
        """The device of the tensor."""
        return self.tensor.spec.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.axes)

    @property
    def sizes(self) -> list[Size]:
        """The padded sizes in it, in order."""
        return padded_sizes(self.axes)

    def padded_dims(self) -> frozenset[int]:
        """The dimensions that have padding."""
        return frozenset(i for i, axis in enumerate(self.axes) if is_padded(axis))

    def with_(self, **changes: Any) -> Padded:
        """A copy with some fields changed."""
        return attrs.evolve(self, **changes)


def lowered(argument: Any) -> Any:
    """An argument for the op in memory: handles for tensors.

    Raises: Refuse for a size: whether its capacity would do in its place is for the rule to say.
    """
    if isinstance(argument, Padded):
        return argument.tensor
    if isinstance(argument, (list, tuple)):
        return type(argument)(lowered(item) for item in argument)
    if varies(argument):
        raise Refuse(f"an argument depends on the size {argument}", argument)
    return argument


def apply(emit: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Emit the op itself; return its handle (or handles)."""
    return emit.call(
        emit.op, *map(lowered, args), **{name: lowered(arg) for name, arg in kwargs.items()}
    )


def with_sizes(emit: Emitter, index: int = 0) -> tuple[Axis, ...]:
    """The axes of a result of which every dimension is one size: for ops that make their dimensions
    anew.
    """
    spec = emit.results[index]
    assert spec is not None
    return tuple(normal((size,)) for size in spec.sizes)
