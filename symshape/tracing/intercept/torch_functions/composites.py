"""Composite functions that C++ decides by asking about sizes of 0 and 1 and concrete strides,
decided by structure.

The resulting ops are those that eager runs; only the questions on the way differ. C++'s ``reshape``
asks whether sizes are 0 or 1, which would leave guards that no program needs. On torch 2.11 its
``matmul`` specialises symbolic sizes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from meta_fns.core import layout
from meta_fns.core.broadcasting import broadcast
from meta_fns.core.inference import infer
from meta_fns.core.sizes import Shape, product, same
from meta_fns.core.spec import TensorSpec
from meta_fns.core.view_strides import infer_sizes, view_strides
from meta_fns.errors import ShapeError
from symshape.errors import ProgramError
from symshape.graph.reshape_copies import ReshapeCopy
from symshape.torch_internals import functorch, operators
from symshape.tracing.intercept.torch_functions import matmul_before_2_13
from symshape.tracing.symbolic.env import guard_free_answers
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward, spec_of
from symshape.user_code import user_location

aten = torch.ops.aten
# given only the packet, torch looks up the overload at each call
_unsafe_view = aten._unsafe_view.default
_torch_contiguous = torch.Tensor.contiguous
_torch_fill_diagonal = torch.Tensor.fill_diagonal_
_torch_max_pool1d = torch.nn.functional.max_pool1d


def _inward(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return sizes for rules from sizes as a user writes them: a list, or one by one."""
    if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
        sizes = tuple(sizes[0])
    return tuple(map(_size, sizes))


def _size(size: Any) -> Any:
    if type(size) is int or type(size) is IntNode:
        return size
    if isinstance(size, torch.SymInt):
        return size.node if isinstance(size.node, IntNode) else size
    return size if isinstance(size, torch.Tensor) else operator.index(size)  # an integer of NumPy's


def reshape(tensor: SymbolicTensor, *shape: Any) -> torch.Tensor:
    """Compute ``tensor.reshape(*shape)``: a view where the strides allow one, else a copy."""
    spec = tensor._spec
    try:
        sizes = infer_sizes(spec.sizes, _inward(shape))
        viewable = view_strides(spec.sizes, spec.strides, sizes) is not None or _viewable_here(
            spec, sizes
        )
    except ShapeError as error:
        guard_free_answers(tensor._tracer.env)
        raise ProgramError(f"{error} (at {tensor._tracer.env.origin()})") from error
    outer = [outward(size) for size in sizes]
    if viewable:
        return tensor.view(outer)
    copy = tensor.clone(memory_format=torch.contiguous_format)
    return _unsafe_view(copy, outer)  # type: ignore[no-any-return]


def contiguous(
    tensor: SymbolicTensor, *, memory_format: torch.memory_format = torch.contiguous_format
) -> torch.Tensor:
    """Compute ``tensor.contiguous()``: the tensor itself where its strides allow that, else a
    copy.

    Whether integers are copied is asked only where the difference can be seen. A tensor of floats
    and its copy differ for autograd too: hooks and gradients of one are not those of the other.
    """
    spec = tensor._spec
    kept = memory_format is not torch.contiguous_format or spec.canonical()
    floats = spec.dtype.is_floating_point or spec.dtype.is_complex
    if kept or floats or not _copied_here(spec):
        return _torch_contiguous(tensor, memory_format=memory_format)
    copy: Any = tensor.clone(memory_format=torch.contiguous_format)
    tracer = tensor._tracer
    tracer.copies.append(
        ReshapeCopy(
            len(tracer.steps),
            tensor._value,
            copy._value,
            lambda: spec.is_contiguous() or None,
            user_location(),
            "contiguous",
        )
    )
    return copy  # type: ignore[no-any-return]


def _copied_here(spec: TensorSpec) -> bool:
    """Return whether ``contiguous`` copies at the example call's sizes."""
    hints: list[tuple[int, ...]] = []
    for each in (spec.sizes, spec.strides):
        known = [size.hint if isinstance(size, IntNode) else size for size in each]
        if None in known:
            return False
        hints.append(tuple(known))
    return not layout.is_contiguous(*hints)


def _viewable_here(spec: TensorSpec, sizes: Shape) -> bool:
    """Return whether the example call's sizes allow a view where the structure alone does not
    (sizes of 0 and 1).
    """
    hints: list[tuple[int, ...]] = []
    for each in (spec.sizes, spec.strides, sizes):
        known = [size.hint if isinstance(size, IntNode) else size for size in each]
        if None in known:
            return False
        hints.append(tuple(known))
    return view_strides(*hints) is not None


def flatten(tensor: SymbolicTensor, start_dim: int = 0, end_dim: int = -1) -> torch.Tensor:
    """Compute ``tensor.flatten(start_dim, end_dim)``."""
    sizes = list(tensor._spec.sizes)
    number = len(sizes)
    least = max(number, 1)  # a number has a dimension to name, as everywhere in torch
    for d in (start_dim, end_dim):
        if not -least <= d < least:
            raise IndexError(
                f"flatten: dimension {d} is out of range for a tensor of {number} dimension(s)"
            )
    if not number:
        return reshape(tensor, 1)
    start, end = start_dim % number, end_dim % number
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return tensor
    merged: Any = 1
    for size in sizes[start : end + 1]:
        merged = size * merged
    return reshape(tensor, *sizes[:start], merged, *sizes[end + 1 :])


def one_hot(tensor: SymbolicTensor, num_classes: Any = -1) -> Any:
    """Compute ``F.one_hot`` as one op: its decomposition would no longer check the class
    numbers.
    """
    return tensor._tracer.dispatch(aten.one_hot.default, (tensor, num_classes), {})


def fill_diagonal_(tensor: SymbolicTensor, fill_value: Any, wrap: bool = False) -> Any:
    """Compute ``tensor.fill_diagonal_(number)``. C++ counts the strides, which fixes the sizes that
    they are made of.

    Tall matrices with ``wrap`` and tensors of more than two dimensions (all of equal size) stay
    with C++.

    Source: aten/src/ATen/native/Fill.cpp.
    """
    if len(tensor._spec.sizes) != 2 or wrap or isinstance(fill_value, torch.Tensor):
        return _torch_fill_diagonal(tensor, fill_value, wrap)
    tensor.diagonal().fill_(fill_value)
    return tensor


def max_pool1d(
    input: SymbolicTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Compute ``F.max_pool1d``. On a CPU without gradients it is one op, whose kernel has a memory
    layout of its own; elsewhere pooling in two dimensions, for which C++ first asks for the sizes.

    Source: aten/src/ATen/native/MaxPooling.cpp.
    """
    spec = input._spec
    tracked = input.requires_grad and torch.is_grad_enabled()
    if return_indices:
        return _torch_max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)
    windows: list[Any] = [
        [each] if isinstance(each, (int, torch.SymInt)) else list(each)
        for each in (kernel_size, [] if stride is None else stride, padding, dilation)
    ]
    if len(spec.sizes) not in (2, 3):
        return torch.max_pool1d(input, *windows, ceil_mode)  # type: ignore[call-arg, unused-ignore]
    if tracked or spec.device.type != "cpu":
        found = torch.max_pool1d_with_indices(input, *windows, ceil_mode)  # type: ignore[call-arg, unused-ignore]
        return found[0]
    return input._tracer.dispatch(aten.max_pool1d.default, (input, *windows, ceil_mode), {})


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute ``F.linear``, for a weight of two dimensions and an input of two or more.

    Source: aten/src/ATen/native/Linear.cpp.
    """
    if input.dim() < 2 or weight.dim() != 2:
        if bias is None or _is_folded(input, bias, casts=False):
            return matmul_before_2_13.linear(input, weight, bias)  # type: ignore[no-any-return]
        return _biased(matmul_before_2_13.linear(input, weight), bias)
    casts = bias is not None and _is_cast(input.device.type)
    if bias is not None and casts:  # casts the whole layer; autocast would not cast a plain sum
        input, weight, bias = _cast(input), _cast(weight), _cast(bias)
    spec = spec_of(input)
    if bias is not None and len(spec.sizes) == 2:
        return torch.addmm(bias, input, weight.t())
    if bias is not None and _is_folded(input, bias, casts):
        flat = _flat_rows(input, spec)
        result = torch.addmm(bias, flat, weight.t())
        sizes = [outward(size) for size in (*spec.sizes[:-1], spec_of(result).sizes[1])]
        if operators.LINEAR_IS_A_VIEW:
            return result.view(sizes)
        return _unsafe_view(result, sizes)  # type: ignore[no-any-return]
    result = matmul(input, weight.t())
    return result if bias is None else _biased(result, bias)


def _is_folded(input: torch.Tensor, bias: torch.Tensor, casts: bool) -> bool:
    """Return whether a linear layer with a bias folds its rows for one ``addmm``: rows that are
    contiguous.

    With a bias of the usual kind the results are the same either way, so that nothing is asked
    about sizes.
    """
    spec = spec_of(bias)
    one_row = len(spec.sizes) == 1 or sum(bool(size != 1) for size in spec.sizes) == 1
    if not one_row or not (spec.canonical() or bias.is_contiguous()):
        return False
    usual = len(spec.sizes) == 1 and bias.dtype is input.dtype and not casts
    return bool(spec_of(input).canonical() if usual else input.is_contiguous())


def _biased(result: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Add a bias to a product, which keeps its shape and dtype: eager adds in place, except under a
    transform.

    Raises:
        ShapeError, DtypeError: the sum does not fit into the product.
    """
    if functorch.interpreters() is not None:
        return torch.add(result, bias)
    infer(aten.add_.Tensor, [spec_of(result), spec_of(bias)])
    if torch.promote_types(result.dtype, bias.dtype) is result.dtype:
        return torch.add(result, bias)
    return result.add_(bias)


def _is_cast(kind: str) -> bool:
    """Return whether autocast is available and on for a type of device."""
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _cast(tensor: torch.Tensor) -> torch.Tensor:
    """Cast an operand as autocast does, which is on for the operand's device."""
    eligible = tensor.is_floating_point() and tensor.dtype is not torch.float64
    return tensor.to(torch.get_autocast_dtype(tensor.device.type)) if eligible else tensor


def _flat_rows(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Merge all leading dimensions into one."""
    shape = [outward(product(spec.sizes[:-1])), outward(spec.sizes[-1])]
    return reshape(tensor, shape) if type(tensor) is SymbolicTensor else tensor.reshape(shape)


def matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.matmul``, for operands of at least two dimensions, the first of no fewer than
    the second.

    Source: aten/src/ATen/native/LinearAlgebra.cpp (folding of leading dimensions into ``mm``
    included).
    """
    a, b = spec_of(input), spec_of(other)
    if len(a.sizes) < 2 or len(b.sizes) < 2 or len(a.sizes) < len(b.sizes):
        return matmul_before_2_13.matmul(input, other)  # type: ignore[no-any-return]
    if len(a.sizes) == 2:
        return torch.mm(input, other)
    if len(b.sizes) == 2 and (other.requires_grad or _rows_collapse(a)):
        result = torch.mm(_flat_rows(input, a), other)
        sizes = (*a.sizes[:-1], spec_of(result).sizes[1])
    else:
        batch = broadcast(a.sizes[:-2], b.sizes[:-2])
        result = torch.bmm(_batched(input, a, batch), _batched(other, b, batch))
        sizes = (*batch, a.sizes[-2], b.sizes[-1])
    return _unsafe_view(result, [outward(size) for size in sizes])  # type: ignore[no-any-return]


def _rows_collapse(spec: TensorSpec) -> bool:
    """Return whether the strides allow the leading dimensions to be merged into one."""
    if spec.canonical():
        return True
    sizes, strides = spec.sizes, spec.strides
    return all(same(strides[d], strides[d + 1] * sizes[d + 1]) for d in range(len(sizes) - 2))


def _batched(tensor: torch.Tensor, spec: TensorSpec, batch: tuple[Any, ...]) -> torch.Tensor:
    """Return an operand of ``bmm``: its batch dimensions broadcast and flattened."""
    number = len(spec.sizes) - 2
    if number != len(batch) or not all(same(x, y) for x, y in zip(spec.sizes, batch, strict=False)):
        tensor = tensor.expand([outward(size) for size in (*batch, *spec.sizes[-2:])])
    shape = [outward(product(batch)), *(outward(size) for size in spec.sizes[-2:])]
    if len(batch) == 1:
        return tensor
    return reshape(tensor, shape) if type(tensor) is SymbolicTensor else tensor.reshape(shape)
