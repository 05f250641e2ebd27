"""The rules of in-place, out= and *_copy variants, derived from the functional rule of the same
op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from meta_fns.core.registry import Rule, deriver, lookup
from meta_fns.core.sizes import check, empty, same, same_shape, show
from meta_fns.core.spec import TensorSpec
from meta_fns.errors import DtypeError, ShapeError
from meta_fns.torch_internals import OpOverload

__all__ = ["derive", "functional_rule", "into", "need_writable", "written"]

# In-place ops whose write converts to any dtype, so that the dtype of the functional result does
# not matter.
_CONVERTING = frozenset(
    {"copy_", "fill_", "masked_fill_", "index_put_", "index_fill_", "masked_scatter_", "zero_"}
)
# In-place ops that eager still lets write to a tensor whose elements share memory (with a warning).
_OVERLAPPING = frozenset(
    f"aten.{name}"
    for name in (
        "masked_fill_.Scalar",
        "masked_fill_.Tensor",
        "index_put_.default",
        "fill_.Scalar",
        "zero_.default",
    )
)


def need_writable(spec: TensorSpec) -> None:
    """Raise ShapeError if two elements of ``spec`` provably share memory (an expanded
    dimension).
    """
    if empty(spec.sizes):
        return
    for size, stride in zip(spec.sizes, spec.strides, strict=True):
        if type(stride) is int and stride == 0 and not same(size, 1):
            fine = (size <= 1) | (spec.numel() == 0)
            check(
                fine,
                lambda: (
                    f"written tensor of sizes {show(spec.sizes)} has elements that share memory"
                ),
            )


def written(
    self: TensorSpec, result: TensorSpec, *, convert: bool, overlapping: bool = False
) -> TensorSpec:
    """Return ``self`` after a result has been written into it.

    Raises: ShapeError if the result's sizes are not those of ``self``; DtypeError if its dtype
    cannot be cast (unless ``convert``).
    """
    if result.sizes is not self.sizes:
        if len(result.sizes) != len(self.sizes):
            raise ShapeError(
                f"result of sizes {show(result.sizes)} does not fit into self, {show(self.sizes)}"
            )
        for mine, wanted in zip(self.sizes, result.sizes, strict=True):
            if mine is not wanted and not same(mine, wanted):
                check(
                    mine == wanted,
                    lambda: (
                        f"result of sizes {show(result.sizes)} does not fit into self, "
                        f"{show(self.sizes)}"
                    ),
                )
    if (
        not convert
        and result.dtype is not self.dtype
        and not torch.can_cast(result.dtype, self.dtype)
    ):
        raise DtypeError(f"a result of {result.dtype} cannot be written into {self.dtype}")
    if not overlapping:
        need_writable(self)
    return self


def _functional_of(op: OpOverload, name: str) -> Rule | None:
    """Return the rule of the functional overload of packet ``name`` with the arguments of ``op``,
    except ``out=``.
    """
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    wanted = _signature(op)
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        if candidate is not op and _signature(candidate) == wanted:
            if any(
                a.alias_info is not None and a.alias_info.is_write
                for a in candidate._schema.arguments
            ):
                continue
            return lookup(candidate)
    return None


def functional_rule(op: OpOverload) -> Rule | None:
    """Return the rule of the functional variant of an in-place overload with its own rule; None if
    there is none.
    """
    name = op._schema.name.removeprefix("aten::")
    if op.namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    return _functional_of(op, name[:-1])


def _signature(op: OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


@deriver
def derive(op: OpOverload) -> Rule | None:
    """Return the rule of an in-place, out= or *_copy overload, made from its functional variant's;
    None for others.
    """
    # ops on lists return nothing: see ``ops/foreach``
    if op.namespace != "aten" or not op._schema.returns:
        return None
    name = op._schema.name.removeprefix("aten::")
    outs = [a.name for a in op._schema.arguments if a.is_out]
    if outs:
        found = _functional_of(op, name)
        return found and _changed(found, op, _out(found.fn, outs))
    if name.endswith("_copy"):
        found = _functional_of(op, name.removesuffix("_copy"))
        return found and _changed(found, op, _copied(found.fn))
    if name.startswith("__i"):
        found = _functional_of(op, f"__{name[3:]}")
        return found and _changed(found, op, _in_place(found.fn, False))
    if (
        name.endswith("_")
        and not name.endswith("__")
        and op._schema.arguments[0].alias_info is not None
    ):
        found = _functional_of(op, name[:-1])
        if found is None or found.data_dependent:
            return None
        if torch.Tag.inplace_view in op.tags:
            return _changed(found, op, found.fn)
        return _changed(
            found, op, _in_place(found.fn, name in _CONVERTING, str(op) in _OVERLAPPING)
        )
    return None


def _changed(functional: Rule, op: OpOverload, fn: Callable[..., Any]) -> Rule:
    """Return a functional rule with another function and overload, and everything else
    unchanged.
    """
    return attrs.evolve(functional, overload=str(op), fn=fn)


def _in_place(
    fn: Callable[..., Any], convert: bool, overlapping: bool = False
) -> Callable[..., Any]:
    def in_place(self: TensorSpec, *args: Any, **kwargs: Any) -> TensorSpec:
        return written(self, fn(self, *args, **kwargs), convert=convert, overlapping=overlapping)

    return in_place


def _copied(fn: Callable[..., Any]) -> Callable[..., Any]:
    def copied(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if isinstance(result, TensorSpec):
            return TensorSpec.contiguous(result.sizes, result.dtype, result.device)
        return [TensorSpec.contiguous(item.sizes, item.dtype, item.device) for item in result]

    return copied


def _out(fn: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    def out_variant(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names]
        result = fn(*args, **kwargs)
        if isinstance(result, TensorSpec):
            return into(outs[0], result)
        return tuple(into(out, item) for out, item in zip(outs, result, strict=True))

    return out_variant


def into(out: TensorSpec, result: TensorSpec) -> TensorSpec:
    """Return ``out`` after eager has resized it, if its sizes differ, and written the result into
    it.
    """
    if out.dtype is not result.dtype and not torch.can_cast(result.dtype, out.dtype):
        raise DtypeError(f"a result of {result.dtype} cannot be written into out of {out.dtype}")
    if out.device != result.device:
        raise DtypeError(f"out is on {out.device}, the result on {result.device}")
    if same_shape(out.sizes, result.sizes) or (
        len(out.sizes) == len(result.sizes)
        and all(same(a, b) or a == b for a, b in zip(out.sizes, result.sizes, strict=True))
    ):
        need_writable(out)
        return out
    need_writable(out)
    return out.with_(sizes=result.sizes, strides=result.strides)
