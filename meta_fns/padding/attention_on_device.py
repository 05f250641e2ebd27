"""Fused attention of padded tensors on devices: which kernel, with which mask, and what it keeps
for a backward.

Padded keys are hidden by the causal mask, or by one that is added to the scores: on CUDA by the
memory-efficient kernel (flash attention takes no mask, and cuDNN's kernel makes a plan), or by
cuDNN's where its plan pays, by the kernel itself elsewhere.  Over few keys flash attention stands
in for cuDNN's where there is no mask.

The kernels agree in what they keep: the logarithm of the sum of the exponentials of each query's
scores, in float32. They differ in its sizes.  Where it is infinite a query weighs nothing in the
gradients, which is how the kernels themselves treat the rows between the last query and the next
multiple of 32.

With dropout they also keep a random state, from which backward drops the same elements again if it
runs the same kernel on tensors of the same sizes.  Which elements are dropped depends on the
capacities, but not how many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.core.layout import contiguous_strides
from meta_fns.padding.attention import added_for_keys, need_mask, prepared
from meta_fns.padding.axes import Axis, agree, capacity_of, is_padded, length, normal, prefix
from meta_fns.padding.broadcasting import need_agreement
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import positions

__all__ = [
    "ALIGNED",
    "added_to_scores",
    "fused_on_device",
    "infinite_beyond",
    "need_as_many_heads",
    "needs_no_plan",
    "packed",
    "unpacked",
]

_aten = torch.ops.aten
_CUDNN = _aten._scaled_dot_product_cudnn_attention.default
_EFFICIENT = _aten._scaled_dot_product_efficient_attention.default
_FLASH = _aten._scaled_dot_product_flash_attention.default
_STATES = ("philox_seed", "philox_offset", "rng_state", "unused")
ALIGNED = 32
"""The memory-efficient kernel keeps its logarithms for a multiple of so many queries."""
_PLANS_PAY = 1024
"""For no more keys flash attention is called in place of cuDNN's kernel, which makes a plan for
every new size.

On an H100 a plan takes some 60 ms, half of what a new bucket took, and replays of a Llama with up
to 1,024 keys are no slower without it.  What more keys cost was not measured: there the kernel
stays eager's.
"""


_PLAN_PAYS = 2**25
"""From so many bytes of keys and values on, one query has cuDNN's kernel, with a mask and the plan
that it makes.

For 48 sequences of 8 heads with 1,025 keys of width 64 (101 MB) the memory-efficient kernel takes
82 µs on an H100, cuDNN's 42: its plan is paid back by as many calls as a text has tokens.
"""


# -- forward
def fused_on_device(
    emit: Emitter, query: Padded, key: Padded, value: Padded, *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """The fused kernels of devices, and what they keep for a backward.

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
    hidden, drops = is_padded(key.axes[2]) and not causal, bool(given.get("dropout_p"))
    if is_padded(key.axes[2]):
        if causal:  # kernels align it differently for other numbers of queries
            need_agreement(query.axes[2], key.axes[2])
        elif elsewhere and drops:
            raise Refuse("attention with dropout", *key.sizes)
        elif not elsewhere and (drops or not _plan_pays(emit, query, key, value)):
            return _efficient(emit, query, key, value, given)
    unmasked = emit.op is _CUDNN and not hidden and bias is None
    if unmasked and needs_no_plan(query, key, value, causal):
        dropped = given.get("dropout_p") or 0.0
        made = emit.call(
            _FLASH, *_tensors(query, key, value), dropped, causal, False, scale=given.get("scale")
        )
        return _results(
            emit, query, value, _FLASH, made, _rows_of(emit, _FLASH, made[1], query), drops
        )
    if emit.op is _CUDNN and drops:
        return _efficient(emit, query, key, value, given)
    plain = {
        name: each.tensor if isinstance(each, Padded) else each for name, each in given.items()
    }
    if not causal and (elsewhere or hidden or bias is not None):
        plain["attn_bias"] = added_to_scores(emit, query, key, bias)
    positional = [plain.pop(name) for name in names[3 : 3 + len(args)]]
    made = emit.call(emit.op, *_tensors(query, key, value), *positional, **plain)
    if elsewhere:
        return (_result(made[0], query, value), *(None for _ in made[1:]))
    if emit.op is _EFFICIENT:
        rows: Handle | None = infinite_beyond(emit, made[1], query.axes[2])
    else:
        rows = _rows_of(emit, emit.op, made[1], query)
    return _results(emit, query, value, emit.op, made, rows, drops)


def _tensors(*padded: Padded) -> list[Handle]:
    return [each.tensor for each in padded]


def _plan_pays(emit: Emitter, query: Padded, key: Padded, value: Padded) -> bool:
    """Return whether one query attends to so many keys and values that cuDNN's kernel is worth its
    plan.
    """
    specs = [each.tensor.spec for each in (key, value)]
    _, heads, rows, width = query.tensor.spec.sizes
    alike = all(spec.sizes[1] == heads and spec.sizes[3] == width for spec in specs)
    if emit.op is not _CUDNN or rows != 1 or width > 128 or not alike:
        return False  # others were not tried
    return bool(sum(math.prod(spec.sizes) * spec.dtype.itemsize for spec in specs) >= _PLAN_PAYS)


def needs_no_plan(query: Padded, key: Padded, value: Padded, causal: bool) -> bool:
    """Return whether flash attention computes the same as cuDNN's kernel, and accepts these
    strides.
    """
    (_, _, rows, width), (_, heads, keys, _) = query.tensor.spec.sizes, key.tensor.spec.sizes
    specs = [each.tensor.spec for each in (query, key, value)]
    alike = all(spec.sizes[3] == width and spec.strides[3] == 1 for spec in specs)
    square = rows == keys and agree(query.axes[2], key.axes[2])
    if (
        not alike
        or width % 8
        or width > 256
        or heads != specs[0].sizes[1]
        or heads != specs[2].sizes[1]
    ):
        return False
    return bool(keys <= _PLANS_PAY and (square or not causal))


def _result(tensor: Handle, query: Padded, value: Padded) -> Padded:
    """Return the padded result of attention: the rows of the queries, as wide as the values."""
    return Padded(tensor, (*query.axes[:3], value.axes[3]))


def _efficient(
    emit: Emitter, query: Padded, key: Padded, value: Padded, given: dict[str, Any]
) -> tuple[Any, ...]:
    """The memory-efficient kernel of CUDA with a mask."""
    need_as_many_heads(query, key, value)
    causal, bias, dropped = (
        bool(given.get("is_causal", False)),
        given.get("attn_bias"),
        given.get("dropout_p") or 0.0,
    )
    added = (bias and bias.tensor) if causal else added_to_scores(emit, query, key, bias)
    keeps = bool(given.get("compute_log_sumexp", True))
    tensors = _tensors(query, key, value)
    made = emit.call(_EFFICIENT, *tensors, added, keeps, dropped, causal, scale=given.get("scale"))
    if emit.op is _EFFICIENT:
        rows: Handle | None = infinite_beyond(emit, made[1], query.axes[2])
    else:
        rows = _rows_of(emit, _EFFICIENT, made[1], query) if keeps else None
    return _results(emit, query, value, _EFFICIENT, made, rows, bool(dropped))


def need_as_many_heads(query: Padded, key: Padded, value: Padded) -> None:
    """Raise Refuse where queries share the heads of keys, which the memory-efficient kernel does
    not do.
    """
    if len({each.tensor.spec.sizes[1] for each in (query, key, value)}) > 1:
        raise Refuse("a mask for queries that share the heads of keys", *key.sizes)


def _results(
    emit: Emitter,
    query: Padded,
    value: Padded,
    kernel: Any,
    made: Sequence[Any],
    logarithms: Handle | None,
    drops: bool,
) -> tuple[Any, ...]:
    """All results of attention, as the op that is padded answers them.

    ``made`` is what a kernel answers; ``logarithms`` what it keeps for a backward, a row for each
    query, or as the padded op has it.
    """
    found: list[Any] = [None] * len(emit.results)
    found[0] = _result(made[0], query, value)
    states = _states(emit, kernel, made) if drops else {}
    for place, spec in enumerate(emit.results[1:], 1):
        name = emit.op._schema.returns[place].name
        if spec is None:
            continue
        axes = tuple(normal((size,)) for size in spec.sizes)
        if name in ("logsumexp", "log_sumexp"):
            if logarithms is not None and len(logarithms.spec.sizes) < len(axes):
                logarithms = emit.call(_aten.unsqueeze.default, logarithms, -1)
            found[place] = (
                None if logarithms is None else Padded(logarithms, (*query.axes[:2], *axes[2:]))
            )
        elif name in states:
            found[place] = Padded(states[name], axes)
        # of random numbers that nobody draws
        elif not any(map(is_padded, axes)) and name != "debug_attn_mask":
            zeros = emit.call(
                _aten.full.default,
                list(map(capacity_of, axes)),
                0,
                dtype=spec.dtype,
                device=query.device,
            )
            found[place] = Padded(zeros, axes)
    return tuple(found)


def _states(emit: Emitter, kernel: Any, made: Sequence[Any]) -> dict[str, Handle]:
    """Return the random state that a kernel keeps, by the names that the padded op has for its
    results.
    """
    state = {each.name: made[place] for place, each in enumerate(kernel._schema.returns)}
    if kernel is emit.op:
        return {name: state[name] for name in _STATES if name in state}
    if kernel is _FLASH:
        return dict(
            zip(("philox_seed", "philox_offset"), unpacked(emit, state["rng_state"]), strict=True)
        )
    seed, offset = state["philox_seed"], state["philox_offset"]
    if emit.op is _FLASH:
        return {"rng_state": packed(emit, seed, offset)}
    return {"philox_seed": seed, "philox_offset": offset}


def packed(emit: Emitter, seed: Handle, offset: Handle) -> Handle:
    """Return a seed and an offset as flash attention keeps them: two numbers of 64 bits."""
    both = emit.call(_aten.stack.default, [seed, offset])
    return emit.call(_aten.view.dtype, both, torch.uint64)  # type: ignore[no-any-return]


def unpacked(emit: Emitter, state: Handle) -> tuple[Handle, Handle]:
    """Return the seed and the offset that flash attention keeps, as other kernels take them."""
    both = emit.call(_aten.view.dtype, state, torch.int64)
    return emit.call(_aten.select.int, both, 0, 0), emit.call(_aten.select.int, both, 0, 1)


def _rows_of(emit: Emitter, op: Any, logarithms: Handle | None, query: Padded) -> Handle | None:
    """Return the log-sum-exp rows that a kernel saves for its backward, ``(b, h, s)``; None if it
    saves none.
    """
    if logarithms is None:
        return None
    if op is _CUDNN:
        return emit.call(_aten.squeeze.dim, logarithms, -1)  # type: ignore[no-any-return]
    return emit.call(_aten.slice.Tensor, logarithms, 2, 0, capacity_of(query.axes[2]))  # type: ignore[no-any-return]


def infinite_beyond(emit: Emitter, logarithms: Handle, queries: Axis) -> Handle:
    """Logarithms that are infinite for what is no query (and for queries that are padding)."""
    if not is_padded(queries) or logarithms.spec.sizes[2] == 0:
        return logarithms
    number = logarithms.spec.sizes[2]
    place = positions(emit, number, logarithms.spec.device)
    valid = emit.call(_aten.lt.Tensor, place, emit.size(prefix(queries)))
    shaped = emit.call(
        _aten.view.default, valid, [1, 1, number] + [1] * (len(logarithms.spec.sizes) - 3)
    )
    infinite = emit.call(
        _aten.scalar_tensor.default,
        math.inf,
        dtype=logarithms.spec.dtype,
        device=logarithms.spec.device,
    )
    emit.repaired(f"logarithms of sums: infinite beyond {length(queries)}", *queries)
    made: Handle = emit.call(_aten.where.self, shaped, logarithms, infinite)
    return made


# -- what is added to scores
def added_to_scores(
    emit: Emitter, query: Padded, key: Padded, bias: Padded | None
) -> Handle | None:
    """Return the mask that is added to all scores, its rows aligned to 16 elements, as kernels on
    CUDA require.
    """
    mask = added_for_keys(
        emit, query, key.axes[2], bias and bias.with_(tensor=_folded(emit, bias.tensor))
    )
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
