"""Fused attention of padded tensors on devices, and its gradients: which kernel, with which mask.

Padded keys are hidden by the causal mask, or by one that is added to the scores: on CUDA by the memory-efficient
kernel (flash attention takes no mask, and cuDNN's kernel makes a plan), or by cuDNN's where its plan pays, by the
kernel itself elsewhere.  Over few keys flash attention stands in for cuDNN's where there is no mask.

The kernels agree in what they keep for a backward: the logarithm of the sum of the exponentials of each query's scores,
in float32.  They differ in its sizes.  Where it is infinite a query weighs nothing in the gradients, which is how the
kernels themselves treat the rows between the last query and the next multiple of 32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.layout import contiguous_strides
from meta_fns.core.sizes import ceil_div, same
from meta_fns.padding.attention import added_for_keys, need_mask, prepared
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, length, normal, prefix
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked, positions

__all__ = ["cudnn_backward", "efficient_backward", "flash_backward", "fused_on_device"]

_aten = torch.ops.aten
_CUDNN = _aten._scaled_dot_product_cudnn_attention.default
_EFFICIENT = _aten._scaled_dot_product_efficient_attention.default
_FLASH = _aten._scaled_dot_product_flash_attention.default
_ALIGNED = 32
"""The memory-efficient kernel keeps its logarithms for a multiple of so many queries."""
_PLANS_PAY = 1024
"""For no more keys flash attention is called in place of cuDNN's kernel, which makes a plan for every new size.

On an H100 a plan takes some 60 ms, half of what a new bucket took, and replays of a Llama with up to 1,024 keys are no
slower without it.  What more keys cost was not measured: there the kernel stays eager's.
"""


_PLAN_PAYS = 2**25
"""From so many bytes of keys and values on, one query has cuDNN's kernel, with a mask and the plan that it makes.

For 48 sequences of 8 heads with 1,025 keys of width 64 (101 MB) the memory-efficient kernel takes 82 µs on an H100,
cuDNN's 42: its plan is paid back by as many calls as a text has tokens.
"""


# -- forward
def fused_on_device(
    emit: Emitter, query: Padded, key: Padded, value: Padded, *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """The fused kernels of devices, and what they keep for a backward where nothing is dropped.

    Raises: Refuse for a causal mask with padded keys that are not as many as the queries.
    """
    if query.ndim != 4:
        raise Refuse("attention without a dimension of heads", *query.sizes)
    names = [argument.name for argument in emit.op._schema.arguments]
    given = dict(zip(names[3:], args, strict=False)) | kwargs
    causal, bias = bool(given.get("is_causal", False)), given.get("attn_bias")
    key, value = prepared(emit, query, key, value, causal)
    if bias is not None:
        need_mask(query, key.axes[2], bias)
    elsewhere = "overrideable" in emit.op._schema.name
    hidden = is_padded(key.axes[2]) and not causal
    if is_padded(key.axes[2]):
        if causal:  # kernels align it differently for other numbers of queries
            need_agreement(query.axes[2], key.axes[2])
        elif given.get("dropout_p"):
            raise Refuse("attention with dropout", *key.sizes)
        elif not elsewhere and not _plan_pays(emit, query, key, value):
            return _efficient(emit, query, key, value, given)
    unmasked = emit.op is _CUDNN and not hidden and bias is None
    if unmasked and not given.get("dropout_p") and _needs_no_plan(query, key, value, causal):
        made = emit.call(_FLASH, *_tensors(query, key, value), 0.0, causal, False, scale=given.get("scale"))
        return _results(emit, query, value, made, _rows_of(emit, _FLASH, made[1], query))
    plain = {name: each.tensor if isinstance(each, Padded) else each for name, each in given.items()}
    if not causal and (elsewhere or hidden or bias is not None):
        plain["attn_bias"] = _added(emit, query, key, bias)
    positional = [plain.pop(name) for name in names[3 : 3 + len(args)]]
    made = emit.call(emit.op, *_tensors(query, key, value), *positional, **plain)
    if elsewhere or given.get("dropout_p"):  # what is dropped hangs on where it lies in memory
        return (_result(made[0], query, value), *(None for _ in made[1:]))
    if emit.op is not _EFFICIENT:
        return _results(emit, query, value, made, _rows_of(emit, emit.op, made[1], query))
    return _results(emit, query, value, made, _beyond(emit, made[1], query.axes[2]))


def _tensors(*padded: Padded) -> list[Handle]:
    return [each.tensor for each in padded]


def _plan_pays(emit: Emitter, query: Padded, key: Padded, value: Padded) -> bool:
    """Whether one query meets so many keys and values that cuDNN's kernel is worth its plan."""
    specs = [each.tensor.spec for each in (key, value)]
    _, heads, rows, width = query.tensor.spec.sizes
    alike = all(spec.sizes[1] == heads and spec.sizes[3] == width for spec in specs)
    if emit.op is not _CUDNN or rows != 1 or width > 128 or not alike:
        return False  # others were not tried
    return bool(sum(math.prod(spec.sizes) * spec.dtype.itemsize for spec in specs) >= _PLAN_PAYS)


def _needs_no_plan(query: Padded, key: Padded, value: Padded, causal: bool) -> bool:
    """Whether flash attention computes what cuDNN's kernel would, and takes it as it lies in memory."""
    (_, _, rows, width), (_, heads, keys, _) = query.tensor.spec.sizes, key.tensor.spec.sizes
    specs = [each.tensor.spec for each in (query, key, value)]
    alike = all(spec.sizes[3] == width and spec.strides[3] == 1 for spec in specs)
    square = rows == keys and agree(query.axes[2], key.axes[2])
    if not alike or width % 8 or width > 256 or heads != specs[0].sizes[1] or heads != specs[2].sizes[1]:
        return False
    return bool(keys <= _PLANS_PAY and (square or not causal))


def _result(tensor: Handle, query: Padded, value: Padded) -> Padded:
    """What attention answers: rows of queries, as wide as those of values."""
    return Padded(tensor, (*query.axes[:3], value.axes[3]))


def _efficient(emit: Emitter, query: Padded, key: Padded, value: Padded, given: dict[str, Any]) -> tuple[Any, ...]:
    """The memory-efficient kernel of CUDA with a mask."""
    _need_as_many_heads(query, key, value)
    added = _added(emit, query, key, given.get("attn_bias"))
    keeps = bool(given.get("compute_log_sumexp", True))
    made = emit.call(_EFFICIENT, *_tensors(query, key, value), added, keeps, scale=given.get("scale"))
    if emit.op is _EFFICIENT:
        return _results(emit, query, value, made, _beyond(emit, made[1], query.axes[2]))
    return _results(emit, query, value, made, _rows_of(emit, _EFFICIENT, made[1], query) if keeps else None)


def _need_as_many_heads(query: Padded, key: Padded, value: Padded) -> None:
    if len({each.tensor.spec.sizes[1] for each in (query, key, value)}) > 1:
        raise Refuse("a mask for queries that share the heads of keys", *key.sizes)


def _results(
    emit: Emitter, query: Padded, value: Padded, made: Sequence[Any], logarithms: Handle | None
) -> tuple[Any, ...]:
    """All results of attention without dropout, as the op that is padded answers them.

    ``made`` is what a kernel answers; ``logarithms`` what it keeps for a backward, a row for each query, or as the
    padded op has it.
    """
    found: list[Any] = [None] * len(emit.results)
    found[0] = _result(made[0], query, value)
    for place, spec in enumerate(emit.results[1:], 1):
        name = emit.op._schema.returns[place].name
        if spec is None:
            continue
        axes = tuple(normal((size,)) for size in spec.sizes)
        if name in ("logsumexp", "log_sumexp"):
            if logarithms is not None and len(logarithms.spec.sizes) < len(axes):
                logarithms = emit.call(_aten.unsqueeze.default, logarithms, -1)
            found[place] = None if logarithms is None else Padded(logarithms, (*query.axes[:2], *axes[2:]))
        elif not any(map(is_padded, axes)) and name != "debug_attn_mask":  # of random numbers that nobody draws
            zeros = emit.call(
                _aten.full.default, list(map(capacity_of, axes)), 0, dtype=spec.dtype, device=query.device
            )
            found[place] = Padded(zeros, axes)
    return tuple(found)


def _rows_of(emit: Emitter, op: Any, logarithms: Handle | None, query: Padded) -> Handle | None:
    """What a kernel keeps for a backward, ``(b, h, s)``; None where it keeps nothing."""
    if logarithms is None:
        return None
    if op is _CUDNN:
        return emit.call(_aten.squeeze.dim, logarithms, -1)  # type: ignore[no-any-return]
    return emit.call(_aten.slice.Tensor, logarithms, 2, 0, capacity_of(query.axes[2]))  # type: ignore[no-any-return]


def _beyond(emit: Emitter, logarithms: Handle, queries: Axis) -> Handle:
    """Logarithms that are infinite for what is no query (and for queries that are padding)."""
    if not is_padded(queries) or logarithms.spec.sizes[2] == 0:
        return logarithms
    number = logarithms.spec.sizes[2]
    place = positions(emit, int(number), logarithms.spec.device)
    valid = emit.call(_aten.lt.Tensor, place, emit.size(prefix(queries)))
    shaped = emit.call(_aten.view.default, valid, [1, 1, number] + [1] * (len(logarithms.spec.sizes) - 3))
    infinite = emit.call(
        _aten.scalar_tensor.default, math.inf, dtype=logarithms.spec.dtype, device=logarithms.spec.device
    )
    emit.repaired(f"logarithms of sums: infinite beyond {length(queries)}", *queries)
    made: Handle = emit.call(_aten.where.self, shaped, logarithms, infinite)
    return made


# -- what is added to scores
def _added(emit: Emitter, query: Padded, key: Padded, bias: Padded | None) -> Handle | None:
    """What is added to all scores, whose rows lie 16 elements aligned, as kernels on CUDA want them."""
    mask = added_for_keys(emit, query, key.axes[2], bias and bias.with_(tensor=_folded(emit, bias.tensor)))
    if mask is None:
        return None
    keys = capacity_of(key.axes[2])
    if mask.spec.dtype is not query.dtype:
        mask = emit.call(_aten._to_copy.default, mask, dtype=query.dtype)
    if mask.spec.sizes[-1:] != (keys,):
        mask = emit.call(_aten.expand.default, mask, [*mask.spec.sizes[:-1], keys])
    if keys % 16 or tuple(mask.spec.strides) != contiguous_strides(mask.spec.sizes):
        wide = emit.call(_aten.constant_pad_nd.default, mask, [0, -keys % 16], 0)
        mask = emit.call(_aten.slice.Tensor, wide, -1, 0, keys)
    made: Handle = emit.call(_aten.expand.default, mask, [*map(capacity_of, query.axes[:3]), keys])
    return made


def _folded(emit: Emitter, tensor: Handle) -> Handle:
    """A tensor with size 1 where it repeats itself in memory."""
    for dim, (size, stride) in enumerate(zip(tensor.spec.sizes, tensor.spec.strides, strict=True)):
        if stride == 0 and size != 1:
            tensor = emit.call(_aten.slice.Tensor, tensor, dim, 0, 1)
    return tensor


# -- backward
class _Backward:
    """Gradients of attention: what goes into them, with padding that adds nothing to those of keys and values.

    Raises: Refuse where something was dropped, and where dimensions do not fit.
    """

    def __init__(
        self,
        emit: Emitter,
        tensors: tuple[Padded, Padded, Padded, Padded, Padded],
        logarithms: Padded,
        bias: Padded | None,
        dropout: float,
        causal: bool,
    ) -> None:
        gradient, query, key, value, out = tensors
        if query.ndim != 4:
            raise Refuse("attention without a dimension of heads", *query.sizes)
        if dropout:
            raise Refuse("the gradients of attention with dropout", *query.sizes)
        self.emit, self.query, self.causal = emit, query, causal
        self.key, self.value = prepared(emit, query, key, value, causal)
        if causal and is_padded(key.axes[2]):
            need_agreement(query.axes[2], key.axes[2])
        for each in (gradient.axes[:3], out.axes[:3], logarithms.axes[:2]):
            for own, other in zip(each, query.axes, strict=False):
                need_agreement(own, other)
        self.hidden = is_padded(key.axes[2]) and not causal
        self.bias = bias
        if bias is not None:
            need_mask(query, key.axes[2], bias)
            self.bias = masked(emit, bias, 0, {bias.ndim - 2})  # of rows that weigh nothing, none is no number
        self.rows = [masked(emit, each, 0, {2}).tensor for each in (gradient, query, out)]
        self.logarithms = _beyond(emit, logarithms.tensor, query.axes[2])

    def by_efficient(self, wanted: Sequence[bool], scale: float | None) -> list[Any]:
        """Those of the memory-efficient kernel, of the bias too; ``wanted`` says of which."""
        emit, (gradient, query, out) = self.emit, self.rows
        _need_as_many_heads(self.query, self.key, self.value)
        bias = self.bias and self.bias.tensor
        if not self.causal and (self.hidden or bias is not None):
            bias = _added(emit, self.query, self.key, self.bias)
        out, rows = self._heads_inside(out), self._aligned()
        unused = emit.call(_aten.scalar_tensor.default, 0, dtype=torch.int64, device=self.query.device)
        made = emit.call(
            _aten._scaled_dot_product_efficient_attention_backward.default,
            *(gradient, query, self.key.tensor, self.value.tensor, bias, out, rows, unused, unused, 0.0),
            *(list(wanted), self.causal),
            scale=scale,
        )
        found: list[Any] = self._padded(made[:3])
        if self.bias is None or not wanted[3]:
            return [*found, None]
        if tuple(made[3].spec.sizes) != tuple(map(capacity_of, self.bias.axes)):
            return [*found, Refuse("the gradient of a bias that is shared", *self.bias.sizes)]
        return [*found, Padded(made[3], self.bias.axes)]

    def _heads_inside(self, out: Handle) -> Handle:
        """The result as ``(b, s, h, d)`` in memory, where the memory-efficient kernel looks for it, whatever it says.

        (``o_strideM`` of its parameters in half precision is the product of the heads and their size.)
        """
        sizes = out.spec.sizes
        turned = self.emit.call(_aten.transpose.int, out, 1, 2)
        if tuple(turned.spec.strides) == tuple(contiguous_strides(turned.spec.sizes)) or 1 in sizes[1:3]:
            return out
        kept = self.emit.call(_aten.clone.default, turned, memory_format=torch.contiguous_format)
        return self.emit.call(_aten.transpose.int, kept, 1, 2)  # type: ignore[no-any-return]

    def _aligned(self) -> Handle:
        """The logarithms as the memory-efficient kernel has them."""
        rows, emit = self.logarithms, self.emit
        if len(rows.spec.sizes) > 3:
            rows = emit.call(_aten.squeeze.dim, rows, -1)
        number = int(rows.spec.sizes[2])
        if number % _ALIGNED:
            rows = emit.call(_aten.constant_pad_nd.default, rows, [0, -number % _ALIGNED], math.inf)
        return rows

    def by_flash(self, scale: float | None) -> list[Padded]:
        """Those of flash attention."""
        emit, (gradient, query, out), rows = self.emit, self.rows, self.logarithms
        if len(rows.spec.sizes) > 3:
            rows = emit.call(_aten.squeeze.dim, rows, -1)
        sizes = self.query.tensor.spec.sizes[2], self.key.tensor.spec.sizes[2]
        state, unused = (
            emit.call(_aten.full.default, shape, 0, dtype=torch.uint64, device=self.query.device) for shape in ([2], [])
        )
        return self._padded(
            emit.call(
                _aten._scaled_dot_product_flash_attention_backward.default,
                *(gradient, query, self.key.tensor, self.value.tensor, out, rows, None, None, *sizes),
                *(0.0, self.causal, state, unused),
                scale=scale,
            )
        )

    def by_cudnn(self, scale: float | None) -> list[Padded]:
        """Those of cuDNN's kernel."""
        emit, (gradient, query, out) = self.emit, self.rows
        sizes = self.query.tensor.spec.sizes[2], self.key.tensor.spec.sizes[2]
        unused = emit.call(_aten.scalar_tensor.default, 0, dtype=torch.int64, device=self.query.device)
        bias = None if self.bias is None else _added(emit, self.query, self.key, self.bias)
        return self._padded(
            emit.call(
                _aten._scaled_dot_product_cudnn_attention_backward.default,
                *(gradient, query, self.key.tensor, self.value.tensor, out, self.logarithms, unused, unused),
                *(bias, None, None, *sizes, 0.0, self.causal),
                scale=scale,
            )
        )

    def _padded(self, made: Sequence[Handle]) -> list[Padded]:
        pairs = zip(made, (self.query, self.key, self.value), strict=True)
        return [Padded(each, given.axes) for each, given in pairs]


def efficient_backward(
    emit: Emitter,
    grad_out_: Padded | None,
    query: Padded,
    key: Padded,
    value: Padded,
    attn_bias: Padded | None,
    out: Padded,
    logsumexp: Padded,
    philox_seed: Padded,
    philox_offset: Padded,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key, value and bias: padded queries add 0 to them, and padded keys weigh nothing."""
    if grad_out_ is None:
        return None, None, None, None
    rows = ceil_div(length(query.axes[2]), _ALIGNED) * _ALIGNED
    aligned = -(-capacity_of(query.axes[2]) // _ALIGNED) * _ALIGNED
    if not same(length(logsumexp.axes[2]), rows) or logsumexp.tensor.spec.sizes[2] != aligned:
        raise Refuse(f"logarithms for {length(logsumexp.axes[2])} queries, not for {rows}", *query.sizes)
    tensors = grad_out_, query, key, value, out
    work = _Backward(emit, tensors, logsumexp, attn_bias, dropout_p, is_causal)
    return tuple(work.by_efficient(grad_input_mask, scale))


def flash_backward(
    emit: Emitter,
    grad_out: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    cum_seq_q: Padded | None,
    cum_seq_k: Padded | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Padded,
    philox_offset: Padded,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key and value; where padded keys are to be hidden, of the memory-efficient kernel."""
    if cum_seq_q is not None or cum_seq_k is not None:
        raise Refuse("sequences that lie one behind the other", *query.sizes)
    need_agreement(logsumexp.axes[2], query.axes[2])
    work = _Backward(emit, (grad_out, query, key, value, out), logsumexp, None, dropout_p, is_causal)
    if work.hidden:
        return tuple(work.by_efficient((True, True, True, False), scale)[:3])
    return tuple(work.by_flash(scale))


def cudnn_backward(
    emit: Emitter,
    grad_out: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    philox_seed: Padded,
    philox_offset: Padded,
    attn_bias: Padded | None,
    cum_seq_q: Padded | None,
    cum_seq_k: Padded | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of query, key and value, of the kernel that the forward has."""
    if cum_seq_q is not None or cum_seq_k is not None:
        raise Refuse("sequences that lie one behind the other", *query.sizes)
    need_agreement(logsumexp.axes[2], query.axes[2])
    work = _Backward(emit, (grad_out, query, key, value, out), logsumexp, attn_bias, dropout_p, is_causal)
    if work.hidden:
        return tuple(work.by_efficient((True, True, True, False), scale)[:3])
    if attn_bias is None and _needs_no_plan(query, work.key, work.value, is_causal):
        return tuple(work.by_flash(scale))
    return tuple(work.by_cudnn(scale))
