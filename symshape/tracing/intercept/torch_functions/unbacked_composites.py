"""Composites whose C++ decomposition asks whether a tensor is empty, for tensors whose size depends
on data.

They stay one op, and the kernel finds out. An attention mask gets plain sizes where C++ compares
without asking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from meta_fns.core.broadcasting import broadcast
from meta_fns.core.inference import infer
from meta_fns.core.sizes import same
from meta_fns.core.spec import TensorSpec
from symshape.calls.arguments import computes_as_torch_tensor
from symshape.torch_internals import functorch, operators
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import (
    SIZES_ARE_SYMBOLS,
    of_symbols,
)
from symshape.tracing.intercept.torch_functions.whole_composites import (
    as_eager_chooses,
    can_be_whole,
    run_whole,
)
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, spec_of

aten = torch.ops.aten
_plain_dropout: Callable[..., Any] = torch.nn.functional.dropout
_plain_attention: Callable[..., Any] = operators.nn.scaled_dot_product_attention
_plain_cdist: Callable[..., Any] = torch.cdist
_MODES: dict[str | None, int] = {
    "use_mm_for_euclid_dist_if_necessary": 0,
    "use_mm_for_euclid_dist": 1,
    "donot_use_mm_for_euclid_dist": 2,
}


def _is_unbacked(*tensors: Any) -> bool:
    """Return whether the sizes of some tensor are known only at run time."""
    return any(
        type(size) is IntNode and not size.has_hint()
        for each in tensors
        if type(each) is SymbolicTensor
        for size in each._spec.sizes
    )


def dropout(
    input: SymbolicTensor, p: Any = 0.5, training: Any = True, inplace: bool = False
) -> Any:
    """Compute ``F.dropout``, which returns its argument if that is empty."""
    args = (input, p, training)
    fine = type(p) is float and 0 < p <= 1 and training is True and not inplace
    if not fine or not _is_unbacked(input) or not can_be_whole(args):
        return _plain_dropout(*args, inplace)
    return run_whole(aten.dropout.default, args)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute ``scaled_dot_product_attention`` as one op where every kernel gives the result the
    same memory layout.

    The choice of kernel depends on whether a length is 0.

    Source: aten/src/ATen/native/transformers/sdp_utils_cpp.cpp.
    """
    if isinstance(attn_mask, torch.Tensor) and functorch.interpreters() is None:
        _need_fitting(attn_mask, query, key, enable_gqa)
    attn_mask = _plainly_broadcast(attn_mask, query, key)
    args = (query, key, value, attn_mask, dropout_p, is_causal)
    named = {"scale": scale, "enable_gqa": enable_gqa}
    plain = attn_mask is None and dropout_p == 0 and scale is None and not enable_gqa
    if not plain or not _is_unbacked(query, key, value) or not can_be_whole((query, key, value)):
        return _taken_apart(*args, **named)
    if query.dim() == 4 and not query._spec.canonical():
        return _taken_apart(*args, **named)
    return run_whole(aten.scaled_dot_product_attention.default, args)


def _need_fitting(mask: torch.Tensor, query: Any, key: Any, enable_gqa: bool) -> None:
    """Require that a mask does not enlarge the scores: eager adds it in place, where torch adds it
    out of place to traced tensors.

    Raises:
        ShapeError: the mask has more dimensions than the scores, or a larger one.
    """
    of, by, wide = spec_of(query), spec_of(key), spec_of(mask).sizes
    batch = of.sizes[:-2] if enable_gqa else broadcast(of.sizes[:-2], by.sizes[:-2])
    scores = (*batch, of.sizes[-2], by.sizes[-2])
    pairs = zip(reversed(wide), reversed(scores), strict=False)
    plain = all(same(a, b) or (type(a) is int and a == 1) for a, b in pairs)
    if not plain or len(wide) > len(scores):
        product = TensorSpec.contiguous(scores, of.dtype, of.device)
        infer(aten.add_.Tensor, [product, spec_of(mask)])


def _plainly_broadcast(mask: Any, query: SymbolicTensor, key: Any) -> Any:
    """Return the mask with plain sizes of 1, fixed by guards, where it is broadcast along queries,
    keys, heads, batch.

    C++ compares these sizes with 1 without leaving a guard. For a symbolic size it runs matrix
    products in place of one kernel.
    """
    if type(mask) is not SymbolicTensor or mask.requires_grad or type(key) is not SymbolicTensor:
        return mask
    sizes = list(mask._spec.sizes)
    if (
        query.device.type != "cpu"
        or len(query._spec.sizes) != 4
        or len(key._spec.sizes) != 4
        or len(sizes) > 4
    ):
        return mask
    whole = (*query._spec.sizes[:-1], key._spec.sizes[2])
    broadcast = [
        d
        for d, against in enumerate(whole[4 - len(sizes) :])
        if type(sizes[d]) is IntNode
        and sizes[d].hint == 1
        and getattr(against, "hint", against) != 1
    ]
    if not broadcast:
        return mask
    for d in broadcast:
        sizes[d] = sizes[d].int_()
    return SymbolicTensor.make(
        attrs.evolve(mask._spec, sizes=tuple(sizes)), mask._value, mask._tracer
    )


def distances(
    x1: Any,
    x2: Any,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Any:
    """Compute ``torch.cdist``, for which C++ chooses the kernel by whether there are more than 25
    rows.
    """
    args = (x1, x2, p, _MODES.get(compute_mode))
    if not _is_unbacked(x1, x2) or args[3] is None or not can_be_whole(args):
        return _plain_cdist(x1, x2, p, compute_mode)
    return run_whole(aten.cdist.default, args)


def _taken_apart(*args: Any, **named: Any) -> Any:
    """Compute attention by C++'s decomposition; matrix products in it whose sizes would be fixed
    are replaced.
    """
    if (
        not SIZES_ARE_SYMBOLS
        and named["scale"] is None
        and type(args[0]) is SymbolicTensor
        and args[0].dim()
    ):
        # it divides by the root of this size; its products would ask, too
        bool(args[0].size(-1) == 0)
    with of_symbols(), as_eager_chooses(args[:3]):
        return _plain_attention(*args, **named)


def _of_data(op: Any) -> Callable[..., Any]:
    """Return ``torch.equal`` or ``torch.allclose`` with an answer that depends on data: C++ would
    ask for the value.
    """
    plain = getattr(torch, op._schema.name.removeprefix("aten::"))

    def answer(input: SymbolicTensor, other: Any, *args: Any, **named: Any) -> Any:
        if type(other) is not SymbolicTensor and not computes_as_torch_tensor(type(other)):
            return plain(input, other, *args, **named)
        return input._tracer.dispatch(op, (input, other, *args), named)

    return answer


HANDLERS: dict[Any, Callable[..., Any]] = {
    _plain_dropout: dropout,
    _plain_attention: attention,
    _plain_cdist: distances,
    **dict.fromkeys((torch.equal, torch.Tensor.equal), _of_data(aten.equal.default)),
    **dict.fromkeys((torch.allclose, torch.Tensor.allclose), _of_data(aten.allclose.default)),
}
"""The replacements for these composites, by function; ``FunctionMode`` calls these."""
