"""Functional collectives (``torch.ops._c10d_functional``): tensors that the ranks of a process
group make together.

What a rank gets depends on its own sizes and the size of the group alone: ranks of uneven sizes are
not known to each other here, and collectives that need even ones, or contiguous tensors, leave that
to the process group, as eager does. None has a padding rule: padded elements would reach other
ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta_fns.core.derived_rules import need_writable
from meta_fns.core.registry import rule
from meta_fns.core.sizes import Size, check, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import ShapeError

__all__: list[str] = []


@rule("_c10d_functional.all_reduce.default")
def all_reduce(input: TensorSpec, reduce_op: str, group_name: Any) -> TensorSpec:
    """The reduction over all ranks, for each of them: a contiguous tensor of the same sizes."""
    return input.fresh()


@rule("_c10d_functional.broadcast.default")
def broadcast(input: TensorSpec, src: int, group_name: Any) -> TensorSpec:
    """The tensor of one rank, for each of them: a contiguous tensor of the same sizes."""
    return input.fresh()


@rule("_c10d_functional.all_reduce_.default")
def all_reduce_(input: TensorSpec, reduce_op: str, group_name: Any) -> TensorSpec:
    """The reduction over all ranks, written into the tensor."""
    need_writable(input)
    return input


@rule("_c10d_functional.broadcast_.default")
def broadcast_(input: TensorSpec, src: int, group_name: Any) -> TensorSpec:
    """The tensor of one rank, written into the tensors of the others."""
    need_writable(input)
    return input


@rule("_c10d_functional.all_reduce_coalesced.default")
def all_reduce_coalesced(
    inputs: Sequence[TensorSpec], reduce_op: str, group_name: Any
) -> list[TensorSpec]:
    """Each tensor reduced over all ranks."""
    return [each.fresh() for each in inputs]


@rule("_c10d_functional.all_gather_into_tensor.default")
def all_gather_into_tensor(input: TensorSpec, group_size: int, group_name: Any) -> TensorSpec:
    """The tensors of all ranks below each other along the first dimension."""
    first, *rest = input.sizes or (1,)
    return input.fresh((first * group_size, *rest))


@rule("_c10d_functional.all_gather_into_tensor_coalesced.default")
def all_gather_into_tensor_coalesced(
    inputs: Sequence[TensorSpec], group_size: int, group_name: Any
) -> list[TensorSpec]:
    """For each tensor those of all ranks below each other along the first dimension."""
    return [all_gather_into_tensor(each, group_size, group_name) for each in inputs]


@rule("_c10d_functional.reduce_scatter_tensor.default")
def reduce_scatter_tensor(
    input: TensorSpec, reduce_op: str, group_size: int, group_name: Any
) -> TensorSpec:
    """This rank's part, along the first dimension, of the reduction over all ranks; the parts are
    of one size.
    """
    if not input.sizes:
        raise ShapeError("reduce_scatter_tensor needs a tensor of at least one dimension")
    first, *rest = input.sizes
    check(
        first % group_size == 0,
        lambda: (
            f"reduce_scatter_tensor among {group_size} ranks needs a first size that they divide, "
            f"got {first}"
        ),
    )
    return input.fresh((first // group_size, *rest))


@rule("_c10d_functional.reduce_scatter_tensor_coalesced.default")
def reduce_scatter_tensor_coalesced(
    inputs: Sequence[TensorSpec], reduce_op: str, group_size: int, group_name: Any
) -> list[TensorSpec]:
    """This rank's part, along the first dimension, of the reduction of each tensor."""
    return [reduce_scatter_tensor(each, reduce_op, group_size, group_name) for each in inputs]


@rule("_c10d_functional.all_to_all_single.default")
def all_to_all_single(
    input: TensorSpec,
    output_split_sizes: Sequence[Size],
    input_split_sizes: Sequence[Size],
    group_name: Any,
) -> TensorSpec:
    """The parts that other ranks have for this one, below each other along the first dimension."""
    if not input.sizes:
        raise ShapeError("all_to_all_single needs a tensor of at least one dimension")
    total: Size = sum(input_split_sizes)
    check(
        total == input.sizes[0],
        lambda: (
            f"all_to_all_single splits {show(input.sizes)} along the first dimension into {total} "
            "rows"
        ),
    )
    return input.fresh((sum(output_split_sizes), *input.sizes[1:]))


@rule("_c10d_functional.wait_tensor.default", "_c10d_functional._wrap_tensor_autograd.default")
def wait_tensor(tensor: TensorSpec) -> TensorSpec:
    """The tensor itself, once it is there."""
    return tensor
